"""Look: the only way in which a step, fact or check sees the world.

``runbook/site/observe.py`` uses four-letter words, ssh and clients. ``tests/world/model/world.py`` answers
with the same wire text, so that every parser runs in both. Hosts are named as in the inventory. All looks are
read-only and have a deadline of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar

from zkmigrate.kafka.changes import AlterAtController, CreateTopic, GrowTopic
from zkmigrate.runbook.model.fact import Reading

T = TypeVar("T")
A = TypeVar("A", bound=Callable[..., object])


def costs(cost: str) -> Callable[[A], A]:
    """States what a look asks of how many brokers, for looks that are repeated beside a long stage."""

    def stated(look: A) -> A:
        look.__dict__["costs"] = cost
        return look

    return stated


def cost(look: Callable[..., object]) -> str:
    """What a look asks of how many brokers. KeyError where it does not state that."""
    said: str = look.__dict__["costs"]
    return said


class Request(Generic[T]):
    """A question that a look answers with a ``T``. Its room defines it and answers it.

    Each subclass is a frozen dataclass. answered_by: ``module:Class.method``. The class is made once for each
    look, with the inventory and that look, and is closed with it. The method takes the request. costs: what
    the question asks of how many servers, if it is repeated beside a long stage.
    """

    answered_by: ClassVar[str]
    costs: ClassVar[str] = ""


@dataclass(frozen=True)
class DirEntry:
    """One entry of a directory. kind: ``f`` file, ``d`` directory, ``o`` other. size: bytes. changed_ns:
    ctime on the host's clock, nanoseconds since the epoch. Unlike mtime it changes when a file is put back.
    None over SFTP, which does not tell it."""

    name: str
    kind: str
    size: int
    changed_ns: int | None
    mode: str = ""
    owner: str = ""
    group: str = ""


@dataclass(frozen=True)
class Znode:
    """A znode as a client sees it. modified_ms: mtime, milliseconds since the epoch on the clock of the
    leader that took the write."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ephemeral_owner: int
    version: int
    children: tuple[str, ...]
    modified_ms: int = 0


Rights: TypeAlias = tuple[tuple[int, str, str], ...]
"""The ACL of a znode: of each entry permissions, scheme and id."""


@dataclass(frozen=True)
class PartitionState:
    """One partition in a broker's metadata; ``leader`` is -1 when offline."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class KafkaView:
    """The Kafka cluster as its brokers answer. controller: -1 when unknown. brokers: id → (host, port, rack).
    min_isr: topic → effective min.insync.replicas. reassigning: partitions with a reassignment in flight;
    None where neither brokers (before 2.4) nor a joined dest host can tell. releases: ``ADDRESS:PORT`` of
    each broker that answered → its release as MAJOR.MINOR."""

    cluster_id: str
    controller: int
    brokers: Mapping[int, tuple[str, int, str]]
    partitions: tuple[PartitionState, ...]
    min_isr: Mapping[str, int] = field(default_factory=dict)
    reassigning: tuple[tuple[str, int], ...] | None = ()
    releases: Mapping[str, str] = field(default_factory=dict)

    def without(self, retired: Collection[int]) -> KafkaView:
        """The same, with these brokers counted as replicas only where they are in the ISR: nobody waits for
        them."""
        return replace(
            self,
            partitions=tuple(
                replace(p, replicas=tuple(r for r in p.replicas if r not in retired or r in p.isr))
                for p in self.partitions
            ),
        )


@dataclass(frozen=True)
class Pulse:
    """One broker's answer. age_s: seconds since its last answer, 0 for now, None for never. why: what went
    wrong this time, else empty. took_s: how long this answer took, with a new connection if needed. apis: API
    key → smallest and largest version that the broker offered this time."""

    age_s: float | None
    why: str = ""
    took_s: float = 0.0
    apis: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def wrong(self) -> str:
        """What went wrong and since when, for a finding; empty when nothing did."""
        if not self.why:
            return ""
        since = "it has not answered yet" if self.age_s is None else f"last answer {self.age_s:.1f} s ago"
        return f"{self.why}; {since}"


@dataclass(frozen=True)
class ClusterTopics:
    """The sorted names of a cluster's topics, and the id of the cluster that named them."""

    cluster_id: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class TopicSetting:
    """One config of one topic or broker. own: its own value, None where a default holds. read_only: Kafka
    takes no other value. value: of a broker, what is in force; None where it is null or the broker does not
    list the config."""

    own: str | None
    read_only: bool = False
    value: str | None = None


