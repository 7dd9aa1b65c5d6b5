"""What: restart the brokers, one safe wave at a time, so that zookeeper.connect names dest only.

Why now: dest follows source, so a broker sees the same tree through dest; its sessions live on dest hosts
then.

Clients may notice: what any rolling restart costs: leaders move, a producer may wait up to a few seconds.

Way back: the same waves with the old file put back, one by one; never all brokers at once. Where
policy.roll_leaders asks for it, preferred leaders are elected behind the last wave, there and back.

Proof: every broker's file names dest, its process is younger than the file, it is connected to dest and not
to source, every partition is fully in sync, and source's own client lists hold no broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from zkmigrate.dependents.kafka import connect_string, current_connect, names_any, with_connect
from zkmigrate.errors import HostError, UsageError
from zkmigrate.facts.clients import addresses, connections
from zkmigrate.facts.host import HostStatus, unit_status
from zkmigrate.facts.kafka import cluster_id, kafka_view
from zkmigrate.facts.recovery import Recovery, parse_span, recovery
from zkmigrate.facts.sockets import plain, sockets
from zkmigrate.facts.window import unknown
from zkmigrate.inventory import Broker, Inventory
from zkmigrate.model.change import KAFKA, Applied, Changes, ElectLeaders, PutFile, SetService, inverses
from zkmigrate.model.fact import Absent, NotHeard, Reading, Seen, Unknown
from zkmigrate.model.finding import Finding, claim
from zkmigrate.model.look import DirEntry, KafkaView, Look
from zkmigrate.model.step import Blocked, Context, Done, Forecast, Hazard, Ready, Step, Verdict, Waiting, Way
from zkmigrate.rules.accepted import spared_topics
from zkmigrate.rules.hour import hour
from zkmigrate.rules.leaders import misled
from zkmigrate.rules.next_wave import BrokerPosition, next_wave, out_of_sync
from zkmigrate.rules.recovery import UNSEEN, patience
from zkmigrate.rules.soak import soaked
from zkmigrate.zkdata.words import Connection

WAVE_DEADLINE_S = 600.0
# zkm-host tells uptime and clock in milliseconds, one after the other.
CLOCK_STEP_S = 0.01
LEADERS = "leaders"
"""The target that is no broker: behind the last of them, the election of preferred leaders."""

_SOAK = "soak"
_RECOVERY = "recovery"
QUICK_START_S = 20.0
"""A broker that takes longer to come back is looked at less often: its host has its log to read each time."""

STOP_MARGIN_S = 60.0
"""So long after its unit's TimeoutStopSec a broker has stopped: systemd has killed it by then."""

NOT_ASKED = Absent("not asked")


@dataclass(frozen=True)
class BrokerFacts:
    """One broker: its file and who may write it, its service, and the ZooKeeper hosts it is connected to.

    recovery: how far it has loaded its logs, asked only while it runs and is not registered.
    """

    properties: Reading[bytes]
    entry: DirEntry | None
    status: Reading[HostStatus] = NOT_ASKED
    zookeepers: Reading[frozenset[str]] = NOT_ASKED
    recovery: Reading[Recovery] = NOT_ASKED


@dataclass(frozen=True)
class RollFacts:
    """Brokers, the cluster as it answers, its id as seen through each dest host, source's client lists.

    spared: topics that may be unavailable while one broker restarts, as somebody accepts. wall: the
    operator's clock, in seconds since the epoch. now: the same in seconds, on a clock that nobody sets.
    """

    brokers: dict[str, BrokerFacts]
    view: Reading[KafkaView]
    cluster_ids: dict[str, Reading[str]]
    source_clients: dict[str, Reading[tuple[Connection, ...]]]
    spared: frozenset[str] = frozenset()
    wall: float = 0.0
    now: float = 0.0


