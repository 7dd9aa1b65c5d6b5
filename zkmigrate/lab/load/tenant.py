"""Run the other tenant: an application in its own chroot on source, which the migration must not affect.

One session writes counters, sequential znodes, short-lived ephemerals and a large znode. At the end it reads
back the lasting ephemerals (same owner and czxid), the counters (last acknowledged value) and the sequential
znodes (czxid of their acknowledgement).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from zkmigrate.lab.load import zkmessages as messages
from zkmigrate.lab.load.config import LoadConfig, parse_address
from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.pace import Pace
from zkmigrate.lab.load.process import Orders
from zkmigrate.lab.load.zkclient import Client
from zkmigrate.lab.load.zkloop import end_sessions, read_all, settle, turn

_TICK_NS = 50_000_000
_COUNTERS = 8
_LASTING = 5
_IN_FLIGHT = 32
_SEQUENTIAL_RATE = 2.0
_PASSING_RATE = 0.5
_LARGE_RATE = 0.2
_VERIFY_LIMIT_S = 30.0


@dataclass
class _Tenant:
    config: LoadConfig
    record: Recorder
    start_ns: int
    client: Client = field(init=False)
    acked: int = 0
    unknown: int = 0
    errors: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    tried: dict[str, int] = field(default_factory=dict)
    created: dict[str, int] = field(default_factory=dict)
    lasting: dict[str, tuple[int, int]] = field(default_factory=dict)
    _ready: bool = False
    _sets: int = 0
    _passing: str = ""
    _unanswered: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        servers = [parse_address(address) for address in self.config.tenant_servers]
        self.client = Client(servers, self.config.session_timeout_ms, self._session_event)
        self._set_pace = Pace(self.config.tenant_rate, self.start_ns)
        self._sequential_pace = Pace(_SEQUENTIAL_RATE, self.start_ns)
        self._passing_pace = Pace(_PASSING_RATE, self.start_ns)
        self._large_pace = Pace(_LARGE_RATE, self.start_ns)

    # --- work -----------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        return self._ready and self.client.connected and self.client.in_flight < _IN_FLIGHT

    @property
    def next_ns(self) -> int:
        return self._set_pace.next_ns

    def work(self, now: int) -> None:
        self.record_unknown()
        if self.client.connected and not self._ready and not self.client.in_flight:
            self._set_up()
        while self.has_room and self._set_pace.take(now):
            self._set_next_counter()
        if self.has_room and self._sequential_pace.take(now):
            self._create(f"{self.config.tenant_root}/queue/n-", "create", messages.SEQUENTIAL)
        if self.has_room and self._passing_pace.take(now):
            self._turn_passing()
        if self.has_room and self._large_pace.take(now):
            path = f"{self.config.tenant_root}/large"
            request = messages.set_request(path, bytes(self.config.tenant_large_bytes))
            self.client.submit(messages.SET_DATA, request, partial(self._done, "large", path, {}, None))

    def _set_up(self) -> None:
        root = self.config.tenant_root
        paths = messages.with_parents(root)
        paths += [f"{root}/{name}" for name in ("counters", "queue", "live", "large")]
        paths += [f"{root}/counters/c-{number}" for number in range(_COUNTERS)]
        for path in paths:
            request = messages.create_request(path, b"", messages.PERSISTENT)
            self.client.submit(messages.CREATE, request, partial(self._made, path))
        for number in range(_LASTING):
            path = f"{root}/live/lasting-{messages.hex_id(self.client.session)}-{number}"
            request = messages.create_request(path, b"", messages.EPHEMERAL)
            self.client.submit(
                messages.CREATE, request, partial(self._created_lasting, path, number == _LASTING - 1)
            )

    def _made(self, path: str, reply: messages.Reply) -> None:
        if reply.error not in (messages.OK, messages.NODE_EXISTS, messages.CONNECTION_LOSS):
            self._error("create", path, reply)

    def _created_lasting(self, path: str, last: bool, reply: messages.Reply) -> None:
        """Record that a lasting ephemeral exists. Only its first creation sets the expected czxid."""
        if reply.error == messages.OK:
            self.lasting.setdefault(path, (self.client.session, reply.zxid))
            self._ack("ephemeral", path, reply, {})
        elif reply.error not in (messages.NODE_EXISTS, messages.CONNECTION_LOSS):
            self._error("ephemeral", path, reply)
        if last and reply.error in (messages.OK, messages.NODE_EXISTS):
            self._ready = True

    def _set_next_counter(self) -> None:
        self._sets += 1
        path = f"{self.config.tenant_root}/counters/c-{self._sets % _COUNTERS}"
        value = self._sets
        self.tried[path] = value
        request = messages.set_request(path, str(value).encode())

        def keep(_reply: messages.Reply) -> None:
            self.counters[path] = value

        answer = partial(self._done, "set", path, {"value": value}, keep)
        self.client.submit(messages.SET_DATA, request, answer)

    def _create(self, prefix: str, op: str, flags: int) -> None:
        def keep(reply: messages.Reply) -> None:
            self.created[messages.path_of(reply.body)] = reply.zxid

        request = messages.create_request(prefix, b"", flags)
        self.client.submit(messages.CREATE, request, partial(self._done, op, prefix, {}, keep))

    def _turn_passing(self) -> None:
        """Delete the previous short-lived ephemeral and create the next one."""
        if self._passing:
            path, self._passing = self._passing, ""
            request = messages.delete_request(path)
            self.client.submit(messages.DELETE, request, partial(self._done, "delete", path, {}, None))

        def keep(reply: messages.Reply) -> None:
            self._passing = messages.path_of(reply.body)

        prefix = f"{self.config.tenant_root}/live/passing-"
        request = messages.create_request(prefix, b"", messages.EPHEMERAL | messages.SEQUENTIAL)
        self.client.submit(messages.CREATE, request, partial(self._done, "ephemeral", prefix, {}, keep))

    # --- answers --------------------------------------------------------------------------------------------

    def _done(
        self,
        op: str,
        path: str,
        fields: dict[str, Any],
        keep: Callable[[messages.Reply], None] | None,
        reply: messages.Reply,
    ) -> None:
        if reply.error == messages.CONNECTION_LOSS:
            self.unknown += 1
            self._unanswered[op] = self._unanswered.get(op, 0) + 1
        elif reply.error != messages.OK:
            self._error(op, path, reply)
        else:
            if keep is not None:
                keep(reply)
            made = messages.path_of(reply.body) if op in ("create", "ephemeral") else path
            self._ack(op, made, reply, fields)

    def _ack(self, op: str, path: str, reply: messages.Reply, fields: dict[str, Any]) -> None:
        self.acked += 1
        self.record.write(
            "ack", mono_ns=reply.at_ns, op=op, path=path, zxid=messages.hex_id(reply.zxid),
            sent_mono_ns=reply.sent_ns, **fields,
        )  # fmt: skip

    def _error(self, op: str, path: str, reply: messages.Reply) -> None:
        self.errors += 1
        self.record.write("error", op=op, path=path, error=messages.error_name(reply.error))

    def record_unknown(self) -> None:
        for op, count in self._unanswered.items():
            self.record.write("unknown", op=op, count=count)
        self._unanswered.clear()

    def _session_event(self, event: str, fields: dict[str, Any]) -> None:
        self.record.write(event, host=self.client.server, **fields)
        if event == "expired":
            # its ephemerals ended with it: the loss shows in ``lasting``; the new session creates its own
            self._ready = False
            self._passing = ""

    # --- reading back ---------------------------------------------------------------------------------------

    def verify(self) -> dict[str, Any]:
        """Read everything back that was acknowledged. Return the fields of the ``verified`` line.

        ``complete`` is False when a read got no answer or an unexpected error.
        """
        failed: list[str] = []
        lost: list[str] = []
        wrong: list[str] = []
        missing: list[str] = []

        def ephemeral(path: str, reply: messages.Reply) -> None:
            owner, czxid = self.lasting[path]
            if reply.error == messages.NO_NODE:
                lost.append(path)
            elif reply.error != messages.OK:
                failed.append(messages.error_name(reply.error))
            elif (stat := messages.stat_of(reply.body)).ephemeral_owner != owner or stat.czxid != czxid:
                lost.append(path)

        def counter(path: str, reply: messages.Reply) -> None:
            if reply.error not in (messages.OK, messages.NO_NODE):
                failed.append(messages.error_name(reply.error))
                return
            seen = messages.data_of(reply.body).decode() if reply.error == messages.OK else "no znode"
            # a set without an answer may or may not have been applied after the acknowledged one
            if not seen.isdigit() or not self.counters[path] <= int(seen) <= self.tried[path]:
                wrong.append(f"{path}: seen {seen}, acknowledged {self.counters[path]}")

        def creation(path: str, reply: messages.Reply) -> None:
            if reply.error not in (messages.OK, messages.NO_NODE):
                failed.append(messages.error_name(reply.error))
            elif reply.error == messages.NO_NODE or messages.stat_of(reply.body).czxid != self.created[path]:
                missing.append(path)

        reads = [(messages.EXISTS, path, partial(ephemeral, path)) for path in self.lasting]
        reads += [(messages.GET_DATA, path, partial(counter, path)) for path in self.counters]
        reads += [(messages.EXISTS, path, partial(creation, path)) for path in self.created]
        unanswered = read_all(self.client, self.config.tenant_root, reads, _VERIFY_LIMIT_S)
        if unanswered:
            failed.append(f"{unanswered} reads without an answer")
        return {
            "complete": not failed,
            "ephemerals": len(self.lasting),
            "ephemerals_lost": lost,
            "counters": len(self.counters),
            "counters_wrong": wrong,
            "creates": len(self.created),
            "creates_missing": missing,
            "error": "; ".join(sorted(set(failed))),
        }


def run(config: LoadConfig, record: Recorder, orders: Orders) -> dict[str, Any]:
    """Write until the stop signal, then read back. Return the counters of the closing line."""
    tenant = _Tenant(config, record, time.monotonic_ns())
    while not orders.stopping:
        now = time.monotonic_ns()
        tenant.work(now)
        due = [tenant.next_ns] if tenant.has_room else []
        turn([tenant.client], max(now, min([now + _TICK_NS, *due])))
    record.write("stopping")
    settle([tenant.client], lambda: not tenant.client.in_flight, _VERIFY_LIMIT_S)
    tenant.record_unknown()
    record.write("verified", **tenant.verify())
    end_sessions([tenant.client])
    return {name: getattr(tenant, name) for name in ("acked", "unknown", "errors")}
