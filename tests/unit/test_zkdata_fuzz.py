"""Mutated inputs by the thousand: typed errors only, no hang, bounded reads, no zxid that a full scan denies.

The seeds are fixed, so that a failure repeats; hypothesis adds shapes of its own.
"""

from __future__ import annotations

import contextlib
import gzip
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.zkdata_fixtures import VERSIONS, create_payload, log_from, record, recorded_files
from zkmigrate.zkdata.delta import delta
from zkmigrate.zkdata.errors import CorruptError, MalformedError, ZkDataError
from zkmigrate.zkdata.logdir import walk
from zkmigrate.zkdata.reader import BytesDirectory, BytesReader, CountingReader
from zkmigrate.zkdata.snapshot import read_snapshot
from zkmigrate.zkdata.tail import newest
from zkmigrate.zkdata.tree import load_tree
from zkmigrate.zkdata.txn import decode_txn
from zkmigrate.zkdata.txnlog import scan

ROUNDS = 700  # times five versions, times four kinds of input


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to three of: flipped bit, foreign bytes, cut, doubled or removed or zeroed stretch, inserted
    zeros."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(out) + 1)
        end = min(len(out), at + rng.choice([1, 4, 13, 60, 700]))
        match rng.randrange(8):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at:end] = rng.randbytes(end - at)
            case 2:
                del out[max(at, 1) :]
            case 3:
                out[at:at] = out[at:end]
            case 4:
                del out[at:end]
            case 5:
                out[at:end] = bytes(end - at)
            case 6:
                out[at:at] = bytes(rng.choice([1, 8, 5000]))
            case _:
                # Lengths, counts and types are what readers trust most.
                out[at : at + 4] = rng.choice([0, 1, -1, 2, 0x7FFFFFFF, -(1 << 31), 255, 70000]).to_bytes(
                    4, "big", signed=True
                )
    return bytes(out)


def one_log(version: str) -> tuple[str, bytes]:
    files = recorded_files(version, "standalone")
    name = max((n for n in files if n.startswith("log.")), key=lambda n: len(files[n].rstrip(b"\0")))
    return name, files[name].rstrip(b"\0") + bytes(300)


@contextlib.contextmanager
def only_typed_errors() -> Iterator[None]:
    with contextlib.suppress(ZkDataError):
        yield


@pytest.mark.parametrize("version", VERSIONS)
def test_mutated_logs_are_read_or_refused(version: str) -> None:
    name, good = one_log(version)
    rng = random.Random(f"log {version}")
    for _ in range(ROUNDS):
        data = mutate(good, rng)
        with only_typed_errors():
            reader = CountingReader(BytesReader(data))
            log = scan(reader, name, full=True)
            for found in log:
                with contextlib.suppress(MalformedError):
                    found.txn()
                assert data[found.offset + 12 : found.end - 1] == found.payload
            assert log.end is not None
            assert reader.bytes_read <= 3 * len(data) + (1 << 20)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tail_of_a_mutated_log_is_what_a_full_scan_confirms(version: str) -> None:
    name, good = one_log(version)
    rng = random.Random(f"tail {version}")
    checked = 0
    for _ in range(ROUNDS):
        directory = BytesDirectory({name: mutate(good, rng)})
        try:
            scanned = [found.zxid for found in walk(directory, full=True)]
        except CorruptError:
            scanned = None  # damage before the end: the scan is the proof that refuses it
        except ZkDataError:
            with pytest.raises(ZkDataError):
                newest(directory)
            continue
        with only_typed_errors():
            tail = newest(directory)
            if scanned is not None:
                assert tail.zxid == scanned[-1]
                checked += 1
    assert checked > ROUNDS // 20


@pytest.mark.parametrize("version", VERSIONS)
def test_mutated_snapshots_are_refused(version: str) -> None:
    files = recorded_files(version, "observer-snap")
    name = max((n for n in files if n.startswith("snapshot.")), key=lambda n: int(n.split(".")[1], 16))
    good = files[name]
    packed = gzip.compress(good)
    whole = {good, good[:-21], good[:-33], good[:-54]}
    rng = random.Random(f"snapshot {version}")
    for turn in range(ROUNDS):
        if turn % 4 == 0:
            data = mutate(packed, rng)
            with only_typed_errors():
                assert len(list(read_snapshot(BytesReader(data), name + ".gz"))) > 5
            continue
        data = mutate(good, rng)
        if data not in whole:
            with pytest.raises(ZkDataError):
                list(read_snapshot(BytesReader(data), name))


@pytest.mark.parametrize("version", VERSIONS)
def test_mutated_directories_give_a_tree_and_a_delta_or_a_reason(version: str) -> None:
    files = recorded_files(version, "standalone")
    rng = random.Random(f"directory {version}")
    names = sorted(name for name in files if not name.endswith("Epoch"))
    true = load_tree(BytesDirectory(files), chroot="/kafka")
    for _ in range(ROUNDS // 4):
        name = rng.choice(names)
        directory = BytesDirectory({**files, name: mutate(files[name].rstrip(b"\0") or b"\0", rng)})
        with only_typed_errors():
            tree = load_tree(directory, chroot="/kafka")
            assert tree.zxid <= true.zxid
            if tree.zxid == true.zxid:
                assert tree.nodes == true.nodes
        result = delta(directory, chroot="/nobody", after=10, upto=true.zxid, owners={})
        assert result.held is not False
        if result.held:
            assert result.last == true.zxid


@pytest.mark.parametrize("version", VERSIONS)
def test_mutated_payloads_decode_or_are_refused(version: str) -> None:
    payloads = [found.payload for found in walk(BytesDirectory(recorded_files(version, "standalone")))]
    rng = random.Random(f"payload {version}")
    for _ in range(ROUNDS * 2):
        with contextlib.suppress(MalformedError):
            decode_txn(mutate(rng.choice(payloads), rng))


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.binary(max_size=200) | st.integers(0, 9000).map(bytes), min_size=1, max_size=8),
    st.integers(0, 12_000),
    st.integers(0, 300),
    st.booleans(),
)
def test_built_logs_with_nested_copies(parts: list[bytes], padding: int, cut: int, nested: bool) -> None:
    payloads = [create_payload(5 + n, "/a", part) for n, part in enumerate(parts)]
    if nested:
        payloads.append(
            create_payload(5 + len(parts), "/a", log_from(payloads) + record(payloads[0]) + b"x" * 20)
        )
    whole = log_from(payloads)
    data = whole[: max(16, len(whole) - cut)] + bytes(padding)
    directory = BytesDirectory({"log.5": data})
    zxids = [found.zxid for found in walk(directory, full=True)]
    assert zxids == list(range(5, 5 + len(zxids)))
    if zxids:
        assert newest(directory).zxid == zxids[-1]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_at_all(data: bytes) -> None:
    for name in ("log.5", "snapshot.5", "snapshot.5.gz"):
        for start in (b"", b"ZKLG\0\0\0\x02" + bytes(8), b"ZKSN\0\0\0\x02" + bytes(8)):
            directory = BytesDirectory({name: start + data})
            with only_typed_errors():
                newest(directory)
            with only_typed_errors():
                load_tree(directory)
    with contextlib.suppress(MalformedError):
        decode_txn(data)
