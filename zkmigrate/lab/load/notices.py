"""Delete Kafka's notices of changed settings once brokers have had time to read them.

Kafka writes a notice for each change and keeps it for 15 minutes, and at every change each broker reads all
notices. At tens of changes per second the brokers would soon do nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kazoo.protocol.serialization import GetChildren

from zkmigrate.lab.load.pace import Pace
from zkmigrate.lab.load.session import Reply, Session
from zkmigrate.lab.login import Login

_LOOKS_PER_S = 2.0


@dataclass
class Notices:
    """A client of ``servers`` that deletes old notices. It records nothing.

    A notice is deleted if the next listing, at least half a second later, still has it. A broker that was
    disconnected for longer keeps the old setting in memory; no claim depends on that.

    servers: ``host:port`` of each server. timeout_ms: the session timeout. directory: the znode above the
    notices. start_ns: when the first listing is due (CLOCK_MONOTONIC). login: how the client logs in.
    """

    servers: Sequence[str]
    timeout_ms: int
    directory: str
    start_ns: int
    login: Login
    session: Session = field(init=False)
    _known: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.session = Session(self.servers, self.timeout_ms, lambda _event, **_fields: None, self.login)
        self._pace = Pace(_LOOKS_PER_S, self.start_ns)

    def work(self, now: int) -> None:
        """List the notices if a listing is due."""
        if self.session.connected and not self.session.in_flight and self._pace.take(now):
            self.session.send(GetChildren(self.directory, None), self._listed)

    def _listed(self, reply: Reply) -> None:
        if reply.error:
            return
        found = frozenset(reply.value)
        for name in sorted(found & self._known):
            # The answer does not matter: the next listing finds what still exists.
            self.session.delete(f"{self.directory}/{name}", lambda _reply: None)
        self._known = found
