"""Two logs on disk compared: the same answer as of two consumers, however the files are cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.memory_files import BytesReader
from tests.unit.topics.mirror.batches import MS, at, built, in_transaction, marker, sent, without
from tests.unit.topics.mirror.logs import CODECS, body, first_difference, holding, segments, told
from zkmigrate.topics.mirror.rules import log as logs
from zkmigrate.topics.mirror.rules import records
from zkmigrate.topics.mirror.rules import scan as scanning
from zkmigrate.topics.mirror.rules.batch import APPEND_TIME, TRANSACTIONAL, Batch, BatchError
from zkmigrate.topics.mirror.rules.compared import ComparedLogs, bounds, code, line, more, verdict
from zkmigrate.topics.mirror.rules.difference import Read
from zkmigrate.topics.mirror.rules.join import Joined, join
from zkmigrate.topics.mirror.rules.log import LogError, Segment, chained, committed, slices
from zkmigrate.topics.mirror.rules.scan import scan

ONE = built(3)


@pytest.fixture(autouse=True, scope="module")
def _small_parts() -> Iterator[None]:
    """Many parts of a few batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "MARK", 1)
        patch.setattr(logs, "SLICE", 150)
        patch.setattr(logs, "CHUNK", 300)
        yield


class Disk:
    """Files in memory, and their log."""

    def __init__(self, files: Mapping[str, bytes], checkpoint: int = 0, watermark: int | None = None) -> None:
        self.files = files
        made = [
            Segment(name, scan(BytesReader(data), int(name.partition(".")[0]), CODECS))
            for name, data in files.items()
        ]
        self.log = chained(made, checkpoint, watermark)

    def open(self, path: str) -> BytesReader:
        return BytesReader(self.files[path])


def disk(batches: Sequence[Batch], cuts: Sequence[int] = (), **more: int) -> Disk:
    return Disk(segments(batches, cuts), **more)


def part(source: Disk, target: Disk, begin: int, stop: int, end: int) -> Joined | str:
    try:
        here, there = (committed(one.log, begin, end, one.open) for one in (source, target))
        return join(here, there, begin, stop, end, CODECS)
    except (BatchError, LogError) as error:
        return str(error)


def compared(source: Disk, target: Disk) -> ComparedLogs:
    begin, end = bounds(source.log, target.log)
    parts = [part(source, target, one, other, end) for one, other in slices(source.log, begin, end)]
    return verdict("t", 0, source.log, target.log, parts)


# -- as consumers see it


@st.composite
def source_logs(draw: st.DrawFn) -> list[Batch]:
    """Plain batches, transactions of three producers, holes of compaction, compression."""
    found: list[Batch] = []
    for n in range(draw(st.integers(1, 10))):
        offset = (found[-1].next_offset if found else 0) + draw(st.sampled_from([0, 0, 0, 2]))
        kind = draw(st.sampled_from(["plain", "plain", "data", "commit", "abort"]))
        producer = draw(st.integers(1, 3))
        if kind in ("commit", "abort"):
            found.append(marker(offset, producer, commit=kind == "commit"))
            continue
        count = draw(st.integers(1, 4))
        one = without(at(built(count, first_value=n), offset), draw(st.lists(st.integers(0, 3), max_size=2)))
        codec = draw(st.sampled_from([0, 0, 1, 2, 4]))
        if codec and one.count:
            codec, payload = CODECS.pack(codec, one.payload)
            one = replace(one, attributes=codec, payload=payload)
        found.append(in_transaction(one, producer) if kind == "data" else one)
    return found


@st.composite
def target_logs(draw: st.DrawFn, source: Sequence[Batch]) -> list[Batch]:
    """What a mirror has of it: whole batches as they are or records in other batches; some are changed."""
    reads, stable = told(source)
    end = draw(st.integers(0, stable))
    left = [one for one in reads if one[0] < end]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        if left:
            n = draw(st.integers(0, len(left) - 1))
            left[n : n + 1] = changed(left[n], draw(st.sampled_from(CHANGES)))
    left = sorted({one[0]: one for one in left if one[0] < end}.values())
    as_is = {one.base_offset: one for one in source if not one.control}
    found: list[Batch] = []
    while left:
        same = as_is.get(left[0][0])
        inside = [one for one in left if same is not None and one[0] < same.next_offset]
        if same is not None and list(records.seen(same, CODECS)) == inside:
            found.append(replace(same, attributes=same.codec, producer_id=1 << 62))
            left = left[same.count :]
        else:
            n = draw(st.integers(1, 3))
            found.append(holding(left[:n], draw(st.sampled_from([0, 2]))))
            left = left[n:]
    reached = found[-1].next_offset if found else 0
    return [*found, marker(end - 1, 9, commit=False)] if end > reached else found


CHANGES = ("missing", "extra", "time", "key", "value", "headers", "encoding")


