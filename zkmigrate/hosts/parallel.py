"""Several pieces of work at once, in daemon threads, bounded."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

LANES = 16
_SIGNAL_S = 0.1


@dataclass(frozen=True)
class Late(Generic[T]):
    """What is done about work that most of the others do not need to wait for.

    Once more than half has ended, the rest gets as much time again, and at least ``least_s`` seconds. Then
    its result is ``instead(name)``, and its thread is left alone.
    """

    least_s: float
    instead: Callable[[str], T]
    now: Callable[[], float]


def together(work: Mapping[str, Callable[[], T]], late: Late[T] | None = None) -> dict[str, T]:
    """Run all at once in at most ``LANES`` threads; the first exception is raised after all have ended.

    The threads are daemons, so that a second Ctrl-C can end the process while a host is silent. Each works
    within the deadline of the caller (:mod:`zkmigrate.deadline`). Results are in the order of ``work``.
    """
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in work:
        left.put(name)
    results: dict[str, T] = {}
    raised: list[BaseException] = []

    def lane() -> None:
        while not raised:
            try:
                name = left.get_nowait()
            except queue.Empty:
                return
            try:
                results[name] = work[name]()
            except BaseException as error:  # handed to the calling thread below
                raised.append(error)

    threads = [
        threading.Thread(target=copy_context().run, args=(lane,), daemon=True)
        for _ in range(min(LANES, len(work)))
    ]
    over = _over(late, len(work), results)
    for thread in threads:
        thread.start()
    for thread in threads:
        # Never an endless wait: the kernel may hand a signal to another thread, and Python's handler runs
        # only when this one comes back to the interpreter.
        while thread.is_alive() and not over():
            thread.join(_SIGNAL_S)
    if raised:
        raise raised[0]
    if late is not None:
        return {name: results[name] if name in results else late.instead(name) for name in work}
    return {name: results[name] for name in work}


def _over(late: Late[T] | None, count: int, results: Mapping[str, T]) -> Callable[[], bool]:
    """Tells whether the work that has not ended is waited for no longer."""
    if late is None:
        return lambda: False
    begun, end = late.now(), None

    def over() -> bool:
        nonlocal end
        if end is None and 2 * len(results) > count:
            now = late.now()
            end = now + max(late.least_s, now - begun)
        return end is not None and late.now() >= end

    return over
