"""Which clients came back since the last flip, and which of them have their partitions and may fetch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

from zkmigrate.gateway.rules.hold import FLIPPED_S, MEMBER_S, SYNC_S

MOST_CLIENTS = 20_000
"""So many clients of an application are remembered."""

MOST_TOLD = 20
"""So many clients are told by name."""

Client = tuple[str, str]
"""Client id and address. Two consumers with one id on one machine count as one."""


class Rejoined:
    """The clients of an application. Times: seconds since the epoch."""

    def __init__(self) -> None:
        self._flipped = 0.0
        self._begun: dict[Client, float] = {}
        self._synced: dict[Client, None] = {}
        self._members: dict[Client, None] = {}

    def member(self, client: Client) -> None:
        """It has sent what only a member of a group sends."""
        self._members[client] = None
        _bound(self._members)

    def synced(self, client: Client) -> None:
        """Its SYNC_GROUP was answered."""
        self._synced[client] = None
        _bound(self._synced)

    def may_fetch(self, client: Client, flipped: float, wall: float) -> bool:
        """Whether a FETCH need not wait. flipped: the last flip, 0 without one. A client without a group
        waits SYNC_S, once; a member of one at most MEMBER_S."""
        if flipped != self._flipped:
            self._flipped = flipped
            self._begun.clear()
            self._synced.clear()
        if not flipped or client in self._synced or not 0 <= wall - flipped < FLIPPED_S:
            return True
        begun = self._begun.setdefault(client, wall)
        _bound(self._begun)
        return not 0 <= wall - begun < (MEMBER_S if client in self._members else SYNC_S)


class Returned:
    """Which clients that were connected at the last flip of an application came back. Times: seconds of one
    clock."""

    def __init__(self) -> None:
        self._flipped = -math.inf
        self._missing: dict[Client, None] = {}
        self._back = 0
        self._first = self._last = 0.0

    def flipped(self, clients: Iterable[Client], now: float) -> None:
        """It switches. clients: those that are connected. Whom a flip a short time ago left missing stays
        so."""
        before = self._missing if now - self._flipped < FLIPPED_S else {}
        self._missing = dict.fromkeys((*before, *clients))
        _bound(self._missing)
        self._flipped, self._back = now, 0

    def connected(self, client: Client, now: float) -> None:
        """It has sent a request."""
        if client in self._missing:
            del self._missing[client]
            self._last = now - self._flipped
            self._first = self._first if self._back else self._last
            self._back += 1

    def body(self) -> dict[str, Any]:
        """As JSON; empty without a flip."""
        if self._flipped == -math.inf:
            return {}
        return {
            "back": self._back,
            "first_s": round(self._first, 3) if self._back else None,
            "last_s": round(self._last, 3) if self._back else None,
            "missing": len(self._missing),
            "names": named(self._missing),
        }


def named(clients: Iterable[Client]) -> list[str]:
    """A few of them, for people."""
    return [f"{id} at {address}" for id, address in islice(clients, MOST_TOLD)]


def _bound(table: dict[Client, float] | dict[Client, None]) -> None:
    while len(table) > MOST_CLIENTS:
        del table[next(iter(table))]
