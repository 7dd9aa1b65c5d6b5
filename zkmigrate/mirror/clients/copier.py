"""Copies partitions of source to target at equal offsets until it is told to end.

It keeps nothing of its own: when it begins, or an answer does not come, it reads its position from both logs.
A batch is appended once however often it is sent, because its producer id and sequence number follow from
target's log. End markers have no sequence number. So their writer owns a transactional id for each topic and
asks every ``LEASE_S`` whether it still does. Whoever takes over waits longer than that.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Any

from zkmigrate.errors import HostError, LockedError
from zkmigrate.mirror.clients.cluster import NO_LEADER, Cluster, Fetched, Owner, Part
from zkmigrate.mirror.rules import records
from zkmigrate.mirror.rules.batch import Batch, BatchError, parse, produced
from zkmigrate.mirror.rules.gaps import Append, Drop, Gap, Step, first, steps, too_wide
from zkmigrate.mirror.rules.outcome import Again, Appended, Fenced, answered, outcome, owns
from zkmigrate.mirror.rules.position import Begin, Ends, Failed, Producer, begin, foreign, fresh, unequal

LEASE_S = 2.0
"""A copier writes end markers for at most so many seconds without asking whether it still may."""
SETTLE_S = 2.5
"""Longer than the lease: after it a former copier writes nothing more, and what it sent has arrived."""
LOOK_S = 5.0
"""Seconds between two looks whether target's ends are where the copier left them."""
RETRY_S = 0.5
WINDOW = 4
"""Most produce requests in flight to one broker; it remembers the last five batches of a producer."""
KNOWN_S = 60.0
"""So long after an answer several requests may be in flight. A broker lets a producer that it does not know,
or has forgotten, begin anywhere: if it refused the first batch, the second would stand in its place."""
MARKERS = 1000
"""Most end markers for one partition in one request."""
_UNCOMMITTED = 0
_EMPTY = 20
"""So many fetches without a batch in a row, 250 ms each, end the reading of records."""
_BACK = 16
"""How many times farther the copier looks back for target's last batch of data each time."""


@dataclass
class Partition:
    """A partition's state.

    position: target's end; None before it was read. fetched: the next offset to ask source for. stable:
    source's last stable offset. tries: positions read without progress since. why: what it waits for. failed:
    why it cannot go on. heard: when target last took a batch of this producer. bytes: copied so far. goal:
    source's last stable offset at the beginning.
    """

    part: Part
    position: int | None = None
    fetched: int = 0
    stable: int = -1
    producer: Producer = field(default_factory=lambda: Producer(0, 0))
    steps: deque[Step] = field(default_factory=deque)
    tries: int = 0
    why: str = "not begun"
    failed: str = ""
    heard: float = -inf
    bytes: int = 0
    goal: int | None = None

    @property
    def open(self) -> bool:
        return self.position is not None and not self.failed

    @property
    def at_goal(self) -> bool:
        """Whether all that source held at the beginning is there."""
        return self.position is not None and self.goal is not None and self.position >= self.goal


