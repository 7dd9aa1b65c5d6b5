"""What: check again after twice the smallest session timeout: sessions, owners, members, dest's quorum.

Why now: a session that did not survive shows only when its timeout has passed on dest.

Clients may notice: nothing; the step only reads. One exception: a dest host without GO gets it here, once it
answers again, and joins the others.

Way back: nothing was changed by this step.

Proof: every member is registered and settled, dest has one leader and all others follow it. Each session that
owned a part of the chroot, and each of its znodes, is compared with the baseline as far as the dependent must
keep it. A difference is reported and does not stop the run: it cannot be repaired, and a member that was
restarted since has a new session. Source's log since PROVE is read: sessions that wrote under the chroot
there are reported, because dest lacks these writes. The subtree of every dest disk at the cut is compared
with source's. A dest host that does not come back within a minute is named and left out, if a majority of
them is open.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from zkmigrate.hosts.facts.status import HostStatus
from zkmigrate.move.dependent import AnyDependent, OfDependent
from zkmigrate.move.facts.dest_status import SERVING, Statuses, statuses
from zkmigrate.move.facts.records import Proved, Stopped, Surveyed, Verified, seconds
from zkmigrate.move.facts.sessions import Sessions, owning_sessions
from zkmigrate.move.facts.subtree import Digests, digests
from zkmigrate.move.rules.window_rules import STEPS
from zkmigrate.move.steps.check import (
    baseline,
    has_baseline,
    lost_baseline,
    quorum,
    same_ownership,
    serving_only,
)
from zkmigrate.move.steps.go import GoFacts, GoStep
from zkmigrate.runbook.model.change import Applied, Changes
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Held, Severity, claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Hazard, Ready, Step, Verdict, Waiting
from zkmigrate.runbook.model.step_record import known, needed
from zkmigrate.runbook.model.window import IDLE, Phase
from zkmigrate.zookeeper.data.delta import DeltaResult, delta
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.sums import Sums
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.facts.disk import directories, read_disk
from zkmigrate.zookeeper.facts.ensemble import EnsembleView, dest_view
from zkmigrate.zookeeper.questions import ReadZnode, Znode

TIMEOUTS = 2
LATE_HOST_S = 60.0
"""The seconds for the start of a host that was missing when the others opened, before its own limit counts.
"""
LISTED = 10
IN_SYNC_S = 120.0
DIGITS = 16
DEFAULT_TICK_MS, MOST_TICKS = 3000, 20
"""ZooKeeper's defaults: its tick, and the longest session timeout in ticks."""
NOT_YET = Absent("not read yet")


@dataclass(frozen=True)
class VerifyFacts:
    """The state of dest after OPEN.

    - settled_for: seconds that the youngest of dest's servers has run
    - own: the state of the cluster, which only the dependent can read
    - since_proof: the changes in source's log after PROVE
    - trees: the sums of the subtree at the cut on every disk; None if they were not read
    - since: when a host was first missing, by the look's clock
    - waited: the seconds since then
    """

    hosts: Statuses[HostStatus]
    settled_for: float
    servers: EnsembleView
    owners: Reading[Sessions]
    znodes: dict[str, Reading[Znode]]
    own: Any
    since_proof: Reading[DeltaResult] = NOT_YET
    trees: Digests | None = None
    since: float = 0.0
    waited: float = 0.0