def changed(one: Read, what: str) -> list[Read]:
    at, ms, data = one
    fields = {"key": b"k", "value": b"v", "headers": {"h": b"x"}} | (
        {what: {"o": b"x"} if what == "headers" else b"other"} if what in ("key", "value", "headers") else {}
    )
    other = body(fields["key"], fields["value"], fields["headers"])  # type: ignore[arg-type]
    long_key = b"\x82\x80\x00" + body(b"k", b"v", {"h": b"x"})[1:]
    return {
        "missing": [],
        "extra": [one, (at + 1, ms, data)],
        "time": [(at, ms + 1, data)],
        "encoding": [(at, ms, long_key)],
    }.get(what, [(at, ms, other)])


@given(st.data())
@settings(deadline=None, max_examples=examples(150))
def test_the_answer_is_that_of_two_consumers(data: st.DataObject) -> None:
    source = data.draw(source_logs())
    target = data.draw(target_logs(source))
    cuts = [data.draw(st.lists(st.integers(1, 9), max_size=3)) for _ in range(2)]
    start = data.draw(st.sampled_from([0, 0, 1, 4]))
    here = disk(source, cuts[0])
    there = disk(target, cuts[1], checkpoint=start) if target else Disk({f"{0:020}.log": b""}, start)
    (seen, stable), (own, end) = told(source), told(target)
    begin = max(start, source[0].base_offset, target[0].base_offset if target else 0)
    stop = max(begin, min(stable, end))
    one, other = ([read for read in reads if begin <= read[0] < stop] for reads in (seen, own))
    count, why = first_difference(one, other)
    found = compared(here, there)
    assert (found.begun, found.end, found.why) == (begin, stop, why)
    assert found.state == ("different" if why else "equal" if stop >= stable else "behind")
    assert found.records == len(set(one) & set(other)) >= count
    offsets = {read[0] for read in (*one, *other)}
    assert sum(found.differing.values()) == len(offsets) - found.records


@pytest.mark.parametrize("what", CHANGES)
def test_each_kind_of_difference_is_named_and_counted(what: str) -> None:
    one = (5, MS, body(b"k", b"v", {"h": b"x"}))
    source = [holding([one]), at(ONE, 10)]
    differ = changed(one, what)
    target = [*([holding(differ)] if differ else []), at(ONE, 10)]
    found = compared(disk(source), disk(target))
    if not differ:  # target's log begins at 10
        found = compared(disk(source), disk([marker(0, 9, commit=False), *target]))
    assert (found.state, dict(found.differing)) == ("different", {what: 1})
    named = {"missing": "source's next", "extra": "source's next", "encoding": "offset 5: source's record is"}
    assert found.why.startswith(named.get(what, f"offset 5: source's {what} is"))
    assert list(more(found)) == [f"    differing records: {what} 1"]
    assert code([found]) == 10


# -- the range


def test_aborted_records_are_dropped_by_the_markers_of_the_log() -> None:
    aborted = in_transaction(ONE, 1)
    source = [aborted, marker(3, 1, commit=False), at(ONE, 4)]
    target = [marker(3, 9, commit=False), at(ONE, 4)]
    for cuts in ((), (1,), (1, 2)):
        found = compared(disk(source, cuts), Disk({f"{0:020}.log": sent(*target)}))
        assert (found.state, found.records, found.end) == ("equal", 3, 7)


def test_an_open_transaction_ends_the_range() -> None:
    source = [ONE, in_transaction(at(ONE, 3), 1), at(ONE, 6)]
    found = compared(disk(source, (2,)), disk([ONE]))
    assert (found.state, found.records, found.begun, found.end) == ("equal", 3, 0, 3)
    assert found.notes == ("source's oldest open transaction begins at offset 3",)


def test_the_range_begins_at_the_later_of_both_starts() -> None:
    filled = replace(at(built(3, first_value=70), 0))
    source, target = [ONE, at(ONE, 3), at(ONE, 6)], [filled, at(ONE, 3), at(ONE, 6)]
    for here, there in (
        (disk(source), disk(target, checkpoint=4)),
        (disk(source, checkpoint=4), disk(target)),
    ):
        found = compared(here, there)
        assert (found.state, found.records, found.begun) == ("equal", 5, 4)
    found = compared(disk(source), disk(target[1:]))
    assert (found.state, found.records, found.begun) == ("equal", 6, 3)
    assert compared(disk(source), disk(target)).state == "different"


def test_records_above_the_high_watermark_do_not_count() -> None:
    other = [ONE, at(built(3, first_value=9), 3)]
    found = compared(disk([ONE, at(ONE, 3)], watermark=3), disk(other))
    assert (found.state, found.records, found.end) == ("equal", 3, 3)
    found = compared(disk([ONE, at(ONE, 3)]), disk(other, watermark=3))
    assert (found.state, found.end) == ("behind", 3)


