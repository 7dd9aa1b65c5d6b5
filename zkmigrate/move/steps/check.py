"""What: compare the reformed ensemble with the baseline, while clients are still refused.

Why now: this is the last moment at which everything can still be put back.

Clients may notice: nothing more than at the fence.

Way back: stop all dest hosts, put the images back, start the observers, unblock, reopen.

Proof: dest has one leader, every follower is synced, and the epoch is new. Every ephemeral under the chroot
that the dependent must keep has the owner and czxid of the baseline, and there is no other ephemeral.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zkmigrate.hosts.facts.status import HostPhase
from zkmigrate.move.dependent import AnyDependent, OfDependent
from zkmigrate.move.facts.dest_status import SERVING, H, Statuses, phases
from zkmigrate.move.facts.records import Checked, Drained, Proved
from zkmigrate.move.facts.sessions import Sessions, owning_sessions
from zkmigrate.move.steps.serve import can_continue_without
from zkmigrate.runbook.model.change import Applied, Changes, HostVerb
from zkmigrate.runbook.model.fact import Absent, Reading, Seen
from zkmigrate.runbook.model.finding import Finding, Severity, blocking, claim, each, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import (
    Blocked,
    Context,
    Done,
    Forecast,
    Hazard,
    Ready,
    Step,
    Verdict,
    Waiting,
    Way,
)
from zkmigrate.runbook.model.step_record import known, needed
from zkmigrate.runbook.model.window import Phase
from zkmigrate.zookeeper.data.session import format_session, unsigned
from zkmigrate.zookeeper.data.zxid import epoch, format_zxid
from zkmigrate.zookeeper.facts.ensemble import EnsembleView, dest_view, leader_mntr
from zkmigrate.zookeeper.facts.ownership import Ownership
from zkmigrate.zookeeper.questions import ReadZnode, Znode

SYNCED_DEADLINE_S = 10.0
MOVES = ("roll back: zkmigrate rollback",)


@dataclass(frozen=True)
class CheckFacts:
    """The facts about dest once it serves.

    synced: number of followers that the leader counts as synced. owners: the owners of ephemerals, from
    ``dump``.
    """

    hosts: Statuses[HostPhase]
    servers: EnsembleView
    synced: int
    owners: Reading[Sessions]
    znodes: dict[str, Reading[Znode]]


NOT_ASKED = CheckFacts(Statuses({}, ()), EnsembleView({}, None), 0, Absent("not formed yet"), {})
"""The facts for the way back and for the forecast, which read nothing."""


class CheckStep(OfDependent, Step[CheckFacts]):
    id = "check"
    title = "Check dest before clients are let in"
    hazard = Hazard.WINDOW

    def observe(self, c: Context, look: Look) -> CheckFacts:
        if c.way is Way.BACK:
            return NOT_ASKED
        hosts = phases(c, look)
        servers = dest_view(c.inventory, look)
        leader = servers.leader
        if leader is None:
            return CheckFacts(hosts, servers, 0, Absent("leader"), {})
        mntr = leader_mntr(look, leader)
        synced = (mntr.value.synced_followers or 0) if isinstance(mntr, Seen) else 0
        paths = tuple(baseline(c).ephemerals) if has_baseline(c) else ()
        znodes = look.each(paths, lambda path: look.ask(ReadZnode(leader, path)))
        owners = owning_sessions(look, (leader,), self.dependent.chroot(c.inventory))
        return CheckFacts(hosts, servers, synced, owners, znodes)

    def check(self, c: Context, f: CheckFacts) -> Verdict:
        if c.way is Way.BACK:
            return Done()
        opened = f.hosts.in_phase(Phase.OPEN)
        partly = can_continue_without(c, f.hosts)
        if f.hosts.unknown and not partly:
            return Blocked(f.hosts.unknown)
        if wrong := f.hosts.outside("check", *SERVING, *((Phase.GO, Phase.SEALED) if partly else ())):
            return Blocked(wrong)
        serving = c.inventory.dest.majority if opened else len(f.hosts.in_phase(*SERVING))
        followers = serving - 1
        if f.synced < followers and f.hosts.unknown:
            # The silent host may have been the leader. The others elect one, and nothing may turn them back.
            leaderless = _leaderless(f, followers)
            if len(opened) < len(f.hosts.at):
                return Blocked((leaderless,))
            # It may still lead, and only be silent towards the operator. VERIFY looks again after OPEN.
            return Done((replace(leaderless, severity=Severity.WARN),), Checked(f.servers.leader).encode())
        if f.synced < followers:
            return Waiting("every follower is synced", f"{f.synced} of {followers}", SYNCED_DEADLINE_S, 0.05)
        if has_baseline(c):
            same = same_ownership(self.dependent, baseline(c), f.owners, f.znodes, exact=True)
        else:
            same = (lost_baseline("check.baseline"),)
        findings = (*quorum(c, serving_only(f.servers, f.hosts)), *same)
        if opened:
            # A host opened by itself at its own limit: there is no way back, so nothing blocks any more.
            findings = tuple(replace(x, severity=Severity.WARN) for x in findings)
        if blocking(findings):
            return Blocked(findings)
        if todo := f.hosts.in_phase(Phase.STARTED):
            return Ready(todo, findings)
        return Done(findings, Checked(f.servers.leader).encode())

    def plan(self, c: Context, f: CheckFacts, target: str) -> Changes:
        return (HostVerb(target, "checked"),)

    def undo(self, c: Context, f: CheckFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> Forecast[CheckFacts]:
        return Forecast(NOT_ASKED, c.inventory.dest_names)


def _leaderless(f: CheckFacts, followers: int) -> Finding:
    return claim(
        "check.leader",
        "dest reports a leader with a majority",
        None,
        seen=f"leader {f.servers.leader or 'unknown'}, {f.synced} followers synced",
        needed=f"a leader, {followers} followers synced",
        moves=("wait: the hosts elect a leader, and let clients in by themselves at policy.open_limit_s",),
    )


def serving_only(servers: EnsembleView, hosts: Statuses[H]) -> EnsembleView:
    """Return the view with only the hosts that serve, by zkm-host's phase or by the server's own mode."""
    modes = servers.modes()
    serving = {
        host: reading
        for host, reading in servers.servers.items()
        if hosts.phase(host) in SERVING or modes[host] in ("leader", "follower")
    }
    return replace(servers, servers=serving)


def baseline(c: Context) -> Ownership:
    """Return the state under the chroot that PROVE recorded."""
    return needed(Proved, c).baseline


def has_baseline(c: Context) -> bool:
    """Return whether PROVE's record exists. It is missing if the journal with the record is lost."""
    return known(Proved, c) is not None


