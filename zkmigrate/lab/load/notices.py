"""Delete Kafka's notices of changed settings once brokers have had time to read them.

Kafka writes a notice for each change and keeps it for 15 minutes, and at every change each broker reads all
of them. At tens of changes per second the brokers would soon do nothing else.
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
    """A client of ``servers`` that deletes old notices; ``zkloop.turn`` drives it, and it records nothing.

    It deletes a notice when the next listing, at least half a second later, still has it. A broker that was
    disconnected for longer keeps the old setting in memory; no claim depends on that.

    servers: addresses of ZooKeeper. timeout_ms: session timeout. directory: the znode that holds the notices.
    start_ns: when the first listing is due (CLOCK_MONOTONIC).
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
        """List the notices if a listing is due. Call it once per turn."""
        if self.client.connected and not self.client.in_flight and self._pace.take(now):
            request = messages.read_request(self.directory)
            self.client.submit(messages.GET_CHILDREN, request, self._listed)

    def _listed(self, reply: messages.Reply) -> None:
        if reply.error != messages.OK:
            return
        found = frozenset(messages.children_of(reply.body))
        for name in sorted(found & self._known):
            request = messages.delete_request(f"{self.directory}/{name}")
            # The answer does not matter: the next listing finds what still exists.
            self.client.submit(messages.DELETE, request, lambda _reply: None)
        self._known = found
