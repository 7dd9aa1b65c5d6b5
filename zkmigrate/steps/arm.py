"""What: prepare every dest host for the cut-over: staged configs, own rules with empty sets, image, guard.

Why now: everything that takes time is done before the window.

Clients may notice: nothing; the rules' sets are empty.

Way back: remove rules, sets, guard, image and staged files.

Proof: own rules on top in both families, their sets empty, the image begun, the observer running.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zkmigrate.errors import HostError
from zkmigrate.facts.window import Statuses, statuses, unknown
from zkmigrate.inventory import Inventory
from zkmigrate.model.change import Applied, Arm, Changes, HostVerb, PutFile, inverses
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.finding import Finding
from zkmigrate.model.look import Look
from zkmigrate.model.step import Blocked, Context, Done, Hazard, Ready, Verdict, Way
from zkmigrate.rules.reform import observer_config, reformed_config
from zkmigrate.steps.join import source_server_lines


@dataclass(frozen=True)
class ArmFacts:
    """What every dest host says of itself, and source's own server lines."""

    hosts: Statuses
    source_lines: Reading[tuple[str, ...]]


class ArmStep:
    """See the module."""

    id = "arm"
    title = "Arm dest"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> ArmFacts:
        return ArmFacts(statuses(c, look), source_server_lines(c.inventory, look))

    def check(self, c: Context, f: ArmFacts, way: Way) -> Verdict:
        if f.hosts.unknown:
            return Blocked(f.hosts.unknown)
        if way is Way.BACK:
            left = tuple(h for h, s in f.hosts.at.items() if s.phase == "armed" or h in c.unrestored)
            return Ready(left) if left else Done()
        if wrong := f.hosts.outside("arm", "idle", "armed"):
            return Blocked(wrong)
        if not isinstance(f.source_lines, Seen):
            return Blocked((unknown("arm.source-config", "source", f.source_lines),))
        if todo := f.hosts.in_phase("idle"):
            return Ready(todo)
        findings = _armed(f)
        return Blocked(findings) if any(x.blocks for x in findings) else Done(findings)

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

    def preview(self, c: Context, look: Look) -> Mapping[str, Changes]:
        lines = source_server_lines(c.inventory, look)
        if not isinstance(lines, Seen):
            raise HostError(f"source's server lines cannot be read: {lines}")
        facts = ArmFacts(Statuses({}, ()), lines)
        return {host: self.plan(c, facts, host) for host in c.inventory.dest_names}

    def undo(self, c: Context, f: ArmFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return (HostVerb(target, "disarm"), *inverses(applied))


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
