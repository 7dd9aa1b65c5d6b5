"""Which clients have their partitions again since the last flip, so that they may fetch."""

from __future__ import annotations

from zkmigrate.gateway.rules.hold import FLIPPED_S, MEMBER_S, SYNC_S

MOST_CLIENTS = 20_000
"""So many clients of an application are remembered."""

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
        self._bound(self._members)

    def synced(self, client: Client) -> None:
        """Its SYNC_GROUP was answered."""
        self._synced[client] = None
        self._bound(self._synced)

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
        self._bound(self._begun)
        return not 0 <= wall - begun < (MEMBER_S if client in self._members else SYNC_S)

    @staticmethod
    def _bound(table: dict[Client, float] | dict[Client, None]) -> None:
        while len(table) > MOST_CLIENTS:
            del table[next(iter(table))]
