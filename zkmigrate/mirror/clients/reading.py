"""Reads a partition of either cluster: its last batches, and the records that a consumer sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zkmigrate.errors import HostError
from zkmigrate.mirror.clients.cluster import Cluster, Fetched, Part
from zkmigrate.mirror.rules import records
from zkmigrate.mirror.rules.batch import Batch, parse
from zkmigrate.mirror.rules.gaps import Append, steps
from zkmigrate.mirror.rules.position import WINDOW, Ends, others

_UNCOMMITTED = 0
_EMPTY = 20
"""So many fetches without a batch in a row, 250 ms each, end the reading of records."""
_BACK = 16
"""How many times farther ``last_data`` looks back for the last batch of data each time."""


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
        found = parse(_good(answer, cluster, part), begun)
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
        found = parse(_good(answer, cluster, part), begun)
        for step in steps(begun, found, answer.aborted, codecs):
            if isinstance(step, Append) and step.offset < end:
                yield from (one for one in records.seen(step.batch, codecs) if one[0] < end)
        empty = 0 if found else empty + 1
        if empty == _EMPTY:
            raise HostError(f"{cluster.what}: {part[0]}-{part[1]}: nothing from offset {begun} up to {end}")
        begun = found[-1].next_offset if found else begun


def differing(
    sides: Sequence[Cluster],
    leaders: Sequence[int],
    part: Part,
    start: int,
    last: Sequence[Batch],
    codecs: records.Codecs,
) -> int | None:
    """The first offset of target's last batches at which source holds another record; None without one.
    sides, leaders: of source and target. start: of source's log. BatchError, HostError.

    A batch of the copier itself that followed another write stands at a wrong offset. Another producer's
    record is wrong also where source has none. It may be of an aborted transaction, which only the log tells.
    """
    if not last or last[-1].next_offset <= start:
        return None
    begun, end = max(last[0].base_offset, start), last[-1].next_offset
    foreign = [one for one in last if others(one)]
    if foreign:
        own = committed(sides[1], leaders[1], part, begun, end, codecs)
    else:
        own = (one for batch in last for one in records.seen(batch, codecs))
    there = {at: (ms, body) for at, ms, body in own}
    read = committed(sides[0], leaders[0], part, begun, end, codecs)
    here = {at: (ms, body) for at, ms, body in read}
    strange = [at for one in foreign for at in range(one.base_offset, one.next_offset)]
    extra = [at for at in strange if at >= begun and at in there and at not in here]
    wrong = records.differing(here, there)
    return min([*extra, *([] if wrong is None else [wrong])], default=None)


def _good(answer: Fetched, cluster: Cluster, part: Part) -> bytes:
    if answer.error:
        raise HostError(f"{cluster.what}: {part[0]}-{part[1]}: Kafka's error {answer.error}")
    return answer.records
