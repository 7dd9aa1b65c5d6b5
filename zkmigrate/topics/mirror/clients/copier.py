"""Copy partitions of source to target at equal offsets until the copier is stopped.

A copier stores no state of its own. When it starts, or gets no response, it finds its position from both
logs. A batch is appended only once however often it is sent, because its producer id and sequence number are
derived from target's log. End markers have no sequence number. Therefore the copier that writes them owns a
transactional id for each partition, and checks every ``LEASE_S`` seconds that it still owns the id. A copier
that takes over the id waits longer than that.

Records from source are written only after target has reported again which cluster leads the topic. So a
copier that starts again after a switch, or was suspended during one, writes nothing: records that clients
write to target reach source only after the switch was recorded on target.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from math import inf
from typing import Any

from zkmigrate.errors import HostError, LockedError
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.token_bucket import TokenBucket
from zkmigrate.topics.mirror.clients.cluster import (
    FETCH_BYTES,
    NO_LEADER,
    PARTITION_BYTES,
    Cluster,
    Fetched,
    Part,
)
from zkmigrate.topics.mirror.clients.owners import Owner, owned
from zkmigrate.topics.mirror.clients.partition import TAKEN_OVER, Partition
from zkmigrate.topics.mirror.clients.reading import PartError, position
from zkmigrate.topics.mirror.rules import records
from zkmigrate.topics.mirror.rules.batch import BatchError, parse, produced
from zkmigrate.topics.mirror.rules.direction import barred
from zkmigrate.topics.mirror.rules.gaps import Append, Drop, Gap, first, steps, too_wide
from zkmigrate.topics.mirror.rules.outcome import TOO_LARGE, Again, Appended, Fenced, answered, outcome, owns
from zkmigrate.topics.mirror.rules.position import WINDOW, Ends, Failed, Sides, foreign, fresh
from zkmigrate.topics.mirror.rules.small_batches import joined

LEASE_S = 2.0
"""The most seconds that a copier writes end markers without checking that it still may write."""
SETTLE_S = 2.5
"""Seconds that a copier waits after it took over a partition, which is longer than ``LEASE_S``.

By then the former copier no longer writes, and everything that it sent has arrived.
"""
LOOK_S = 5.0
"""Seconds between two checks that target's logs end where the copier left them."""
RETRY_S = 0.5
KNOWN_S = 60.0
"""Seconds after an accepted batch in which several requests may be in flight.

A broker lets a producer that it does not know, or has forgotten, begin with any sequence number. If it
refused the first batch, it would append the second batch at the offset of the first.
"""
MARKERS = 1000
"""The most end markers in one request for one partition."""
QUEUE_BYTES, PARTITION_QUEUE_BYTES = 64 << 20, 8 << 20
"""Two limits in bytes for responses of source in memory: of all partitions together, and of one partition.

Above the second limit nothing more is requested for the partition. A batch that is larger than a fetch may
exceed both limits.
"""
BURST_S = 1.0
"""How much may be sent at once after a pause, as the number of seconds in which the rate allows it."""

PAUSE_S = 0.1
"""The most seconds that one round waits for the rate limit."""


