"""Parse Java properties as java.util.Properties.load does: zoo.cfg, server.properties, meta.properties.

Lines end at ``\\n``, ``\\r`` or ``\\r\\n`` and nowhere else. A line that ends with an odd number of
backslashes continues on the next one, whose leading blanks do not count. ``#`` and ``!`` begin a comment. A
key ends at the first unescaped ``=``, ``:`` or blank. Java reads bytes as ISO-8859-1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

ENCODING = "iso-8859-1"

_BLANKS = " \t\f"
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_ENTRY = re.compile(
    r"(?P<key>(?:\\.|[^\\=: \t\f])*)(?P<separator>[ \t\f]*[=:]?[ \t\f]*)(?P<value>.*)", re.DOTALL
)
_MALFORMED = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """A text that java.util.Properties refuses."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value, both without escapes.

    separated: whether a separator follows the key; Java gives a key alone an empty value.
    line: the number of its first line.
    start, end: its place in the text, from the start of its first line to the end of its last line.
    """

    key: str
    value: str
    separated: bool
    line: int
    start: int
    end: int


def entries(text: str) -> Iterator[Entry]:
    """Yield the entries of a text in order, repeated keys included.

    Raises PropertiesError for a malformed ``\\uXXXX``.
    """
    pending = ""
    first = start = 0
    for number, match in enumerate(_LINE.finditer(text), 1):
        line = match[0].rstrip("\r\n")
        body = line.lstrip(_BLANKS)
        if not pending:
            if not body or body[0] in "#!":
                continue
            first, start = number, match.start()
        continued = (len(body) - len(body.rstrip("\\"))) % 2 == 1
        pending += body[:-1] if continued else body
        if continued and match.end() < len(text):
            continue
        found = _ENTRY.fullmatch(pending)
        assert found is not None  # the pattern matches every text without a backslash at its end
        if _MALFORMED.search(pending):  # the text itself may be a secret
            raise PropertiesError(f"line {first} holds a \\u without four hexadecimal digits")
        key, value = _unescape(found["key"]), _unescape(found["value"])
        yield Entry(key, value, found["separator"] != "", first, start, match.start() + len(line))
        pending = ""


def parse(text: str) -> dict[str, str]:
    """Return keys and values in order; of a repeated key the last value counts. Raises PropertiesError."""
    found: dict[str, str] = {}
    for entry in entries(text):
        found.pop(entry.key, None)
        found[entry.key] = entry.value
    return found


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROLS.get(code, code)

    return _ESCAPE.sub(one, text)
