"""The one place where text is made safe to print.

Hosts, logs and znodes choose words that we show. A terminal obeys some characters in them: it clears the
screen, sets the clipboard, or turns the direction of writing. Here they become readable escapes.
"""

from __future__ import annotations

import io
import re
import sys
from typing import Any, TextIO, cast

_UNFIT = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but line feed and tab; what a terminal obeys
    "\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    # ^ no width, or a mark that turns the direction of writing or breaks a line
    "\ud800-\udfff\ufffe\uffff\U000e0000-\U000e0fff"  # no characters, or invisible tags
    "]"
)


def clean(text: object) -> str:
    r"""Text with each unprintable character as JSON's escape, ``\u001b`` for ESC: a line of JSON means the
    same."""
    return _UNFIT.sub(_escape, str(text))


def inline(text: object) -> str:
    r"""As ``clean``, for a value inside a line: a line feed becomes ``\u000a``."""
    return clean(text).replace("\n", "\\u000a")


def indented(line: str) -> str:
    """A line whose further lines are indented, so that a value in it cannot pass for a line of ours."""
    return line.rstrip("\n").replace("\n", "\n         ")


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


class Clean:
    """A text stream that writes everything clean. raw: the stream below, for our own colours."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # click asks a stream in this way whether it takes bytes
            raise TypeError(f"text is needed, not {type(text).__name__}")
        self.raw.write(clean(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> io.RawIOBase:
        """For those who write UTF-8, as click does where the encoding is ASCII."""
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
    """Clean everything that this process prints, warnings and tracebacks too."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Clean):
            setattr(sys, name, cast(TextIO, Clean(stream)))