class Copier:
    """Copies these partitions. deletes: the topics of target whose records may be deleted. say: told once
    when a partition fails."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        parts: Iterable[Part],
        deletes: Collection[str],
        codecs: records.Codecs,
        say: Callable[[Partition], None],
    ) -> None:
        self._source, self._target, self._codecs, self._say = source, target, codecs, say
        self._deletes = deletes
        self.partitions = {part: Partition(part) for part in parts}
        self._owners: dict[str, Owner] = {}
        self._asked = self._looked = 0.0
        self._leaders: dict[Part, int] = {}
        self._targets: dict[Part, int] = {}
        self._flying: list[tuple[Any, dict[Part, int]]] = []

    def add(self, parts: Iterable[Part]) -> None:
        """Copy these as well, those that it does not know."""
        for part in parts:
            self.partitions.setdefault(part, Partition(part))

    def stop(self, topic: str, why: str) -> None:
        """Copy a topic no more: its partitions have failed."""
        for p in self.partitions.values():
            if p.part[0] == topic and not p.failed:
                self._judge(p, Failed(why))

    def copy(self, ended: Callable[[], bool], tick: Callable[[], None], *, once: bool = False) -> None:
        """Copy until ``ended``, or until all partitions have failed. once: only up to source's ends at the
        beginning. tick: called often. LockedError when another copier has taken over."""
        while not ended():
            left = [p for p in self.partitions.values() if not p.failed]
            if not left or (once and all(p.at_goal for p in left)):
                return
            try:
                self._round(left, ended, tick)
            except HostError as error:
                for p in left:
                    self._again(p, str(error))
                time.sleep(RETRY_S)
            tick()

    def _round(self, left: Sequence[Partition], ended: Callable[[], bool], tick: Callable[[], None]) -> None:
        shut = [p for p in left if p.position is None]
        if shut:
            self._open(shut)
        if not any(p.open for p in left):
            time.sleep(RETRY_S)
            return
        self._collect()
        self._fetch()
        if time.monotonic() - self._asked > LEASE_S:
            self._still_mine()
        if time.monotonic() - self._looked > LOOK_S:
            self._look()
        while not ended() and self._apply():
            tick()

    # -- beginning

    def _open(self, shut: Sequence[Partition]) -> None:
        """Read the positions of these partitions from both logs."""
        for p in shut:
            p.steps.clear()
        topics = {p.part[0] for p in shut}
        for topic in topics:
            owner = self._target.take(f"zkmigrate-mirror-{topic}")
            if not isinstance(owner, Owner):
                raise HostError(f"target: the transactional id of topic {topic}: Kafka's error {owner}")
            self._owners[topic] = owner
        self._asked = time.monotonic()
        parts = [p.part for p in shut]
        time.sleep(SETTLE_S)
        stable = self._source.ends(parts, committed=True)
        sources, targets = self._source.ends(parts), self._target.ends(parts)
        self._leaders = self._led(self._source)
        self._targets = self._led(self._target)
        for p in shut:
            told = [side.get(p.part, NO_LEADER) for side in (sources, targets, stable)]
            source, target, goal = told
            if isinstance(source, Ends) and isinstance(target, Ends) and isinstance(goal, Ends):
                self._begin(p, source, target, goal.end)
            else:
                self._judge(p, outcome(next(one for one in told if isinstance(one, int))))

    def _led(self, cluster: Cluster) -> dict[Part, int]:
        told = cluster.leaders({topic for topic, _ in self.partitions})
        return {(topic, n): leader for topic, own in told.items() for n, leader in own.items()}

    def _begin(self, p: Partition, source: Ends, target: Ends, goal: int) -> None:
        try:
            last = last_data(self._target, self._targets[p.part], p.part, target)
            begun = begin(source, target, last, deletes=p.part[0] in self._deletes)
            if isinstance(begun, Begin):
                wrong = self._differs(p, last, source)
                begun = begun if wrong is None else unequal(wrong)
        except BatchError as error:
            begun = Failed(str(error))
        if isinstance(begun, Failed):
            self._judge(p, begun)
        else:
            p.position, p.fetched, p.producer, p.why = begun.offset, begun.start, begun.producer, ""
            p.steps.extend(first(begun, int(time.time() * 1000), self._codecs))
            p.goal = goal if p.goal is None else p.goal

    def _differs(self, p: Partition, last: Sequence[Batch], source: Ends) -> int | None:
        """The first offset of target's last batches at which source holds another record; None without one.

        A batch of the copier itself that followed another write stands at a wrong offset.
        """
        if not last or last[-1].next_offset <= source.start:
            return None
        begun, end = max(last[0].base_offset, source.start), last[-1].next_offset
        there = {at: (ms, body) for one in last for at, ms, body in records.seen(one, self._codecs)}
        read = committed(self._source, self._leaders[p.part], p.part, begun, end, self._codecs)
        return records.differing({at: (ms, body) for at, ms, body in read}, there)

    # -- source

    def _fetch(self) -> None:
        by_leader: dict[int, dict[Part, int]] = {}
        for p in self.partitions.values():
            if p.open:
                by_leader.setdefault(self._leaders.get(p.part, -1), {})[p.part] = p.fetched
        self._flying = [
            (self._source.begin_fetch(leader, offsets), offsets) for leader, offsets in by_leader.items()
        ]

    def _collect(self) -> None:
        """Queue the steps for what source has sent."""
        flying, self._flying = self._flying, []
        for sent, offsets in flying:
            for part, answer in self._source.fetched(sent).items():
                p = self.partitions[part]
                if not p.open or p.fetched != offsets[part]:
                    continue  # the position was read anew meanwhile
                if answer.error:
                    self._judge(p, outcome(answer.error, p.tries))
                else:
                    self._queue(p, answer)

    def _queue(self, p: Partition, answer: Fetched) -> None:
        p.stable = answer.stable
        try:
            batches = parse(answer.records)
            p.steps.extend(steps(p.fetched, batches, answer.aborted, self._codecs))
        except BatchError as error:
            self._judge(p, Failed(f"source: {error}"))
            return
        if batches:
            p.fetched = max(p.fetched, batches[-1].next_offset)

    # -- target

    def _apply(self) -> bool:
        """Send the next steps of each partition; whether there were any."""
        queued = [p for p in self.partitions.values() if p.open and p.steps]
        for p in queued:
            if isinstance(p.steps[0], Drop):
                self._drop(p, p.steps[0].offset)
        if gaps := [p for p in queued if p.open and p.steps and isinstance(p.steps[0], Gap)]:
            self._mark(gaps)
        self._append([p for p in queued if p.open and p.steps and isinstance(p.steps[0], Append)])
        return bool(queued)

    def _drop(self, p: Partition, offset: int) -> None:
        if self._judge(p, outcome(self._target.drop(p.part, offset), p.tries)):
            p.steps.popleft()
            p.producer, p.heard = fresh(offset), -inf

    def _append(self, queued: Sequence[Partition]) -> None:
        """Append the next few batches of each partition, several requests in flight."""
        sent: list[tuple[Any, dict[Part, Append]]] = []
        senders = {p.part: p.producer for p in queued}
        now = time.monotonic()
        heads = {p.part: _appends(p.steps, WINDOW if now - p.heard < KNOWN_S else 1) for p in queued}
        for n in range(WINDOW):
            by_leader: dict[int, dict[Part, Append]] = {}
            for part, head in heads.items():
                if n < len(head):
                    by_leader.setdefault(self._targets.get(part, -1), {})[part] = head[n]
            for leader, wanted in by_leader.items():
                data = {}
                for part, step in wanted.items():
                    who = senders[part]
                    data[part] = produced(step.batch, who.id, who.sequence)
                    senders[part] = who.after(step.count)
                sent.append((self._target.begin_produce(leader, data), wanted))
        lost: HostError | None = None
        for one, wanted in sent:
            try:
                answers = self._target.produced(one)
            except HostError as error:
                lost = error
                continue
            for part, step in wanted.items():
                p = self.partitions[part]
                if p.open and self._judge(p, answered(step.offset, *answers[part], p.tries)):
                    p.steps.popleft()
                    p.producer, p.position, p.tries = p.producer.after(step.count), step.batch.next_offset, 0
                    p.heard = time.monotonic()
                    p.bytes += Batch.SIZE + len(step.batch.payload)
        if lost is not None:
            raise lost

    def _mark(self, gaps: Sequence[Partition]) -> None:
        """Fill a part of each partition's gap, then see that its log grew by that much.

        After the first marker those of former copiers are refused.
        """
        if time.monotonic() - self._asked > LEASE_S:
            self._still_mine()
        by_leader: dict[int, dict[Part, tuple[int, Owner]]] = {}
        for p in gaps:
            gap = p.steps[0]
            assert isinstance(gap, Gap)
            if wide := too_wide(gap):
                self._judge(p, wide)
                continue
            count = min(gap.count, MARKERS)
            leader = self._targets.get(p.part, -1)
            by_leader.setdefault(leader, {})[p.part] = (count, self._owners[p.part[0]])
        for leader, counts in by_leader.items():
            for part, error in self._target.mark(leader, counts).items():
                self._judge(self.partitions[part], outcome(error, self.partitions[part].tries))
        marked = [p for p in gaps if p.open]
        ends = self._target.ends([p.part for p in marked])
        for p in marked:
            self._marked(p, ends.get(p.part, NO_LEADER))

    def _marked(self, p: Partition, told: Ends | int) -> None:
        gap = p.steps[0]
        assert isinstance(gap, Gap)
        count = min(gap.count, MARKERS)
        error, end = (0, told.end) if isinstance(told, Ends) else (told, -1)
        if self._judge(p, answered(gap.offset + count, error, end, p.tries)):
            p.steps.popleft()
            p.position, p.tries = end, 0
            if count < gap.count:
                p.steps.appendleft(Gap(end, gap.count - count))

    # -- looks

    def _still_mine(self) -> None:
        """Raises LockedError when another copier has taken over one of the topics."""
        begun = time.monotonic()
        told = {topic: owns(self._target.ended(owner)) for topic, owner in self._owners.items()}
        for topic, mine in told.items():
            if mine is False:
                raise LockedError(_TAKEN.format(topic))
            if mine is None:
                raise HostError(f"target does not tell who copies topic {topic}")
        self._asked = begun

    def _look(self) -> None:
        """See whether target's ends are where the copier left them."""
        still = [p for p in self.partitions.values() if p.open]
        ends = self._target.ends([p.part for p in still])
        for p in still:
            told = ends.get(p.part, NO_LEADER)
            if not isinstance(told, Ends):
                self._judge(p, outcome(told, p.tries))
            elif p.position is not None and told.end > p.position:
                self._judge(p, foreign(told.end, p.position))
        self._looked = time.monotonic()

    # -- answers

    def _judge(self, p: Partition, answer: Appended | Again | Fenced | Failed) -> bool:
        """Whether it is done; else the partition is read anew, or has failed."""
        if isinstance(answer, Appended):
            return True
        if isinstance(answer, Fenced):
            raise LockedError(_TAKEN.format(p.part[0]))
        if isinstance(answer, Again):
            p.tries += 1
            self._again(p, answer.why)
        else:
            p.failed = answer.why
            self._say(p)
        return False

    def _again(self, p: Partition, why: str) -> None:
        p.position, p.why, p.heard = None, why, -inf
        p.steps.clear()