class RollStep(Step[RollFacts]):
    """See the module."""

    id = "roll"
    title = "Roll the brokers to dest"
    hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> RollFacts:
        inventory, wall = c.inventory, look.wall()
        ports = {inventory.source.ports.client, inventory.dest.ports.client}

        def one(host: str) -> BrokerFacts:
            return replace(
                _file(inventory, look, host),
                status=unit_status(look, host, inventory.kafka.service.unit, inventory.kafka.commands(host)),
                zookeepers=_peers(look, host, ports),
            )

        brokers, view = look.each(inventory.broker_names, one), kafka_view(c, look)
        return RollFacts(
            _recovering(inventory, look, brokers, view),
            view,
            look.each(inventory.dest_names, lambda h: cluster_id(look, h, inventory.kafka.chroot)),
            look.each(inventory.source_names, lambda h: connections(look, h)),
            spared_topics(inventory.accept, wall),
            wall,
            look.now(),
        )

    def check(self, c: Context, f: RollFacts, way: Way) -> Verdict:
        verdict = self._verdict(c, f, way)
        if isinstance(verdict, Waiting):
            # A wait for anything but the soak means that something is not well: it begins anew.
            return replace(verdict, keep={_SOAK: {}, **verdict.keep})
        return verdict

    def _verdict(self, c: Context, f: RollFacts, way: Way) -> Verdict:
        inventory = c.inventory
        silent = {h: why for h, b in f.brokers.items() if (why := _silence(b))}
        heard = {h: b for h, b in f.brokers.items() if h not in silent}
        lost = [
            unknown("roll.answer", h, b.properties)
            for h, b in heard.items()
            if not isinstance(b.properties, Seen)
        ]
        lost += [_untold(h, b.status) for h, b in heard.items() if not _told(b.status)]
        if lost:
            return Blocked(tuple(lost))
        if way is Way.FORWARD and (wrong := _wrong_cluster(inventory, f)):
            return Blocked(wrong)
        if not isinstance(f.view, Seen):
            return Waiting("the brokers answer", str(f.view), WAVE_DEADLINE_S)
        # A silent broker may be up or down. The others go on while every partition is in sync all the same.
        brokers = (b for b in inventory.kafka.brokers if b.name in heard)
        positions = tuple(_position(inventory, b, f, way) for b in brokers)
        wave, reason = next_wave(positions, f.view.value, inventory.policy.roll_wave, f.spared)
        if wave and (changing := _changing(inventory, f.brokers[wave[0]], wave[0], way)):
            return changing
        if wave and _restarted(inventory, f.brokers[wave[0]], way):
            return _wait_for(c, f, wave[0], way)
        if way is Way.BACK and (unknown_before := _without_image(c, f, wave)):
            return Blocked(unknown_before)
        if wave and way is Way.FORWARD:
            first = next(p for p in positions if p.name == wave[0])
            if not first.down and (closed := _out_of_hours(inventory, f, positions)):
                return Blocked(closed)
            if not first.touched and (soaks := _soaking(c, f, positions, wave)):
                return soaks
        if wave:
            return Ready(wave)
        if silent:
            return _unheard(c, silent, reason)
        if reason:
            return Waiting("every partition is fully in sync", reason, WAVE_DEADLINE_S)
        sick = out_of_sync(f.view.value, frozenset())
        if sick:
            return Waiting("every partition is fully in sync", f"{len(sick)} are not", WAVE_DEADLINE_S)
        if inventory.policy.roll_leaders and misled(f.view.value):
            closed = _out_of_hours(inventory, f, positions) if way is Way.FORWARD else ()
            return Blocked(closed) if closed else Ready((LEADERS,))
        if way is Way.BACK:
            return Done()
        findings = _left_source(inventory, f)
        return Blocked(findings) if any(x.blocks for x in findings) else Done(findings)

    def plan(self, c: Context, f: RollFacts, target: str) -> Changes:
        if target == LEADERS:
            return _election(c.inventory)
        kafka, broker = c.inventory.kafka, f.brokers[target]
        if not isinstance(broker.properties, Seen) or broker.entry is None:
            raise UsageError(f"{target}: {kafka.config} could not be read; needed: the file to edit")
        entry = broker.entry
        content = with_connect(broker.properties.value, connect_string(c.inventory))
        return (
            PutFile(target, kafka.config, content, f"{entry.owner}:{entry.group}", entry.mode),
            SetService(target, kafka.service.unit, "restart", kafka.commands(target)),
        )

    def undo(self, c: Context, f: RollFacts, target: str, applied: tuple[Applied, ...]) -> Changes:
        if target == LEADERS:
            return _election(c.inventory)
        kafka = c.inventory.kafka
        # The file first: an operator that is gone in between leaves a broker that runs, not one that is down.
        return (
            *inverses(applied),
            SetService(target, kafka.service.unit, "restart", kafka.commands(target)),
        )

    def forecast(self, c: Context, look: Look) -> Forecast[RollFacts]:
        """From the brokers' files alone: until its turn the cluster may be as it likes."""
        brokers = look.each(c.inventory.broker_names, lambda host: _file(c.inventory, look, host))
        for host, broker in brokers.items():
            if not isinstance(broker.properties, Seen):
                raise HostError(f"{host}: {c.inventory.kafka.config} cannot be read: {broker.properties}")
        left = (host for host, broker in brokers.items() if not _names_dest(c.inventory, broker))
        last = (LEADERS,) if c.inventory.policy.roll_leaders else ()
        return Forecast(RollFacts(brokers, NOT_ASKED, {}, {}), (*left, *last))