def lost_baseline(id: str, severity: Severity = Severity.BLOCK) -> Finding:
    """Return the finding that sessions and ephemerals cannot be compared with their state before the cut."""
    return claim(
        id,
        "sessions and ephemerals are the same as before the cut",
        None,
        severity=severity,
        seen="the part of the journal that recorded them is lost",
        needed="the record of PROVE",
        moves=(
            "wait: the dest hosts check their quorum and let clients in by themselves at policy.open_limit_s",
            "or go back before that: zkmigrate rollback",
        ),
    )


def quorum(c: Context, servers: EnsembleView) -> tuple[Finding, ...]:
    """Check that dest has one leader, all other servers follow it, and all are in one epoch above source's.

    Source's epoch comes from DRAIN's record; without the record it counts as 0.
    """
    modes = servers.modes()
    epochs = {host: epoch(zxid) for host, zxid in servers.zxids().items()}
    new = epochs.get(servers.leader or "", 0)
    drained = known(Drained, c)
    old = 0 if drained is None else epoch(drained.z)
    return (
        claim(
            "check.quorum",
            "dest has one leader and all other servers follow",
            sorted(modes.values()) == sorted(["leader", *["follower"] * (len(modes) - 1)]),
            seen=each(modes),
            moves=MOVES,
        ),
        claim(
            "check.epoch",
            "dest's leader serves in a new epoch, and no server is in a later epoch",
            # A follower shows the old epoch until the first transaction of the new one.
            new > old and max(epochs.values()) == new,
            seen=f"epochs {each(epochs)}; leader {servers.leader or 'none'}",
            needed=f"the leader's epoch above {old}",
            moves=MOVES,
        ),
    )


