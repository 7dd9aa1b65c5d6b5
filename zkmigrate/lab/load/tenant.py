"""Run the other tenant: an application in its own chroot on source, which the migration must not affect.

One session writes counters, sequential znodes, short-lived ephemerals and a large znode. At the end it reads
back the lasting ephemerals (same owner and czxid), the counters (last acknowledged value) and the sequential
znodes (same czxid as acknowledged).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.pace import Pace
from zkmigrate.lab.load.process import Orders
from zkmigrate.lab.load.session import UNANSWERED, Reply, Session, with_parents
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.zxid import format_zxid

_COUNTERS = 8
_LASTING = 5
_IN_FLIGHT = 32
_READS_IN_FLIGHT = 256
_SEQUENTIAL_RATE = 2.0
_PASSING_RATE = 0.5
_LARGE_RATE = 0.2
_VERIFY_LIMIT_S = 30.0


@dataclass
class _Tenant:
    config: LoadConfig
    record: Recorder
    start_ns: int
    session: Session = field(init=False)
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

    def __post_init__(self) -> None:
        config = self.config
        self.session = Session(
            config.tenant_servers, config.session_timeout_ms, self._session_event, config.tenant_login
        )
        self._set_pace = Pace(config.tenant_rate, self.start_ns)
        self._sequential_pace = Pace(_SEQUENTIAL_RATE, self.start_ns)
        self._passing_pace = Pace(_PASSING_RATE, self.start_ns)
        self._large_pace = Pace(_LARGE_RATE, self.start_ns)

    # --- work -----------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        return self._ready and self.session.connected and self.session.in_flight < _IN_FLIGHT

    @property
    def next_ns(self) -> int:
        return self._set_pace.next_ns

    def work(self, now: int) -> None:
        root = self.config.tenant_root
        if not self._ready and self.session.connected and not self.session.in_flight:
            self._set_up()
        while self.has_room and self._set_pace.take(now):
            self._set_next_counter()
        if self.has_room and self._sequential_pace.take(now):
            self._create("create", f"{root}/queue/n-", self._keep_created)
        if self.has_room and self._passing_pace.take(now):
            self._replace_passing()
        if self.has_room and self._large_pace.take(now):
            answered = partial(self._done, "large", f"{root}/large", {}, None)
            self.session.set(f"{root}/large", bytes(self.config.tenant_large_bytes), answered)

    def _set_up(self) -> None:
        root, owner = self.config.tenant_root, self.session.id
        paths = with_parents(root)
        paths += [f"{root}/{name}" for name in ("counters", "queue", "live", "large")]
        paths += [f"{root}/counters/c-{number}" for number in range(_COUNTERS)]
        for path in paths:
            self.session.create(path, partial(self._made, path))
        for number in range(_LASTING):
            path = f"{root}/live/lasting-{format_session(owner)}-{number}"
            answered = partial(self._made_lasting, path, owner, number == _LASTING - 1)
            self.session.create(path, answered, ephemeral=True)

    def _made(self, path: str, reply: Reply) -> None:
        if reply.error not in ("", "NodeExists", UNANSWERED):
            self._error("create", path, reply)

    def _made_lasting(self, path: str, owner: int, last: bool, reply: Reply) -> None:
        """Record that a lasting ephemeral exists. Only its first creation sets the expected czxid."""
        if not reply.error:
            self.lasting.setdefault(path, (owner, reply.zxid))
            self._ack("ephemeral", path, reply, {})
        elif reply.error not in ("NodeExists", UNANSWERED):
            self._error("ephemeral", path, reply)
        if last and reply.error in ("", "NodeExists"):
            self._ready = True

    def _set_next_counter(self) -> None:
        self._sets += 1
        path = f"{self.config.tenant_root}/counters/c-{self._sets % _COUNTERS}"
        value = self._sets
        self.tried[path] = value

        def keep(_reply: Reply) -> None:
            self.counters[path] = value

        self.session.set(path, str(value).encode(), partial(self._done, "set", path, {"value": value}, keep))

    def _create(self, op: str, prefix: str, keep: Callable[[Reply], None]) -> None:
        answered = partial(self._done, op, prefix, {}, keep)
        self.session.create(prefix, answered, ephemeral=op == "ephemeral", sequential=True)

    def _keep_created(self, reply: Reply) -> None:
        self.created[reply.value] = reply.zxid

    def _replace_passing(self) -> None:
        """Delete the previous short-lived ephemeral and create the next one."""
        if self._passing:
            path, self._passing = self._passing, ""
            self.session.delete(path, partial(self._done, "delete", path, {}, None))

        def keep(reply: Reply) -> None:
            self._passing = reply.value

        self._create("ephemeral", f"{self.config.tenant_root}/live/passing-", keep)

    # --- replies --------------------------------------------------------------------------------------------

    def _done(
        self, op: str, path: str, fields: dict[str, Any], keep: Callable[[Reply], None] | None, reply: Reply
    ) -> None:
        if reply.error == UNANSWERED:
            self.unknown += 1
            self.record.write("unknown", op=op, count=1)
        elif reply.error:
            self._error(op, path, reply)
        else:
            if keep is not None:
                keep(reply)
            self._ack(op, reply.value if op in ("create", "ephemeral") else path, reply, fields)

    def _ack(self, op: str, path: str, reply: Reply, fields: dict[str, Any]) -> None:
        self.acked += 1
        self.record.write(
            "ack", mono_ns=reply.at_ns, op=op, path=path, zxid=format_zxid(reply.zxid),
            sent_mono_ns=reply.sent_ns, **fields,
        )  # fmt: skip

    def _error(self, op: str, path: str, reply: Reply) -> None:
        self.errors += 1
        self.record.write("error", op=op, path=path, error=reply.error)

    def _session_event(self, event: str, **fields: Any) -> None:
        self.record.write(event, **fields)
        if event == "expired":
            # its ephemerals ended with it: the loss shows in ``lasting``; the new session creates its own
            self._ready = False
            self._passing = ""

    # --- reading back ---------------------------------------------------------------------------------------

    def verify(self) -> dict[str, Any]:
        """Read back everything that was acknowledged. Return the fields of the ``verified`` line.

        ``complete`` is False if a read was refused or not answered, or if all reads together take too long.
        """
        client, failed = self.session.client, set[str]()
        read = partial(_read, time.monotonic() + _VERIFY_LIMIT_S, failed)
        # After the sync, any server's answers are as new as the leader's.
        synced = [path for path, _ in read(client.sync_async, [self.config.tenant_root])]
        ephemerals = dict(read(client.exists_async, self.lasting if synced else ()))
        counters = dict(read(client.get_async, self.counters if synced else ()))
        created = dict(read(client.exists_async, self.created if synced else ()))
        wrong = []
        for path, answer in counters.items():
            seen = answer[0].decode() if answer else "no znode"
            # a set without an answer may or may not have been applied after the acknowledged one
            if not seen.isdigit() or not self.counters[path] <= int(seen) <= self.tried[path]:
                wrong.append(f"{path}: seen {seen}, acknowledged {self.counters[path]}")
        return {
            "complete": not failed,
            "ephemerals": len(self.lasting),
            "ephemerals_lost": [
                path
                for path, stat in ephemerals.items()
                if stat is None or (stat.ephemeralOwner, stat.czxid) != self.lasting[path]
            ],
            "counters": len(self.counters),
            "counters_wrong": wrong,
            "creates": len(self.created),
            "creates_missing": [
                path for path, stat in created.items() if stat is None or stat.czxid != self.created[path]
            ],
            "error": "; ".join(sorted(failed)),
        }


def _read(
    deadline: float, failed: set[str], ask: Callable[[str], Any], paths: Collection[str]
) -> Iterator[tuple[str, Any]]:
    """Yield each path with the answer for it; None if the znode does not exist.

    deadline: when all reads must be answered, by ``time.monotonic``. failed: receives the reason for each
    read without an answer.
    """
    for first in range(0, len(paths), _READS_IN_FLIGHT):
        some = list(paths)[first : first + _READS_IN_FLIGHT]
        for path, answer in [(path, ask(path)) for path in some]:
            try:
                yield path, answer.get(timeout=max(0.0, deadline - time.monotonic()))
            except NoNodeError:
                yield path, None
            except (KazooException, KazooTimeoutError) as error:
                failed.add(f"no answer for {path}: {type(error).__name__}")


def run(config: LoadConfig, record: Recorder, orders: Orders) -> dict[str, Any]:
    """Write until the stop signal, then read the writes back. Return the counters of the closing line."""
    tenant = _Tenant(config, record, time.monotonic_ns())
    while not orders.stopping:
        tenant.work(time.monotonic_ns())
        orders.wait_due([tenant.next_ns] if tenant.has_room else [])
    record.write("stopping")
    tenant.session.wait_answered(_VERIFY_LIMIT_S)
    record.write("verified", **tenant.verify())
    tenant.session.end()
    return {name: getattr(tenant, name) for name in ("acked", "unknown", "errors")}