class VerifyStep(OfDependent, Step[VerifyFacts]):
    id = "verify"
    title = "Verify on dest"
    hazard = Hazard.LATE

    def observe(self, c: Context, look: Look) -> VerifyFacts:
        hosts = statuses(c, look)
        now = look.now()
        since = c.kept.get("since", now)
        settled = min((_age_s(s) for s in hosts.at.values() if s.phase == Phase.OPEN), default=0.0)
        servers = dest_view(c.inventory, look)
        leader = servers.leader
        if leader is None or settled < self._needed_s(c) or not has_baseline(c):
            own = self.dependent.cluster(c, look)
            return VerifyFacts(hosts, settled, servers, NOT_YET, {}, own, since=since, waited=now - since)
        znodes = look.each(tuple(baseline(c).ephemerals), lambda path: look.ask(ReadZnode(leader, path)))
        own = self.dependent.cluster(c, look)
        return VerifyFacts(
            hosts,
            settled,
            servers,
            owning_sessions(look, (leader,), self.dependent.chroot(c.inventory)),
            znodes,
            own,
            self._since_proof(c, look),
            # Large trees take long, so they are read only once no member is behind.
            None if self.dependent.who_is_behind(c.inventory, own) else self._trees(c, look),
            since,
            now - since,
        )

    def check(self, c: Context, f: VerifyFacts) -> Verdict:
        enough = len(f.hosts.in_phase(Phase.OPEN)) >= c.inventory.dest.majority
        if f.hosts.unknown and not enough:
            return Blocked(f.hosts.unknown)
        # A machine that replaces a dead one knows nothing of this run: it is idle.
        if wrong := f.hosts.outside("verify", Phase.SEALED, Phase.GO, *SERVING, *((IDLE,) if enough else ())):
            return Blocked(wrong)
        if sealed := f.hosts.in_phase(Phase.SEALED):
            return Ready(sealed)
        missing = _missing(f)
        limit = c.inventory.policy.open_limit_s + LATE_HOST_S
        if missing and not (enough and f.waited >= limit):
            # With a majority the condition above ends the wait; this deadline is for fewer hosts.
            late, keep = f"not yet: {', '.join(missing)}", {"since": f.since}
            return Waiting("every dest host lets clients in", late, limit + LATE_HOST_S, 1.0, keep)
        needed, d = self._needed_s(c), self.dependent
        if f.settled_for < needed:
            return Waiting(
                "twice the smallest session timeout has passed on dest",
                f"{f.settled_for:.0f} of {needed:.0f} s",
                needed + 10.0,
                1.0,
            )
        if behind := d.who_is_behind(c.inventory, f.own):
            return Waiting(f"every {d.words.one} is registered and has settled", behind, IN_SYNC_S, 0.5)
        if has_baseline(c):
            compared = same_ownership(d, baseline(c), f.owners, f.znodes, exact=False)
            same = tuple(_only_warns(d, x) for x in compared)
        else:
            same = (lost_baseline("verify.baseline", Severity.WARN),)
        findings = (
            *quorum(c, serving_only(f.servers, f.hosts)),
            *same,
            *d.proofs(f.own),
            _strays(f.since_proof),
            *_same_tree(f.trees),
            *_left_out(missing),
        )
        return Done.unless_blocked(findings, Verified(tuple(sorted(missing))).encode())

    def plan(self, c: Context, f: VerifyFacts, target: str) -> Changes:
        return GoStep(self.dependent).plan(c, GoFacts(f.hosts, ()), target)

    def undo(self, c: Context, f: VerifyFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def _needed_s(self, c: Context) -> float:
        """Return the seconds that the youngest server must have run.

        This is twice the smallest timeout, plus the time from a server's start until it lets clients in.
        """
        smallest = (
            baseline(c).kept(self.dependent.keeps).smallest_timeout_ms
            if has_baseline(c)
            else _longest_timeout_ms(c)
        )
        took = seconds(c, "cutover")
        until_open = sum(took.get(step, 0.0) for step in STEPS.after(STEPS.seals))
        return TIMEOUTS * (smallest or 0) / 1000 + until_open

    def _trees(self, c: Context, look: Look) -> Digests | None:
        stopped, survey = known(Stopped, c), known(Surveyed, c)
        if stopped is None or not stopped.tails or survey is None:
            return None
        chroot, at_the_cut = self.dependent.chroot(c.inventory), min(stopped.tails.values())
        return digests(look, c.inventory, chroot, survey.leader, at_the_cut, c.tell)

    def _since_proof(self, c: Context, look: Look) -> Reading[DeltaResult]:
        """Read source's log from where PROVE stopped to its current end.

        In this part of the log the sessions that moved to dest expire.
        """
        proved, leader = needed(Proved, c), needed(Surveyed, c).leader
        owners = proved.baseline.owners
        _, logs = directories(look, leader, c.inventory.source)
        return read_disk(
            lambda: delta(
                logs,
                chroot=self.dependent.chroot(c.inventory),
                after=proved.delta.last,
                upto=None,
                owners=owners,
                living=owners.keys(),
                cursor=proved.cursor,
            ),
            leader,
        )


def _missing(f: VerifyFacts) -> dict[str, str]:
    """Return the dest hosts that are not open, each with its state as text.

    A replaced host that serves is not missing.
    """
    modes = f.servers.modes()
    return {x.target: x.seen for x in f.hosts.unknown} | {
        host: f"phase {status.phase}, server {modes[host]}"
        for host, status in f.hosts.at.items()
        if status.phase != Phase.OPEN and not (status.phase == IDLE and modes[host] in ("leader", "follower"))
    }


def _left_out(missing: dict[str, str]) -> tuple[Finding, ...]:
    return tuple(
        claim(
            "verify.missing",
            "the dest host serves with the other dest hosts",
            False,
            severity=Severity.WARN,
            target=host,
            seen=f"{seen}; the other hosts serve without this host",
            needed="phase open",
            moves=("bring the host back or replace it: docs/how-to/host-died.md",),
        )
        for host, seen in sorted(missing.items())
    )


def _age_s(status: HostStatus) -> float:
    """Return the seconds that the server has run, on the host's boot clock, which no one sets.

    If the service has no start time, the time since the opening of the host is returned.
    """
    return status.uptime_s - (status.unit_since or status.phase_since)


def _longest_timeout_ms(c: Context) -> int:
    """Return the longest session timeout that dest grants, in milliseconds.

    In ZooKeeper's configuration -1 means the default.
    """
    settings = c.inventory.dest.settings
    tick = int(settings.get("tickTime", DEFAULT_TICK_MS))
    most = int(settings.get("maxSessionTimeout", -1))
    return MOST_TICKS * tick if most < 0 else most


def _same_tree(trees: Digests | None) -> tuple[Finding, ...]:
    """Check that each dest disk held source's subtree at the cut.

    The finding only warns, because the move has no way back any more.
    """
    if trees is None:
        return ()
    zxid, source = trees.zxid, trees.source

    def finding(host: str, reading: Reading[Sums]) -> Finding:
        held = None
        if isinstance(source, Seen) and isinstance(reading, Seen):
            ours, theirs = source.value, reading.value
            held = ours.sums == theirs.sums
            seen = f"{theirs.znodes} znodes at {format_zxid(zxid)}, digest {theirs.digest[:DIGITS]}"
            seen += "" if held else f"; on source {ours.znodes}, digest {ours.digest[:DIGITS]}"
        else:
            seen = str(reading if isinstance(source, Seen) else source)
        return claim(
            "verify.same-tree",
            "the dest disk held the same subtree as source at the cut",
            held,
            severity=Severity.WARN,
            target=host,
            seen=seen,
            needed="the same data, ACLs, stat fields and owners",
            moves=("zkmigrate prove digest --after-cut names every path that differs",),
        )

    return tuple(finding(host, reading) for host, reading in trees.hosts.items())


def _only_warns(dependent: AnyDependent, found: Finding) -> Finding:
    """Turn a failed claim about sessions into a warning; an unknown one still blocks."""
    if found.held is not Held.NO:
        return found
    one = dependent.words.one
    moves = (
        f"a {one} that was restarted, or was away for its session's timeout, has a new session: it is "
        "registered again, and nothing more is needed",
        f"otherwise find out why the session ended, from the report's timeline and the {one}'s log",
    )
    return replace(found, severity=Severity.WARN, moves=moves)


def _strays(reading: Reading[DeltaResult]) -> Finding:
    """Check that no client wrote under the chroot on source since the proof.

    The finding only warns, because the move has no way back any more.
    """
    result = reading.value if isinstance(reading, Seen) else None
    written = [m for m in result.missing if not m.expiry] if result is not None else []
    listed = "; ".join(
        f"{m.type} {m.path} by session {format_session(m.session)} at {format_zxid(m.zxid)}"
        for m in written[:LISTED]
    )
    unread = result.unproved if result is not None else str(reading)
    return claim(
        "verify.strays",
        "no client has written under the chroot on source since the proof",
        False if written else None if unread else True,
        severity=Severity.WARN,
        seen=f"{len(written)} writes missing on dest: {listed}" if written else unread or "only expiries",
        needed="only expiries of the sessions that live on dest",
        moves=(
            "find the client by its session in source's logs, point it to dest and repeat its writes there",
        ),
    )


MEANINGS = meanings(
    """
    verify.strays: A client wrote under the chroot on source after the proof. Cause: The client still uses
    source. Dest lacks its writes. To do: Find the client by its session in source's logs. Point the client to
    dest and repeat its writes there.

    verify.missing: A dest host does not serve with the other hosts. Cause: The host died, or did not receive
    GO. To do: Bring the host back or replace it: docs/how-to/host-died.md.

    verify.same-tree: A dest disk held another subtree than source at the cut. Cause: The data diverged before
    the cut. To do: Run zkmigrate prove digest --after-cut, which names every path that differs.

    verify.baseline: The journal does not hold the state to compare with. Cause: The part of the journal
    with PROVE's record is lost. To do: Compare sessions and partitions by hand.
    """
)
