"""Write to dest with one ZooKeeper client per host. Each client is connected only to its host.

The clients create sequential znodes with several requests in flight. A transaction that is lost between FENCE
and OPEN then shows as an acknowledged path that dest lacks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.notices import Notices
from zkmigrate.lab.load.pace import Pace
from zkmigrate.lab.load.process import Orders
from zkmigrate.lab.load.session import UNANSWERED, Reply, Session, with_parents
from zkmigrate.zookeeper.data.zxid import format_zxid


@dataclass
class _Writer:
    """The client of one host. It creates its parent znodes, then sequential znodes at its rate."""

    host: str
    address: str
    config: LoadConfig
    record: Recorder
    pace: Pace
    session: Session = field(init=False)
    acked: int = 0
    unknown: int = 0
    errors: int = 0
    _ready: bool = False

    def __post_init__(self) -> None:
        sink = partial(self.record.write, host=self.host)
        self.session = Session([self.address], self.config.session_timeout_ms, sink, self.config.raw_login)

    @property
    def directory(self) -> str:
        return f"{self.config.raw_root}/{self.host}"

    @property
    def room(self) -> int:
        """The number of creates that may be sent now."""
        ready = self._ready and self.session.connected
        return self.config.raw_in_flight - self.session.in_flight if ready else 0

    def work(self, now: int) -> None:
        """Send the creates that are due at ``now``."""
        if not self._ready and self.session.connected and not self.session.in_flight:
            for path in with_parents(self.directory):
                self.session.create(path, partial(self._made, path))
        while self.room > 0 and self.pace.take(now):
            for _ in range(min(self.config.raw_burst, self.room)):
                self.session.create(f"{self.directory}/n-", self._created, b"raw", sequential=True)

    def _made(self, path: str, reply: Reply) -> None:
        if reply.error in ("", "NodeExists"):
            self._ready = self._ready or path == self.directory
        elif reply.error != UNANSWERED:
            self._error(reply)

    def _created(self, reply: Reply) -> None:
        if reply.error == UNANSWERED:
            self.unknown += 1
            self.record.write("unknown", host=self.host, count=1)
        elif reply.error:
            self._error(reply)
        else:
            self.acked += 1
            self.record.write(
                "ack", mono_ns=reply.at_ns, host=self.host, path=reply.value, zxid=format_zxid(reply.zxid),
                sent_mono_ns=reply.sent_ns,
            )  # fmt: skip

    def _error(self, reply: Reply) -> None:
        self.errors += 1
        self.record.write("error", host=self.host, error=reply.error, zxid=format_zxid(reply.zxid))


def run(config: LoadConfig, record: Recorder, orders: Orders) -> dict[str, Any]:
    """Create znodes until the stop signal. Return the counters of the closing line.

    The clients may start before dest serves: they try to connect until it does.
    """
    start = time.monotonic_ns()
    writers = [
        _Writer(host, address, config, record, Pace(config.raw_rate / config.raw_burst, start))
        for host, address in config.raw_hosts.items()
    ]
    sessions = [writer.session for writer in writers]
    notices = None
    if config.notices:
        servers = list(config.raw_hosts.values())
        notices = Notices(servers, config.session_timeout_ms, config.notices, start, config.login)
        sessions.append(notices.session)
    while not orders.stopping:
        now = time.monotonic_ns()
        for writer in writers:
            writer.work(now)
        if notices is not None:
            notices.work(now)
        orders.wait_due(writer.pace.next_ns for writer in writers if writer.room > 0)
    record.write("stopping")
    for session in sessions:
        session.end()
    return {
        name: {writer.host: getattr(writer, name) for writer in writers}
        for name in ("acked", "unknown", "errors")
    }
