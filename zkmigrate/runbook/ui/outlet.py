"""The stream of a run's output, which outlives its terminal or pipe."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from typing import Any, TextIO


class Outlet(io.TextIOBase):
    """Writes to a stream until that fails, as at a closed terminal; then to nothing.

    A line that cannot be shown must not end a walk where it stands. lost: called once, when it fails.
    """

    def __init__(self, out: TextIO, lost: Callable[[], None]) -> None:
        self._out = out
        self._lost = lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._out.isatty()

    def fileno(self) -> int:
        """The descriptor of the stream."""
        return self._out.fileno()

    def write(self, text: str) -> int:
        """Write, or lose the text."""
        try:
            return self._out.write(text)
        except OSError:
            self._fail()
            return len(text)

    def flush(self) -> None:
        """Flush, or lose what is buffered."""
        try:
            self._out.flush()
        except OSError:
            self._fail()

    def _fail(self) -> None:
        """Send what is buffered, and all that follows, to nothing."""
        lost, self._lost = self._lost, lambda: None
        with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self._out.fileno())
            os.close(nothing)
        lost()
