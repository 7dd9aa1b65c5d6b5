"""Share the event loop fairly between clients.

In each turn, the loop serves up to ``TURN`` requests as they come. Beyond that, only addresses that have sent
few requests lately are served at once. The requests of all other addresses wait, and the next turns serve one
address after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

TURN = 16
"""The most requests that are served in one turn of the event loop."""
_HALF = TURN // 2
COST = 128
"""The number of bytes, read field by field, that cost as much as one request."""
PASSED = 1 << 16
"""The number of bytes, passed on without being read, that cost as much as one request."""
CLIENT = 8
"""The cost of a new connection from a client or to a broker, counted in requests."""
RATE, BURST = 400.0, 40.0
"""How many requests of one address are served before others: per second, and at once after a pause."""
MOST = 4 * TURN
"""The cost of a turn, in requests, above which even addresses with few requests have to wait."""
MOST_ADDRESSES = 10_000
Soon = Callable[[Callable[[], None]], object]


def passing(size: int) -> int:
    """Return the cost of reading a number of bytes from a socket, counted in requests."""
    return max(1, size // PASSED)


class Turns:
    """A schedule of turns of the event loop, which charges each address for its requests.

    soon: a function that calls another function in the next turn of the event loop. now: a function that
    returns the time in seconds.
    """

    def __init__(self, soon: Soon, now: Callable[[], float]) -> None:
        self._soon, self._now = soon, now
        self.spent = 0
        self._running = False
        self._credit: dict[str, tuple[float, float]] = {}
        self._later: dict[str, deque[tuple[Callable[[], None], int]]] = {}

    def may(self, address: str) -> bool:
        """Return True if a request of this address is served at once.

        If a request is not served at once, the caller calls :meth:`later`.
        """
        if self.spent >= TURN:
            return self._first(address, 1)
        self.spent += 1  # as _spend does, without the call
        if self.spent >= _HALF and not self._running:
            self._run()
        return True

    def _first(self, address: str, cost: int) -> bool:
        """Charge an address in a turn that is used up. Return True if the address is served nevertheless.

        cost: the cost in requests.
        """
        if self.spent >= MOST:
            return False
        first = self._paid(address, cost) >= 0
        if first:
            self._spend(cost)
        return first

    def spend(self, address: str, size: int) -> None:
        """Charge an address for a number of bytes that were read field by field."""
        cost = size // COST
        if cost:
            self._spend(cost)
            self._paid(address, cost)

    def read(self, address: str, size: int) -> bool:
        """Charge an address for bytes that were read from a socket.

        Returns True if sockets of this address may be read again in this turn. If not, the caller stops
        reading from this socket, and calls :meth:`later`.
        """
        cost = passing(size)
        if self.spent < TURN:
            self._spend(cost)
            return True
        return self._first(address, cost)

    def connected(self, address: str) -> None:
        """Charge an address for a connection from it, or for a connection to a broker on its behalf."""
        self._spend(CLIENT)
        self._paid(address, CLIENT)

    def _spend(self, cost: int) -> None:
        """Add a cost to this turn, and schedule the end of the turn once half of it is used.

        Scheduling the end before that would cost more than it saves.
        """
        self.spent += cost
        if self.spent >= _HALF and not self._running:
            self._run()

    def _paid(self, address: str, cost: float) -> float:
        """Charge an address for a cost, counted in requests.

        Returns how many more requests of the address are served before others; negative if none are.
        """
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

    def later(self, address: str, call: Callable[[], None], cost: int = 1) -> None:
        """Call a function in one of the next turns, in fair order of the addresses.

        cost: the cost in requests of the call, and of a read from the socket that the call allows.
        """
        self._later.setdefault(address, deque()).append((call, cost))
        if not self._running:
            self._run()

    def _next(self) -> None:
        """Start a turn, and call waiting functions of one address after the other until it is used up."""
        self.spent = 0
        try:
            while self._later and self.spent < TURN:
                address, calls = next(iter(self._later.items()))
                del self._later[address]
                call, cost = calls.popleft()
                if calls:
                    self._later[address] = calls  # it is the last one now
                self.spent += cost
                call()
        finally:  # an error in one connection must not keep the others waiting
            self._running = False
            if self._later or self.spent >= _HALF:
                self._run()
