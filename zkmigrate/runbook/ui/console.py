"""Ask the operator questions on standard input and output."""

from __future__ import annotations

import os
import select
import shutil
import termios
import textwrap
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TextIO

from zkmigrate.clean import indented

_POLL_S = 0.2
_LINE_LIMIT = 1 << 16


class StdConsole:
    """A dialogue that reads lines from a file descriptor, so that a wait for an answer can be bounded.

    quiet: hides the live view while a question is open. interrupted: whether the operator wants to stop; a
    question then ends without an answer. news: returns lines to show while a question is open.
    """

    def __init__(
        self,
        fd: int,
        out: TextIO,
        quiet: Callable[[], AbstractContextManager[object]] = nullcontext,
        interrupted: Callable[[], bool] = lambda: False,
        news: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._fd = fd
        self._out = out
        self._quiet = quiet
        self._interrupted = interrupted
        self._news = news
        self._buffer = b""
        self._ended = False

    def show(self, lines: Sequence[str]) -> None:
        with self._quiet():
            self._out.write("".join(f"{self._wrapped(line)}\n" for line in lines))
            self._out.flush()

    def _wrapped(self, line: str) -> str:
        """Wrap a line to the terminal's width; leave it unwrapped for a pipe."""
        if not self._out.isatty():
            return indented(line)
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        width = shutil.get_terminal_size().columns
        return textwrap.fill(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )

    def ask(self, question: str) -> str | None:
        with self._quiet():
            self._out.write(question)
            self._out.flush()
            while (line := self.poll(_POLL_S)) == "":
                if self._interrupted():
                    self._out.write("\n")
                    return None
                if news := self._news():
                    self._out.write("".join(f"\n{self._wrapped(text)}" for text in news) + f"\n{question}")
                    self._out.flush()
        return line

    def forget(self) -> None:
        """Discard what was typed at a terminal before the next question.

        A key pressed too often then does not answer that question. The lines of a pipe are kept: they answer
        later questions.
        """
        if os.isatty(self._fd):
            termios.tcflush(self._fd, termios.TCIFLUSH)
            self._buffer = b""

    def poll(self, seconds: float) -> str | None:
        while b"\n" not in self._buffer:
            if self._ended:
                return None
            ready = select.poll()  # select() takes no descriptor above 1023
            ready.register(self._fd, select.POLLIN)
            if not ready.poll(max(0.0, seconds * 1000)):
                return ""
            data = os.read(self._fd, 4096)
            self._ended = not data
            self._buffer += data
            if len(self._buffer) > _LINE_LIMIT and b"\n" not in self._buffer:
                self._buffer = b""  # a device or a file, not a person: it must not block the run
                return ""
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").strip() or " "