class Copier:
    """A copier of partitions from source to target.

    parts: the partitions. deletes: the topics of target whose records may be deleted. say: a function that is
    called once for each partition that fails, or that this copier may no longer write. rate: the highest rate
    in bytes per second, for all partitions together.
    """

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        parts: Iterable[Part],
        deletes: Collection[str],
        codecs: records.Codecs,
        say: Callable[[Partition], None],
        rate: float = 0.0,
    ) -> None:
        self._source, self._target, self._codecs, self._say = source, target, codecs, say
        self._deletes = deletes
        self.partitions = {part: Partition(part) for part in parts}
        self._owners: dict[Part, Owner] = {}
        self._looked = 0.0
        self._ids = source.id(), target.id()
        self._unasked, self._asked = True, -inf
        self._leaders: dict[Part, int] = {}
        self._targets: dict[Part, int] = {}
        self._flying: list[tuple[Any, int, dict[Part, int]]] = []
        self._bucket = TokenBucket(rate, rate * BURST_S, time.monotonic)

    def add(self, parts: Iterable[Part]) -> None:
        """Start to copy these partitions as well. Partitions that are already known are ignored."""
        for part in parts:
            self.partitions.setdefault(part, Partition(part))

    def stop(self, topic: str, why: str) -> None:
        """Stop copying a topic, and mark its partitions as failed for the given reason."""
        for p in self.partitions.values():
            if p.part[0] == topic and p.left:
                self._judge(p, Failed(why))

    def copy(self, ended: Callable[[], bool], tick: Callable[[], None], *, once: bool = False) -> None:
        """Copy until ``ended`` returns True or no partition is left to copy.

        once: whether to stop at the last stable offsets that source had when copying began. tick: a function
        that is called after each round. Raises LockedError if nothing is left to copy and this copier may no
        longer write some partitions, unless ``ended`` returned True.
        """
        while not ended():
            left = [p for p in self.partitions.values() if p.left]
            if not left or (once and all(p.at_goal for p in left)):
                if taken := [p for p in self.partitions.values() if p.taken]:
                    raise LockedError(_stopped(taken))
                return
            try:
                self._round(left)
            except HostError as error:
                for p in left:
                    p.again(str(error))
                time.sleep(RETRY_S)
            tick()

    def _round(self, left: Sequence[Partition]) -> None:
        shut = [p for p in left if p.position is None]
        if shut:
            self._open(shut)
        if not any(p.open for p in left):
            time.sleep(RETRY_S)
            return
        self._collect(wait=not self._queued())
        asked = self._ask_leaders()
        self._fetch()
        self._still_mine()
        self._hear_leaders(asked)
        if time.monotonic() - self._looked > LOOK_S:
            self._look()
        self._apply()
        if wait_s := self._bucket.wait_s:
            time.sleep(min(wait_s, PAUSE_S))

    # -- beginning

    def _open(self, shut: Sequence[Partition]) -> None:
        """Take over these partitions, and read their positions ``SETTLE_S`` seconds later.

        All other partitions are copied meanwhile.
        """
        now = time.monotonic()
        settled = [p for p in shut if p.due is not None and p.due <= now]
        if new := [p for p in shut if p.due is None]:
            self._take(new)
        if settled:
            self._read(settled)

    def _take(self, shut: Sequence[Partition]) -> None:
        """Take over these partitions, except partitions that another copier has taken from this copier."""
        if known := [p for p in shut if p.part in self._owners]:
            self._ask(known)
        begun = time.monotonic()
        asked = [p for p in shut if p.left]
        owners = self._target.take([owned(p.part) for p in asked])
        for p in asked:
            owner = owners[owned(p.part)]
            if isinstance(owner, Owner):
                self._owners[p.part], p.asked = owner, begun
                p.due = time.monotonic() + SETTLE_S
            else:
                self._judge(p, _heard(owner, p.tries))

    def _read(self, shut: Sequence[Partition]) -> None:
        """Read the positions of these partitions from both logs.

        This is called when everything that a former copier sent has arrived.
        """
        parts = [p.part for p in shut]
        # Target first: another copier may still write, up to what source has by then.
        targets = [self._target.ends(parts, committed=stable) for stable in (False, True)]
        sources = [self._source.ends(parts, committed=stable) for stable in (True, False)]
        self._leaders = self._led(self._source)
        self._targets = self._led(self._target)
        for p in shut:
            found = [side.get(p.part, NO_LEADER) for side in (*targets, *sources)]
            ends = [one for one in found if isinstance(one, Ends)]
            if len(ends) < len(found):
                self._judge(p, _heard(next(one for one in found if isinstance(one, int))))
                continue
            target, own, stable, source = ends
            self._begin(p, Sides(source, target, (stable.end, own.end)))

    def _led(self, cluster: Cluster) -> dict[Part, int]:
        told = cluster.leaders({topic for topic, _ in self.partitions})
        return {(topic, n): leader for topic, own in told.items() for n, leader in own.items()}

    def _begin(self, p: Partition, sides: Sides) -> None:
        clusters = self._source, self._target
        leaders = [led.get(p.part, -1) for led in (self._leaders, self._targets)]
        if -1 in leaders:  # a broker that has just started does not know every topic yet
            self._judge(p, _heard(NO_LEADER, p.tries))
            return
        deletes = p.part[0] in self._deletes
        try:
            begun = position(clusters, leaders, p.part, sides, self._codecs, deletes=deletes)
        except PartError as error:  # the other partitions are still copied
            self._judge(p, _heard(error.code, p.tries))
            return
        except HostError as error:
            p.again(str(error))
            return
        if isinstance(begun, Failed):
            self._judge(p, begun)
            return
        p.position, p.fetched, p.producer, p.why = begun.offset, begun.start, begun.producer, ""
        p.steps.extend(first(begun, int(time.time() * 1000), self._codecs))
        p.goal = sides.stable[0] if p.goal is None else p.goal

    # -- source

    def _fetch(self) -> None:
        """Send a fetch request to each leader that has no fetch request in flight, while memory allows.

        Partitions that have waited longest come first.
        """
        room = QUEUE_BYTES - sum(p.queued for p in self.partitions.values())
        room -= sum(most for _, most, _ in self._flying)
        flying = {self._leaders.get(part, -1) for _, _, offsets in self._flying for part in offsets}
        by_leader: dict[int, dict[Part, int]] = {}
        for p in sorted(self.partitions.values(), key=lambda one: one.served):
            leader = self._leaders.get(p.part, -1)
            if p.open and leader not in flying and p.queued < PARTITION_QUEUE_BYTES:
                by_leader.setdefault(leader, {})[p.part] = p.fetched
        for leader, offsets in islice(by_leader.items(), max(0, room // PARTITION_BYTES)):
            most = max(PARTITION_BYTES, min(FETCH_BYTES, room // len(by_leader)))
            self._flying.append((self._source.begin_fetch(leader, offsets, most=most), most, offsets))

    def _collect(self, *, wait: bool) -> None:
        """Take the responses of source that have arrived, and queue the steps that follow from them.

        wait: whether to wait for one response if none has arrived.
        """
        flying, self._flying = self._flying, []
        for sent, most, offsets in flying:
            if not wait and not self._source.arrived(sent):
                self._flying.append((sent, most, offsets))
                continue
            wait = False
            try:
                answers = self._source.fetched(sent)
            except HostError as error:
                self._lost(offsets, error)
                continue
            for part, answer in answers.items():
                p = self.partitions[part]
                if not p.open or p.fetched != offsets[part]:
                    continue  # the position was read again meanwhile
                if answer.error:
                    self._judge(p, _heard(answer.error, p.tries))
                else:
                    self._queue(p, answer)

    def _queue(self, p: Partition, answer: Fetched) -> None:
        p.stable = answer.stable
        try:
            batches = parse(answer.records, p.fetched)
        except BatchError as error:
            self._judge(p, Failed(f"source: {error}"))
            return
        if batches:
            self._unasked = True
            made = steps(p.fetched, batches, answer.aborted, self._codecs)
            p.later.append((len(answer.records), joined(made) if p.joins else made))
            p.fetched, p.served = batches[-1].next_offset, time.monotonic()

    def _queued(self) -> list[Partition]:
        """Build the next steps of all partitions, and return the partitions that have steps.

        Partitions that have waited longest come first.
        """
        for p in self.partitions.values():
            if p.open:
                try:
                    p.make()
                except BatchError as error:
                    self._judge(p, Failed(f"source: {error}"))
        found = [p for p in self.partitions.values() if p.open and p.steps]
        return sorted(found, key=lambda p: p.heard)

    # -- target

    def _apply(self) -> None:
        """Send the next steps of each partition."""
        queued = self._queued()
        for p in queued:
            if isinstance(p.steps[0], Drop):
                self._drop(p, p.steps[0].offset)
        if gaps := [p for p in queued if p.open and p.steps and isinstance(p.steps[0], Gap)]:
            self._mark(gaps)
        self._append([p for p in queued if p.open and p.steps and isinstance(p.steps[0], Append)])

    def _drop(self, p: Partition, offset: int) -> None:
        if self._judge(p, _heard(self._target.drop(p.part, offset), p.tries)):
            p.steps.popleft()
            p.producer, p.heard = fresh(offset), -inf

    def _append(self, queued: Sequence[Partition]) -> None:
        """Append the next few batches of each partition, with several requests in flight."""
        sent: list[tuple[Any, dict[Part, Append]]] = []
        senders = {p.part: p.producer for p in queued}
        now = time.monotonic()
        heads = {p.part: p.head(WINDOW if now - p.heard < KNOWN_S else 1) for p in queued}
        for n in range(WINDOW):
            by_leader: dict[int, dict[Part, Append]] = {}
            for part, head in heads.items():
                if n < len(head) and not self._bucket.wait_s:
                    self._bucket.spend(head[n].size)
                    by_leader.setdefault(self._targets.get(part, -1), {})[part] = head[n]
            for leader, wanted in by_leader.items():
                data = {}
                for part, step in wanted.items():
                    who = senders[part]
                    data[part] = produced(step.batch, who.id, who.sequence)
                    senders[part] = who.after(step.count)
                sent.append((self._target.begin_produce(leader, data), wanted))
        for one, wanted in sent:
            try:
                answers = self._target.produced(one)
            except HostError as error:
                self._lost(wanted, error)
                continue
            for part, step in wanted.items():
                p = self.partitions[part]
                code, base_offset, why = answers[part]
                if code == TOO_LARGE and p.joins and p.open:
                    p.joins = False
                    p.again(
                        "target's topic does not accept the joined batch, so small batches are not joined"
                    )
                if p.open and self._judge(p, answered(step.offset, code, base_offset, p.tries, why)):
                    p.steps.popleft()
                    p.producer, p.position, p.tries = p.producer.after(step.count), step.batch.next_offset, 0
                    p.heard = time.monotonic()
                    p.bytes += step.size

    def _mark(self, gaps: Sequence[Partition]) -> None:
        """Fill a part of each partition's gap with end markers, then check that its log grew by that much.

        After the first marker, Kafka refuses the markers of former copiers.
        """
        self._still_mine()
        by_leader: dict[int, dict[Part, tuple[int, Owner]]] = {}
        for p in gaps:
            if not p.open:
                continue
            gap = p.steps[0]
            assert isinstance(gap, Gap)
            if wide := too_wide(gap):
                self._judge(p, wide)
                continue
            count = min(gap.count, MARKERS)
            leader = self._targets.get(p.part, -1)
            by_leader.setdefault(leader, {})[p.part] = (count, self._owners[p.part])
        for leader, counts in by_leader.items():
            try:
                errors = self._target.mark(leader, counts)
            except HostError as error:
                self._lost(counts, error)
                continue
            for part, code in errors.items():
                self._judge(self.partitions[part], _heard(code, self.partitions[part].tries))
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
        """Check every ``LEASE_S`` seconds whether another copier has taken over a partition."""
        still, now = [p for p in self.partitions.values() if p.open], time.monotonic()
        if any(now - p.asked > LEASE_S for p in still):
            self._ask(still)
        """A function that reads which cluster leads each topic, and stops copying topics that source does not
        lead."""

    def still_leads(self) -> None:
        """Read from target which cluster leads each topic. Stop copying topics that source does not lead."""
        self._unasked = True
        self._hear_leaders(self._ask_leaders())

    def _ask_leaders(self) -> tuple[list[str], Any] | None:
        """If it is time, send target a request for the cluster that leads each topic.

        It is time after each response of source, and at regular intervals. Returns the topics and the request
        that was sent, or None if it is not time.
        """
        begun = time.monotonic()
        topics = sorted({p.part[0] for p in self.partitions.values() if p.left})
        if not topics or not (self._unasked or begun - self._asked > LEASE_S):
            return None
        self._unasked, self._asked = False, begun
        return topics, self._target.leads.ask(topics)

    def _hear_leaders(self, asked: tuple[list[str], Any] | None) -> None:
        if asked is None:
            return
        topics, sent = asked
        told = self._target.leads.told(topics, sent)
        for p in self.partitions.values():
            if p.left and (why := barred(p.part[0], told.get(p.part[0]), *self._ids)):
                p.give_up(why)
                self._say(p)

    def _ask(self, some: Sequence[Partition]) -> None:
        begun = time.monotonic()
        told = self._target.ended([self._owners[p.part] for p in some])
        for p in some:
            mine = owns(told[owned(p.part)])
            if mine is False:
                self._judge(p, Fenced())
            elif mine is None:
                p.again("target does not report which copier owns this partition")
            else:
                p.asked = begun

    def _look(self) -> None:
        """Check that target's logs end where this copier's last write ended."""
        still = [p for p in self.partitions.values() if p.open]
        ends = self._target.ends([p.part for p in still])
        for p in still:
            told = ends.get(p.part, NO_LEADER)
            if not isinstance(told, Ends):
                self._judge(p, _heard(told, p.tries))
            elif p.position is not None and told.end > p.position:
                self._judge(p, foreign(told.end, p.position))
            elif p.position is not None and told.end < p.position:
                p.again(f"target's log ends at offset {told.end}; needed: {p.position}. Target lost records")
        self._looked = time.monotonic()

    # -- answers

    def _lost(self, parts: Iterable[Part], error: HostError) -> None:
        """Let the positions of these partitions be read again, because a broker did not respond.

        error: the error of the request.
        """
        for part in parts:
            if self.partitions[part].open:
                self.partitions[part].again(str(error))

    def _judge(self, p: Partition, answer: Appended | Again | Fenced | Failed) -> bool:
        """Return True if a request for a partition succeeded. Otherwise update the partition's state.

        After the update, the position is read again, or the partition has failed, or it belongs to another
        copier.
        """
        if isinstance(answer, Appended):
            return True
        if isinstance(answer, Again):
            p.tries += 1
            p.again(answer.why)
            return False
        if isinstance(answer, Fenced):
            p.give_up()
        else:
            p.fail(answer.why)
        self._say(p)
        return False


def _heard(code: int, tries: int = 0) -> Appended | Again | Fenced | Failed:
    """Return the outcome of a request from an error code that came without an error message.

    tries: as for ``outcome``.
    """
    return outcome(code, tries, describe_error(code))


def _stopped(taken: Sequence[Partition]) -> str:
    """Return the message with which a copier ends if it may no longer write some partitions.

    taken: the partitions that it may no longer write.
    """
    names = ", ".join(f"{p.part[0]}-{p.part[1]}" for p in taken if p.why == TAKEN_OVER)
    said = [f"another copier has taken over {names}. This copier has stopped"] if names else []
    said += dict.fromkeys(p.why for p in taken if p.why != TAKEN_OVER)
    next = (
        "check the other copier, or start this copier again" if names else "look at zkmigrate mirror status"
    )
    return f"{'; '.join(said)}. Next: {next}"
