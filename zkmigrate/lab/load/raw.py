"""Write to dest with one pipelined ZooKeeper client per host, each connected to that host only.

The clients create sequential znodes with several requests in flight. A transaction that is lost between FENCE
and OPEN then shows as an acknowledged path that dest lacks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from zkmigrate.lab.load import zkmessages as messages
from zkmigrate.lab.load.config import LoadConfig, parse_address
from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.notices import Notices
from zkmigrate.lab.load.pace import Pace
from zkmigrate.lab.load.process import Orders
from zkmigrate.lab.load.zkclient import Client
from zkmigrate.lab.load.zkloop import end_sessions, turn

_TICK_NS = 50_000_000


@dataclass
class _Writer:
    """The client of one host: it creates its parent znodes, then sequential znodes at its rate."""

    host: str
    address: tuple[str, int]
    config: LoadConfig
    record: Recorder
    pace: Pace
    client: Client = field(init=False)
    acked: int = 0
    unknown: int = 0
    errors: int = 0
    _ready: bool = False
    _unanswered: int = 0

    def __post_init__(self) -> None:
        self.client = Client([self.address], self.config.session_timeout_ms, self._session_event)

    @property
    def directory(self) -> str:
        return f"{self.config.raw_root}/{self.host}"

    @property
    def has_room(self) -> bool:
        return self._ready and self.client.connected and self.client.in_flight < self.config.raw_in_flight

    def work(self, now: int) -> None:
        """Send the creates that are due at ``now``. Call it once per turn."""
        self.record_unknown()
        if not self.client.connected:
            return
        if not self._ready:
            if not self.client.in_flight:
                self._make_parents()
            return
        while self.has_room and self.pace.take(now):
            for _ in range(min(self.config.raw_burst, self.config.raw_in_flight - self.client.in_flight)):
                request = messages.create_request(f"{self.directory}/n-", b"raw", messages.SEQUENTIAL)
                self.client.submit(messages.CREATE, request, self._created)

    def _make_parents(self) -> None:
        for path in messages.with_parents(self.directory):
            request = messages.create_request(path, b"", messages.PERSISTENT)
            self.client.submit(messages.CREATE, request, partial(self._parent, path))

    def _parent(self, path: str, reply: messages.Reply) -> None:
        if reply.error not in (messages.OK, messages.NODE_EXISTS):
            if reply.error != messages.CONNECTION_LOSS:
                self._error(reply)
            return
        if path == self.directory:
            self._ready = True

    def _created(self, reply: messages.Reply) -> None:
        if reply.error == messages.CONNECTION_LOSS:
            self.unknown += 1
            self._unanswered += 1
        elif reply.error == messages.OK:
            self.acked += 1
            self.record.write(
                "ack", mono_ns=reply.at_ns, host=self.host, path=messages.path_of(reply.body),
                zxid=messages.hex_id(reply.zxid), sent_mono_ns=reply.sent_ns,
            )  # fmt: skip
        else:
            self._error(reply)

    def _error(self, reply: messages.Reply) -> None:
        self.errors += 1
        name, zxid = messages.error_name(reply.error), messages.hex_id(reply.zxid)
        self.record.write("error", host=self.host, error=name, zxid=zxid)

    def record_unknown(self) -> None:
        if self._unanswered:
            self.record.write("unknown", host=self.host, count=self._unanswered)
            self._unanswered = 0

    def _session_event(self, event: str, fields: dict[str, Any]) -> None:
        self.record.write(event, host=self.host, **fields)


def run(config: LoadConfig, record: Recorder, orders: Orders) -> dict[str, Any]:
    """Create znodes until the stop signal. Return the counters of the closing line.

    The writers may start before dest serves: they reconnect until it does.
    """
    start = time.monotonic_ns()
    writers = [
        _Writer(host, parse_address(address), config, record, Pace(config.raw_rate / config.raw_burst, start))
        for host, address in config.raw_hosts.items()
    ]
    clients = [writer.client for writer in writers]
    notices = None
    if config.notices:
        servers = [writer.address for writer in writers]
        notices = Notices(servers, config.session_timeout_ms, config.notices, start)
        clients.append(notices.client)
    while not orders.stopping:
        now = time.monotonic_ns()
        for writer in writers:
            writer.work(now)
        if notices is not None:
            notices.work(now)
        due = [writer.pace.next_ns for writer in writers if writer.has_room]
        turn(clients, max(now, min([now + _TICK_NS, *due])))
    record.write("stopping")
    end_sessions(clients)
    for writer in writers:
        writer.record_unknown()
    return {
        name: {writer.host: getattr(writer, name) for writer in writers}
        for name in ("acked", "unknown", "errors")
    }
