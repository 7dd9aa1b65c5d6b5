"""What: read the whole subtree on source and the newest transaction on every disk, once.

Why now: the reading takes time in proportion to the tree. The window then reads only newer transactions.

Clients may notice: nothing; the step only reads.

Way back: nothing was changed by this step.

Proof: source's subtree and every dest disk can be read, source's leader counts the dest hosts as learners,
and the dest hosts answer quickly enough for a lease. For the cut-over also: dest's disks hold the same
subtree as source at one zxid. Every session that owns a part of it is a client of dest alone. No foreign
client is connected to dest. The smallest session timeout leaves time for a way back, and FENCE to SEAL ends
before the latest start of a way back. FENCE to SEAL is assumed to take the rehearsed time plus a margin;
without a rehearsal, the time that the policy gives the way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkmigrate.errors import RecordError
from zkmigrate.inventory.checks import FENCE_OUTLIVES_CUT_MS
from zkmigrate.inventory.inventory import Lease
from zkmigrate.move.dependent import AnyDependent, OfDependent, Words
from zkmigrate.move.facts.connections import connections_of
from zkmigrate.move.facts.dest_status import LOOK_MOVES, round_trips, unanswered, unknown
from zkmigrate.move.facts.records import ChosenLease, Surveyed
from zkmigrate.move.facts.sessions import Homes, homes
from zkmigrate.move.facts.subtree import Comparison, compare_with_source, source_ownership
from zkmigrate.move.rules import lease
from zkmigrate.move.rules.foreign_clients import foreign_findings
from zkmigrate.move.rules.server_down import servers_to_ask
from zkmigrate.move.rules.window_rules import (
    FIND_DOOR_S,
    MESSAGES_TO_SEAL,
    TO_SEAL,
    deadlines,
    expected_way_back_s,
    hold_s,
    rehearsed_s,
    to_seal_s,
)
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, blocking, claim, each, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Reads, Verdict
from zkmigrate.runbook.model.step_record import known
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.tail import Tail
from zkmigrate.zookeeper.data.tree import Difference
from zkmigrate.zookeeper.data.txnlog import Cursor
from zkmigrate.zookeeper.data.zxid import epoch, format_zxid
from zkmigrate.zookeeper.facts.disk import durable_tail
from zkmigrate.zookeeper.facts.ensemble import learners, mntr_of_leader, source_view
from zkmigrate.zookeeper.facts.ownership import Ownership

LISTED = 5
LEAST_TO_SEAL_S = 1.0
"""The shortest time from FENCE to SEAL that was measured, in seconds."""
TRIES = 5


@dataclass(frozen=True)
class SurveyFacts:
    """The readings of SURVEY from source and dest.

    leader, epoch, learners: source's leader, the epoch of its zxid and the number of learners it counts
    beside its followers in sync.
    ownership: the owners of ephemerals under the chroot, with the position in the leader's log. tails: the
    newest zxid of every dest host, read before source's log. renewals: the longest round trip of each dest
    host, in seconds.

    Three fields are not read in a rehearsal. comparison: the disks of dest and source at one zxid. homes: the
    ensemble of each session. foreign: findings about other clients of dest; an accepted finding only warns.
    """

    leader: str
    epoch: int
    learners: int | None
    ownership: Reading[tuple[Ownership, Cursor | None]]
    tails: dict[str, Reading[Tail]]
    comparison: Reading[Comparison] | None = None
    homes: Homes | None = None
    foreign: tuple[Finding, ...] = ()
    renewals: Mapping[str, Reading[float]] = field(default_factory=dict)


class SurveyStep(OfDependent, Reads[SurveyFacts]):
    id = "survey"
    title = "Read the subtree and the disks"

    def observe(self, c: Context, look: Look) -> SurveyFacts:
        view = source_view(c.inventory, look)
        if view.leader is None:
            return SurveyFacts(
                "", 0, None, Unknown("failed", f"source has no leader: {each(view.modes())}"), {}
            )
        now, earlier = epoch(view.zxids()[view.leader]), _earlier(c)
        cursors = earlier.cursors if earlier is not None else {}
        count = learners(mntr_of_leader(look, view))
        tails = look.each(
            c.inventory.dest_names, lambda host: durable_tail(look, host, c.inventory.dest, cursors.get(host))
        )
        if c.rehearsal:
            read = self._source(c, look, view.leader, now, earlier)
            trips = round_trips(c, look, TRIES)
            return SurveyFacts(view.leader, now, count, read, tails, renewals=trips)
        lowest = [int(r.value.zxid) for r in tails.values() if isinstance(r, Seen)]
        if len(lowest) < len(tails):
            return SurveyFacts(view.leader, now, count, Absent("dest's disks must be read first"), tails)
        chroot = self.dependent.chroot(c.inventory)
        read, comparison = compare_with_source(look, c.inventory, chroot, view.leader, min(lowest), c.tell)
        owners = read.value[0].owners if isinstance(read, Seen) else {}
        kept = read.value[0].kept(self.dependent.keeps).owners if isinstance(read, Seen) else {}
        # After the disks: a session that opened since is not in their state, so no claim is made about it.
        at_dest = connections_of(look, c.inventory.dest_names)
        at_source = connections_of(look, servers_to_ask(c.inventory, look))
        foreign = foreign_findings(c, self.dependent, look, at_dest)
        found = homes(owners, at_dest, at_source, owners.keys() - kept.keys())
        # Last, because it shows how busy the hosts are now.
        trips = round_trips(c, look, TRIES)
        return SurveyFacts(view.leader, now, count, read, tails, comparison, found, foreign, trips)

    def check(self, c: Context, f: SurveyFacts) -> Verdict:
        findings = _readable(self.dependent, c, f)
        if blocking(findings) or not isinstance(f.ownership, Seen) or f.learners is None:
            return Blocked(findings)
        state, cursor = f.ownership.value
        kept = state.kept(self.dependent.keeps)
        picked = _lease(c, f, kept)
        findings = (*findings, _lease_fits(self.dependent.words, c, f, kept, picked))
        if picked is None:
            return Blocked(findings)
        cursors = {h: r.value.cursor for h, r in f.tails.items() if isinstance(r, Seen)}
        record = Surveyed(
            leader=f.leader,
            epoch=f.epoch,
            learners=f.learners,
            ownership=state,
            cursors={**cursors, f.leader: cursor},
            smallest_timeout_ms=kept.smallest_timeout_ms,
            on_dest=tuple(sorted(f.homes.on_dest, key=hex)) if f.homes else (),
            lease=ChosenLease(picked.fence_ttl_ms, picked.cut_ttl_ms),
        )
        return Done(findings, record.encode())

    def _source(
        self, c: Context, look: Look, leader: str, now: int, earlier: Surveyed | None
    ) -> Reading[tuple[Ownership, Cursor | None]]:
        """Read the owners on source, or only their changes since an earlier survey of the same leader and
        epoch.

        now: the current epoch.
        """
        start = None
        if earlier is not None and (earlier.leader, earlier.epoch) == (leader, now):
            cursor = earlier.cursors.get(leader)
            start = None if cursor is None else (earlier.ownership, cursor)
        chroot = self.dependent.chroot(c.inventory)
        return source_ownership(look, leader, c.inventory.source, chroot, start, c.tell)


def _earlier(c: Context) -> Surveyed | None:
    """Return the record of an earlier visit of this step, or None.

    A record that another version wrote is ignored, because everything can be read again.
    """
    try:
        return known(Surveyed, c)
    except RecordError:
        return None


def _readable(dependent: AnyDependent, c: Context, f: SurveyFacts) -> tuple[Finding, ...]:
    findings = [*unanswered("survey.tail", f.tails)]
    if not isinstance(f.ownership, Seen):
        return (*findings, unknown("survey.subtree", f.leader or "source", f.ownership))
    state, _ = f.ownership.value
    findings.append(
        claim(
            "survey.learners",
            "source's leader counts its learners",
            f.learners is not None and f.learners >= len(c.inventory.dest.hosts),
            seen="unknown" if f.learners is None else str(f.learners),
            needed=f"at least {len(c.inventory.dest.hosts)}",
            moves=LOOK_MOVES,
        )
    )
    if c.rehearsal:
        return tuple(findings)
    kept, words = state.kept(dependent.keeps), dependent.words
    findings += [*_baseline(words, state, kept), _homes(f.homes), *f.foreign, *_same_tree(f.comparison)]
    timeout = kept.smallest_timeout_ms
    if timeout is None:
        return tuple(findings)
    way_back = expected_way_back_s(c)
    limits = deadlines(timeout / 1000, way_back)
    findings.append(
        claim(
            "survey.way-back",
            "the smallest session timeout leaves time for a way back",
            limits.start_back > LEAST_TO_SEAL_S,
            seen=f"timeout {timeout} ms, way back {way_back:.1f} s as rehearsed: it would have to start "
            f"{limits.start_back:.1f} s after FENCE",
            needed=f"more than {LEAST_TO_SEAL_S:g} s, in which SEAL is reached",
            moves=(
                "rehearse again on a quieter machine: zkmigrate rollback --to rehearse, then run",
                words.longer_sessions,
            ),
        )
    )
    trip_s = _worst_s(f) or 0.0
    findings.append(_window_fits(words, c, trip_s, limits.start_back))
    limit = c.inventory.policy.open_limit_s
    findings.append(
        claim(
            "survey.open-limit",
            "dest lets clients in before it expires a session",
            limit + FIND_DOOR_S < limits.forward,
            seen=f"without OPEN the hosts let clients in {limit:g} s after they serve, and clients need "
            f"{FIND_DOOR_S:g} s to reconnect",
            needed=f"less than the smallest session timeout, {limits.forward:g} s",
            moves=("lower policy.open_limit_s in migration.yml",),
        )
    )
    return tuple(findings)


def _window_fits(words: Words, c: Context, trip_s: float, left_s: float) -> Finding:
    """Check that SEAL can be reached before the way back must start.

    trip_s: the longest round trip to a host. left_s: seconds from FENCE until the way back must start.
    """
    policy, took, counted = c.inventory.policy, rehearsed_s(c, *TO_SEAL), to_seal_s(c, trip_s)
    margin = f"times {policy.window_margin:g} (policy.window_margin)"
    moves: tuple[str, ...]
    if took is not None:
        counts = f"this took {took:.1f} s in the rehearsal, {margin} is {counted:.1f} s"
        moves = ("rehearse again on a quieter machine: zkmigrate rollback --to rehearse, then run",)
    else:
        counts = (
            f"not rehearsed, so this is assumed to take {counted:.1f} s: the longer of policy.way_back_s "
            f"({policy.way_back_s:g} s) {margin} and {MESSAGES_TO_SEAL} round trips of {trip_s:.2f} s"
        )
        moves = ("rehearse, which measures the time: zkmigrate rollback --to rehearse, then run",)
    if hold := hold_s(c):
        counts += f"; an answer to the hold after {c.hold_at} needs {hold:g} s more"
        moves = ("zkmigrate release, then resume; or hold after SEAL: zkmigrate hold --at seal", *moves)
    return claim(
        "survey.window-fits",
        "FENCE to SEAL ends before the way back must start",
        counted + hold <= left_s,
        seen=f"{counts}; the way back must start {left_s:.1f} s after FENCE",
        needed=f"at most {left_s:.1f} s",
        moves=(*moves, words.longer_sessions),
    )


def _worst_s(f: SurveyFacts) -> float | None:
    """Return the longest round trip to any host in seconds; None if a host did not answer."""
    trips = [r.value for r in f.renewals.values() if isinstance(r, Seen)]
    return max(trips) if trips and len(trips) == len(f.renewals) else None


def _timeout_s(c: Context, state: Ownership) -> float | None:
    timeout = None if c.rehearsal else state.smallest_timeout_ms
    return None if timeout is None else timeout / 1000


def _lease(c: Context, f: SurveyFacts, state: Ownership) -> Lease | None:
    worst = _worst_s(f)
    allowed = lease.longest(c, _timeout_s(c, state))
    return None if worst is None else lease.choose_lease(c.inventory.policy.lease, worst, allowed)


def _lease_fits(words: Words, c: Context, f: SurveyFacts, kept: Ownership, picked: Lease | None) -> Finding:
    trips = each({h: f"{r.value:.2f} s" if isinstance(r, Seen) else str(r) for h, r in f.renewals.items()})
    worst, allowed = _worst_s(f), lease.longest(c, _timeout_s(c, kept))
    if worst is None:
        needed = "an answer of every dest host"
    else:
        cut_ms = lease.needed_ms(c.inventory.policy.lease, worst)
        fence_ms = cut_ms + FENCE_OUTLIVES_CUT_MS
        needed = (
            f"a cut of {cut_ms} ms and a fence of {fence_ms} ms cover the longest round trip; policy and "
            f"deadline allow {max(0.0, allowed.cut_ms):.0f} and {max(0.0, allowed.fence_ms):.0f} ms"
        )
    return claim(
        "survey.lease",
        "the dest hosts answer quickly enough for a lease",
        None if worst is None else picked is not None,
        seen=f"longest of {TRIES} round trips: {trips}"
        + (f"; lease: fence {picked.fence_ttl_ms} ms, cut {picked.cut_ttl_ms} ms" if picked else ""),
        needed=needed,
        moves=(
            "find out why the host is slow, then resume, which measures again",
            f"raise policy.lease.longest_ms, or the {words.many}' session timeout",
        ),
    )


def _baseline(words: Words, state: Ownership, kept: Ownership) -> tuple[Finding, ...]:
    """Check that the chroot holds ephemerals to compare later, and that every timeout is known.

    CHECK compares sessions and ephemerals with this baseline; the timeouts give the deadline.
    """
    nameless = kept.without_timeout
    return (
        claim(
            "survey.baseline",
            "the chroot holds ephemerals to compare with afterwards",
            bool(state.ephemerals),
            seen=f"{len(state.ephemerals)} ephemerals of {len(state.owners)} sessions under {state.chroot}",
            needed=f"at least the registration of one {words.one}",
            moves=(f"correct {words.kind}.chroot in migration.yml", f"start the {words.many}"),
        ),
        claim(
            "survey.timeouts",
            "the timeout of every session that owns a znode of the chroot is known",
            None if nameless else True,
            seen=", ".join(format_session(s) for s in nameless[:LISTED]) or f"all of {len(kept.owners)}",
            needed="the timeout of each: the deadline of a way back follows from it",
            moves=("restart the client that owns this session, then resume", *LOOK_MOVES),
        ),
    )


def _homes(found: Homes | None) -> Finding:
    """Check that every session is connected to dest alone.

    At OPEN a session that is not on dest would lose its ephemerals.
    """
    found = found or Homes(frozenset(), {}, ("the client lists were not read",))
    astray = sorted(found.astray.items())
    listed = [f"session {format_session(session)}: {where}" for session, where in astray[:LISTED]]
    return claim(
        "survey.sessions-on-dest",
        "every session that owns an ephemeral under the chroot is a client of dest and of no source host",
        None if found.unknown else not astray,
        seen="; ".join((*found.unknown, *listed)) or f"{len(found.on_dest)} sessions, all on dest",
        needed="every session listed in cons of a dest host and of no source host",
        moves=(
            "move the client named here to dest, or stop it, then resume",
            "allow cons in 4lw.commands.whitelist",
        ),
    )


def _same_tree(comparison: Reading[Comparison] | None) -> tuple[Finding, ...]:
    sentence = "the dest disk holds the same subtree as source at one zxid"
    moves = (
        "remove the dest host named here: zkmigrate rollback, then join it again with an empty disk",
        "run zkmigrate resume, which reads source and dest again",
    )
    if not isinstance(comparison, Seen):
        return (claim("survey.same-tree", sentence, None, seen=str(comparison), moves=moves),)
    at = f"{comparison.value.znodes} znodes at {format_zxid(comparison.value.zxid)}"

    def finding(host: str, found: Reading[tuple[Difference, ...]]) -> Finding:
        different = found.value if isinstance(found, Seen) else ()
        listed = "; ".join(f"{d.path}: {d.kind} {d.left} / {d.right}" for d in different[:LISTED])
        seen = f"source / dest, {at}: {listed}" if listed else f"equal, {at}"
        return claim(
            "survey.same-tree",
            sentence,
            not different if isinstance(found, Seen) else None,
            target=host,
            seen=seen if isinstance(found, Seen) else str(found),
            needed="the same data, ACLs, stat fields and owners",
            moves=moves,
        )

    return tuple(finding(host, found) for host, found in comparison.value.hosts.items())


MEANINGS = meanings(
    """
    survey.learners: Source's leader counts fewer learners than there are dest hosts. Cause: A dest host
    does not follow source, or the leader does not report the number. To do: Find the dest host that does
    not follow, then resume.

    survey.way-back: The smallest session timeout leaves no time for a way back. Cause: The way back takes
    longer than the smallest session timeout allows. To do: Rehearse again on a quieter machine, or raise
    the brokers' session timeout and restart them.

    survey.open-limit: Dest would expire sessions before its hosts open by themselves. Cause:
    policy.open_limit_s is too long for the smallest session timeout. To do: Lower policy.open_limit_s in
    migration.yml.

    survey.window-fits: FENCE to SEAL would end after the way back must start. Cause: The rehearsal was
    slow, or a hold needs too much time. To do: Rehearse again on a quieter machine, drop the hold, or
    raise the session timeout.

    survey.lease: A dest host answers too slowly for any lease. Cause: The network or the host is slow. To
    do: Find out why the host is slow, then resume: SURVEY measures again. Or raise
    policy.lease.longest_ms.

    survey.baseline: The chroot holds no ephemeral to compare with afterwards. Cause: The chroot is wrong,
    or no broker runs. To do: Correct the chroot in migration.yml, or start the brokers.

    survey.timeouts: The timeout of a session that owns an ephemeral under the chroot is not known. Cause: No
    server reports this timeout. Without it the way back has no deadline. To do: Restart the client that owns
    this session, then resume.

    survey.sessions-on-dest: A session that owns an ephemeral under the chroot is a client of source, or of no
    dest host. Cause: A broker or tool still uses source. To do: Move that client to dest, or stop it. Then
    resume.

    survey.same-tree: A dest disk holds another subtree than source, or the two cannot be compared. Cause: A
    host is behind, or its data diverged. To do: Let the host catch up, then resume. If the subtrees still
    differ, roll back to join.

    survey.tail: The disk of a dest host cannot be read. Cause: The host does not answer. To do: Find out
    why, then resume.

    survey.subtree: The sessions and ephemerals under the chroot cannot be read. Cause: Source's leader
    does not answer dump, or its log cannot be read. To do: Find out why, then resume.
    """
)