def _election(inventory: Inventory) -> Changes:
    """The same there and back: a restart takes the lead from a broker on either way."""
    first = inventory.kafka.brokers[0]
    return (ElectLeaders(KAFKA, first.endpoint),)


def _silence(broker: BrokerFacts) -> str:
    """Why a broker's host could not be asked, where that may pass; empty where it answers."""
    for reading in (broker.properties, broker.status):
        if isinstance(reading, Unknown) and reading.cause in get_args(NotHeard):
            return str(reading)
    return ""


def _unheard(c: Context, silent: Mapping[str, str], reason: str) -> Waiting:
    """The hosts that do not answer, by name, and what to do about one that never will."""
    names = ", ".join(silent)
    told = "; ".join(f"{host}: {why}" for host, why in silent.items())
    waits = f"; the others wait too: {reason}" if reason else ""
    return Waiting(
        f"{names} answers" if len(silent) == 1 else f"{names} answer",
        f"{told}{waits}; a host that is gone for good: zkmigrate retire {next(iter(silent))} "
        f"--run-id {c.run} --reason …",
        c.inventory.policy.step_deadline_s,
        1.0,
    )


def _told(status: Reading[HostStatus]) -> bool:
    return isinstance(status, Seen) and status.value.unit_state != "unknown"


def _untold(host: str, status: Reading[HostStatus]) -> Finding:
    """Whether a broker runs is not known: it may be up, so it must not be taken for one to restart."""
    return claim(
        "roll.service",
        "the host tells whether its broker runs",
        None,
        target=host,
        seen="neither systemd nor the status command can tell" if isinstance(status, Seen) else str(status),
        needed="active or not",
        moves=("run the status command, or systemctl status, on that host by hand; then resume",),
    )


def _file(inventory: Inventory, look: Look, host: str) -> BrokerFacts:
    """The broker's file alone."""
    directory, name = inventory.kafka.config.rsplit("/", 1)
    listing = look.listing(host, directory)
    entries = [e for e in listing.value if e.name == name] if isinstance(listing, Seen) else []
    return BrokerFacts(look.file(host, inventory.kafka.config), entries[0] if entries else None)


def _peers(look: Look, host: str, ports: set[int]) -> Reading[frozenset[str]]:
    """Addresses at one of these ports that the host has an established connection to."""
    reading = sockets(look, host)
    if not isinstance(reading, Seen):
        return reading
    return Seen(frozenset(s.peer for s in reading.value if s.peer_port in ports))


