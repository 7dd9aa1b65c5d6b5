"""Gather all evidence for the checks of a gate, once, and from many hosts at the same time.

Gathering changes nothing. ``identities`` costs one client session of the operator per dest host and is read
only from the roll on. All other evidence comes from four-letter words, files, sockets, zkm-host's reading
verbs and the dependent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zkmigrate.hosts.facts.host_names import Resolved, resolve_all
from zkmigrate.hosts.facts.properties import running_flags, system_properties
from zkmigrate.hosts.facts.runs import other_runs
from zkmigrate.hosts.facts.sockets import Socket, sockets
from zkmigrate.hosts.facts.status import HostFacts, HostStatus, host_facts, host_status, reach
from zkmigrate.hosts.facts.surroundings import Surroundings, surroundings
from zkmigrate.inventory.checks import spelled
from zkmigrate.inventory.inventory import Inventory, ZooKeeperHost
from zkmigrate.move.dependent import AnyDependent, Member
from zkmigrate.move.facts.connections import (
    SourceClients,
    connections_of,
    numeric,
    source_clients,
)
from zkmigrate.move.facts.dest import DataState, data_state
from zkmigrate.move.facts.own_commands import OwnCommands, own_commands
from zkmigrate.move.facts.secured import (
    Secured,
    hidden_config,
    hidden_file,
    hidden_flags,
    jars_release,
    of_server,
    with_unit,
)
from zkmigrate.move.facts.sessions import Homes, Sessions, dumps_of, homes, sessions_of
from zkmigrate.move.facts.tenants import UNASKED, Tenants, foreign_clients, tenants
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.data.four_letter_words import Conf, Connection, Dump, Mntr, parse_conf, parse_mntr
from zkmigrate.zookeeper.data.jute import JUTE_MAXBUFFER
from zkmigrate.zookeeper.data.reader import Listed
from zkmigrate.zookeeper.facts.config import ZooConfig, zoo_config
from zkmigrate.zookeeper.facts.disk import Largest, largest_znode, list_directories, read_disk
from zkmigrate.zookeeper.facts.ensemble import (
    Down,
    EnsembleView,
    answer,
    dest_view,
    mntr_of_leader,
    server_down,
    source_view,
)
from zkmigrate.zookeeper.questions import SendWord

NOT_ASKED = Unknown("failed", "not read for this gate")
NO_ENSEMBLE = EnsembleView({}, None)


@dataclass(frozen=True)
class Dated:
    """A host's clock, with the operator's clock before and after it was read.

    clock, before, after: seconds since the epoch. took_s: the duration of the reading, in seconds.
    """

    clock: Reading[float]
    before: float
    after: float
    took_s: float


@dataclass(frozen=True)
class Evidence:
    """The evidence for the checks of one gate; fields that the gate does not need stay empty or unknown.

    Mappings are keyed by host name, unless stated otherwise.

    - at: the operator's clock at the look, in seconds since the epoch
    - source, dest: the mode and zxid of each server
    - down: the source server that is down, which is in no other field and was asked nothing more; or why no
      single server is known to be down, empty if all serve
    - leader: ``mntr`` of source's leader
    - mntrs, cons, dumps: the answers of each source host and, once joined, of each dest host
    - statuses: ``zkm-host status`` of each host
    - files: the dependent's config file on each member
    - sessions: the sessions that own ephemerals under the chroot
    - here: addresses of the operator's machine (:meth:`zkmigrate.runbook.model.look.Look.here`)
    - source_config, source_myid: the config and the myid file of each source host
    - source_flags, dest_flags: ``-D`` settings of the running JVM if visible, else those of its java_env
    - source_bytes: the size of the largest snapshot plus that of the largest log of source's leader
    - largest: an upper limit for the size of source's largest znode
    - reach: whether the host could connect to other hosts' ports, keyed by :func:`door`
    - knocks: ``srvr`` of each dest host, before ZooKeeper runs there
    - around: the surroundings of the service on each host
    - dates: the clock of each host
    - resolved: the addresses of the inventory's names on each host, on source hosts also of names in server
      lines
    - confs: ``conf`` of each source host
    - dest_data: the data that ZooKeeper would find on a dest host
    - dest_config: the current config of each dest host
    - env_flags, running_flags: the ``-D`` settings in java_env, and those of the running JVM
    - facts: the tools and resources of each host
    - fact_times: the operator's clock before and after ``facts`` was read
    - identities: the id of the dependent's cluster as seen through each dest host
    - clients: the clients connected to source
    - homes: the ensemble to which each session is connected, None before the cut-over
    - runs: the ids of other runs on the host, with their phases
    - own: the state of the inventory's own service commands
    - tenants: the clients of source other than the members and the operator
    - foreign: the clients of dest other than the members and the operator
    - dest_sockets: the established connections of each dest host
    - disk: the snapshot and log listings of source's leader
    - secured: what secures each source host and each dest host, that of a dest host by ``dest.settings``
    - dest_releases: the release of ZooKeeper on each dest host: that of the running server, before the join
      that of the jars which its unit would start
    - of_dependent: the evidence of the dependent's own checks
    """

    at: float
    dependent: AnyDependent
    source: EnsembleView
    leader: Reading[Mntr]
    mntrs: Mapping[str, Reading[Mntr]]
    cons: Mapping[str, Reading[tuple[Connection, ...]]]
    dumps: Mapping[str, Reading[Dump]]
    statuses: Mapping[str, Reading[HostStatus]]
    files: Mapping[str, Reading[bytes]]
    sessions: Reading[Sessions]
    here: Reading[tuple[str, ...]] = NOT_ASKED
    source_config: Mapping[str, Reading[ZooConfig]] = field(default_factory=dict)
    source_myid: Mapping[str, Reading[str]] = field(default_factory=dict)
    source_flags: Mapping[str, Reading[Mapping[str, str]]] = field(default_factory=dict)
    source_bytes: Reading[int] = NOT_ASKED
    largest: Reading[Largest] = NOT_ASKED
    reach: Mapping[str, Reading[Mapping[str, str]]] = field(default_factory=dict)
    knocks: Mapping[str, Reading[str]] = field(default_factory=dict)
    around: Mapping[str, Reading[Surroundings]] = field(default_factory=dict)
    dates: Mapping[str, Dated] = field(default_factory=dict)
    resolved: Resolved = field(default_factory=dict)
    confs: Mapping[str, Reading[Conf]] = field(default_factory=dict)
    dest_data: Mapping[str, Reading[DataState]] = field(default_factory=dict)
    dest_config: Mapping[str, Reading[ZooConfig]] = field(default_factory=dict)
    dest_flags: Mapping[str, Reading[Mapping[str, str]]] = field(default_factory=dict)
    env_flags: Mapping[str, Reading[Mapping[str, str]]] = field(default_factory=dict)
    running_flags: Mapping[str, Reading[Mapping[str, str]]] = field(default_factory=dict)
    facts: Mapping[str, Reading[HostFacts]] = field(default_factory=dict)
    fact_times: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    dest: EnsembleView = NO_ENSEMBLE
    identities: Mapping[str, Reading[str]] = field(default_factory=dict)
    clients: SourceClients | None = None
    homes: Homes | None = None
    runs: Mapping[str, Reading[Mapping[str, str]]] = field(default_factory=dict)
    own: OwnCommands = field(default_factory=OwnCommands)
    tenants: Tenants = UNASKED
    foreign: Tenants = UNASKED
    down: Down | str = ""
    dest_sockets: Mapping[str, Reading[tuple[Socket, ...]]] = field(default_factory=dict)
    disk: Reading[tuple[Listed, Listed]] = NOT_ASKED
    secured: Mapping[str, Secured] = field(default_factory=dict)
    dest_releases: Mapping[str, Reading[tuple[int, ...]]] = field(default_factory=dict)
    of_dependent: Any = None

    @property
    def joined(self) -> bool:
        """Whether the evidence was gathered after the join."""
        return bool(self.dest.servers)


def gather(c: Context, dependent: AnyDependent, look: Look, gate: str) -> Evidence:
    """Gather the evidence for the checks of this gate: ``preflight``, ``roll`` or ``cutover``."""
    inventory = c.inventory
    members = tuple(member.name for member in dependent.members(inventory))
    view = source_view(inventory, look)
    leader = mntr_of_leader(look, view)
    down = server_down(view, leader)
    view = view.without(down.host) if isinstance(down, Down) else view
    joined = inventory.dest_names if gate != "preflight" else ()
    serving = (*view.servers, *joined)
    cons = connections_of(look, serving)
    dumps = dumps_of(look, serving)
    led = {} if view.leader is None else {view.leader: leader}
    others = (host for host in serving if host not in led)
    mntrs = led | look.each(others, lambda host: answer(look, host, "mntr", parse_mntr))
    common = Evidence(
        at=look.wall(),
        dependent=dependent,
        source=view,
        down=down,
        leader=leader,
        mntrs=mntrs,
        cons=cons,
        dumps=dumps,
        statuses=look.each((*inventory.dest_names, *members), lambda h: host_status(look, h)),
        here=look.here(),
        files=look.each(members, lambda host: look.file(host, dependent.config(inventory))),
        sessions=sessions_of(dumps, cons, dependent.chroot(inventory)),
        tenants=tenants(inventory, dependent, look, cons, dumps) if gate != "cutover" else UNASKED,
        dest_sockets=look.each(inventory.dest_names, lambda host: sockets(look, host)),
    )
    if joined:
        strangers = foreign_clients(inventory, dependent, look, cons, dumps)
        common = replace(common, dest=dest_view(inventory, look), foreign=strangers)
    common = _as_configured(c, look, common, gate)
    if gate == "preflight":
        return _whole(c, look, _before_anything(c, look, common), gate)
    owners = common.sessions.value.owners if isinstance(common.sessions, Seen) else {}
    at_dest = {host: cons[host] for host in joined}
    at_source = {host: cons[host] for host in view.servers}
    kept = common.sessions.value.kept(dependent.keeps).owners if isinstance(common.sessions, Seen) else {}
    unkept = owners.keys() - kept.keys()
    common = replace(
        common,
        homes=homes(owners, at_dest, at_source, unkept) if gate == "cutover" else None,
        identities=look.each(joined, lambda host: dependent.identity_seen(inventory, look, host)),
        clients=source_clients(inventory, dependent, look, cons) if gate == "cutover" else None,
    )
    return _whole(c, look, common, gate)


def _whole(c: Context, look: Look, common: Evidence, gate: str) -> Evidence:
    """Add the dependent's evidence, which needs its members' files as they are. Then hide their secrets."""
    own = common.dependent.evidence(c, look, common, gate)
    return replace(common, of_dependent=own, files={h: hidden_file(one) for h, one in common.files.items()})


def _as_configured(c: Context, look: Look, common: Evidence, gate: str) -> Evidence:
    """Add the evidence that may change on a host between two gates: configs, flags, free space and tools."""
    source, dest, dependent = c.inventory.source, c.inventory.dest, common.dependent
    members, of_members = tuple(common.files), dependent.service(c.inventory)
    sources, dests = tuple(common.source.servers), c.inventory.dest_names
    places = {name: _places(dest.data_dir, dest.txn_dir, _directory(dest.config)) for name in dests}
    places |= {name: _places(_directory(dependent.config(c.inventory))) for name in members}

    def offer(host: str) -> tuple[Reading[HostFacts], tuple[float, float]]:
        before = look.wall()
        service = dest.service if host in dests else of_members
        unit = "-" if service.has_commands else service.unit
        reading = host_facts(look, host, unit, *places[host], try_rules=host in dests)
        return reading, (before, look.wall())

    source_flags = look.each(sources, lambda host: system_properties(look, host, source.java_env))
    dest_flags = look.each(dests, lambda host: system_properties(look, host, dest.java_env))
    serving = (*sources, *(dests if common.joined else ()))
    running = look.each(serving, lambda host: running_flags(look, host))
    offers = look.each((*dests, *members), offer)
    source_config = look.each(sources, lambda host: zoo_config(look, host, source.config))
    leader = leader_of(c, common)
    disk = read_disk(lambda: list_directories(look, leader, source))
    dest_config = look.each(
        dests, lambda host: zoo_config(look, host, dest.config, dest.service, dest.commands)
    )
    flags = {host: _true(file, running.get(host)) for host, file in (source_flags | dest_flags).items()}
    at_dest = ZooConfig({**dest.settings, **{k: str(port) for k, port in dest.ports.settings.items()}}, {})
    configs = source_config | dict.fromkeys(dests, Seen(at_dest))
    given = flags | {host: with_unit(flags[host], offers[host][0]) for host in dests}
    secured = look.each(configs, lambda host: of_server(look, host, configs[host], given[host]))

    def release(host: str) -> Reading[tuple[int, ...]]:
        if common.joined:
            server = common.dest.servers[host]
            return Seen(server.value.version.numbers) if isinstance(server, Seen) else server
        return jars_release(look, host, offers[host][0], dest.service) if secured[host].used else NOT_ASKED

    # From here on the evidence holds no secret of a host.
    source_config, dest_config = hidden_config(source_config), hidden_config(dest_config)
    flags, running = hidden_flags(flags), hidden_flags(running)
    return replace(
        common,
        secured=secured,
        dest_releases=look.each(dests, release),
        source_config=source_config,
        source_flags={host: flags[host] for host in sources},
        source_bytes=_newest_bytes(disk),
        disk=disk,
        dest_config=dest_config,
        confs=look.each(sources, lambda host: answer(look, host, "conf", parse_conf)),
        dest_flags={host: flags[host] for host in dests},
        env_flags=hidden_flags(source_flags | dest_flags),
        running_flags=running,
        facts={host: reading for host, (reading, _) in offers.items()},
        fact_times={host: when for host, (_, when) in offers.items()},
        runs=look.each((*dests, *members), lambda host: other_runs(look, host, c.run)),
        around=look.each((*dests, *members), lambda host: _around(c, dependent, look, host)),
        reach=look.each((*dests, *members), lambda host: reach(look, host, _doors(c, host, gate))),
        resolved=_resolved(c.inventory, dependent, look, source_config),
        # Last, because the connections are open by then.
        dates=look.each((*sources, *dests, *members), lambda host: _dated(look, host)),
    )


def _directory(path: str) -> str:
    return path.rpartition("/")[0]


def _places(*directories: str) -> tuple[str, ...]:
    """Return each of these directories once, without the root directory, which is written as "".

    The root directory is left out because no symbolic link can lead to it.
    """
    return tuple(dict.fromkeys(d for d in directories if d))


def first_address(host: ZooKeeperHost | Member) -> str:
    """Return the first address of a host, normalized.

    The inventory gives at least one address for each host.
    """
    return next(a for text in (host.address, *host.also) for a in numeric(text))


def door(address: str, port: int) -> str:
    """Return the key under which a host reports whether it could connect to this address and port."""
    return f"{address}:{port}"


def _doors(c: Context, host: str, gate: str) -> tuple[tuple[str, int], ...]:
    """Return the addresses and ports to which a host must be able to connect.

    A member needs dest's client ports, until it is rolled. A dest host needs source and the other dest hosts,
    before the join.
    """
    source, dest = c.inventory.source, c.inventory.dest
    if host not in c.inventory.dest_names and gate != "cutover":
        return tuple((first_address(h), port) for h in dest.hosts for port in dest.ports.clients)
    if gate != "preflight":
        return ()
    at_source = ((h, p) for h in source.hosts for p in (source.ports.quorum, source.ports.election))
    others = tuple(h for h in dest.hosts if h.name != host)
    asked = () if dest.ports.client else (dest.admin_port,)
    at_dest = ((h, p) for h in others for p in (dest.ports.quorum, dest.ports.election, *asked))
    return tuple((first_address(h), p) for h, p in (*at_source, *at_dest))


def _around(c: Context, dependent: AnyDependent, look: Look, host: str) -> Reading[Surroundings]:
    dest = c.inventory.dest
    if host in c.inventory.dest_names:
        service, port = dest.service, dest.ports.door
    else:
        ports = {member.name: member.port for member in dependent.members(c.inventory)}
        service, port = dependent.service(c.inventory), ports[host]
    return surroundings(look, host, "-" if service.has_commands else service.unit, port)


def named(inventory: Inventory, dependent: AnyDependent) -> Mapping[str, ZooKeeperHost | Member]:
    """Return normalized host name → host, for the hosts whose address in the inventory is a name."""
    members = dependent.members(inventory)
    hosts: tuple[ZooKeeperHost | Member, ...] = (*inventory.source.hosts, *inventory.dest.hosts, *members)
    return {spelled(host.address): host for host in hosts if not numeric(host.address)}


def _resolved(
    inventory: Inventory,
    dependent: AnyDependent,
    look: Look,
    configs: Mapping[str, Reading[ZooConfig]],
) -> Resolved:
    """Resolve every name of the inventory on every host and on the operator's machine.

    On source hosts the names in the server lines of their config are resolved too.
    """
    everywhere = tuple(named(inventory, dependent))
    members = (member.name for member in dependent.members(inventory))
    names = dict.fromkeys(("", *configs, *inventory.dest_names, *members), everywhere)
    for host, config in configs.items():
        if isinstance(config, Seen):
            names[host] = (*everywhere, *(server.host for server in config.value.servers.values()))
    return resolve_all(look, names)


def _dated(look: Look, host: str) -> Dated:
    before, begun = look.wall(), look.now()
    reading = look.date(host)
    took, after = look.now() - begun, look.wall()
    return Dated(_seconds(reading), before, after, took)


def _seconds(date: Reading[str]) -> Reading[float]:
    if not isinstance(date, Seen):
        return date
    text = date.value.strip()
    if not re.fullmatch(r"[0-9]{1,12}\.[0-9]{1,9}", text):
        return Unknown("garbled", f"the command date answered {date.value[:80]!r}")
    return Seen(float(text))


def _true(
    file: Reading[Mapping[str, str]], running: Reading[Mapping[str, str]] | None
) -> Reading[Mapping[str, str]]:
    """Return a server's effective flags: those of the running process if visible, otherwise those in its
    file.
    """
    return running if isinstance(running, Seen) else file


def leader_of(c: Context, common: Evidence) -> str:
    """Return the name of source's leader, or of the first source host if source has no leader.

    Without a leader the check of source's quorum blocks.
    """
    return common.source.leader or c.inventory.source_names[0]


def _before_anything(c: Context, look: Look, common: Evidence) -> Evidence:
    """Add the evidence that is needed before the first change.

    It shows whether dest is empty, whether ports are open, and whether dest can take source's znodes.
    """
    source, dest = c.inventory.source, c.inventory.dest
    sources, dests = tuple(common.source.servers), c.inventory.dest_names
    enough = smallest_buffer(common.dest_flags)
    common = replace(common, own=own_commands(c.inventory, common.dependent, look))
    return replace(
        common,
        source_myid=look.each(sources, lambda host: _myid(look, host, source.data_dir)),
        largest=largest_znode(look, leader_of(c, common), source, common.leader, enough),
        knocks=look.each(dests, lambda host: look.ask(SendWord(host, "srvr"))),
        dest_data=look.each(dests, lambda host: data_state(look, dest, host)),
    )


def smallest_buffer(flags: Mapping[str, Reading[Mapping[str, str]]]) -> int:
    """Return the smallest jute.maxbuffer of these hosts, in bytes.

    flags: host → its flags; hosts whose flags could not be read are left out. The result is 0 if no flags
    could be read, or if a value is not a number.
    """
    return min((buffer_of(r.value) or 0 for r in flags.values() if isinstance(r, Seen)), default=0)


def buffer_of(flags: Mapping[str, str]) -> int | None:
    """Return jute.maxbuffer in bytes: the default if it is not set, None if it is not a number."""
    text = flags.get("jute.maxbuffer")
    if text is None:
        return JUTE_MAXBUFFER
    # Java's Integer.getInteger: decimal, or hexadecimal with 0x.
    try:
        return int(text, 0) if text.lower().startswith("0x") else int(text)
    except ValueError:
        return None


def _myid(look: Look, host: str, data_dir: str) -> Reading[str]:
    reading = look.file(host, f"{data_dir}/myid")
    return Seen(reading.value.decode("ascii", "replace").strip()) if isinstance(reading, Seen) else reading


def _newest_bytes(disk: Reading[tuple[Listed, Listed]]) -> Reading[int]:
    """Return the bytes that a dest host will receive and write: source's largest snapshot and largest log."""
    if not isinstance(disk, Seen):
        return disk
    data, logs = (directory.names_with_sizes() for directory in disk.value)
    snapshots = [size for name, size in data.items() if name.startswith("snapshot.")]
    log_sizes = [size for name, size in logs.items() if name.startswith("log.")]
    return Seen(max(snapshots, default=0) + max(log_sizes, default=0))