def test_a_target_that_is_behind_or_ahead_is_not_called_equal() -> None:
    one, two = disk([ONE]), disk([ONE, at(ONE, 3)])
    behind, ahead = compared(two, one), compared(one, two)
    assert (behind.state, behind.records, code([behind])) == ("behind", 3, 11)
    assert (ahead.state, ahead.records, code([ahead])) == ("unknown", 3, 11)
    assert ahead.why.startswith("target's log ends at offset 6, source's at 3;")
    assert line(behind) == "t-0: behind, compared records: 3, offsets 0 to 3"


# -- damage


def test_a_crc_that_does_not_fit_is_named_with_file_and_byte() -> None:
    good = segments([ONE, at(ONE, 3), at(ONE, 6)], [1])
    name = f"{3:020}.log"
    bad = bytearray(good[name])
    place = len(bad) // 2
    bad[-1] ^= 1
    for here, there in (
        (Disk(good), Disk(good | {name: bytes(bad)})),
        (Disk(good | {name: bytes(bad)}), Disk(good)),
    ):
        found = compared(here, there)
        assert (found.state, code([found])) == ("unknown", 11)
        assert found.why == f"{name}, byte {place}: CRC: the batch at offset 6 is damaged"


def test_a_difference_is_told_beside_damage() -> None:
    source = [at(ONE, offset) for offset in range(0, 21, 3)]
    files = segments([at(built(3, first_value=5), 0), *source[1:]], [6])
    name = f"{18:020}.log"
    files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])
    found = compared(disk(source), Disk(files))
    assert (found.state, dict(found.differing)) == ("different", {"value": 3})
    assert any("CRC" in note for note in found.notes)


def test_records_that_cannot_be_unpacked_are_named() -> None:
    packed = replace(ONE, attributes=1, payload=b"garbage")
    found = compared(disk([packed]), disk([ONE]))
    assert (found.state, found.records) == ("unknown", 0)
    assert "source's batch at offset 0" in found.why


def test_a_torn_end_is_told_and_no_error() -> None:
    files = segments([ONE, at(ONE, 3)])
    name = f"{0:020}.log"
    torn = Disk({name: files[name] + sent(at(ONE, 6))[:70]})
    found = compared(torn, Disk(files))
    assert (found.state, found.records, found.end) == ("equal", 6, 6)
    assert found.notes == (
        f"source's log ends with an unfinished batch or zeros: {name}: torn from byte {len(files[name])}",
    )


def test_segments_must_follow_each_other() -> None:
    name, later = f"{0:020}.log", f"{3:020}.log"
    good = segments([ONE, at(ONE, 3)], [1])
    with pytest.raises(LogError, match=f"{name}, byte .*end here .torn., but a later segment follows"):
        Disk(good | {name: good[name] + b"\1\1"})
    with pytest.raises(LogError, match=f"{later}, byte 0: the segment begins before offset 6"):
        Disk(good | {name: sent(ONE, at(ONE, 3))})


def test_a_file_that_shrank_is_named() -> None:
    here = disk([ONE, at(ONE, 3)])
    name = f"{0:020}.log"
    shrunk = Disk(here.files)
    shrunk.files = {name: here.files[name][:-90]}
    assert "the file ends here, and was longer before" in compared(shrunk, here).why


# -- parts


@given(source_logs(), st.lists(st.integers(1, 9), max_size=3), st.integers(0, 20), st.integers(0, 20))
def test_parts_cover_every_offset_once(batches: list[Batch], cuts: list[int], begin: int, width: int) -> None:
    found = slices(disk(batches, cuts).log, begin, begin + width)
    assert [at for one, other in found for at in range(one, other)] == list(range(begin, begin + width))


@pytest.mark.parametrize(
    ("source", "target", "state"),
    [
        ({}, {"base_ms": MS + 1}, "different"),
        ({}, {"attributes": APPEND_TIME}, "different"),
        ({"attributes": APPEND_TIME}, {"attributes": APPEND_TIME, "max_ms": MS + 9}, "different"),
        ({}, {"count": 2}, "unknown"),
        ({}, {"attributes": 1}, "unknown"),
        ({}, {"attributes": TRANSACTIONAL, "producer_id": 5, "leader_epoch": 9}, "equal"),
    ],
)
def test_equal_payloads_are_not_all(source: dict[str, int], target: dict[str, int], state: str) -> None:
    here, there = (replace(ONE, **fields) for fields in (source, target))  # type: ignore[arg-type]
    ended = marker(3, 5, commit=True)
    assert compared(disk([here, ended]), disk([there, ended])).state == state


def test_equal_batches_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = at(built(50, codec=1), 0)
    source = [packed, at(packed, 50)]
    unpacked: list[int] = []
    monkeypatch.setattr(type(CODECS), "unpack", lambda _self, codec, _payload: unpacked.append(codec))
    found = compared(disk(source), disk([replace(one, producer_id=1 << 62) for one in source]))
    assert (found.state, found.records, unpacked) == ("equal", 100, [])
