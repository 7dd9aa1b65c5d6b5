"""What: prepare every dest host for the cut-over: staged configs, rules with empty sets, image, guard.

Why now: work that takes time is done before the window.

Clients may notice: nothing; the rules' sets are empty.

Way back: remove the rules, sets, guard, image and staged files.

Proof: zkm-host's rules are first for IPv4 and IPv6, their sets are empty, the image has begun and the
observer runs. The host works from the spec that this inventory and this stage give it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkmigrate.errors import HostError
from zkmigrate.hosts import zkm_host
from zkmigrate.inventory.inventory import Dest, Inventory, ZooKeeperHost
from zkmigrate.move.facts.connections import numeric
from zkmigrate.move.facts.dest_status import DestStates, every_host_in, statuses, unanswered, unknown
from zkmigrate.move.rules.reform import observer_config, reformed_config
from zkmigrate.move.rules.server_down import members_to_copy
from zkmigrate.runbook.model.change import Applied, Arm, Changes, HostVerb, PutFile, command_words, inverses
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, claim, meanings
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Way
from zkmigrate.runbook.model.window import IDLE, Phase
from zkmigrate.zookeeper.facts.config import ZooConfig, zoo_config
from zkmigrate.zookeeper.facts.members import REJOIN, Members, cut_ports

# Keys that a host's spec must not keep once the inventory names systemd instead of commands.
COMMAND_KEYS = ("start", "stop", "status", "kill", "ports")


@dataclass(frozen=True)
class ArmFacts:
    """The dest hosts' states and source's members.

    specs: dest host → the spec with which it was armed. configs: dest host → its current config, with which
    it observes source.
    """

    states: DestStates
    members: Reading[Members]
    specs: Mapping[str, Reading[bytes]]
    configs: Mapping[str, Reading[ZooConfig]] = field(default_factory=dict)


class ArmStep(Step[ArmFacts]):
    id = "arm"
    title = "Arm dest"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> ArmFacts:
        hosts = statuses(c, look)
        if c.way is Way.BACK:
            return ArmFacts(DestStates(hosts, hosts), Absent("read only going forward"), {})
        spec, dest = f"{zkm_host.run_dir(c.run)}/spec", c.inventory.dest
        return ArmFacts(
            DestStates(hosts, hosts),
            members_to_copy(c.inventory, look),
            look.each(c.inventory.dest_names, lambda host: look.file(host, spec)),
            look.each(
                c.inventory.dest_names,
                lambda host: zoo_config(look, host, dest.config, dest.service, dest.commands),
            ),
        )

    def check(self, c: Context, f: ArmFacts) -> Verdict:
        hosts = f.states.phases
        if hosts.unknown:
            return Blocked(hosts.unknown)
        if c.way is Way.BACK:
            left = tuple(h for h, s in hosts.at.items() if s.phase == Phase.ARMED or h in c.unrestored)
            return Ready(left) if left else Done()
        if wrong := hosts.outside("arm", IDLE, Phase.ARMED):
            return Blocked(wrong)
        if not isinstance(f.members, Seen):
            return Blocked((unknown("arm.source-config", "source", f.members),))
        if nameless := _without_address(c.inventory):
            return Blocked(nameless)
        unread = unanswered("arm.spec", f.specs, Unknown), unanswered("arm.config", f.configs, Unknown)
        if any(unread):
            return Blocked((*unread[0], *unread[1]))
        if changed := _changed(f.members.value, f.configs):
            return Blocked(changed)
        wanted = _spec_values(arm_spec(c.inventory, c.rehearsal, f.members.value))
        stale = {h for h, r in f.specs.items() if isinstance(r, Absent) or not _is_armed_as(wanted, r)}
        if todo := hosts.in_phase(IDLE) or tuple(h for h in hosts.at if h in stale):
            return Ready(todo)
        return Done.unless_blocked(_armed(f))

    def plan(self, c: Context, f: ArmFacts, target: str) -> Changes:
        members = f.members.value if isinstance(f.members, Seen) else Members(())
        staged = f"{zkm_host.run_dir(c.run)}/staged"
        return (
            PutFile(target, f"{staged}/reform.cfg", reformed_config(c.inventory), "root:root", "0600"),
            PutFile(
                target, f"{staged}/observer.cfg", observer_config(c.inventory, members), "root:root", "0600"
            ),
            Arm(target, arm_spec(c.inventory, c.rehearsal, members)),
        )

    def undo(self, c: Context, f: ArmFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        return (HostVerb(target, "disarm"), *inverses(applied))

    def forecast(self, c: Context, look: Look) -> Forecast[ArmFacts]:
        members = members_to_copy(c.inventory, look)
        if not isinstance(members, Seen):
            raise HostError(f"source's server lines cannot be read: {members}")
        return Forecast(ArmFacts(every_host_in(c, IDLE), members, {}))


def arm_spec(inventory: Inventory, rehearsal: bool, members: Members, *, spare: bool = True) -> str:
    """Return the information that a dest host needs to act alone, in the format of ``zkm-host arm``.

    The spec contains addresses and no names: rules need addresses, and a name may not resolve while the host
    is alone. spare: see ``cut_ports``. Raises IndexError for a host without an address.
    """
    dest, source = inventory.dest, inventory.source
    values = {
        "unit": dest.service.unit,
        "user": f"{dest.user}:{dest.group}",
        "client_ports": ",".join(str(port) for port in dest.ports.clients),
        "admin_port": "" if dest.ports.client else dest.admin_port,
        "quorum_port": dest.ports.quorum,
        "election_port": dest.ports.election,
        "operator": ",".join(inventory.operator),
        "peers": ",".join(a for h in dest.hosts for a in _numeric(h)),
        "source": ",".join(a for h in source.hosts for a in _numeric(h)),
        "data_dir": dest.data_dir,
        "log_dir": dest.txn_dir,
        "config_path": dest.config,
        "dynamic_glob": f"{dest.config}.dynamic*",
        "members": ",".join(endpoint(h, word_port(dest)) for h in dest.hosts),
        "rehearsal": "yes" if rehearsal else "no",
        "cut": inventory.policy.cut,
        "cut_ports": ",".join(str(port) for port in cut_ports(inventory, members.ports, spare=spare)),
    }
    lines = (*(f"{key}={value}" for key, value in values.items()), *command_words(dest.commands))
    return "".join(f"{line}\n" for line in lines)


def word_port(dest: Dest) -> int:
    """Return the port at which zkm-host asks a dest host; its AdminServer's if clients need TLS.

    zkm-host has neither certificate nor password.
    """
    return dest.ports.client or dest.admin_port


def _numeric(host: ZooKeeperHost) -> tuple[str, ...]:
    """Return the normalized addresses of a host, without names, in the inventory's order."""
    return tuple(dict.fromkeys(a for text in (host.address, *host.also) for a in numeric(text)))