def _names_dest(inventory: Inventory, broker: BrokerFacts) -> bool:
    if not isinstance(broker.properties, Seen):
        return False
    return names_any(current_connect(broker.properties.value), tuple(h.address for h in inventory.dest.hosts))


def _position(inventory: Inventory, broker: Broker, f: RollFacts, way: Way) -> BrokerPosition:
    state = f.brokers[broker.name]
    file_done = _names_dest(inventory, state) is (way is Way.FORWARD)
    moved = file_done and _connected(inventory, state, way) and _in_sync(f, broker)
    running = isinstance(state.status, Seen) and state.status.value.unit_state == "active"
    # On the way back whoever is not moved was changed by us; one that never came back whole is still ours.
    lost = way is Way.BACK and _in_no_isr(f, broker)
    touched = not moved and (file_done or not running or lost)
    settling = touched and _restarted(inventory, state, way)
    return BrokerPosition(broker.name, broker.id, moved, touched, not running, settling)


def _connected(inventory: Inventory, state: BrokerFacts, way: Way) -> bool:
    """Connected to the wanted ensemble and not to the other."""
    if not isinstance(state.zookeepers, Seen):
        return False
    source = {a for h in inventory.source.hosts for a in addresses(h)}
    dest = {a for h in inventory.dest.hosts for a in addresses(h)}
    wanted, other = (dest, source) if way is Way.FORWARD else (source, dest)
    return bool(state.zookeepers.value & wanted) and not state.zookeepers.value & other


def _in_sync(f: RollFacts, broker: Broker) -> bool:
    if not isinstance(f.view, Seen) or broker.id not in f.view.value.brokers:
        return False
    return all(broker.id in p.isr for p in f.view.value.partitions if broker.id in p.replicas)


def _in_no_isr(f: RollFacts, broker: Broker) -> bool:
    """It holds replicas, and not one of them is in sync: to stop it costs nobody anything."""
    held = [p for p in f.view.value.partitions if broker.id in p.replicas] if isinstance(f.view, Seen) else []
    return bool(held) and not any(broker.id in p.isr for p in held)


def _restarted(inventory: Inventory, state: BrokerFacts, way: Way) -> bool:
    """The file is right and the process is younger than it: another restart would change nothing.

    The file is dated by its last change, not by its content: one that was put back has the content's old
    time, and the process that is still to be restarted would seem younger. Where zkm-host made that change,
    both times are on the boot's clock, which nobody sets. Else both are on the host's own clock: one that
    differs from the operator's does not matter, one that is set in between does.
    """
    if _names_dest(inventory, state) is not (way is Way.FORWARD):
        return False
    changed = state.entry.changed_ns if state.entry is not None else None
    if changed is None:
        return False
    status = state.status.value if isinstance(state.status, Seen) else None
    if status is None or status.unit_started is None:
        return False
    written = status.written
    if written is not None and (written.path, written.changed_ns) == (inventory.kafka.config, changed):
        return written.boot_id != status.boot_id or status.unit_since >= written.uptime_s
    return status.unit_started + CLOCK_STEP_S >= changed / 1e9


def _recovering(
    inventory: Inventory, look: Look, brokers: dict[str, BrokerFacts], view: Reading[KafkaView]
) -> dict[str, BrokerFacts]:
    """The same, with what those that run and are not registered say of their logs."""
    kafka = inventory.kafka
    registered = view.value.brokers if isinstance(view, Seen) else {}

    def asked(host: str) -> bool:
        status = brokers[host].status
        runs = isinstance(status, Seen) and status.value.unit_state == "active"
        return runs and inventory.broker(host).id not in registered

    starting = [host for host in brokers if asked(host)]
    told = look.each(starting, lambda h: recovery(look, h, kafka.service.unit, kafka.commands(h)))
    return {h: replace(b, recovery=told[h]) if h in told else b for h, b in brokers.items()}


