"""What: compare the reformed ensemble with the baseline, behind the closed door.

Why now: this is the last moment at which everything can still be put back.

Clients may notice: nothing more than at the fence.

Way back: stop all dest hosts, put the images back, start the observers, unblock, reopen.

Proof: a quorum with one leader and every follower synced, in a new epoch; every ephemeral under the chroot
has
the owner and czxid of the baseline; nothing more and nothing less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zkmigrate.facts.ensemble import EnsembleView, dest_view, leader_mntr, synced_followers
from zkmigrate.facts.host import HostPhase
from zkmigrate.facts.ownership import Ownership, from_json
from zkmigrate.facts.recorded import Drained, known
from zkmigrate.facts.sessions import Sessions, owning_sessions
from zkmigrate.facts.window import SERVING, H, Statuses, phases
from zkmigrate.model.change import Applied, Changes, HostVerb
from zkmigrate.model.fact import Absent, Reading, Seen
from zkmigrate.model.finding import Finding, Severity, claim, each
from zkmigrate.model.look import Look, Znode
from zkmigrate.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.steps.serve import go_on_without
from zkmigrate.zkdata.zxid import epoch, format_zxid

SYNCED_DEADLINE_S = 10.0
UNSIGNED = 0xFFFFFFFFFFFFFFFF
MOVES = ("roll back: zkmigrate rollback",)


@dataclass(frozen=True)
class CheckFacts:
    """Dest as it serves: state of each server, the leader's monitor values, owners by ``dump``, the
    znodes."""

    hosts: Statuses[HostPhase]
    servers: EnsembleView
    synced: int
    owners: Reading[Sessions]
    znodes: dict[str, Reading[Znode]]


NOT_ASKED = CheckFacts(Statuses({}, ()), EnsembleView({}, None), 0, Absent("not formed yet"), {})
"""For the way back, and for plans that are only shown."""


class CheckStep(Step[CheckFacts]):
    """See the module."""

    id = "check"
    title = "Check dest behind the closed door"
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
        synced = (synced_followers(mntr.value) or 0) if isinstance(mntr, Seen) else 0
        paths = tuple(baseline(c).ephemerals) if has_baseline(c) else ()
        znodes = look.each(paths, lambda path: look.znode(leader, path))
        return CheckFacts(
            hosts, servers, synced, owning_sessions(look, (leader,), c.inventory.kafka.chroot), znodes
        )

    def check(self, c: Context, f: CheckFacts, way: Way) -> Verdict:
        if way is Way.BACK:
            return Done()
        opened = f.hosts.in_phase("open")
        partly = go_on_without(c, f.hosts)
        if f.hosts.unknown and not partly:
            return Blocked(f.hosts.unknown)
        if wrong := f.hosts.outside("check", *SERVING, *(("go", "sealed") if partly else ())):
            return Blocked(wrong)
        serving = c.inventory.dest.majority if opened else len(f.hosts.in_phase(*SERVING))
        followers = serving - 1
        if f.synced < followers and f.hosts.unknown:
            # The host that is not heard may have led: the others elect anew, and nothing may turn them back.
            return Blocked((_leaderless(f, followers),))
        if f.synced < followers:
            return Waiting("every follower is synced", f"{f.synced} of {followers}", SYNCED_DEADLINE_S, 0.05)
        if has_baseline(c):
            same = same_ownership(baseline(c), f.owners, f.znodes, exact=True)
        else:
            same = (without_baseline("check.baseline"),)
        findings = (*quorum(c, those_serving(f.servers, f.hosts)), *same)
        if opened:
            # A finisher reached its own limit: there is no way back, so what does not hold is only said.
            findings = tuple(replace(x, severity=Severity.WARN) for x in findings)
        if any(x.blocks for x in findings):
            return Blocked(findings)
        if todo := f.hosts.in_phase("started"):
            return Ready(todo, findings)
        return Done(findings, {"leader": f.servers.leader})

    def plan(self, c: Context, f: CheckFacts, target: str) -> Changes:
        return (HostVerb(target, "checked"),)

    def undo(self, c: Context, f: CheckFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return ()

    def forecast(self, c: Context, look: Look) -> Forecast[CheckFacts]:
        return Forecast(NOT_ASKED, c.inventory.dest_names)


def _leaderless(f: CheckFacts, followers: int) -> Finding:
    return claim(
        "check.leader",
        "a leader with a majority is heard",
        None,
        seen=f"leader {f.servers.leader or 'not heard'}, {f.synced} followers synced",
        needed=f"a leader, {followers} followers synced",
        moves=("wait: the hosts elect anew, and open by themselves at policy.open_limit_s",),
    )


def those_serving(servers: EnsembleView, hosts: Statuses[H]) -> EnsembleView:
    """Without the hosts that are missing: neither zkm-host nor the server there says that it serves."""
    modes = servers.modes()
    left = {
        host: reading
        for host, reading in servers.servers.items()
        if hosts.phase(host) in SERVING or modes[host] in ("leader", "follower")
    }
    return replace(servers, servers=left)


def baseline(c: Context) -> Ownership:
    """The state under the chroot that PROVE recorded."""
    return from_json(c.records["prove"]["baseline"])


def has_baseline(c: Context) -> bool:
    """False where the journal that held PROVE's record is lost."""
    return "baseline" in c.records.get("prove", {})