def endpoint(host: ZooKeeperHost, port: int) -> str:
    address = _numeric(host)[0]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _without_address(inventory: Inventory) -> tuple[Finding, ...]:
    return tuple(
        claim(
            "arm.address",
            "every ZooKeeper host has an address that a rule can hold",
            False,
            target=h.name,
            seen=", ".join((h.address, *h.also)),
            needed="an IPv4 or IPv6 address in address or also",
            moves=("add the address of this host under also in migration.yml",),
        )
        for h in (*inventory.source.hosts, *inventory.dest.hosts)
        if not _numeric(h)
    )


def _changed(members: Members, configs: Mapping[str, Reading[ZooConfig]]) -> tuple[Finding, ...]:
    """Return a finding for each dest host that observes source with members that are out of date.

    If an observer with the old members is cut off for a moment, it does not follow source again.
    """
    return tuple(
        claim(
            "arm.members",
            "the dest host has source's current members",
            config.value.version == members.version,
            target=host,
            seen=f"version {config.value.version:#x}",
            needed=f"source's version {members.version:#x}",
            moves=(REJOIN,),
        )
        for host, config in configs.items()
        if isinstance(config, Seen) and config.value.version != members.version
    )


def _spec_values(spec: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in spec.splitlines() if "=" in line)


def _is_armed_as(wanted: Mapping[str, str], spec: Reading[bytes]) -> bool:
    """Return whether the host's spec has the wanted values; keys that zkm-host added do not count."""
    if not isinstance(spec, Seen):
        return False
    found = _spec_values(spec.value.decode("utf-8", "replace"))
    return all(found.get(key) == wanted.get(key) for key in (*wanted, *COMMAND_KEYS))


def _armed(f: ArmFacts) -> tuple[Finding, ...]:
    return f.states.statuses.claims(
        "arm.ready",
        "zkm-host's rules are first, with empty sets, and the image has begun",
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


MEANINGS = meanings(
    """
    arm.address: A ZooKeeper host has no numeric address. Cause: Firewall rules hold addresses, not names.
    To do: Add the host's address under also in migration.yml.

    arm.members: A dest host observes an older version of source's members. Cause: Somebody reconfigured
    source after the join. To do: Roll the join back and join again: zkmigrate rollback --to join, then
    zkmigrate run.

    arm.ready: A dest host is armed incompletely: its rules are not first, a set has entries, or the image has
    not begun. Cause: Another program changes firewall rules, or the host ran out of disk space. To do: Check
    zkmigrate status and stop the other program, then resume.

    arm.spec: The spec that ARM wrote on a dest host cannot be read. Cause: The host or zkm-host does not
    answer. To do: Find out why the host does not answer, then resume.

    arm.config: The ZooKeeper config of a dest host cannot be read. Cause: The host does not answer, or the
    file cannot be read. To do: Find out why it cannot be read, then resume.

    arm.source-config: Source's members cannot be read. Cause: No source host answers, or its config cannot be
    read. To do: Find out why it cannot be read, then resume.
    """
)