def _changing(inventory: Inventory, state: BrokerFacts, name: str, way: Way) -> Waiting | None:
    """The wait for a service that systemd is stopping, or is starting with the right file: another restart
    would change nothing. None where neither is so."""
    status = state.status.value if isinstance(state.status, Seen) else None
    if status is None:
        return None
    longest_s = inventory.policy.roll_recovery_s
    if status.unit_state == "deactivating":
        stop_s = min(_stop_s(status) + STOP_MARGIN_S, longest_s)
        told = f"systemd stops it; TimeoutStopSec is {status.unit_stop or 'not known'}"
        return Waiting(f"{name} has stopped", told, max(WAVE_DEADLINE_S, stop_s), 1.0)
    file_done = _names_dest(inventory, state) is (way is Way.FORWARD)
    if file_done and status.unit_state in ("activating", "reloading"):
        told = f"systemd says that it is {status.unit_state}"
        return Waiting(f"{name} has started", told, WAVE_DEADLINE_S, 1.0)
    return None


def _stop_s(status: HostStatus) -> float:
    """Seconds that systemd gives the unit to stop; 0 where that is not known."""
    try:
        return parse_span(status.unit_stop)
    except ValueError:
        return 0.0


def _wait_for(c: Context, f: RollFacts, name: str, way: Way) -> Waiting:
    """What a broker that was restarted with the right file still lacks."""
    state = f.brokers[name]
    progress = _progress(c.inventory, f, name)
    strangers = _on_other(c.inventory, state, way)
    if not strangers:
        status = state.status.value if isinstance(state.status, Seen) else None
        key = "" if status is None else f"{name} {status.boot_id} {status.unit_since}"
        seen = state.recovery.value if isinstance(state.recovery, Seen) else UNSEEN
        longest_s = c.inventory.policy.roll_recovery_s
        kept = c.kept.get(_RECOVERY, {}).get(key, {})
        deadline_s, marks = patience(
            seen, _behind(c.inventory, f, name), kept, f.now, WAVE_DEADLINE_S, longest_s
        )
        poll_s = 2.0 if f.now - marks["first"] > QUICK_START_S else 0.2
        what = f"{name} is back and in sync"
        return Waiting(what, progress, deadline_s, poll_s, {_RECOVERY: {key: marks}})
    other, wanted = ("source", "dest") if way is Way.FORWARD else ("dest", "source")
    return Waiting(
        f"no process of {name} is a client of {other} any more",
        f"the broker was started after its file named {wanted}, yet the host is connected to "
        f"{', '.join(strangers)} of {other}: another process? find it there with ss -tnp; {progress}",
        WAVE_DEADLINE_S,
    )


def _on_other(inventory: Inventory, state: BrokerFacts, way: Way) -> tuple[str, ...]:
    """The hosts of the ensemble to be left that the broker's host is still connected to."""
    if not isinstance(state.zookeepers, Seen):
        return ()
    hosts = inventory.source.hosts if way is Way.FORWARD else inventory.dest.hosts
    return tuple(h.name for h in hosts if addresses(h) & state.zookeepers.value)


def _out_of_hours(
    inventory: Inventory, f: RollFacts, positions: tuple[BrokerPosition, ...]
) -> tuple[Finding, ...]:
    """Outside of policy.window no broker that runs is restarted, and no leader elected, on the way forward.
    A broker that is down is started at any hour, and the way back waits for none."""
    now = hour(inventory.policy.window, f.wall)
    if now.inside:
        return ()
    moved = sum(p.moved for p in positions)
    return (
        claim(
            "roll.hour",
            "brokers restart, and leaders are elected, inside the maintenance window only",
            False,
            seen=f"{now.seen}; {moved} of {len(inventory.broker_names)} brokers have moved",
            needed=now.needed,
            moves=(
                "wait for the window, then resume",
                "give policy.window in migration.yml another time, then resume",
                *(("set policy.roll_leaders to false, then resume",) if moved == len(positions) else ()),
                "rollback, at any hour",
            ),
        ),
    )


