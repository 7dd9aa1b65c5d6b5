"""How a program that owns a lab ends: every polite signal takes the lab down, as Ctrl-C does."""

from __future__ import annotations

import signal
from types import FrameType
from typing import NoReturn


def end_on_signals() -> None:
    """From here SIGTERM and SIGHUP raise SystemExit (128 + number), so that clean-ups run."""

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
