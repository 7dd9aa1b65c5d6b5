"""A cluster in memory that keeps Kafka's rules for producers, end markers and transactional ids."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.unit.topics.mirror.batches import marker
from zkmigrate.errors import HostError
from zkmigrate.topics.mirror.clients.cluster import Cluster, Fetched, Latest, Part
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.clients.owners import Owner
from zkmigrate.topics.mirror.rules import records
from zkmigrate.topics.mirror.rules.batch import Batch, encode, parse, visible
from zkmigrate.topics.mirror.rules.direction import Lead
from zkmigrate.topics.mirror.rules.position import Ends

MOVED, OUT_OF_ORDER, FENCED, INVALID, UNKNOWN, NO_TRANSACTION, NOT_OWNER = 6, 45, 47, 87, -1, 48, 90
REMEMBERED, TOO_LARGE = 5, 10


class Killed(BaseException):
    """The copier's process is gone."""


class Alone:
    """What asks, of a cluster with one broker. Who uses it says what begins and ends."""

    ask = Cluster.ask

    def _known(self) -> tuple[int, ...]:
        return ()


@dataclass
class Log:
    """A partition. producers: by id the sequence numbers and offset of its last batches. epochs: of markers,
    by producer id. aborted: producer id, first offset and end of each aborted transaction. largest: bytes of
    a batch."""

    start: int = 0
    batches: list[Batch] = field(default_factory=list)
    producers: dict[int, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    epochs: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    largest: int = 1 << 20

    @property
    def end(self) -> int:
        return max([self.start, *(one.next_offset for one in self.batches)])

    @property
    def stable(self) -> int:
        """The last stable offset: where the oldest transaction without a marker begins, else the end."""
        return min([self.end, *self._begun().values()])

    def _begun(self) -> dict[int, int]:
        """The first offset of each producer's open transaction."""
        begun: dict[int, int] = {}
        for one in self.batches:
            if one.control:
                begun.pop(one.producer_id, None)
            elif one.transactional:
                begun.setdefault(one.producer_id, one.base_offset)
        return begun

    def append(self, batch: Batch) -> None:
        """Without any check."""
        if batch.control and records.aborts(batch, KafkaCodecs()):
            first = self._begun().get(batch.producer_id)
            self.aborted += [] if first is None else [(batch.producer_id, first, self.end)]
        self.batches.append(replace(batch, base_offset=self.end))

    def produce(self, data: bytes) -> tuple[int, int]:
        [batch] = parse(data)
        if len(data) > self.largest:
            return TOO_LARGE, -1
        if not batch.whole or batch.control or batch.append_time or batch.base_offset:
            return INVALID, -1
        own = self.producers[batch.producer_id]
        first, last = batch.base_sequence, batch.base_sequence + batch.last_delta
        for one in own[-REMEMBERED:]:
            if one[:2] == (first, last):
                return 0, one[2]
        if own and own[-1][1] + 1 != first:
            return OUT_OF_ORDER, -1
        own.append((first, last, self.end))
        self.append(batch)
        return 0, own[-1][2]

    def mark(self, owner: Owner) -> int:
        if owner.id < 0:
            return UNKNOWN
        if self.epochs.get(owner.id, -1) > owner.epoch:
            return FENCED
        self.epochs[owner.id] = owner.epoch
        self.append(marker(0, owner.id, commit=False))
        return 0

    def read(self) -> list[tuple[int, int, bytes]]:
        """What a read_committed consumer sees."""
        codecs = KafkaCodecs()
        ended = [one.base_offset for one in self.batches if one.control and records.aborts(one, codecs)]
        seen = visible(self.batches, [one[:2] for one in self.aborted], ended)
        return [one for batch in seen for one in records.seen(batch, codecs) if one[0] >= self.start]


Write = Callable[[], object]


class Asked(dict[Part, int]):
    """Where a fetch begins in each partition."""

    committed = True


@dataclass
class ModelLeads:
    """Of ``mirror.clients.leads.Leads``. kept: by topic. The answer is as new as the question."""

    kept: dict[str, Lead] = field(default_factory=dict)

    def ask(self, topics: Collection[str]) -> dict[str, Lead]:
        return {topic: one for topic, one in self.kept.items() if topic in topics}

    def told(self, topics: Collection[str], sent: dict[str, Lead]) -> dict[str, Lead]:
        return sent


@dataclass
class ModelCluster:
    """Of ``mirror.clients.cluster.Cluster``. fault: asked before each write, what becomes of it: "", "lost"
    (not applied, no answer), "unheard" (applied, no answer), "moved" (refused: the leader moved), "killed"
    (not sent), "killed after", or "late": killed, and applied when ``arrive`` is called, at the latest before
    the next write. away: asked before each answer to a fetch, whether the leader moved. silent: the same,
    whether it does not answer. most: batches in one answer to a fetch. above: by partition, offsets that too
    few replicas have yet. in_sync: by partition, of its replicas 1 and 2. least: min.insync.replicas; None:
    it is hidden. denied: why it does not show a topic."""

    what: str
    logs: dict[Part, Log]
    fault: Callable[[], str] = lambda: ""
    away: Callable[[], bool] = lambda: False
    silent: Callable[[], bool] = lambda: False
    owners: dict[str, Owner] = field(default_factory=dict)
    late: list[Write] = field(default_factory=list)
    most: int = 2
    leads: ModelLeads = field(default_factory=ModelLeads)
    above: dict[Part, int] = field(default_factory=dict)
    in_sync: dict[Part, tuple[int, ...]] = field(default_factory=dict)
    least: int | None = 2
    denied: dict[str, str] = field(default_factory=dict)

    def arrive(self, *_: object) -> None:
        """Apply what was under way when its sender died."""
        late, self.late = self.late, []
        for write in late:
            write()

    def _write(self, write: Write, refusal: object) -> object:
        fault = self.fault()
        if fault == "late":
            self.late.append(write)
        if fault in ("late", "killed"):
            raise Killed
        if fault == "moved":
            return refusal
        if fault == "lost":
            return HostError("lost")
        self.arrive()
        done = write()
        if fault == "killed after":
            raise Killed
        return HostError("unheard") if fault == "unheard" else done

    def _done(self, told: object) -> object:
        if isinstance(told, HostError):
            raise told
        return told

    # -- what the copier calls

    def id(self) -> str:
        return self.what

    def leaders(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        return {name: {n: 1 for topic, n in self.logs if topic == name} for name in topics}

    def unshown(self, names: Iterable[str]) -> dict[str, str]:
        return {name: why for name, why in self.denied.items() if name in names}

    def ends(self, parts: Iterable[Part], *, committed: bool = False) -> dict[Part, Ends | int]:
        logs = {part: self.logs[part] for part in parts}
        return {part: Ends(log.start, log.stable if committed else log.end) for part, log in logs.items()}

    def latest(self, topics: Iterable[str]) -> dict[Part, Latest]:
        return {
            part: Latest(
                log.end, log.end, log.end + self.above.get(part, 0), self.in_sync.get(part, (1, 2)), (1, 2)
            )
            for part, log in self.logs.items()
            if part[0] in topics
        }

    def offers(self, request: Any) -> bool:
        return False

    def least_in_sync(self, names: Sequence[str]) -> dict[str, int]:
        if self.least is None:
            raise HostError("TopicAuthorizationFailedError")
        return dict.fromkeys(names, self.least)

    def begin_fetch(
        self, leader: int, offsets: Mapping[Part, int], isolation: int = 1, most: int = 0
    ) -> Asked:
        asked = Asked(offsets)
        asked.committed = isolation == 1
        return asked

    def arrived(self, asked: Mapping[Part, int]) -> bool:
        return True

    def fetched(self, asked: Asked) -> dict[Part, Fetched]:
        """A few batches, from the one with the offset on."""
        if self.silent():
            raise HostError("silent")
        found = {}
        for part, offset in asked.items():
            log = self.logs[part]
            wrong = MOVED if self.away() else int(not log.start <= offset <= log.end)
            end = log.stable if asked.committed else log.end
            left = [one for one in log.batches if offset < one.next_offset and one.base_offset < end]
            left = left[: self.most]
            aborted = tuple(
                (id, begun)
                for id, begun, end in log.aborted
                if asked.committed and left and begun < left[-1].next_offset and end >= offset
            )
            found[part] = Fetched(wrong, log.end, log.stable, aborted, b"".join(map(encode, left)))
        return found

    def begin_produce(self, leader: int, batches: Mapping[Part, bytes]) -> object:
        return self._write(
            lambda: {part: (*self.logs[part].produce(data), "") for part, data in batches.items()},
            dict.fromkeys(batches, (MOVED, -1, "")),
        )

    def produced(self, sent: object) -> object:
        return self._done(sent)

    def mark(self, leader: int, counts: Mapping[Part, tuple[int, Owner]]) -> object:
        def write() -> dict[Part, int]:
            return {
                part: max(self.logs[part].mark(owner) for _ in range(count))
                for part, (count, owner) in counts.items()
            }

        return self._done(self._write(write, dict.fromkeys(counts, MOVED)))

    def drop(self, part: Part, offset: int) -> object:
        def write() -> int:
            log = self.logs[part]
            log.start = max(log.start, offset)
            log.batches = [one for one in log.batches if one.next_offset > log.start]
            return 0

        return self._done(self._write(write, MOVED))

    def take(self, names: Sequence[str]) -> dict[str, Owner]:
        for name in names:
            before = self.owners.get(name)
            self.owners[name] = Owner(name, 9, before.epoch + 1 if before else 0)
        return {name: self.owners[name] for name in names}

    def ended(self, owners: Iterable[Owner]) -> dict[str, int]:
        return {one.name: NO_TRANSACTION if self.owners[one.name] == one else NOT_OWNER for one in owners}
