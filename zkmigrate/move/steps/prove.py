"""What: prove that every dest disk holds every transaction that touched the chroot.

Why now: ZooKeeper is down on dest, its disk cannot change, and source can still be read.

Clients may notice: nothing more than at the fence.

Way back: nothing was changed by this step.

Proof: tail — the newest zxid on each dest disk is at least that of the newest transaction that touched the
chroot or a session that owns part of it. Delta — the log of source's leader holds no later transaction that
touches them, except expiries of sessions that live on dest and that no dest disk knows of. That log is read
without a gap, under the same leader and epoch before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.errors import HostError
from zkmigrate.move.dependent import OfDependent, Words
from zkmigrate.move.facts.records import Drained, Proved, ReadDelta, Stopped, Surveyed
from zkmigrate.move.rules.start_order import freshest
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Severity, blocking, claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Reads, Verdict, Waiting
from zkmigrate.runbook.model.step_record import needed
from zkmigrate.zookeeper.data.delta import DeltaResult, delta, required_zxid
from zkmigrate.zookeeper.data.errors import ZkDataError
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.zxid import epoch, format_zxid
from zkmigrate.zookeeper.facts.disk import directories
from zkmigrate.zookeeper.facts.ensemble import source_view
from zkmigrate.zookeeper.facts.ownership import Ownership, apply_records

LOG_DEADLINE_S = 2.0
LISTED = 10


@dataclass(frozen=True)
class ProveFacts:
    """The evidence for the proofs ``tail`` and ``delta``.

    before, after: source's leader and its zxid, read before and after its log. state: the owners of
    ephemerals at dest's zxid. delta: the transactions in source's log after that zxid.
    """

    before: tuple[str | None, int]
    after: tuple[str | None, int]
    state: Reading[Ownership]
    delta: Reading[DeltaResult]


class ProveStep(OfDependent, Reads[ProveFacts]):
    id = "prove"
    title = "Prove that nothing is missing"

    def observe(self, c: Context, look: Look) -> ProveFacts:
        before = _leader(c, look)
        survey = needed(Surveyed, c)
        tails = needed(Stopped, c).tails.values()
        lowest, highest = min(tails), max(tails)
        try:
            _, logs = directories(look, survey.leader, c.inventory.source)
            cursor = survey.cursors.get(survey.leader)
            since = walk(logs, cursor=cursor)
            state = apply_records(survey.ownership, since, lowest)
            if since.gaps:
                raise HostError(f"{survey.leader}: the log has a gap: {since.gaps[0]}")
            found = delta(
                logs,
                chroot=self.dependent.chroot(c.inventory),
                after=lowest,
                upto=required_zxid(before[1]),
                owners=state.owners,
                living=self._living(survey, state),
                highest=highest,
                cursor=cursor,
            )
        except (HostError, ZkDataError) as error:
            unread = Unknown("failed", str(error))
            return ProveFacts(before, _leader(c, look), unread, unread)
        return ProveFacts(before, _leader(c, look), Seen(state), Seen(found))

    def check(self, c: Context, f: ProveFacts) -> Verdict:
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
            *_tail_claims(tails, first, f.state.value.newest),
            _delta_claim(self.dependent.words, c, result),
        )
        if blocking(findings):
            return Blocked(findings)
        record = Proved(
            first=first,
            needed=f.state.value.newest,
            delta=ReadDelta(result.after, result.last, result.records),
            cursor=result.cursor,
            baseline=f.state.value,
        )
        return Done(findings, record.encode())

    def _living(self, survey: Surveyed, state: Ownership) -> set[int]:
        """Return the sessions whose expiry on source loses nothing.

        These are the sessions that SURVEY saw as clients of dest, and the sessions that need not keep an
        ephemeral. In a rehearsal SURVEY saw no such clients, because members are still on source.
        """
        kept = state.kept(self.dependent.keeps).owners.keys()
        return {owner for owner in state.owners if owner in survey.on_dest or owner not in kept}


def _leader(c: Context, look: Look) -> tuple[str | None, int]:
    view = source_view(c.inventory, look)
    return view.leader, view.leading.zxid if view.leading is not None else -1


def _same_leader(c: Context, f: ProveFacts) -> Finding:
    survey = needed(Surveyed, c)
    wanted = (survey.leader, survey.epoch)
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
    """Check that every dest disk reaches the position up to which SURVEY read source's log.

    lowest: the lowest newest zxid of the dest disks. PROVE reads the log only from that position on, so it
    would not notice an earlier transaction that a disk lacks.
    """
    survey = needed(Surveyed, c)
    cursor = survey.cursors.get(survey.leader)
    start = cursor.zxid if cursor is not None else 0
    return claim(
        "prove.cursor",
        "every dest disk reaches the position up to which SURVEY read source's log",
        lowest >= start,
        seen=format_zxid(lowest),
        needed=f"at least {format_zxid(start)}",
        moves=("roll back, so that the dest host catches up, then cut over again",),
    )


def _tail_claims(tails: Mapping[str, int], first: tuple[str, ...], newest: int) -> tuple[Finding, ...]:
    return tuple(
        claim(
            "prove.tail",
            "the newest zxid on the disk covers every transaction that touched the chroot",
            host in first,
            target=host,
            seen=format_zxid(zxid),
            needed=f"at least {format_zxid(newest)}",
            moves=("roll back, so that the dest host catches up, then cut over again",),
        )
        for host, zxid in tails.items()
    )


def _delta_claim(words: Words, c: Context, result: DeltaResult) -> Finding:
    listed = "; ".join(
        f"{format_zxid(m.zxid)} {m.type} {m.path} session {format_session(m.session)}"
        for m in result.missing[:LISTED]
    )
    # Before the roll members write through source, so a rehearsal's delta may hold their writes.
    rehearsed = c.rehearsal and not result.unproved
    severity = Severity.INFO if rehearsed else Severity.BLOCK
    why = f" (expected in a rehearsal: the {words.many} still write through source)" if rehearsed else ""
    missing = f"{len(result.missing)} missing{why}: {listed}" if result.missing else ""
    return claim(
        "prove.delta",
        "every transaction on source that touches the chroot is on dest too",
        result.held,
        severity=severity,
        seen=result.unproved or missing or f"{result.records} read, none missing",
        needed="none missing, no gap",
        moves=("roll back, stop the writer that is named here, then cut over again",),
    )


MEANINGS = meanings(
    """
    prove.source-log: Source's log cannot be read. Cause: A file or directory refuses the ssh account, or
    a host does not answer. To do: Fix the cause that the finding names, then run again.

    prove.leader: Source changed its leader or epoch since SURVEY. Cause: An election happened in the window.
    The proof needs one unbroken log. To do: Let the run go back, then cut over again.

    prove.cursor: A dest disk does not reach the position up to which SURVEY read source's log. Cause: That
    host was behind. To do: Let the run go back, so that the host catches up. Then cut over again.

    prove.delta: Source holds transactions under the chroot that dest lacks, or its log has a gap. Cause: A
    client wrote to source directly during the cut. To do: Let the run go back. Stop the writer that the
    finding names, then cut over again.

    prove.tail: A dest disk does not hold every transaction that touched the chroot. Cause: That host was
    behind when it stopped. To do: Let the run go back, so that the host catches up. Then cut over again.
    """
)
