"""What the steps' cases begin from: a host of which everything is well, and the facts made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.world.operator import inventory
from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.move.facts.dest_status import DestStates, Statuses, unknown
from zkmigrate.move.facts.records import Proved, ReadDelta, Surveyed
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.step import Blocked, Context, Done, Verdict, Way
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.four_letter_words import Srvr, parse_srvr
from zkmigrate.zookeeper.data.tail import Tail
from zkmigrate.zookeeper.data.zxid import Zxid
from zkmigrate.zookeeper.facts.ensemble import EnsembleView
from zkmigrate.zookeeper.facts.ownership import Ownership

DEST = ("dest1", "dest2", "dest3")
SILENT = Unknown("timeout", "no answer in 3 s")

ARMED = HostStatus(
    run="run",
    phase="armed",
    lapsed=False,
    finisher="none",
    finisher_note="",
    version="1",
    boot_id="boot",
    uptime_s=1000.0,
    phase_since=990.0,
    fencing=1,
    in4="top",
    out4="top",
    in6="top",
    out6="top",
    fence_entries=0,
    fence_timeout_s=None,
    fence_permanent=False,
    cut_entries=0,
    cut_timeout_s=None,
    cut_permanent=False,
    client_sockets=0,
    source_sockets=0,
    unit_state="active",
    unit_pid=7,
    unit_since=100.0,
    image="begun",
    missing=(),
)
FENCED = replace(ARMED, phase="fenced", fence_entries=2, fence_timeout_s=4.0)
CUT = replace(FENCED, phase="cut", cut_entries=3, cut_timeout_s=2.0)
STOPPED = replace(CUT, phase="stopped", unit_state="inactive", unit_pid=0)
SEALED = replace(
    STOPPED,
    phase="sealed",
    fence_permanent=True,
    fence_timeout_s=None,
    cut_permanent=True,
    cut_timeout_s=None,
)
STARTED = replace(SEALED, phase="started", unit_state="active", unit_pid=8, finisher="done", served_s=1.0)
OPEN = replace(STARTED, phase="open", fence_entries=0, fence_permanent=False)


HIGH, HIGH_TEXT = 0xF1000000_00000001 - (1 << 64), "0xf100000000000001"
"""A session of a server whose id is above 127, as a log holds it and as ZooKeeper prints it."""
NOBODY = Ownership(Chroot("/kafka"), 0, 0)
SURVEYED = Surveyed("source2", 5, 6, NOBODY, {}, 18_000, ())
PROVED = Proved(DEST, 0, ReadDelta(0, 0, 0), None, NOBODY)


def surveyed(**changes: Any) -> dict[str, Any]:
    """SURVEY's record as the journal holds it."""
    return replace(SURVEYED, **changes).encode()


def proved(**changes: Any) -> dict[str, Any]:
    """PROVE's record as the journal holds it."""
    return replace(PROVED, **changes).encode()


def tail(zxid: int) -> Reading[Tail]:
    """A disk whose newest transaction is this one."""
    return Seen(Tail(Zxid(zxid), "log", "log.1", 16, 40, False, 0, 0))


def context(rehearsal: bool = False, way: Way = Way.FORWARD, **records: Any) -> Context:
    """A run over the model world's inventory; records by step."""
    return Context("run", inventory(), rehearsal=rehearsal, way=way, records=records)


def statuses(good: HostStatus, silent: str = "", **changes: Any) -> Statuses[HostStatus]:
    """All dest hosts alike, but for these changes of the second one; ``silent`` does not answer."""
    at = {host: good for host in DEST if host != silent}
    if changes:
        at["dest2"] = replace(good, **changes)
    return Statuses(at, (unknown(f"host.{silent}", silent, SILENT),) if silent else ())


def in_phases(*phases: str) -> Statuses[HostStatus]:
    """dest1, dest2, dest3 in these phases; ``-`` does not answer."""
    named = {status.phase: status for status in (ARMED, FENCED, CUT, STOPPED, SEALED, STARTED, OPEN)}
    named["go"] = replace(SEALED, phase="go")
    at = {h: named.get(p, replace(STARTED, phase=p)) for h, p in zip(DEST, phases, strict=True) if p != "-"}
    return Statuses(at, tuple(unknown(f"host.{h}", h, SILENT) for h in DEST if h not in at))


def srvr(mode: str, zxid: int = 1 << 32 | 1, outstanding: int = 0) -> Reading[Srvr]:
    """What a server answers."""
    text = (
        "Zookeeper version: 3.5.8-f439ca583e, built on 05/04/2020 15:07 GMT\nLatency min/avg/max: 0/0/3\n"
        f"Received: 5\nSent: 4\nConnections: 1\nOutstanding: {outstanding}\n"
        f"Zxid: {zxid:#x}\nMode: {mode}\nNode count: 9\n"
    )
    return Seen(parse_srvr(text))


def ensemble(answers: Mapping[str, Reading[Srvr]]) -> EnsembleView:
    """The servers of an ensemble by host."""
    leading = [h for h, r in answers.items() if isinstance(r, Seen) and r.value.mode == "leader"]
    return EnsembleView(answers, leading[0] if len(leading) == 1 else None)


def servers(**answers: tuple[str, int]) -> EnsembleView:
    """Servers by host: mode and zxid."""
    return ensemble({host: srvr(mode, zxid) for host, (mode, zxid) in answers.items()})


def dest_states(good: HostStatus, silent: str = "", **changes: Any) -> DestStates:
    """The same as a step of the window sees it."""
    hosts = statuses(good, silent, **changes)
    return DestStates(hosts, hosts)


def stopped_by(verdict: Verdict) -> list[tuple[str, str]]:
    """Id and target of what blocks, in order; nothing where the verdict is another one."""
    found: tuple[Finding, ...] = verdict.findings if isinstance(verdict, Blocked) else ()
    return [(f.id, f.target) for f in found if f.blocks]


def well(verdict: Verdict) -> bool:
    """Whether the step is done and nothing that it tells blocks."""
    return isinstance(verdict, Done) and not any(f.blocks for f in verdict.findings)