_TAKEN = "another copier has taken over topic {}. This one has stopped. Next: look there, or begin again here"


def _appends(queued: Iterable[Step], most: int) -> list[Append]:
    """The batches at the head of the queue."""
    found: list[Append] = []
    for step in islice(queued, most):
        if not isinstance(step, Append):
            break
        found.append(step)
    return found


def last_data(cluster: Cluster, leader: int, part: Part, ends: Ends) -> list[Batch]:
    """The last batches of records of a log, one more than a copier has in flight; fewer if there are no more.
    BatchError."""
    found: list[Batch] = []
    back, end = 1, ends.end
    while end > ends.start and len(found) <= WINDOW:
        begun = max(ends.start, ends.end - back)
        some = [one for one in _batches(cluster, leader, part, begun, end) if not one.control and one.count]
        found = [*(one for one in some if one not in found[:1]), *found]
        end, back = begun, back * _BACK
    return found[-WINDOW - 1 :]


def _batches(cluster: Cluster, leader: int, part: Part, begun: int, end: int) -> Iterable[Batch]:
    """Every batch from an offset up to another. A log whose last offsets are gone ends sooner."""
    while begun < end:
        answer = cluster.fetched(cluster.begin_fetch(leader, {part: begun}, _UNCOMMITTED))[part]
        found = parse(_good(answer, cluster, part))
        if not found:
            return
        yield from found
        begun = found[-1].next_offset


def committed(
    cluster: Cluster, leader: int, part: Part, begun: int, end: int, codecs: records.Codecs
) -> Iterable[tuple[int, int, bytes]]:
    """Offset, time in milliseconds and body of each record that a read_committed consumer sees from an offset
    up to another. BatchError; HostError when the broker sends nothing."""
    empty = 0
    while begun < end:
        answer = cluster.fetched(cluster.begin_fetch(leader, {part: begun}))[part]
        found = parse(_good(answer, cluster, part))
        for step in steps(begun, found, answer.aborted, codecs):
            if isinstance(step, Append) and step.offset < end:
                yield from (one for one in records.seen(step.batch, codecs) if one[0] < end)
        empty = 0 if found else empty + 1
        if empty == _EMPTY:
            raise HostError(f"{cluster.what}: {part[0]}-{part[1]}: nothing from offset {begun} up to {end}")
        begun = found[-1].next_offset if found else begun


def _good(answer: Fetched, cluster: Cluster, part: Part) -> bytes:
    if answer.error:
        raise HostError(f"{cluster.what}: {part[0]}-{part[1]}: Kafka's error {answer.error}")
    return answer.records
