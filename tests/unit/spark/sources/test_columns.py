"""The columns of a transaction log say what the reader of one record at a time says."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.memory_files import BytesReader
from tests.unit.pipeline_rows import expected
from tests.unit.zkdata_fixtures import (
    OPEN_ACL,
    RECORDED,
    create_payload,
    log_from,
    payload,
    set_payload,
    text,
)
from zkmigrate.spark.sources.columns import table
from zkmigrate.spark.sources.operations import ALL, SCHEMA, Stretch, Wanted
from zkmigrate.spark.sources.stretches import record_starts
from zkmigrate.zookeeper.data.errors import MalformedError, ZkDataError
from zkmigrate.zookeeper.data.txn import TxnType
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE, LogScan, Record

LOGS = sorted(RECORDED.glob("*/*/log.*.gz"))


def stretch(log: bytes, name: str = "log.1") -> Stretch:
    starts, _ = record_starts(log, FILE_HEADER_SIZE)
    return Stretch("s", name, 0, log, starts)


def recorded(file: Path) -> Stretch:
    return stretch(gzip.decompress(file.read_bytes()), file.name.removesuffix(".gz"))


def records(found: Stretch) -> list[Record]:
    return [found.record(start) for start in found.starts]


@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize("file", LOGS, ids=[str(file.relative_to(RECORDED)) for file in LOGS])
def test_the_logs_of_every_server_version(file: Path, data: bool) -> None:
    found = recorded(file)
    scanned = list(LogScan(BytesReader(found.buffer), found.file))
    assert records(found) == scanned
    batch = table(found, Wanted(data=data))
    assert batch.schema.equals(SCHEMA)
    batch.validate(full=True)
    assert batch.to_pylist() == expected(scanned, data=data)


@pytest.mark.parametrize("file", LOGS, ids=[str(file.relative_to(RECORDED)) for file in LOGS])
def test_a_column_alone_is_as_among_the_others(file: Path) -> None:
    found = recorded(file)
    every = table(found, Wanted(data=True))
    for name in SCHEMA.names:
        alone = table(found, Wanted(data=True, schema=pa.schema([SCHEMA.field(name)])))
        assert alone.equals(every.select([name])), name


def test_bodies_are_not_decoded_for_what_headers_say() -> None:
    """A setData without a body, whose checksum is right."""
    found = stretch(log_from([create_payload(1, "/a"), payload(2, TxnType.setData, b"")]))
    headers = pa.schema([SCHEMA.field(name) for name in ("zxid", "type", "failed")])
    told = [("create", 1), ("setData", 2)]
    assert [(row["type"], row["zxid"]) for row in table(found, Wanted(schema=headers)).to_pylist()] == told
    for wanted in (
        Wanted(schema=headers.append(SCHEMA.field("digest"))),
        Wanted(schema=headers, prefix="/a"),
    ):
        with pytest.raises(MalformedError):
            table(found, wanted)


def test_there_are_logs_of_every_server_version() -> None:
    assert {file.relative_to(RECORDED).parts[0] for file in LOGS} == {
        "3.4.14", "3.5.8", "3.6.4", "3.7.2", "3.8.4", "3.9.3"
    }  # fmt: skip
    kinds = {name for file in LOGS for name in table(recorded(file)).column("type").to_pylist()}
    assert kinds == {kind.name for kind in TxnType} - {"multi"}


# --- filters

MIXED = [
    create_payload(1, "/kafka"),
    payload(2, -10, struct.pack(">i", 18_000), time_ms=2000),
    create_payload(3, "/kafka/a", ephemeral=True, session=5),
    set_payload(4, "/kafkaesque", b"x", version=3),
    payload(5, 2, text("/kafka/a"), time_ms=5000),
    payload(6, -11, struct.pack(">i", 2) + text("/kafka/b") + text("/other"), time_ms=6000),
]


@pytest.mark.parametrize(
    ("wanted", "zxids"),
    [
        (Wanted(zxids=(2, 4)), [2, 3, 4]),
        (Wanted(zxids=(7, 9)), []),
        (Wanted(times_ms=(2000, 5000)), [2, 5]),
        (Wanted(types=frozenset({TxnType.create})), [1, 3]),
        (Wanted(prefix="/kafka"), [1, 3, 4, 5, 6]),
        (Wanted(prefix="/kafka/"), [3, 5, 6]),
        (Wanted(prefix="/other"), [6]),
        (Wanted(prefix="/kafka/", zxids=(4, 9), types=frozenset({TxnType.delete})), [5]),
        (Wanted(types=frozenset()), []),
    ],
)
def test_what_is_not_wanted_is_left_out(wanted: Wanted, zxids: list[int]) -> None:
    whole = table(stretch(log_from(MIXED))).to_pylist()
    batch = table(stretch(log_from(MIXED)), wanted)
    batch.validate(full=True)
    kept = batch.to_pylist()
    assert [row["zxid"] for row in kept] == zxids
    assert all(row in whole for row in kept)


def test_a_stretch_without_records_is_an_empty_table() -> None:
    batch = table(Stretch("s", "log.1", 0, bytes(64), []))
    assert (batch.num_rows, batch.schema) == (0, SCHEMA)


def test_a_multi_of_nothing_is_a_row_so_that_its_zxid_is_there() -> None:
    """And a create has the parent's cversion."""
    made = [payload(1, 14, struct.pack(">i", 0)), payload(2, 14, struct.pack(">iiq", 0, 2, 77))]
    found = stretch(log_from([*made, create_payload(3, "/a", cversion=7)]))
    _agree(found)
    names = ("zxid", "sequence", "type", "multi", "digest", "parent_cversion")
    kept = [tuple(row[name] for name in names) for row in table(found).to_pylist()]
    assert kept == [
        (1, 0, "multi", True, None, None), (2, 0, "multi", True, 77, None), (3, 0, "create", False, None, 7),
    ]  # fmt: skip


