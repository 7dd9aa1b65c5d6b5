"""Deletes Kafka's notices of changed settings once brokers have had time to read them.

Kafka writes one for each change and keeps it for 15 minutes; at every change each broker reads all of them.
With tens of changes a second brokers would soon do nothing else.
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
    """One more client of ``servers``, driven by ``zkloop.turn`` and not recorded.

    It deletes a notice at the second look that finds it: brokers have at least half a second. A broker that
    was away for longer keeps an old setting in memory, which nothing judges.
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
            # Whatever the answer: the next look finds what is still there.
            self.client.submit(messages.DELETE, request, lambda _reply: None)
        self._known = found
