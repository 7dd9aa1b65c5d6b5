"""Keep a run going after its terminal or pipe is closed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, TextIO, cast

from zkmigrate.clean import Clean

_STDERR = 2


def outlet(out: TextIO, lost: Callable[[], None]) -> TextIO:
    """Return a stream that writes to ``out`` and does not fail when that is closed.

    lost: called once, when writing fails for the first time.
    """
    if isinstance(out, Clean):
        return cast(TextIO, Clean(outlet(out.raw, lost)))
    return cast(TextIO, _Outlet(out, lost))


class _Outlet:
    """A stream that drops what the stream below does not accept.

    Output that cannot be shown must not end a walk in the middle of its work.
    """

    def __init__(self, out: TextIO, lost: Callable[[], None]) -> None:
        self._out = out
        self._lost = lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def write(self, text: str) -> int:
        try:
            return self._out.write(text)
        except OSError:
            self._fail()
            return len(text)

    def flush(self) -> None:
        try:
            self._out.flush()
        except OSError:
            self._fail()

    def _fail(self) -> None:
        """Send what is buffered, and all that follows, to nothing.

        The same holds for standard error if it goes to the same place. At its exit Python flushes both once
        more, and ends with 120 if that fails.
        """
        lost, self._lost = self._lost, lambda: None
        with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor
            nothing, out = os.open(os.devnull, os.O_WRONLY), self._out.fileno()
            if os.path.sameopenfile(out, _STDERR):
                os.dup2(nothing, _STDERR)
            os.dup2(nothing, out)
            os.close(nothing)
        lost()
