"""Whose request is next: nobody keeps the loop for long, and whoever asks little goes first.

A turn of the loop serves so many requests at once. Beyond that, addresses that have asked little lately are
still served at once. All others wait, and get the next turns one address after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

TURN = 16
"""Requests in a turn."""
COST = 128
"""So many bytes of a message that are looked at one by one cost as much as a request."""
PASSED = 1 << 16
"""So many bytes that are passed on unread cost as much as a request."""
CLIENT = 8
"""A client that comes costs as much as so many requests."""
RATE, BURST = 400.0, 40.0
"""Requests of an address that never wait, in a second and at once."""
MOST_ADDRESSES = 10_000
Soon = Callable[[Callable[[], None]], object]


class Turns:
    """The turns of a loop. soon: calls a function in the next turn. now: a clock, in seconds."""

    def __init__(self, soon: Soon, now: Callable[[], float]) -> None:
        self._soon, self._now = soon, now
        self.spent = 0
        self._running = False
        self._credit: dict[str, tuple[float, float]] = {}
        self._later: dict[str, deque[Callable[[], None]]] = {}

    def may(self, address: str) -> bool:
        """Whether a request of this address is served at once."""
        if self.spent < TURN:
            self._spend(1)
            return True
        return self._paid(address, 1) >= 0

    def spend(self, address: str, size: int) -> None:
        """So many bytes of a message of this address were looked at one by one."""
        cost = size // COST
        if cost:
            self._spend(cost)
            self._paid(address, cost)

    def streamed(self, size: int) -> bool:
        """So many bytes were passed on unread; whether more of them may follow in this turn."""
        self._spend(size // PASSED)
        return self.spent < TURN

    def taken(self) -> None:
        """A client has come."""
        self._spend(CLIENT)

    def _spend(self, cost: int) -> None:
        """Of a turn that is half over the end is looked for; before, that would cost more than it tells."""
        self.spent += cost
        if self.spent >= TURN // 2 and not self._running:
            self._run()

    def _paid(self, address: str, cost: float) -> float:
        """What an address has left of the requests that never wait."""
        now = self._now()
        credit, before = self._credit.pop(address, (BURST, now))
        credit = min(BURST, credit + (now - before) * RATE) - cost
        if len(self._credit) >= MOST_ADDRESSES:
            del self._credit[next(iter(self._credit))]
        self._credit[address] = max(-BURST, credit), now
        return credit

    def _run(self) -> None:
        self._running = True
        self._soon(self._next)

    def later(self, address: str, call: Callable[[], None]) -> None:
        """Call this in one of the next turns."""
        self._later.setdefault(address, deque()).append(call)
        if not self._running:
            self._run()

    def _next(self) -> None:
        """Begin a turn, with one call of one address after the other."""
        self.spent = 0
        while self._later and self.spent < TURN:
            address, calls = next(iter(self._later.items()))
            del self._later[address]
            call = calls.popleft()
            if calls:
                self._later[address] = calls  # it is the last one now
            call()
        self._running = False
        if self._later or self.spent >= TURN // 2:
            self._run()
