"""Batches that are damaged, impossible or bombs: each is refused by name, soon and in bounded memory."""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import replace

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.topics.mirror.batches import MS, at, built, in_transaction, marker, sent, without
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.rules import records
from zkmigrate.topics.mirror.rules.batch import APPEND_TIME, Batch, BatchError, encode, parse, produced
from zkmigrate.topics.mirror.rules.gaps import Append, Gap, steps

CODECS = KafkaCodecs(1 << 20)
NAMED = {"length", "magic", "CRC", "count", "order", "time"}
BEGUN = 40
"""The offset that was asked for."""
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


def packed(batch: Batch, codec: int) -> Batch:
    codec, payload = CODECS.pack(codec, batch.payload)
    return replace(batch, attributes=codec, payload=payload)


def lz4(batch: Batch) -> Batch:
    return replace(batch, attributes=LZ4, payload=bytes(cramjam.lz4.compress(batch.payload)))


GOOD = [
    at(built(3), BEGUN),
    at(without(built(6), [2, 4]), BEGUN),
    replace(at(built(3), BEGUN), attributes=APPEND_TIME),
    in_transaction(at(built(2), BEGUN), 5),
    marker(BEGUN, 5, commit=False),
    *(packed(at(without(built(6), [2]), BEGUN), codec) for codec in (GZIP, SNAPPY, ZSTD)),
    lz4(at(without(built(6), [2]), BEGUN)),
]
FIELDS = {
    "base_offset": 63,
    "attributes": 15,
    "last_delta": 31,
    "base_ms": 63,
    "max_ms": 63,
    "producer_id": 63,
    "count": 31,
}
"""Bits of the header's numbers that reading looks at."""


def numbers(bits: int) -> st.SearchStrategy[int]:
    end = 1 << bits
    return st.sampled_from([-end, -1, 0, 1, BEGUN, end - 1]) | st.integers(-end, end - 1)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """An answer with a damage that its CRC shows, or does not show."""
    batch = draw(st.sampled_from(GOOD))
    kind = draw(st.sampled_from(["bytes", "header", "records", "cut", "several"]))
    if kind == "header":
        for name in draw(st.sets(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=2)):
            batch = replace(batch, **{name: draw(numbers(FIELDS[name]))})  # type: ignore[arg-type]
    elif kind == "records":
        payload = CODECS.unpack(batch.codec, batch.payload) if draw(st.booleans()) else batch.payload
        payload = spoiled(draw, payload)
        if draw(st.booleans()):
            payload = CODECS.pack(batch.codec, payload)[1]
        batch = replace(batch, payload=payload)
    data = encode(batch)
    if kind == "bytes":
        return spoiled(draw, data)
    if kind == "cut":
        return data[: draw(st.integers(0, len(data)))]
    return data + encode(at(built(2), draw(numbers(40)))) if kind == "several" else data


def spoiled(draw: st.DrawFn, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        found[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(found)


def applied(data: bytes) -> int:
    """Target's end after the steps of an answer. Each is what a broker takes, at the end of its log."""
    end, batches = BEGUN, parse(data, BEGUN)
    for step in steps(BEGUN, batches, [(5, BEGUN)], CODECS):
        assert isinstance(step, (Append, Gap))
        assert step.offset == end
        assert step.count > 0
        end += step.count
        if isinstance(step, Append):
            assert step.batch.whole
            assert parse(produced(step.batch, 1, 0))
            for offset, ms, _ in records.seen(step.batch, CODECS):
                assert step.offset <= offset < end
                assert isinstance(ms, int)
    assert end == (batches[-1].next_offset if batches else BEGUN)
    return end


@given(mutated())
@settings(deadline=None, max_examples=examples(400))
def test_a_damaged_batch_is_refused_by_name_or_copied_to_its_offsets(data: bytes) -> None:
    what = ""
    try:
        applied(data)
    except BatchError as error:
        what = error.what
    assert what in {"", *NAMED}


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 9), (-1, 0)])
def test_records_out_of_order_or_outside_their_batch_are_named(deltas: Sequence[int]) -> None:
    body = records.read(built(1).payload, 1)[0].body
    payload = records.write([records.Record(0, 0, delta, body) for delta in deltas])
    batch = replace(at(built(3), BEGUN), count=2, payload=payload)
    with pytest.raises(BatchError, match="order"):
        list(steps(BEGUN, [batch], [], CODECS))


