"""Kafka's notices of changed settings, taken away once the brokers have had time to read them.

Kafka makes one for each change, keeps it for 15 minutes, and at every change each broker reads all that are
there. With tens of changes a second the brokers soon do nothing else, and no change gets through any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from zkmigrate.lab.load import zkmessages as messages
from zkmigrate.lab.load.pace import Pace
from zkmigrate.lab.load.zkclient import Client

_LOOKS_PER_S = 2.0


@dataclass
class Notices:
    """One more client of ``servers``, driven by ``zkloop.turn``; what it does is not recorded.

    A notice goes at the second look that finds it, so that a broker has half a second at least. One that was
    away for longer misses it and keeps an old setting in memory; nothing judges what brokers keep there.
    """

    servers: Sequence[tuple[str, int]]
    timeout_ms: int
    directory: str
    start_ns: int
    client: Client = field(init=False)
    _known: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.client = Client(self.servers, self.timeout_ms, lambda _event, _fields: None)
        self._pace = Pace(_LOOKS_PER_S, self.start_ns)

    def work(self, now: int) -> None:
        """Look when a look is due; called once per turn."""
        if self.client.connected and not self.client.in_flight and self._pace.take(now):
            request = messages.read_request(self.directory)
            self.client.submit(messages.GET_CHILDREN, request, self._listed)

    def _listed(self, reply: messages.Reply) -> None:
        if reply.error != messages.OK:
            return
        found = frozenset(messages.children_of(reply.body))
        for name in sorted(found & self._known):
            request = messages.delete_request(f"{self.directory}/{name}")
            # Whatever the answer: what is still there is found again.
            self.client.submit(messages.DELETE, request, lambda _reply: None)
        self._known = found
