"""Several pieces of work at once, in daemon threads, bounded."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

T = TypeVar("T")

LANES = 16
_SIGNAL_S = 0.1


def together(work: Mapping[str, Callable[[], T]]) -> dict[str, T]:
    """Run all at once in at most ``LANES`` threads; the first exception is raised after all have ended.

    The threads are daemons, so that a second Ctrl-C can end the process while a host is silent. Results are
    in the order of ``work``.
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

    threads = [threading.Thread(target=lane, daemon=True) for _ in range(min(LANES, len(work)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        # Never an endless wait: the kernel may hand a signal to another thread, and Python's handler runs
        # only when this one comes back to the interpreter.
        while thread.is_alive():
            thread.join(_SIGNAL_S)
    if raised:
        raise raised[0]
    return {name: results[name] for name in work}
