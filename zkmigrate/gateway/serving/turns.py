"""Fair shares of the event loop: no client uses it for long, and addresses that ask little go first.

A turn of the loop serves so many requests at once. Beyond that, addresses that have asked little lately are
still served at once. All others wait, and get the next turns one address after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

TURN = 16
"""The most requests that are served in one turn of the event loop."""
COST = 128
"""The bytes of a message, read field by field, that cost as much as one request."""
PASSED = 1 << 16
"""The bytes, passed on unread, that cost as much as one request."""
CLIENT = 8
"""The cost of a new connection, in requests."""
RATE, BURST = 400.0, 40.0
"""The requests of one address that never wait: per second, and at once."""
MOST_ADDRESSES = 10_000
Soon = Callable[[Callable[[], None]], object]


class Turns:
    """The turns of an event loop. soon: calls a function in the next turn. now: a clock in seconds."""

    def __init__(self, soon: Soon, now: Callable[[], float]) -> None:
        self._soon, self._now = soon, now
        self.spent = 0
        self._running = False
        self._credit: dict[str, tuple[float, float]] = {}
        self._later: dict[str, deque[Callable[[], None]]] = {}

    def may(self, address: str) -> bool:
        """Return True if a request of this address is served at once. Else call :meth:`later`."""
        if self.spent < TURN:
            self._spend(1)
            return True
        return self._paid(address, 1) >= 0

    def spend(self, address: str, size: int) -> None:
        """Charge an address for a number of bytes that were read field by field."""
        cost = size // COST
        if cost:
            self._spend(cost)
            self._paid(address, cost)

    def streamed(self, size: int) -> bool:
        """Charge a number of bytes that were passed on unread. Return True if more may follow in this
        turn."""
        self._spend(size // PASSED)
        return self.spent < TURN

    def taken(self) -> None:
        """Charge the cost of a new connection."""
        self._spend(CLIENT)

    def _spend(self, cost: int) -> None:
        """Add a cost to this turn, and schedule its end once half of it is used. Earlier, scheduling would
        cost more than it saves."""
        self.spent += cost
        if self.spent >= TURN // 2 and not self._running:
            self._run()

    def _paid(self, address: str, cost: float) -> float:
        """Charge an address. Return how many requests it has left that never wait; below zero for none."""
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
        """Call a function in one of the next turns, in fair order of the addresses."""
        self._later.setdefault(address, deque()).append(call)
        if not self._running:
            self._run()

    def _next(self) -> None:
        """Start a turn, and call waiting functions of one address after the other until it is used up."""
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
