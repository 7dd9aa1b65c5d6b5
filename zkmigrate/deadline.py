"""Limit how long the current work may wait for hosts.

A run sets a limit, for example while clients are shut out. Every wait inside its scope, in any layer and in
the threads of :func:`zkmigrate.hosts.parallel.together`, calls :func:`remaining`, and so ends in time.
Outside a scope each wait has its own limit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_LEAST_S = 0.001
"""The shortest wait. For a socket, a timeout of 0 means not to wait at all."""


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
    """Limit every wait inside the block.

    each_s: the longest single wait, in seconds. whole_s: seconds after which all waits end. now: the clock.
    """
    token = _SCOPE.set(_Scope(each_s, now() + whole_s, now))
    try:
        yield
    finally:
        _SCOPE.reset(token)


def remaining(most_s: float) -> float:
    """Return for how many seconds a wait may last: at most ``most_s``, and always more than 0."""
    scope = _SCOPE.get()
    if scope is None:
        return most_s
    return max(_LEAST_S, min(most_s, scope.each_s, scope.end - scope.now()))


def bounded() -> bool:
    """Return whether time is limited now, so that a host that does not answer is reported, not waited for."""
    return not math.isinf(remaining(math.inf))