# --- odd text, many ACLs


def test_characters_outside_the_basic_plane_and_single_surrogates() -> None:
    pair = "/\ud83d\ude00".encode("utf-8", "surrogatepass")
    single = "/\ud83d".encode("utf-8", "surrogatepass")
    made = [
        payload(zxid, 2, struct.pack(">i", len(raw)) + raw)
        for zxid, raw in enumerate((pair, single, "/é".encode(), b"/a"), 1)
    ]
    batch = table(stretch(log_from(made)))
    batch.validate(full=True)
    assert batch.column("path").to_pylist() == ["/😀", "/\ufffd", "/é", "/a"]


@pytest.mark.parametrize("count", [0, 1, 2, 16, 17, 40])
def test_any_number_of_acls(count: int) -> None:
    one = struct.pack(">i", 31) + text("digest") + text("user:x")
    made = [
        payload(1, 7, text("/a") + struct.pack(">i", count) + one * count + struct.pack(">i", 9)),
        payload(2, 7, text("/b") + OPEN_ACL + struct.pack(">i", 2)),
        payload(3, 7, text("/c") + struct.pack(">i", -1) + struct.pack(">i", 2)),
    ]
    found = stretch(log_from(made))
    assert table(found).to_pylist() == expected(records(found))


# --- damage

_short_text = st.text(st.characters(max_codepoint=0x2FF), max_size=6).map(lambda name: "/" + name)
_short_data = st.binary(max_size=9)


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


_body = st.one_of(
    st.builds(
        lambda p, d, e: (1, text(p) + _buffer(d) + OPEN_ACL + struct.pack(">?i", e, 1)),
        _short_text,
        _short_data,
        st.booleans(),
    ),
    st.builds(lambda p: (2, text(p)), _short_text),
    st.builds(lambda p, d: (5, text(p) + _buffer(d) + struct.pack(">i", 7)), _short_text, _short_data),
    st.builds(lambda p: (13, text(p) + struct.pack(">i", 3)), _short_text),
    st.builds(
        lambda p, t: (21, text(p) + struct.pack(">i", -1) + OPEN_ACL + struct.pack(">iq", 1, t)),
        _short_text,
        st.integers(0, 1 << 39),
    ),
    st.builds(lambda p: (19, text(p) + _buffer(b"") + OPEN_ACL + struct.pack(">i", 1)), _short_text),
    st.builds(lambda e: (-1, struct.pack(">i", e)), st.integers(-120, -1)),
)
_top = st.one_of(
    _body,
    st.builds(lambda p: (7, text(p) + OPEN_ACL + struct.pack(">i", 3)), _short_text),
    st.just((-10, struct.pack(">i", 18_000))),
    st.lists(_short_text, max_size=3).map(
        lambda ps: (-11, struct.pack(">i", len(ps)) + b"".join(text(p) for p in ps))
    ),
    st.just((-11, b"")),
    st.lists(_body, max_size=4).map(
        lambda subs: (
            14,
            struct.pack(">i", len(subs))
            + b"".join(struct.pack(">ii", kind, len(body)) + body for kind, body in subs),
        )
    ),
)
_digest = st.sampled_from([b"", struct.pack(">iq", 2, -77)])
_payloads = st.lists(st.tuples(_top, _digest), min_size=1, max_size=8).map(
    lambda tops: [
        payload(zxid, kind, body + (digest if kind != -1 else b""), session=zxid * 3, time_ms=zxid)
        for zxid, ((kind, body), digest) in enumerate(tops, 1)
    ]
)


def _agree(found: Stretch) -> None:
    refused = next((error for one in records(found) if (error := _refused(one))), None)
    if refused is not None:
        with pytest.raises(MalformedError) as raised:
            table(found, Wanted(data=True))
        assert str(raised.value) == str(refused)
        return
    batch = table(found, Wanted(data=True))
    batch.validate(full=True)
    assert batch.to_pylist() == expected(records(found), data=True)


def _refused(record: Record) -> ZkDataError | None:
    try:
        record.txn()
    except ZkDataError as error:
        return error
    return None


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_payloads)
def test_any_transactions(made: list[bytes]) -> None:
    _agree(stretch(log_from(made)))


@settings(max_examples=examples(1500), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_payloads, st.data())
def test_damaged_payloads_are_refused_where_they_are_refused_one_by_one(
    made: list[bytes], draw: st.DataObject
) -> None:
    which = draw.draw(st.integers(0, len(made) - 1))
    changed = bytearray(made[which])
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(28, max(28, len(changed) - 1)))
        if at < len(changed):
            changed[at] = draw.draw(st.sampled_from([0, 1, 2, 5, 14, 0x7F, 0x80, 0xFF]))
    if draw.draw(st.booleans()):
        changed = changed[: max(32, len(changed) - draw.draw(st.integers(0, 5)))]
    made[which] = bytes(changed)
    _agree(stretch(log_from(made)))


def test_the_default_is_everything_but_data() -> None:
    assert Wanted() == ALL
    assert table(stretch(log_from(MIXED))).column("data").null_count == 7
