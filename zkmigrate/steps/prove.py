"""What: prove that every dest disk holds every transaction that touched the chroot.

Why now: ZooKeeper is down on dest, its disk cannot change, and source can still be read.

Clients may notice: nothing more than at the fence.

Way back: nothing was changed by this step.

Proof: tail — the newest durable zxid of every dest host is at least the newest transaction that touches the
chroot or a session owning part of it. Delta — the log of source's leader, read without a gap and under the
same
leader and epoch before and after, holds nothing after dest's zxid that touches them, except expiries of
sessions that live on dest and of which no dest disk knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.errors import HostError
from zkmigrate.facts.disk import directories
from zkmigrate.facts.ensemble import source_view
from zkmigrate.facts.ownership import Ownership, from_json, rolled_forward, to_json
from zkmigrate.facts.recorded import Drained, Stopped, needed
from zkmigrate.model.change import Applied, Changes
from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.model.finding import Finding, Severity, claim
from zkmigrate.model.look import Look
from zkmigrate.model.step import Blocked, Context, Done, Hazard, Step, Verdict, Waiting, Way
from zkmigrate.rules.start_order import freshest
from zkmigrate.steps.cursors import cursor_of
from zkmigrate.zkdata.delta import DeltaResult, delta, due
from zkmigrate.zkdata.errors import ZkDataError
from zkmigrate.zkdata.logdir import walk
from zkmigrate.zkdata.proofs import covers
from zkmigrate.zkdata.txnlog import cursor_to_json
from zkmigrate.zkdata.zxid import epoch, format_zxid

LOG_DEADLINE_S = 2.0
LISTED = 10


@dataclass(frozen=True)
class ProveFacts:
    """leader and zxid of source before and after the log was read, the state at dest's zxid, and the
    delta."""

    before: tuple[str | None, int]
    after: tuple[str | None, int]
    state: Reading[Ownership]
    delta: Reading[DeltaResult]


class ProveStep(Step[ProveFacts]):
    """See the module."""

    id = "prove"
    title = "Prove that nothing is missing"
    hazard = Hazard.READ_ONLY

    def observe(self, c: Context, look: Look) -> ProveFacts:
        before = _leader(c, look)
        leader = c.records["survey"]["leader"]
        tails = needed(Stopped, c).tails.values()
        lowest, highest = min(tails), max(tails)
        source = c.inventory.source
        try:
            _, logs = directories(look, leader, source.data_dir, source.txn_dir)
            cursor = cursor_of(c, leader)
            since = walk(logs, cursor=cursor)
            state = rolled_forward(from_json(c.records["survey"]["ownership"]), since, lowest)
            if since.gaps:
                raise HostError(f"{leader}: the log has a hole: {since.gaps[0]}")
            found = delta(
                logs,
                chroot=c.inventory.kafka.chroot,
                after=lowest,
                upto=due(before[1]),
                owners=state.owners,
                living=state.owners.keys() & _on_dest(c),
                highest=highest,
                cursor=cursor,
            )
        except (HostError, ZkDataError) as error:
            unread = Unknown("failed", str(error))
            return ProveFacts(before, _leader(c, look), unread, unread)
        return ProveFacts(before, _leader(c, look), Seen(state), Seen(found))

    def check(self, c: Context, f: ProveFacts, way: Way) -> Verdict:
        if way is Way.BACK:
            return Done()
        if not isinstance(f.state, Seen) or not isinstance(f.delta, Seen):
            why = str(f.state if not isinstance(f.state, Seen) else f.delta)
            return Blocked((claim("prove.source-log", "source's log can be read", None, seen=why),))
        result = f.delta.value
        if result.held is None and result.last < f.before[1]:
            return Waiting(
                "source's log reaches its zxid",
                f"at {format_zxid(result.last)} of {format_zxid(f.before[1])}: {result.unproved}",
                LOG_DEADLINE_S,
                0.02,
            )
        tails = needed(Stopped, c).tails
        first = freshest(tails, f.state.value.newest)
        findings = (
            _same_leader(c, f),
            _from_survey(c, min(tails.values())),
            *_tail_claims(tails, f.state.value),
            *_delta_claims(c, result),
        )
        if any(x.blocks for x in findings):
            return Blocked(findings)
        return Done(
            findings,
            {
                "first": list(first),
                "needed": hex(f.state.value.newest),
                "delta": {"after": hex(result.after), "last": hex(result.last), "records": result.records},
                "cursor": cursor_to_json(result.cursor),
                "baseline": to_json(f.state.value),
            },
        )

    def plan(self, c: Context, f: ProveFacts, target: str) -> Changes:
        return ()

    def undo(self, c: Context, f: ProveFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()


def _leader(c: Context, look: Look) -> tuple[str | None, int]:
    view = source_view(c.inventory, look)
    stat = view.servers[view.leader] if view.leader is not None else None
    return view.leader, stat.value.zxid if isinstance(stat, Seen) else -1


def _on_dest(c: Context) -> set[int]:
    """The sessions that SURVEY saw as clients of dest; none in a rehearsal, where brokers are on source."""
    return {int(session, 16) for session in c.records["survey"]["on_dest"]}


def _same_leader(c: Context, f: ProveFacts) -> Finding:
    wanted = (c.records["survey"]["leader"], c.records["survey"]["epoch"])
    seen = [(name, epoch(zxid) if zxid >= 0 else None) for name, zxid in (f.before, f.after)]
    drained = epoch(needed(Drained, c).z)
    return claim(
        "prove.leader",
        "source has had the same leader and epoch since SURVEY",
        all(pair == wanted for pair in seen) and drained == wanted[1],
        seen=f"epoch {drained} in DRAIN, {seen[0]} before, {seen[1]} after reading the log",
        needed=f"{wanted}",
        moves=("roll back and cut over again: the proof needs one unbroken log",),
    )


def _from_survey(c: Context, lowest: int) -> Finding:
    """The log is read from SURVEY's place on: what a dest disk lacks from before it would not be seen."""
    cursor = cursor_of(c, c.records["survey"]["leader"])
    start = cursor.zxid if cursor is not None else 0
    return claim(
        "prove.cursor",
        "every dest disk reaches the place in source's log that SURVEY read up to",
        lowest >= start,
        seen=format_zxid(lowest),
        needed=f"at least {format_zxid(start)}",
        moves=("roll back: the dest host catches up, then cut over again",),
    )


