"""The stream of a run's output, which outlives its terminal or pipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TextIO, cast

from zkmigrate.clean import Clean


def outlet(out: TextIO, lost: Callable[[], None]) -> TextIO:
    """The stream, which a closed terminal does not fail. lost: called once, when it is closed."""
    if isinstance(out, Clean):
        return cast(TextIO, Clean(outlet(out.raw, lost)))
    return cast(TextIO, _Outlet(out, lost))


class _Outlet:
    """Writes to a stream, and loses what that does not take. A line that cannot be shown must not end a walk
    where it stands."""

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
        lost, self._lost = self._lost, lambda: None
        lost()
