"""Make text safe to print.

The tool shows text that comes from hosts, logs and znodes. A terminal obeys some characters in it: it clears
the screen, sets the clipboard, or reverses the direction of writing. This module replaces them by readable
escapes.
"""

from __future__ import annotations

import io
import re
import sys
from typing import Any, TextIO, cast

_UNFIT = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but line feed and tab: a terminal obeys them
    "\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    # ^ no width, or a mark that turns the direction of writing or breaks a line
    "\ud800-\udfff\ufffe\uffff\U000e0000-\U000e0fff"  # no characters, or invisible tags
    "]"
)


def clean(text: object) -> str:
    r"""Return text with each unprintable character as a JSON escape, such as ``\u001b`` for ESC.

    A line of JSON keeps its meaning.
    """
    return _UNFIT.sub(_escape, str(text))


def inline(text: object) -> str:
    r"""Return clean text for a value inside a line: a line feed becomes ``\u000a``."""
    return clean(text).replace("\n", "\\u000a")


def indented(line: str) -> str:
    """Indent all lines of a text but the first, so that a value in it cannot pass for a line of the tool."""
    return line.rstrip("\n").replace("\n", "\n         ")


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


class Clean:
    """A text stream that cleans everything that is written to it.

    raw: the underlying stream, to which the tool writes its own colours.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # click writes bytes to find out whether a stream accepts them
            raise TypeError(f"text is needed, not {type(text).__name__}")
        self.raw.write(clean(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> io.RawIOBase:
        """A binary stream for callers that write UTF-8, as click does where the encoding is ASCII."""
        return _CleanBytes(self.raw)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class _CleanBytes(io.RawIOBase):
    def __init__(self, raw: TextIO) -> None:
        self._raw, self._below = raw, raw.buffer

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._raw.flush()
        self._below.write(clean(bytes(data).decode("utf-8", "surrogateescape")).encode())
        self._below.flush()
        return len(data)


def clean_streams() -> None:
    """Clean all further output of this process, including warnings and tracebacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Clean):
            setattr(sys, name, cast(TextIO, Clean(stream)))
