"""Track which clients came back after an application's last switch, and which clients may fetch already."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

from zkmigrate.topics.gateway.rules.crowd import Groups, share
from zkmigrate.topics.gateway.rules.hold import FLIPPED_S, LONG_S, MEMBER_S, SYNC_S

MOST_CLIENTS = 20_000
"""The most clients of an application that are remembered."""

MOST_TOLD = 20
"""The most clients that the status names."""

Client = tuple[str, str]
"""A client id and the client's address.

Two consumers with the same id on the same machine count as one client.
"""


class _Table(dict[Client, float]):
    """A table of clients, each with a time in seconds.

    When the table holds ``MOST_CLIENTS`` clients, a new client displaces another one. That is the oldest
    client of the address that has the most clients.
    """

    def __init__(self) -> None:
        super().__init__()
        self._groups = Groups[Client]()

    def put(self, client: Client, time: float = 0.0) -> float:
        """Add a client with a time, unless the table has the client already. Return the client's time."""
        if client in self:
            return self[client]
        if len(self) >= MOST_CLIENTS:
            group, old = self._groups.largest()
            self._groups.remove(old, group)
            del self[old]
        self._groups.add(client, share(client[1]))
        self[client] = time
        return time


class Rejoined:
    """A record of the clients that are members of groups, and of those that their groups have confirmed.

    A switch or a long hold ends every confirmation. In the methods, ``wall`` is a time in seconds since the
    epoch, and ``now`` is a time in seconds of a monotonic clock.
    """

    def __init__(self) -> None:
        self._flipped = 0.0
        self._closed: float | None = None
        self._opened = -math.inf
        self._begun, self._confirmed, self._members = _Table(), _Table(), _Table()

    def member(self, client: Client) -> None:
        """Remember a client that has sent a request which only members of a group send."""
        self._members.put(client)

    def confirmed(self, client: Client) -> None:
        """Remember a client whose SYNC_GROUP or HEARTBEAT was answered without an error."""
        self._confirmed.put(client)

    def state(self, now: float, flipped: float, *, closed: bool) -> None:
        """Record whether the application's requests wait, and end confirmations that are no longer valid.

        flipped: the time of the last switch, 0 if there was none. closed: whether the application's requests
        wait. A wait of ``LONG_S`` seconds or longer ends all confirmations, because HEARTBEAT requests wait
        too, and a group may lose its members.
        """
        self._switched(flipped)
        if closed:
            self._closed = now if self._closed is None else self._closed
        elif self._closed is not None:
            if now - self._closed >= LONG_S:
                self._opened = now
                self._confirmed = _Table()
            self._closed = None

    def _switched(self, flipped: float) -> None:
        if flipped != self._flipped:
            self._flipped = flipped
            self._begun, self._confirmed = _Table(), _Table()

    def may_fetch(self, client: Client, flipped: float, wall: float, now: float) -> bool:
        """Return True if the gateway may answer a client's FETCH with records.

        flipped: the time of the last switch, 0 if there was none.

        A member of a group waits at most ``MEMBER_S`` seconds for its group to confirm it. Any other client
        waits at most ``SYNC_S`` seconds, once, and only after a switch.
        """
        self._switched(flipped)
        if client in self._confirmed:
            return True
        if client in self._members and 0 <= now - self._opened < MEMBER_S:
            return False
        if not flipped or not 0 <= wall - flipped < FLIPPED_S:
            return True
        begun = self._begun.put(client, wall)
        return not 0 <= wall - begun < (MEMBER_S if client in self._members else SYNC_S)


class Returned:
    """The clients that were connected at the last switch of an application, and whether they came back.

    All times are seconds of the same clock.
    """

    def __init__(self) -> None:
        self._flipped = -math.inf
        self._missing: dict[Client, None] = {}
        self._back = 0
        self._first = self._last = 0.0

    def flipped(self, clients: Iterable[Client], now: float) -> None:
        """Start to wait for the clients that are connected at the time of a switch.

        Clients that have not come back since a recent switch are still waited for.
        """
        before = self._missing if now - self._flipped < FLIPPED_S else {}
        missing = dict.fromkeys((*before, *clients))
        self._missing = dict.fromkeys(islice(missing, max(0, len(missing) - MOST_CLIENTS), None))
        self._flipped, self._back = now, 0

    def connected(self, client: Client, now: float) -> None:
        """Record that a client has sent a request, which means that the client has come back."""
        if client in self._missing:
            del self._missing[client]
            self._last = now - self._flipped
            self._first = self._first if self._back else self._last
            self._back += 1

    def body(self) -> dict[str, Any]:
        """Return the counts of clients as a dict for JSON, which is empty before the first switch."""
        if self._flipped == -math.inf:
            return {}
        return {
            "back": self._back,
            "first_s": round(self._first, 3) if self._back else None,
            "last_s": round(self._last, 3) if self._back else None,
            "missing": len(self._missing),
            "names": names_of(self._missing),
        }


def names_of(clients: Iterable[Client]) -> list[str]:
    """Return the first ``MOST_TOLD`` clients, each as text."""
    return [f"{id} at {address}" for id, address in islice(clients, MOST_TOLD)]
