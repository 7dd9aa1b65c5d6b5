"""Everything the checks judge by, looked at once and at the same time where hosts are many.

Reads only. ``cluster_ids`` costs one client session of the operator per dest host and is had only from the
roll on; the rest comes from four-letter words, files, sockets, zkm-host's reading verbs and the brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from zkmigrate.errors import HostError
from zkmigrate.facts.clients import SourceClients, connections, source_clients
from zkmigrate.facts.config import ZooConfig, zoo_config
from zkmigrate.facts.dest import DataState, data_state
from zkmigrate.facts.disk import directories
from zkmigrate.facts.ensemble import EnsembleView, dest_view, source_view
from zkmigrate.facts.host import HostFacts, HostStatus, host_facts, host_status
from zkmigrate.facts.kafka import cluster_id
from zkmigrate.facts.largest import Largest, largest_znode
from zkmigrate.facts.own_commands import OwnCommands, own_commands
from zkmigrate.facts.properties import properties, system_properties
from zkmigrate.facts.runs import other_runs
from zkmigrate.facts.sessions import Homes, Sessions, dump, homes, sessions_of
from zkmigrate.facts.words import answer
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.model.look import KafkaView, Look
from zkmigrate.model.step import Context
from zkmigrate.zkdata.words import Conf, Connection, Dump, Mntr, parse_conf, parse_mntr

NOT_ASKED = Unknown("failed", "not looked at for this gate")
NO_ENSEMBLE = EnsembleView({}, None)
DEFAULT_JUTE_MAXBUFFER = 0xFFFFF
"""Bytes; org.apache.jute.BinaryInputArchive's default for ``jute.maxbuffer``."""


@dataclass(frozen=True)
class Evidence:
    """One look at the world for one gate; what the gate does not need stays empty or unknown.

    Keyed by host name. leader: ``mntr`` of source's leader. mntrs, cons, dumps: what each source host and,
    once joined, each dest host answered. confs: ``conf`` of source. ports: (dest host, source host, port) →
    what a connect got. source_bytes: size of a source host's newest snapshot and logs. sessions: those that
    own ephemerals under the chroot. flags: ``-D`` settings of the JVM. dest_config: what is there now.
    asked: the operator's clock before and after ``facts`` was asked. homes: where those sessions are
    connected, None before the cut-over. runs: other runs that a host knows, with their phase. own: the
    inventory's own commands for services.
    """

    source: EnsembleView
    leader: Reading[Mntr]
    mntrs: Mapping[str, Reading[Mntr]]
    cons: Mapping[str, Reading[tuple[Connection, ...]]]
    dumps: Mapping[str, Reading[Dump]]
    statuses: Mapping[str, Reading[HostStatus]]
    kafka: Reading[KafkaView]
    broker_properties: Mapping[str, Reading[Mapping[str, str]]]
    sessions: Reading[Sessions]
    source_config: Mapping[str, Reading[ZooConfig]] = field(default_factory=dict)
    source_myid: Mapping[str, Reading[str]] = field(default_factory=dict)
    source_flags: Mapping[str, Reading[Mapping[str, str]]] = field(default_factory=dict)
    source_bytes: Reading[int] = NOT_ASKED
    largest: Reading[Largest] = NOT_ASKED
    ports: Mapping[tuple[str, str, int], Reading[str]] = field(default_factory=dict)
    confs: Mapping[str, Reading[Conf]] = field(default_factory=dict)
    dest_data: Mapping[str, Reading[DataState]] = field(default_factory=dict)
    dest_config: Mapping[str, Reading[ZooConfig]] = field(default_factory=dict)
    dest_flags: Mapping[str, Reading[Mapping[str, str]]] = field(default_factory=dict)
    facts: Mapping[str, Reading[HostFacts]] = field(default_factory=dict)
    asked: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    dest: EnsembleView = NO_ENSEMBLE
    cluster_ids: Mapping[str, Reading[str]] = field(default_factory=dict)
    clients: SourceClients | None = None
    homes: Homes | None = None
    runs: Mapping[str, Reading[Mapping[str, str]]] = field(default_factory=dict)
    own: OwnCommands = field(default_factory=OwnCommands)

    @property
    def joined(self) -> bool:
        """Whether this was looked at after the join."""
        return bool(self.dest.servers)


def gather(c: Context, look: Look, gate: str) -> Evidence:
    """Look at all that the checks of this gate need: ``preflight``, ``roll`` or ``cutover``."""
    inventory = c.inventory
    view = source_view(inventory, look)
    joined = inventory.dest_names if gate != "preflight" else ()
    serving = (*inventory.source_names, *joined)
    cons = look.each(serving, lambda host: connections(look, host))
    dumps = look.each(serving, lambda host: dump(look, host))
    mntrs = look.each(serving, lambda host: answer(look, host, "mntr", parse_mntr))
    common = Evidence(
        source=view,
        leader=Absent("no one leader") if view.leader is None else mntrs[view.leader],
        mntrs=mntrs,
        cons=cons,
        dumps=dumps,
        statuses=look.each((*inventory.dest_names, *inventory.broker_names), lambda h: host_status(look, h)),
        kafka=look.kafka(),
        broker_properties=look.each(
            inventory.broker_names, lambda host: properties(look, host, inventory.kafka.config)
        ),
        sessions=sessions_of(dumps, cons, inventory.kafka.chroot),
    )
    common = _as_configured(c, look, common)
    if gate == "preflight":
        return _before_anything(c, look, common)
    owners = common.sessions.value.owners if isinstance(common.sessions, Seen) else {}
    at_dest = {host: cons[host] for host in joined}
    at_source = {host: cons[host] for host in inventory.source_names}
    return replace(
        common,
        homes=homes(owners, at_dest, at_source) if gate == "cutover" else None,
        dest=dest_view(inventory, look),
        cluster_ids=look.each(joined, lambda host: cluster_id(look, host, inventory.kafka.chroot)),
        clients=source_clients(inventory, look, cons) if gate == "cutover" else None,
    )


