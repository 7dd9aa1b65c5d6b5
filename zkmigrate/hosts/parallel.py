"""Parallel execution of independent work in at most 16 daemon threads."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_THREADS = 16
_SIGNAL_S = 0.1


@dataclass(frozen=True)
class GiveUp(Generic[T]):
    """The condition for giving up work that is slower than most.

    Once more than half of the work has ended, the rest gets as much time again, but at least ``least_s``
    seconds. After that, the result of unfinished work is ``instead(name)``, and its thread is abandoned. now:
    returns the current time in seconds.
    """

    least_s: float
    instead: Callable[[str], T]
    now: Callable[[], float]


def together(work: Mapping[str, Callable[[], T]], late: GiveUp[T] | None = None) -> dict[str, T]:
    """Run all work in at most ``MAX_THREADS`` threads and return the results in the order of ``work``.

    late: when to give up slow work; None waits for all work. After an exception no further work starts, and
    the first exception is raised once every thread has ended or was abandoned. Daemon threads let a second
    Ctrl-C end the process while a host does not answer. Each thread works within the caller's deadline
    (:mod:`zkmigrate.deadline`).
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in work:
        waiting.put(name)
    results: dict[str, T] = {}
    raised: list[BaseException] = []

    def worker() -> None:
        while not raised:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                results[name] = work[name]()
            except BaseException as error:  # raised in the calling thread below
                raised.append(error)

    threads = [
        threading.Thread(target=copy_context().run, args=(worker,), daemon=True)
        for _ in range(min(MAX_THREADS, len(work)))
    ]
    over = _over(late, len(work), results)
    for thread in threads:
        thread.start()
    for thread in threads:
        # Never wait without a limit: the kernel may hand a signal to another thread, and Python runs its
        # handler only when this thread returns to the interpreter.
        while thread.is_alive() and not over():
            thread.join(_SIGNAL_S)
    if raised:
        raise raised[0]
    if late is not None:
        return {name: results[name] if name in results else late.instead(name) for name in work}
    return {name: results[name] for name in work}


def _over(late: GiveUp[T] | None, count: int, results: Mapping[str, T]) -> Callable[[], bool]:
    """Return a function that decides whether to stop waiting for the remaining work.

    count: the number of pieces of work. results: name → result of the finished work, which grows meanwhile.
    """
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
