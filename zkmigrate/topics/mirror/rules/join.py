"""Compare two reads by offset: count equal and differing records, and describe the first difference.

Both reads are in the order of offsets, so they are read side by side. A batch that both sides have with the
same bytes is not unpacked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from zkmigrate.topics.mirror.rules.batch import Batch, BatchError
from zkmigrate.topics.mirror.rules.difference import Read, kind, named
from zkmigrate.topics.mirror.rules.records import Codecs, seen


@dataclass(frozen=True)
class Joined:
    """The result of the comparison of two reads.

    equal: the number of equal records. differing: the number of differing records by kind. first: a
    description of the first difference; empty if there is none.
    """

    equal: int = 0
    differing: Mapping[str, int] = field(default_factory=dict)
    first: str = ""

    def then(self, later: Joined) -> Joined:
        """Return the combined result for these offsets and for the offsets that follow.

        later: the result for the offsets that follow.
        """
        differing = Counter(self.differing)
        differing.update(later.differing)
        return Joined(self.equal + later.equal, dict(differing), self.first or later.first)


class _Side:
    """The batches of one side of a comparison, which are unpacked only if necessary.

    Only records at offsets from ``begin`` up to ``end`` are compared. what: the name of the side in messages.
    """

    def __init__(self, what: str, batches: Iterable[Batch], begin: int, end: int, codecs: Codecs) -> None:
        self._what, self._batches = what, iter(batches)
        self._begin, self._end, self._codecs = begin, end, codecs
        self.batch = next(self._batches, None)
        self.left: list[Read] = []  # the records of the batch before this one, in reverse order

    def skip(self) -> None:
        self.batch = next(self._batches, None)

    def past(self, stop: int) -> bool:
        """Return whether no record of this side is left below the offset ``stop``."""
        return not self.left and (self.batch is None or self.batch.base_offset >= stop)

    def head(self) -> Read | None:
        """Return the next record, or None at the end of the batches."""
        while not self.left and self.batch is not None:
            try:
                found = list(seen(self.batch, self._codecs))
            except BatchError as error:
                where = f"{self._what}'s batch at offset {self.batch.base_offset}"
                raise BatchError(error.what, f"{where}: {error}") from error
            self.left = [one for one in reversed(found) if self._begin <= one[0] < self._end]
            self.skip()
        return self.left[-1] if self.left else None


def join(
    source: Iterable[Batch], target: Iterable[Batch], begin: int, stop: int, end: int, codecs: Codecs
) -> Joined:
    """Compare the records from offset ``begin`` up to offset ``stop``.

    source, target: committed batches up to offset ``end``. The batches after ``stop`` are needed to describe
    the next record if one side lacks records. Raises BatchError.
    """
    here = _Side("source", source, begin, end, codecs)
    there = _Side("target", target, begin, end, codecs)
    equal, differing, first = 0, Counter[str](), ""
    while not (here.past(stop) and there.past(stop)):
        if (both := _same(here, there, begin, stop)) is not None:
            equal += both.count
            here.skip()
            there.skip()
            continue
        left, right = here.head(), there.head()
        at = min((record[0] for record in (left, right) if record is not None), default=stop)
        if at >= stop:
            break
        if left == right:
            equal += 1
        else:
            first = first or named(left, right)
            differing[kind(left, right)] += 1
        for side, record in ((here, left), (there, right)):
            if record is not None and record[0] == at:
                side.left.pop()
    return Joined(equal, dict(differing), first)


def _same(here: _Side, there: _Side, begin: int, stop: int) -> Batch | None:
    """Return the next batch if both sides have it with equal records, without unpacking it.

    Returns None if a part of the batch is outside the offsets to compare, or if only unpacking can show
    whether the records are equal.
    """
    one, other = here.batch, there.batch
    if here.left or there.left or one is None or other is None:
        return None
    same = (
        one.base_offset == other.base_offset
        and begin <= one.base_offset
        and one.next_offset <= stop
        and one.count == other.count
        and one.codec == other.codec
        and one.append_time == other.append_time
        and one.base_ms == other.base_ms
        and one.max_ms == other.max_ms
        and one.payload == other.payload
    )
    return one if same else None
