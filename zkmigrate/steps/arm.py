"""What: prepare every dest host for the cut-over: staged configs, own rules with empty sets, image, guard.

Why now: everything that takes time is done before the window: the whole subtree is read once here, and log
cursors are advanced, so that the window reads only what came since.

Clients may notice: nothing; the rules' sets are empty.

Way back: remove rules, sets, guard, image and staged files.

Proof: own rules on top in both families, the image begun, the subtree of source read without error, every
dest
host observing. The smallest session timeout leaves time for a way back.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.errors import HostError
from zkmigrate.facts.disk import durable_tail
from zkmigrate.facts.ensemble import leader_mntr, learners, source_view
from zkmigrate.facts.ownership import Ownership, to_json
from zkmigrate.facts.subtree import source_ownership
from zkmigrate.facts.window import LOOK_MOVES, Statuses, statuses, unknown
from zkmigrate.inventory import Inventory
from zkmigrate.model.change import Applied, Arm, Changes, HostVerb, PutFile
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.finding import Finding, claim
from zkmigrate.model.look import Look
from zkmigrate.model.step import Blocked, Context, Done, Hazard, Ready, Verdict, Way
from zkmigrate.rules.reform import observer_config, reformed_config
from zkmigrate.rules.window import deadlines
from zkmigrate.steps.cursors import to_json as cursor_json
from zkmigrate.steps.join import source_server_lines
from zkmigrate.zkdata.errors import ZkDataError
from zkmigrate.zkdata.tail import Tail
from zkmigrate.zkdata.txnlog import Cursor


@dataclass(frozen=True)
class ArmFacts:
    """ownership, source cursor and tails are read only once every host is armed."""

    hosts: Statuses
    source_lines: Reading[tuple[str, ...]]
    leader: str | None
    learners: int | None
    ownership: Reading[tuple[Ownership, Cursor | None]]
    tails: dict[str, Reading[Tail]]


class ArmStep:
    """See the module."""

    id = "arm"
    title = "Arm dest"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> ArmFacts:
        inventory = c.inventory
        hosts = statuses(c, look)
        lines = source_server_lines(inventory, look)
        view = source_view(inventory, look)
        mntr = leader_mntr(look, view.leader) if view.leader is not None else None
        count = learners(mntr.value) if isinstance(mntr, Seen) else None
        absent: Reading[tuple[Ownership, Cursor | None]] = Absent("not read before every host is armed")
        if len(hosts.in_phase("armed")) < len(inventory.dest.hosts) or view.leader is None:
            return ArmFacts(hosts, lines, view.leader, count, absent, {})

        def tail(host: str) -> Reading[Tail]:
            try:
                return Seen(durable_tail(look, host, inventory.dest.data_dir, inventory.dest.txn_dir))
            except (HostError, ZkDataError) as error:
                return Unknown("failed", str(error))

        tails = look.each(inventory.dest_names, tail)
        source = inventory.source
        ownership = source_ownership(
            look, view.leader, source.data_dir, source.txn_dir, inventory.kafka.chroot
        )
        return ArmFacts(hosts, lines, view.leader, count, ownership, tails)

    def check(self, c: Context, f: ArmFacts, way: Way) -> Verdict:
        if f.hosts.unknown:
            return Blocked(f.hosts.unknown)
        if way is Way.BACK:
            armed = f.hosts.in_phase("armed")
            return Ready(armed) if armed else Done()
        if wrong := f.hosts.outside("arm", "idle", "armed"):
            return Blocked(wrong)
        if not isinstance(f.source_lines, Seen):
            return Blocked((unknown("arm.source-config", "source", f.source_lines),))
        if todo := f.hosts.in_phase("idle"):
            return Ready(todo)
        findings = (*_armed(f), *_readable(c, f))
        if any(x.blocks for x in findings) or not isinstance(f.ownership, Seen):
            return Blocked(findings)
        state, cursor = f.ownership.value
        cursors = {h: cursor_json(r.value.cursor) for h, r in f.tails.items() if isinstance(r, Seen)}
        record = {
            "leader": f.leader,
            "learners": f.learners,
            "ownership": to_json(state),
            "cursors": {**cursors, str(f.leader): cursor_json(cursor)},
            "smallest_timeout_ms": state.smallest_timeout_ms,
        }
        return Done(findings, record)

    def plan(self, c: Context, f: ArmFacts, target: str) -> Changes:
        lines = f.source_lines.value if isinstance(f.source_lines, Seen) else ()
        staged = f"/var/lib/zkmigrate/{c.run}/staged"
        return (
            PutFile(target, f"{staged}/reform.cfg", reformed_config(c.inventory), "root:root", "0600"),
            PutFile(
                target, f"{staged}/observer.cfg", observer_config(c.inventory, lines), "root:root", "0600"
            ),
            Arm(target, arm_spec(c.inventory, c.rehearsal)),
        )

    def undo(self, c: Context, f: ArmFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return (HostVerb(target, "disarm"),)


def arm_spec(inventory: Inventory, rehearsal: bool) -> str:
    """What a dest host must know to act alone, as ``zkm-host arm`` takes it."""
    dest, source = inventory.dest, inventory.source
    values = {
        "unit": dest.service.unit,
        "user": f"{dest.user}:{dest.group}",
        "client_port": dest.ports.client,
        "quorum_port": dest.ports.quorum,
        "election_port": dest.ports.election,
        "operator": ",".join(inventory.operator),
        "peers": ",".join(a for h in dest.hosts for a in (h.address, *h.also)),
        "source": ",".join(a for h in source.hosts for a in (h.address, *h.also)),
        "data_dir": dest.data_dir,
        "log_dir": dest.txn_dir,
        "config_path": dest.config,
        "dynamic_glob": f"{dest.config}.dynamic*",
        "members": ",".join(f"{h.address}:{dest.ports.client}" for h in dest.hosts),
        "rehearsal": "yes" if rehearsal else "no",
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _armed(f: ArmFacts) -> tuple[Finding, ...]:
    return f.hosts.every(
        "arm.ready",
        "own rules are on top with empty sets and the image has begun",
        lambda s: (
            s.rules_on_top
            and s.fence_entries == 0
            and s.cut_entries == 0
            and s.image != "none"
            and s.unit_state == "active"
        ),
        lambda s: (
            f"rules {s.in4}/{s.out4}/{s.in6}/{s.out6}, fence {s.fence_entries}, cut {s.cut_entries}, "
            f"image {s.image}, unit {s.unit_state}"
        ),
    )


def _readable(c: Context, f: ArmFacts) -> tuple[Finding, ...]:
    findings = [unknown("arm.tail", h, r) for h, r in f.tails.items() if not isinstance(r, Seen)]
    if not isinstance(f.ownership, Seen):
        findings.append(unknown("arm.subtree", f.leader or "source", f.ownership))
        return tuple(findings)
    state, _ = f.ownership.value
    findings.append(
        claim(
            "arm.learners",
            "source's leader counts its learners",
            f.learners is not None and f.learners >= len(c.inventory.dest.hosts),
            seen=str(f.learners),
            needed=f"at least {len(c.inventory.dest.hosts)}",
            moves=LOOK_MOVES,
        )
    )
    timeout = state.smallest_timeout_ms
    if timeout is None or c.rehearsal:
        return tuple(findings)
    limits = deadlines(timeout / 1000, c.inventory.policy.way_back_s)
    findings.append(
        claim(
            "arm.way-back",
            "the smallest session timeout leaves time for a way back",
            limits.start_back > 0,
            seen=f"{timeout} ms: the way back must start {limits.start_back:.1f} s after FENCE",
            needed="more than 0 s",
            moves=("raise zookeeper.session.timeout.ms and restart the brokers (the roll does)",),
        )
    )
    return tuple(findings)