def test_a_time_that_no_record_can_have_is_named() -> None:
    payload = records.write([records.Record(0, 1, 0, b"\x01\x01\x00")])
    batch = replace(at(built(2), BEGUN), count=1, base_ms=(1 << 63) - 1, payload=payload)
    with pytest.raises(BatchError, match="time"):
        list(steps(BEGUN, [batch], [], CODECS))


def test_more_records_than_a_batch_may_have_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_RECORDS", 4)
    assert len(records.opened(built(4), CODECS)) == 4
    with pytest.raises(BatchError, match="count: the batch has 5 records"):
        records.opened(built(5), CODECS)


@pytest.mark.parametrize("size", [-4, -1, 0, 9, 1 << 30])
def test_a_block_of_snappy_with_an_impossible_size_is_named(size: int) -> None:
    block = bytes(cramjam.snappy.compress_raw(b"12345"))
    payload = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, size) + block
    with pytest.raises(BatchError, match="length: compressed records cannot be read: a block should have"):
        CODECS.unpack(SNAPPY, payload)


def xerial(blocks: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 16)))
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * blocks


@pytest.mark.parametrize("more", [0, 1])
def test_records_inflate_up_to_a_limit(more: int) -> None:
    """A byte more is refused, and named."""
    plain = bytes(CODECS.limit + more)
    for codec, payload in (
        (GZIP, zlib.compress(plain, wbits=31)),
        (SNAPPY, bytes(cramjam.snappy.compress_raw(plain))),
        (SNAPPY, xerial(16 + more)),
        (LZ4, bytes(cramjam.lz4.compress(plain))),
        (ZSTD, bytes(cramjam.zstd.compress(plain))),
    ):
        if not more:
            assert CODECS.unpack(codec, payload) == plain
            continue
        with pytest.raises(BatchError, match=r"length: .* more than 1048576 bytes"):
            CODECS.unpack(codec, payload)


def bomb(codec: int) -> bytes:
    """A payload of 1 MB. gzip inflates to 1 GiB, zstd to 32 GiB, LZ4 to 200 MiB; snappy says 4 GiB."""
    if codec == GZIP:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        block = packer.compress(bytes(16 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
        return b"\x1f\x8b\x08" + bytes(7) + block * 64
    if codec == SNAPPY:
        return b"\xff\xff\xff\xff\x0f" + bytes(99)
    if codec == LZ4:
        return bytes(cramjam.lz4.compress(bytes(200 << 20)))
    # Blocks of one repeated byte; each says 128 KiB.
    block = (1 << 17 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x38" + block * ((1 << 18) - 2)


def explode(codec: str) -> None:
    """In a process of its own that may take 700 MB more than it has."""
    payload = bomb(int(codec))
    assert len(payload) <= 1_100_000
    with open("/proc/self/statm") as file:
        have = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (have + (700 << 20),) * 2)
    batch = replace(at(built(2), BEGUN), attributes=int(codec), count=1, base_ms=MS, payload=payload)
    try:
        list(steps(BEGUN, parse(sent(batch), BEGUN), [], KafkaCodecs()))
    except BatchError as error:
        print(error)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_bomb_is_refused_in_bounded_memory(codec: int) -> None:
    words = [sys.executable, "-c", f"from {__name__} import explode; explode('{codec}')"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert "inflate to more than 134217728 bytes" in done.stdout, done.stdout + done.stderr