def without_baseline(id: str, severity: Severity = Severity.BLOCK) -> Finding:
    """That sessions and their ephemerals cannot be compared with those before the cut."""
    return claim(
        id,
        "sessions and ephemerals are those from before the cut",
        None,
        severity=severity,
        seen="what they were stood in the lost part of the journal",
        needed="the record of PROVE",
        moves=(
            "wait: the dest hosts check their quorum and open by themselves at policy.open_limit_s",
            "before that: zkmigrate rollback",
        ),
    )


def quorum(c: Context, servers: EnsembleView) -> tuple[Finding, ...]:
    """One leader, the others follow, all in one epoch above source's, if DRAIN's record of that is left."""
    modes = servers.modes()
    epochs = {host: epoch(zxid) for host, zxid in servers.zxids().items()}
    led = epochs.get(servers.leader or "", 0)
    drained = known(Drained, c)
    old = 0 if drained is None else epoch(drained.z)
    return (
        claim(
            "check.quorum",
            "dest has one leader and all others follow",
            sorted(modes.values()) == sorted(["leader", *["follower"] * (len(modes) - 1)]),
            seen=each(modes),
            moves=MOVES,
        ),
        claim(
            "check.epoch",
            "dest's leader serves in a new epoch and nobody in a later one",
            # A follower shows the old epoch until the first transaction of the new one.
            led > old and max(epochs.values()) == led,
            seen=f"epochs {each(epochs)}; leader {servers.leader or 'none'}",
            needed=f"the leader's above {old}",
            moves=MOVES,
        ),
    )


def same_ownership(
    wanted: Ownership,
    owners: Reading[Sessions],
    znodes: dict[str, Reading[Znode]],
    exact: bool,
) -> tuple[Finding, ...]:
    """Every session that owned part of the chroot owns the same, with the same czxid.

    exact: nothing may have been added either, as long as the door is closed.
    """
    if not isinstance(owners, Seen):
        return (
            claim("check.owners", "dest's leader lists its sessions", None, seen=str(owners), moves=MOVES),
        )
    expected = {owner & UNSIGNED: paths for owner, paths in wanted.owners.items()}
    under = wanted.chroot + "/"
    seen = {
        owner: tuple(sorted(p for p in paths if p.startswith(under) and (exact or p in wanted.ephemerals)))
        for owner, paths in owners.value.owners.items()
    }
    seen = {owner: paths for owner, paths in seen.items() if paths}
    wrong = {
        o: (expected.get(o, ()), seen.get(o, ()))
        for o in {*expected, *seen}
        if expected.get(o) != seen.get(o)
    }
    moved = [
        f"{path}: czxid {_czxid(znodes.get(path))}, was {format_zxid(e.czxid)}"
        for path, e in wanted.ephemerals.items()
        if not _same(znodes.get(path), e.czxid, e.owner)
    ]
    unread = any(not isinstance(znodes.get(path), Seen | Absent) for path in wanted.ephemerals)
    return (
        claim(
            "check.owners",
            "every session under the chroot owns the same ephemerals",
            not wrong,
            seen="; ".join(f"{o:#x}: had {a}, has {b}" for o, (a, b) in sorted(wrong.items())[:5])
            or f"{len(seen)} sessions, {sum(len(p) for p in seen.values())} ephemerals",
            needed=f"{len(expected)} sessions, {len(wanted.ephemerals)} ephemerals",
            moves=MOVES,
        ),
        claim(
            "check.czxid",
            "every ephemeral under the chroot is the same znode as before",
            None if unread else not moved,
            seen="; ".join(moved[:5]) or f"{len(wanted.ephemerals)} the same",
            moves=MOVES,
        ),
    )


def _same(reading: Reading[Znode] | None, czxid: int, owner: int) -> bool:
    return (
        isinstance(reading, Seen)
        and reading.value.czxid == czxid
        and reading.value.ephemeral_owner & UNSIGNED == owner & UNSIGNED
    )


def _czxid(reading: Reading[Znode] | None) -> str:
    return format_zxid(reading.value.czxid) if isinstance(reading, Seen) else str(reading)
