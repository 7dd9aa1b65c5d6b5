"""How long the present work may take: set by the walk in a window, asked by whoever waits for a host.

Every wait inside the scope, in any layer and thread of :func:`zkmigrate.hosts.parallel.together`, asks
:func:`remaining` and so ends in time. Outside a scope each wait has its own limit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_LEAST_S = 0.001
"""A socket takes a timeout of 0 for "do not wait at all"."""


@dataclass(frozen=True)
class _Scope:
    each_s: float
    end: float
    now: Callable[[], float]


_SCOPE: ContextVar[_Scope | None] = ContextVar("deadline", default=None)


@contextmanager
def within(
    each_s: float, whole_s: float = math.inf, now: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """In here no question waits longer than ``each_s`` seconds, and none ends after ``whole_s``."""
    token = _SCOPE.set(_Scope(each_s, now() + whole_s, now))
    try:
        yield
    finally:
        _SCOPE.reset(token)


def remaining(most_s: float) -> float:
    """Seconds for a wait that by itself takes at most ``most_s``; never quite 0."""
    scope = _SCOPE.get()
    if scope is None:
        return most_s
    return max(_LEAST_S, min(most_s, scope.each_s, scope.end - scope.now()))


def bounded() -> bool:
    """Whether there is no time to wait: then report a silent host instead of waiting for it."""
    return not math.isinf(remaining(math.inf))