def _soaking(
    c: Context, f: RollFacts, positions: tuple[BrokerPosition, ...], wave: tuple[str, ...]
) -> Waiting | None:
    """The wait for policy.roll_soak_s between two waves; None when it is over. A half-done broker is finished
    without it."""
    statuses = {p.name: f.brokers[p.name].status for p in positions if p.moved}
    moved = {name: status.value for name, status in statuses.items() if isinstance(status, Seen)}
    well_s, marks = soaked(moved, c.kept.get(_SOAK, {}))
    soak_s = c.inventory.policy.roll_soak_s
    if well_s >= soak_s:
        return None
    return Waiting(
        f"the brokers that have moved stay well for {soak_s:g} s",
        f"{len(moved)} of {len(c.inventory.broker_names)} have moved; {', '.join(wave)} next, "
        f"in {soak_s - well_s:.0f} s",
        soak_s + WAVE_DEADLINE_S,
        1.0,
        {_SOAK: marks},
    )


def _without_image(c: Context, f: RollFacts, wave: tuple[str, ...]) -> tuple[Finding, ...]:
    """The way back puts before-images back; a file that names dest without one cannot be undone."""
    return tuple(
        claim(
            "roll.before-image",
            "the journal knows what the broker's file held before the roll",
            False,
            target=host,
            seen=f"{c.inventory.kafka.config} names dest, and no change to it is in the journal",
            needed="the change that wrote it",
            moves=(
                "recover the journal from its copies on the dest hosts, then roll back again",
                "put zookeeper.connect back by hand and restart the broker, then roll back again",
            ),
        )
        for host in wave
        if host not in c.unrestored and _names_dest(c.inventory, f.brokers[host])
    )


def _progress(inventory: Inventory, f: RollFacts, name: str) -> str:
    if not isinstance(f.view, Seen):
        return str(f.view)
    state = f.brokers[name]
    registered = inventory.broker(name).id in f.view.value.brokers
    loads = state.recovery.value.words if isinstance(state.recovery, Seen) else ""
    where = (
        ",".join(sorted(state.zookeepers.value)) if isinstance(state.zookeepers, Seen) else state.zookeepers
    )
    return (
        (f"{loads}, " if loads else "")
        + f"registered: {'yes' if registered else 'no'}, partitions behind: {_behind(inventory, f, name)}, "
        f"connected to: {where or 'nothing'}"
    )


def _behind(inventory: Inventory, f: RollFacts, name: str) -> int:
    """Partitions of which the broker holds a replica that is not in sync."""
    id = inventory.broker(name).id
    partitions = f.view.value.partitions if isinstance(f.view, Seen) else ()
    return sum(id in p.replicas and id not in p.isr for p in partitions)


def _wrong_cluster(inventory: Inventory, f: RollFacts) -> tuple[Finding, ...]:
    findings = tuple(
        claim(
            "roll.cluster-id",
            "the chroot seen through dest belongs to this cluster",
            reading.value == inventory.kafka.cluster_id if isinstance(reading, Seen) else None,
            target=host,
            seen=reading.value if isinstance(reading, Seen) else str(reading),
            needed=inventory.kafka.cluster_id,
            moves=("correct kafka.chroot or kafka.cluster_id in migration.yml", "wait for dest to catch up"),
        )
        for host, reading in f.cluster_ids.items()
    )
    return tuple(x for x in findings if x.blocks)


def _left_source(inventory: Inventory, f: RollFacts) -> tuple[Finding, ...]:
    brokers = {address: b.name for b in inventory.kafka.brokers for address in addresses(b)}
    findings = []
    for host, reading in f.source_clients.items():
        left = (
            sorted({brokers[a] for x in reading.value if (a := plain(x.address)) in brokers})
            if isinstance(reading, Seen)
            else []
        )
        findings.append(
            claim(
                "roll.left-source",
                "no broker is a client of source any more",
                not left if isinstance(reading, Seen) else None,
                target=host,
                seen=", ".join(left) if isinstance(reading, Seen) else str(reading),
                needed="no broker",
                moves=("restart the broker named here", "resume: zkmigrate looks again"),
            )
        )
    return tuple(findings)
