"""Read a partition of either cluster: its last batches, and the records that a consumer sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zkmigrate.errors import HostError
from zkmigrate.kafka.error_text import describe_error
from zkmigrate.topics.mirror.clients.cluster import COMMITTED, UNCOMMITTED, Cluster, Fetched, Part
from zkmigrate.topics.mirror.rules import records
from zkmigrate.topics.mirror.rules.batch import Batch, BatchError, parse
from zkmigrate.topics.mirror.rules.gaps import Append, steps
from zkmigrate.topics.mirror.rules.join import Joined, join
from zkmigrate.topics.mirror.rules.outcome import OFFSET_NOT_AVAILABLE, OFFSET_OUT_OF_RANGE
from zkmigrate.topics.mirror.rules.position import WINDOW, Begin, Ends, Failed, Sides, begin, unequal
from zkmigrate.topics.mirror.rules.stand import Stand, first_wrong, stands

_EMPTY = 20
"""The number of fetches in a row without a batch after which reading fails. Each takes 250 ms."""
_MOVES = 3
"""The most restarts of a comparison because retention moved the start of a log meanwhile."""
_BACK = 16
"""The factor by which ``last_data`` increases its distance from the end of the log each time."""


class PartError(HostError):
    """Raised if a leader refuses to send a partition's records, or sends none although the log has some.

    code: Kafka's error code.
    """

    def __init__(self, cluster: Cluster, part: Part, code: int, what: str) -> None:
        super().__init__(f"{cluster.what}: {part[0]}-{part[1]}: {what}")
        self.code = code


def position(
    clusters: Sequence[Cluster],
    leaders: Sequence[int],
    part: Part,
    sides: Sides,
    codecs: records.Codecs,
    *,
    deletes: bool,
) -> Begin | Failed:
    """Return the offset where a copier continues, if the end of target's log equals source's records there.

    clusters, leaders: source and target, and the broker ids of the partition's leaders on each. deletes: as
    for ``position.begin``. Returns Failed if the logs differ. Raises PartError or HostError.
    """
    target = sides.target
    try:
        last = last_data(clusters[1], leaders[1], part, target.start, target.end)
        begun = begin(sides, last, deletes=deletes)
        if isinstance(begun, Failed):
            return begun
        first = last[0].base_offset if len(last) > WINDOW else target.start
        first = max(first, sides.source.start)
        here, there = (
            _standing(side, leader, part, first, target.end, codecs)
            for side, leader in zip(clusters, leaders, strict=True)
        )
        wrong = first_wrong(here, there)
    except BatchError as error:
        return Failed(str(error))
    return begun if wrong is None else unequal(wrong)


def last_data(cluster: Cluster, leader: int, part: Part, start: int, end: int) -> list[Batch]:
    """Return the last record batches of a log.

    Their number is one more than a copier has in flight, or less if the log has fewer. leader: the broker id
    of the partition's leader. start, end: the offsets where the log begins and ends. Raises BatchError.
    """
    found: list[Batch] = []
    back, upto = 1, end
    while upto > start and len(found) <= WINDOW:
        begun = max(start, end - back)
        some = [
            one
            for _, batches, _ in _answers(cluster, leader, part, begun, upto, UNCOMMITTED)
            for one in batches
            if not one.control and one.count and one.base_offset < upto
        ]
        found = [*some, *found]
        upto, back = min([begun, *(one.base_offset for one in some)]), back * _BACK
    return found[-WINDOW - 1 :]


def compared(
    clusters: Sequence[Cluster],
    leaders: Sequence[int],
    part: Part,
    begun: int,
    end: int,
    codecs: records.Codecs,
) -> tuple[Joined, int]:
    """Compare the records that read_committed consumers of both clusters read in a range of offsets.

    clusters, leaders: source and target, and the broker ids of the partition's leaders on each. begun, end:
    the first offset, and the offset after the last. If retention deletes records meanwhile, only records that
    both clusters still have are compared. Returns the result, and the offset from which records were
    compared.

    Raises BatchError. Raises HostError if a broker sends nothing, or if retention deletes records faster than
    they are compared.
    """
    for last in (False,) * _MOVES + (True,):
        here, there = (
            committed(side, leader, part, begun, end, codecs)
            for side, leader in zip(clusters, leaders, strict=True)
        )
        try:
            return join(here, there, begun, end, end, codecs), begun
        except PartError as error:
            starts = [_start(side, part) for side in clusters] if error.code == OFFSET_OUT_OF_RANGE else []
            if max(starts, default=begun) <= begun:
                raise
            if last:
                raise HostError(
                    f"{error}. Retention deletes these records faster than they are compared. Next: raise "
                    f"retention.ms and retention.bytes of {part[0]} on both clusters, then try again"
                ) from None
            begun = min(end, max(starts))
    raise AssertionError("the last try returns or raises")


def _start(cluster: Cluster, part: Part) -> int:
    """Return the current log start offset of a partition, or 0 if its leader does not report it."""
    ends = cluster.ends([part]).get(part)
    return ends.start if isinstance(ends, Ends) else 0


def committed(
    cluster: Cluster, leader: int, part: Part, begun: int, end: int, codecs: records.Codecs
) -> Iterator[Batch]:
    """Yield the batches that a read_committed consumer reads from offset ``begun`` on.

    The last batch begins before offset ``end``.
    """
    for offset, batches, answer in _answers(cluster, leader, part, begun, end, COMMITTED):
        for step in steps(offset, batches, answer.aborted, codecs):
            if isinstance(step, Append) and step.offset < end:
                yield step.batch


def _standing(
    cluster: Cluster, leader: int, part: Part, begun: int, end: int, codecs: records.Codecs
) -> Iterator[Stand]:
    """Yield the content of a log at each offset, from the batch that contains ``begun`` up to ``end``.

    leader: the broker id of the partition's leader. Raises BatchError or HostError.
    """
    for _, batches, answer in _answers(cluster, leader, part, begun, end, COMMITTED):
        yield from stands(batches, answer.aborted, codecs)


def _answers(
    cluster: Cluster, leader: int, part: Part, begun: int, end: int, isolation: int
) -> Iterator[tuple[int, list[Batch], Fetched]]:
    """Fetch every batch from one offset up to another.

    Yields the requested offset, the batches and the response of each fetch. The function ends sooner if
    compaction removed the last offsets of the log. Raises BatchError. Raises PartError if the leader refuses,
    or if it sends nothing although its log continues.
    """
    empty = 0
    while begun < end:
        sent = cluster.begin_fetch(leader, {part: begun}, isolation)
        answer = cluster.fetched(sent).get(part)  # a broker whose quota is used up sends no partition
        if answer is not None and answer.error:
            raise PartError(cluster, part, answer.error, describe_error(answer.error))
        found = [] if answer is None else parse(answer.records, begun)
        if answer is not None and found:
            yield begun, found, answer
            begun, empty = found[-1].next_offset, 0
        elif answer is not None and answer.shown(isolation) >= end:
            return
        else:
            empty += 1
            if empty == _EMPTY:
                raise PartError(
                    cluster,
                    part,
                    OFFSET_NOT_AVAILABLE,
                    f"the leader returned no record from offset {begun} up to {end}",
                )
