"""The journal's lines: one JSON object each, chained by hash.

A line is ``{"at":…,"body":{…},"kind":…,"seq":…,"sum":"…"}`` in ASCII with a newline. ``sum`` is the SHA-256
of two parts: the ``sum`` of the line before (``START`` on the first line), and this line up to the comma
before ``sum``. A proper prefix of a line, left by a tool that died, is *torn* and is cut off. Anything else
that cannot be read is *damage*: nothing after it can be trusted.

In a journal of an earlier version the first ``sum`` covers only the first line. Such a journal is refused.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from zkmigrate.errors import JournalError, LostJournalError
from zkmigrate.runbook.model.entry import Entry, Kind

_KINDS = frozenset(get_args(Kind))
_END = len(',"sum":""}') + 64

START = "zkmigrate journal 2"
"""The text that the first line's sum covers before the line.

Another format of lines needs another text.
"""


@dataclass(frozen=True)
class Parsed:
    """The result of parsing a journal's bytes.

    - length: the number of bytes in the whole lines.
    - last: the sum of the last line, which the next line's sum covers.
    - torn: the bytes of the incomplete line at the end.
    - damage: why line ``len(entries) + 1`` cannot be read, else empty.
    - unended: whether the last line is whole but lacks its newline.
    - earlier: whether an earlier version wrote the journal.
    """

    entries: tuple[Entry, ...] = ()
    length: int = 0
    last: str = START
    torn: bytes = b""
    damage: str = ""
    unended: bool = False
    earlier: bool = False

    def intact(self, file: Path) -> Parsed:
        """Return the parsed journal itself if it is undamaged.

        file: the journal, in the directory of its run. Raises LostJournalError, which names the damaged line
        and what the operator can do, and JournalError for a journal of an earlier version.
        """
        self.refuse_earlier(file.parent.name)
        if self.damage:
            line = len(self.entries) + 1
            intact = f"lines 1 to {line - 1} are intact" if self.entries else "no line is intact"
            seen = f"journal line {line} {self.damage}; {intact} ({file})"
            raise LostJournalError(seen, file.parent.name, str(file))
        return self

    def refuse_earlier(self, run: str) -> None:
        """Raise JournalError if an earlier version wrote the journal of this run."""
        if self.earlier:
            raise JournalError(
                f"the journal of run {run} was written by an earlier version, and this version does not read "
                "it. Next: finish the run with the version that began it"
            )


def render(entry: Entry) -> bytes:
    """Return one entry as a line without its newline."""
    fields = {key: value for key, value in vars(entry).items() if key != "previous"}
    head = _json(fields)[:-1].encode("ascii")
    return head + _end(_sum(entry.previous, head))


def _sum(previous: str, head: bytes) -> str:
    return hashlib.sha256(previous.encode("ascii") + head).hexdigest()


def _end(sum: str) -> bytes:
    return b',"sum":"' + sum.encode("ascii") + b'"}'


def sum_of(line: bytes) -> str:
    """Return the sum at the end of a whole line."""
    return line[-66:-2].decode("ascii")


def parse(data: bytes) -> Parsed:
    """Parse the intact lines at the beginning of a journal. Never raises."""
    *lines, rest = data.split(b"\n")
    entries: list[Entry] = []
    last, length = START, 0
    for line in lines:
        entry = _entry(line, len(entries) + 1, last)
        if isinstance(entry, str):
            earlier = not entries and _is_earlier(line)
            return Parsed(tuple(entries), length, last, damage=entry, earlier=earlier)
        entries.append(entry)
        last, length = sum_of(line), length + len(line) + 1
    if not rest:
        return Parsed(tuple(entries), length, last)
    entry = _entry(rest, len(entries) + 1, last)
    if isinstance(entry, Entry):
        entries.append(entry)
        return Parsed(tuple(entries), length + len(rest), sum_of(rest), unended=True)
    if _is_prefix(rest):
        return Parsed(tuple(entries), length, last, torn=rest)
    return Parsed(tuple(entries), length, last, damage=entry)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _entry(line: bytes, seq: int, previous: str) -> Entry | str:
    """Return the entry of a line, or what is wrong with it."""
    head = line[:-_END]
    if line[-_END:] != _end(_sum(previous, head)):
        return "does not match its sum, or does not follow the line before it (the chain is broken)"
    value: dict[str, Any] = json.loads(head.decode("ascii") + "}")
    if value["seq"] != seq:
        return f"carries number {value['seq']}"
    if value["kind"] not in _KINDS:
        return f"is of kind {value['kind']}, which this version does not know"
    return Entry(seq, value["at"], value["kind"], value["body"], previous)


def _is_earlier(line: bytes) -> bool:
    """Return whether an earlier version wrote this first line of a journal."""
    head = line[:-_END]
    return line[-_END:] == _end(_sum("", head))


def _is_prefix(rest: bytes) -> bool:
    """Return whether the bytes after the last line are an unfinished line or zero bytes."""
    rest = rest.rstrip(b"\0")
    if not rest:
        return True
    if not rest.startswith(b'{"at":'[: len(rest)]):
        return False
    try:
        json.JSONDecoder().raw_decode(rest.decode("ascii"))
    except UnicodeDecodeError:
        return False
    except ValueError:
        return True
    return False