def _tail_claims(tails: Mapping[str, int], state: Ownership) -> tuple[Finding, ...]:
    return tuple(
        claim(
            "prove.tail",
            "the newest durable zxid covers everything that touched the chroot",
            covers(zxid, state.newest),
            target=host,
            seen=format_zxid(zxid),
            needed=f"at least {format_zxid(state.newest)}",
            moves=("roll back: the dest host catches up, then cut over again",),
        )
        for host, zxid in tails.items()
    )


def _delta_claims(c: Context, result: DeltaResult) -> tuple[Finding, ...]:
    listed = "; ".join(
        f"{format_zxid(m.zxid)} {m.type} {m.path} session {m.session:#x}" for m in result.missing[:LISTED]
    )
    # Until the roll brokers write through source, so a rehearsal's delta is read but may hold their writes.
    rehearsed = c.rehearsal and not result.unproved
    severity = Severity.INFO if rehearsed else Severity.BLOCK
    why = " (expected in a rehearsal: the brokers still write through source)" if rehearsed else ""
    return (
        claim(
            "prove.delta",
            "nothing that touches the chroot is on source and not on dest",
            result.held,
            severity=severity,
            seen=result.unproved
            or (
                f"{len(result.missing)} missing{why}: {listed}"
                if result.missing
                else f"{result.records} read, none missing"
            ),
            needed="none missing, no gap",
            moves=("roll back: find the writer named here and stop it, then cut over again",),
        ),
    )