def same_ownership(
    dependent: AnyDependent,
    wanted: Ownership,
    owners: Reading[Sessions],
    znodes: dict[str, Reading[Znode]],
    exact: bool,
) -> tuple[Finding, ...]:
    """Check that every session under the chroot still owns the same ephemerals, with the same czxid.

    Only ephemerals that the dependent must keep are compared. wanted: the baseline. exact: whether an
    additional ephemeral is a failure too, because no client is let in yet. Without ``exact`` nothing is
    compared if the dependent must keep none of the ephemerals.
    """
    kept = wanted.kept(dependent.keeps)
    if not exact and wanted.ephemerals and not kept.ephemerals:
        return ()
    if not isinstance(owners, Seen):
        return (
            claim("check.owners", "dest's leader lists its sessions", None, seen=str(owners), moves=MOVES),
        )
    expected = {unsigned(owner): paths for owner, paths in kept.owners.items()}
    unkept = {
        (unsigned(e.owner), path) for path, e in wanted.ephemerals.items() if path not in kept.ephemerals
    }

    def compared(owner: int, path: str) -> bool:
        under = wanted.chroot.holds(path)
        return under and (exact or path in kept.ephemerals) and (unsigned(owner), path) not in unkept

    listed = owners.value.owners.items()
    seen = {owner: tuple(sorted(p for p in paths if compared(owner, p))) for owner, paths in listed}
    seen = {owner: paths for owner, paths in seen.items() if paths}
    wrong = {
        o: (expected.get(o, ()), seen.get(o, ()))
        for o in {*expected, *seen}
        if expected.get(o) != seen.get(o)
    }
    moved = [
        f"{path}: czxid {_czxid(znodes.get(path))}, was {format_zxid(e.czxid)}"
        for path, e in kept.ephemerals.items()
        if not _same(znodes.get(path), e.czxid, e.owner)
    ]
    unread = any(not isinstance(znodes.get(path), Seen | Absent) for path in kept.ephemerals)
    return (
        claim(
            "check.owners",
            "every session under the chroot owns the same ephemerals",
            not wrong,
            seen="; ".join(
                f"{format_session(o)}: had {a}, has {b}" for o, (a, b) in sorted(wrong.items())[:5]
            )
            or f"{len(seen)} sessions, {sum(len(p) for p in seen.values())} ephemerals",
            needed=f"{len(expected)} sessions, {len(kept.ephemerals)} ephemerals",
            moves=MOVES,
        ),
        claim(
            "check.czxid",
            "every ephemeral under the chroot is the same znode as before",
            None if unread else not moved,
            seen="; ".join(moved[:5]) or f"{len(kept.ephemerals)} the same",
            moves=MOVES,
        ),
    )


def _same(reading: Reading[Znode] | None, czxid: int, owner: int) -> bool:
    return (
        isinstance(reading, Seen)
        and reading.value.czxid == czxid
        and unsigned(reading.value.ephemeral_owner) == unsigned(owner)
    )


def _czxid(reading: Reading[Znode] | None) -> str:
    return format_zxid(reading.value.czxid) if isinstance(reading, Seen) else str(reading)


MEANINGS = meanings(
    """
    check.leader: Dest reports no leader with a majority. Cause: The hosts are electing a leader, or the
    leader's host does not answer. To do: Wait: the hosts elect a leader, and let clients in by themselves at
    policy.open_limit_s.

    check.quorum: Dest does not have one leader with all other servers following. Cause: A server did not join
    the new ensemble. To do: Let the run go back: zkmigrate rollback.

    check.epoch: Dest's leader does not serve in a new epoch, or a server is in a later one. Cause: The new
    ensemble did not elect after source's last epoch. To do: Let the run go back: zkmigrate rollback.

    check.owners: A session under the chroot owns other ephemerals than before the cut. Cause: A session ended
    or a znode is missing on dest. To do: Let the run go back: zkmigrate rollback.

    check.czxid: An ephemeral under the chroot is another znode than before the cut. Cause: A client deleted
    the ephemeral and created it again. Clients that watch it notice that. To do: Let the run go back:
    zkmigrate rollback.

    check.baseline: The journal does not hold the state to compare with. Cause: The part of the journal with
    PROVE's record is lost. To do: Wait: the dest hosts check their quorum and let clients in by themselves.
    Or roll back before that.
    """
)
