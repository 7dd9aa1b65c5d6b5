"""The engine's clock, and the operator's request to stop."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_S = 0.2
_GRACE_S = 0.6
_LEAVE_S = 5.0


class Clock(Protocol):
    """The engine's clock.

    ``now`` returns monotonic seconds, ``wall`` seconds since the epoch; ``pause`` may return early.
    """

    def now(self) -> float: ...
    def wall(self) -> float: ...
    def pause(self, seconds: float) -> None: ...


class Interrupt:
    """Turns Ctrl-C into a request to stop: the first signal requests a stop, the second stops at once.

    After the first signal the walk stops at the next safe point. While ``listening``, SIGINT, SIGTERM and
    SIGHUP are handled, and the second of them raises KeyboardInterrupt in the main thread. at_once: the first
    signal already raises KeyboardInterrupt, and only SIGINT is handled.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        # Python runs a handler only when the main thread returns from a wait. The interpreter itself writes
        # the signal's number to this socket at once, in whichever thread it arrives.
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        weakref.finalize(self, _close, self._reader, self._writer).atexit = False  # a thread may still wait
        self._at_once = at_once
        self._raised = False
        self._taken = _SIGNALS[:1] if at_once else _SIGNALS

    @property
    def wanted(self) -> bool:
        """Whether a stop was requested."""
        return bool(self._seen())

    def ask(self) -> None:
        """Ask the walk to stop at the next safe point."""
        self._writer.send(b"\0")

    def wait(self, seconds: float) -> None:
        """Wait ``seconds``, or until a stop is requested."""
        ready = select.poll()  # select() takes no descriptor above 1023
        ready.register(self._reader, select.POLLIN)
        ready.poll(max(0.0, seconds * 1000))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals (main thread only), and restore their handlers at the end."""
        before = {number: signal.signal(number, self._on_signal) for number in self._taken}
        previous = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous)
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def answered(self, say: Callable[[], None]) -> Iterator[None]:
        """Call ``say`` as soon as a stop is requested; end the process with 130 soon after the second signal.

        Threads do both, so that nothing the main thread waits for delays them.
        """
        over = threading.Event()

        def listen() -> None:
            while not self.wanted:
                if over.is_set():
                    return
                self.wait(_LOOK_S)
            if over.is_set():
                return
            threading.Thread(target=say, name="interrupt-told", daemon=True).start()
            while self._signals() < 2:
                if over.wait(_LOOK_S):
                    return
            if over.wait(_GRACE_S):
                return
            if self._raised and not self._at_once:  # the main thread reports where it stopped
                over.wait(_LEAVE_S)
            os._exit(130)

        threading.Thread(target=listen, name="interrupt", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _seen(self) -> bytes:
        """Return the stop requests so far, without removing them from the socket.

        Each is one byte: the number of the signal, or 0 for a call of ``ask``.
        """
        try:
            return self._reader.recv(64, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""

    def _signals(self) -> int:
        return sum(number in _SIGNALS for number in self._seen())

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt once enough signals have come, and never a second time.

        A further signal must not interrupt the clean-up after the first exception.
        """
        if not self._raised and self._signals() >= (1 if self._at_once else 2):
            self._raised = True
            raise KeyboardInterrupt


class RealClock:
    """The system's clocks. A pause ends early when a stop is requested."""

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()

    def pause(self, seconds: float) -> None:
        self._interrupt.wait(seconds)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        one.close()