Settings: TypeAlias = Reading[Mapping[str, Reading[TopicSetting]]]
"""One config of several topics, by name. A topic is Absent where it does not exist, Unknown where its config
may not be read. All of it is Absent where Kafka has no such config."""


@dataclass(frozen=True)
class TopicPartitions:
    """Some topics as a few brokers, the witnesses, see them. brokers: ids that every witness names.
    witnesses: ids that answered. topics: partitions by topic; Absent where no witness knows the topic,
    Unknown where it may not be described. A replica is in sync where every witness that knows the topic says
    so. ids: the topic ids, where brokers tell them (Kafka 2.8)."""

    cluster_id: str
    brokers: frozenset[int]
    witnesses: tuple[int, ...]
    topics: Mapping[str, Reading[tuple[PartitionState, ...]]]
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class InFlight:
    """A reassignment in flight. replicas: the present set, the target's first, in the target's order."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The set that the partition will have."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


@dataclass(frozen=True)
class LogEnd:
    """Where a replica's log ends. offset: the log end offset (LEO), of the record that it will get next.
    high_watermark: of the partition, told by its leader alone. epoch: the leader epoch by which the broker
    holds the replica. None where the broker does not tell."""

    offset: int
    high_watermark: int | None = None
    epoch: int | None = None


@dataclass(frozen=True)
class ReplicaLog:
    """One replica on a disk of a broker. size: bytes of its segments. lag: messages still to fetch, -1 where
    unknown. future: it is being copied from another directory of this broker, which it replaces when its lag
    is 0."""

    topic: str
    partition: int
    size: int
    lag: int
    future: bool


@dataclass(frozen=True)
class LogDir:
    """One log directory of a broker.

    total, usable: bytes of its volume; None from brokers before 3.3. cordoned: whether
    ``cordoned.log.dirs`` (Kafka 4.3) names it, so that it accepts no replica that is assigned to it by
    name. Kafka chooses a cordoned directory only if all directories of the broker are cordoned.
    """

    replicas: tuple[ReplicaLog, ...]
    total: int | None = None
    usable: int | None = None
    cordoned: bool = False


LogDirs: TypeAlias = Reading[Mapping[str, Reading[LogDir]]]
"""The log directories of one broker, by path; Unknown for one that the broker cannot use."""


@dataclass(frozen=True, slots=True)
class Volume:
    """mount: its mount point. total, free: bytes; free is what an ordinary account may fill."""

    mount: str
    total: int
    free: int


class RandomReader(Protocol):
    """Random access to one remote file; reads are short at its end only."""

    def size(self) -> int: ...
    def read(self, offset: int, length: int) -> bytes: ...


class Look(Protocol):
    """Every method is one question to one host or cluster."""

    def now(self) -> float:
        """Seconds on the operator's monotonic clock; comparable within one process only."""

    def wall(self) -> float:
        """Seconds since the epoch, for messages and the journal."""

    def ask(self, request: Request[T]) -> T:
        """Answer a question of any room."""

    def word(self, host: str, word: str) -> Reading[str]:
        """A ZooKeeper host's raw answer at its client port to a four-letter word."""

    def zkm(self, host: str, *words: str) -> Reading[str]:
        """Output of a reading verb of zkm-host on a dest or broker host (streamed where not installed)."""

    def program(self, channel: str, host: str, *words: str) -> Reading[str]:
        """Output of a reading verb of the program that takes the changes of a host with this ``channel``."""

    def file(self, host: str, path: str) -> Reading[bytes]:
        """A whole small file (≤ 1 MiB) of any host."""

    def listing(self, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        """A directory of any host."""

    def reader(self, host: str, path: str) -> RandomReader:
        """Random access to a file of any host; reads raise ``HostError`` when the host fails them."""

    def sockets(self, host: str) -> Reading[str]:
        """``ss -Htn state established`` of any host, as text."""

    def processes(self, host: str) -> Reading[str]:
        """``ps -e -ww -o args=`` of any host, as the ssh account sees it: one command a line."""

    def date(self, host: str) -> Reading[str]:
        """``date +%s.%N`` of any host, by the ssh account's login shell."""

    @costs("one command on each of these hosts, which reads six files of /proc")
    def load_counters(self, host: str) -> Reading[str]:
        """Counters of a host's disks and interfaces, as text for :func:`zkmigrate.hosts.facts.load.parse`."""

    @costs("one HTTP request to each of these exporters")
    def metrics(self, url: str) -> Reading[str]:
        """Fetch the Prometheus text at a URL from the operator's machine, for
        :func:`zkmigrate.hosts.facts.load.parse_metrics`."""

    def addresses(self, host: str, name: str) -> Reading[tuple[str, ...]]:
        """The addresses of a name on a host, or for host ``""`` on the operator's machine; Absent: it has
        none."""

    def here(self) -> Reading[tuple[str, ...]]:
        """The operator's machine: the inventory's ``operator`` addresses that it has, then those it sends
        from towards the hosts."""

    def znode(self, host: str, path: str) -> Reading[Znode]:
        """One znode with its children, through a client session with one ZooKeeper host."""

    def modified(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, int]]:
        """``Znode.modified_ms`` of these znodes through one ZooKeeper host; a missing path is left out. One
        read for each, many in flight at once."""

    def acls(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Rights]]:
        """The ACL of these znodes through one ZooKeeper host; a missing path is left out."""

    def kafka(self, witnesses: int | None = None) -> Reading[KafkaView]:
        """The Kafka cluster. witnesses: how many brokers tell of its partitions; None: all."""

    def volumes(self, host: str, paths: Sequence[str]) -> Reading[Mapping[str, Volume]]:
        """The volume of each of these directories of a host, by ``df``."""

    def pulses(self, within_s: float) -> Mapping[str, Pulse]:
        """One round trip to each broker of the inventory, all at once, at most ``within_s`` long."""

    def produced(self) -> Mapping[str, Sequence[Pulse]]:
        """The produce canary's records since the last call, by the broker that led them; nothing where no
        canary sends."""

    @costs("one Metadata request for all partitions of all topics, to one broker")
    def topics(self, cluster: str) -> Reading[ClusterTopics]:
        """Every topic of a cluster. Like each look at a cluster it first asks every broker for its
        ApiVersions."""

    @costs("one Metadata request for these topics alone, to each witness")
    def topic_partitions(
        self, cluster: str, topics: Sequence[str], witnesses: int
    ) -> Reading[TopicPartitions]:
        """The partitions of these topics. witnesses: how many brokers are asked; fewer may answer. Brokers
        tell from memory, not from disk or ZooKeeper."""

    @costs("one DescribeLogDirs request for these partitions alone, to each of these brokers")
    def log_dirs(
        self, cluster: str, brokers: Sequence[int], partitions: Mapping[str, Sequence[int]] | None = None
    ) -> Reading[Mapping[int, LogDirs]]:
        """The replicas on the disks of these brokers, by broker id. partitions: which ones, by topic; None:
        all. A broker tells sizes from memory and asks its file system for the volumes."""

    @costs("two ListOffsets requests for these partitions alone, to each of these brokers")
    def log_ends(
        self, cluster: str, replicas: Mapping[int, Mapping[str, Sequence[int]]]
    ) -> Reading[Mapping[int, Reading[Mapping[tuple[str, int], Reading[LogEnd]]]]]:
        """Where the logs of these replicas end, by broker id and partition. replicas: by broker id,
        partitions by topic. Brokers tell from memory. It needs the right to describe the topics."""

    @costs("one DescribeConfigs request for each 500 topics, to one broker, which reads each from ZooKeeper")
    def topic_settings(self, cluster: str, key: str, topics: Sequence[str]) -> Settings:
        """One config of these topics. Brokers without ZooKeeper tell it from memory."""

    @costs("one CreateTopics or CreatePartitions request, which the controller validates only")
    def refused_topic(self, change: CreateTopic | GrowTopic) -> Reading[str]:
        """Why Kafka would refuse to create or grow a topic; empty where it would not. It validates only."""

    @costs("one DescribeQuorum request, and one IncrementalAlterConfigs request to the active controller")
    def refused_at_controller(self, change: AlterAtController) -> Reading[str]:
        """Why the controller would refuse to change a config of a broker; empty where it would not. Unknown
        where it does not answer from here, Absent with ZooKeeper. It validates only."""

    @costs("one DescribeConfigs request to each of these brokers")
    def broker_settings(
        self, cluster: str, key: str, brokers: Sequence[int]
    ) -> Reading[Mapping[int, Reading[TopicSetting]]]:
        """One dynamic config of these brokers, by id; Unknown for a broker that does not answer."""

    @costs("one ListPartitionReassignments request for all partitions, to one broker, the controller")
    def reassignments(self, cluster: str) -> Reading[Mapping[tuple[str, int], InFlight]]:
        """The reassignments in flight, by topic and partition; Absent where brokers before 2.4 list none."""

    def each(self, hosts: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        """Ask several hosts at once through a bounded pool; the result keeps their order."""