def _as_configured(c: Context, look: Look, common: Evidence) -> Evidence:
    """What may be changed on a host between one gate and the next: configs, flags, room, tools."""
    source, dest, kafka = c.inventory.source, c.inventory.dest, c.inventory.kafka
    sources, dests = c.inventory.source_names, c.inventory.dest_names
    directories = tuple(dict.fromkeys((dest.data_dir, dest.txn_dir)))

    def offer(host: str) -> tuple[Reading[HostFacts], tuple[float, float]]:
        before = look.wall()
        service, room = (dest.service, directories) if host in dests else (kafka.service, ())
        reading = host_facts(look, host, "-" if service.has_commands else service.unit, *room)
        return reading, (before, look.wall())

    offers = look.each((*dests, *c.inventory.broker_names), offer)
    return replace(
        common,
        source_config=look.each(sources, lambda host: zoo_config(look, host, source.config)),
        source_flags=look.each(sources, lambda host: system_properties(look, host, source.java_env)),
        source_bytes=_newest_bytes(look, _leader(c, common), source.data_dir, source.txn_dir),
        confs=look.each(sources, lambda host: answer(look, host, "conf", parse_conf)),
        dest_flags=look.each(dests, lambda host: system_properties(look, host, dest.java_env)),
        facts={host: reading for host, (reading, _) in offers.items()},
        asked={host: when for host, (_, when) in offers.items()},
        runs=look.each((*dests, *c.inventory.broker_names), lambda host: other_runs(look, host, c.run)),
    )


def _leader(c: Context, common: Evidence) -> str:
    """Source's leader; without one the check of the quorum blocks, and the first host stands for it."""
    return common.source.leader or c.inventory.source_names[0]


def _before_anything(c: Context, look: Look, common: Evidence) -> Evidence:
    """What has to be right before the first change: empty dest, open ports, znodes that dest can take."""
    source, dest = c.inventory.source, c.inventory.dest
    sources, dests = c.inventory.source_names, c.inventory.dest_names
    pairs = tuple(
        (name, host, port)
        for name in dests
        for host in sources
        for port in (source.ports.quorum, source.ports.election)
    )
    enough = smallest_buffer(common.dest_flags)
    return replace(
        common,
        source_myid=look.each(sources, lambda host: _myid(look, host, source.data_dir)),
        largest=largest_znode(
            look, _leader(c, common), source.data_dir, source.txn_dir, common.leader, enough
        ),
        ports=_connects(c, look, pairs),
        dest_data=look.each(dests, lambda host: data_state(look, dest, host)),
        dest_config=look.each(dests, lambda host: zoo_config(look, host, dest.config)),
        own=own_commands(c.inventory, look),
    )


def _connects(
    c: Context, look: Look, pairs: tuple[tuple[str, str, int], ...]
) -> Mapping[tuple[str, str, int], Reading[str]]:
    """One connect per pair; the pool is asked for all pairs at once, each named by its place in the list."""
    numbered = {str(at): pair for at, pair in enumerate(pairs)}

    def connect(at: str) -> Reading[str]:
        dest, source, port = numbered[at]
        return look.connects(dest, c.inventory.address(source), port)

    return {numbered[at]: reading for at, reading in look.each(numbered, connect).items()}


def smallest_buffer(flags: Mapping[str, Reading[Mapping[str, str]]]) -> int:
    """The smallest jute.maxbuffer of these hosts in bytes; hosts that could not be read count as default."""
    return min((buffer_of(r.value) or 0 for r in flags.values() if isinstance(r, Seen)), default=0)


def buffer_of(flags: Mapping[str, str]) -> int | None:
    """jute.maxbuffer in bytes, the default where it is not set; None when it is not a number."""
    text = flags.get("jute.maxbuffer")
    if text is None:
        return DEFAULT_JUTE_MAXBUFFER
    # Java's Integer.getInteger: decimal, or hexadecimal with 0x.
    try:
        return int(text, 0) if text.lower().startswith("0x") else int(text)
    except ValueError:
        return None


def _myid(look: Look, host: str, data_dir: str) -> Reading[str]:
    reading = look.file(host, f"{data_dir}/myid")
    return Seen(reading.value.decode("ascii", "replace").strip()) if isinstance(reading, Seen) else reading


def _newest_bytes(look: Look, host: str, data_dir: str, txn_dir: str) -> Reading[int]:
    """Size of what a dest host will receive and write: the largest snapshot, and the logs beside it."""
    try:
        data, logs = directories(look, host, data_dir, txn_dir)
        in_data = data.names_with_sizes()
        in_logs = in_data if data == logs else logs.names_with_sizes()
        snapshots = [size for name, size in in_data.items() if name.startswith("snapshot.")]
        log_sizes = [size for name, size in in_logs.items() if name.startswith("log.")]
    except HostError as error:
        return Unknown("failed", str(error))
    return Seen(max(snapshots, default=0) + max(log_sizes, default=0))
