"""Mutated inputs by the ten thousand: typed errors only, no hang, bounded reads and memory, no wrong zxid.

What is mutated is what real servers wrote, in every form that a version has: logs, reconfig transactions
included, snapshots plain, by gzip and by snappy, single payloads, whole directories. The seeds are fixed, so
that a failure repeats; hypothesis adds mutations and shapes of its own, and makes a failing one small.
"""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import ParamSpec, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.memory_files import BytesDirectory, BytesReader
from tests.unit.zkdata_fixtures import (
    RECORDED,
    VERSIONS,
    create_payload,
    log_from,
    pack_snappy,
    record,
    recorded_files,
)
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.delta import delta
from zkmigrate.zookeeper.data.errors import CorruptError, MalformedError, ZkDataError
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.reader import CountingReader
from zkmigrate.zookeeper.data.seal import check_snapshot
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.snapshot import SnapshotNode, read_snapshot
from zkmigrate.zookeeper.data.snapstream import SNAPPY_HEADER
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.data.tree import load_tree
from zkmigrate.zookeeper.data.txn import decode_txn
from zkmigrate.zookeeper.data.txnlog import scan

LOGS = [(v, kind) for v in VERSIONS for kind in ("standalone", "reconfig") if (RECORDED / v / kind).is_dir()]
COMPRESSED = [
    (v, ending) for v in VERSIONS for ending in ("gz", "snappy") if (RECORDED / v / "compressed").is_dir()
]
P = ParamSpec("P")
T = TypeVar("T")
ROUNDS = 700  # per log, tail and plain snapshot
PAYLOADS = 2 * ROUNDS  # per log
PACKED_ROUNDS = 250  # per compressed snapshot: each is larger than the others
DIRECTORIES = ROUNDS // 4
DRAWN = 1500  # by hypothesis
MUTATED = (
    len(LOGS) * (2 * ROUNDS + PAYLOADS)
    + len(VERSIONS) * (ROUNDS + DIRECTORIES)
    + len(COMPRESSED) * (PACKED_ROUNDS + DIRECTORIES)
    + DRAWN
)


def test_ten_thousand_mutated_inputs_and_more() -> None:
    assert MUTATED >= 10_000
    assert {version.rpartition(".")[0] for version, _ in COMPRESSED} == {"3.6", "3.7", "3.8", "3.9"}
    assert {version.rpartition(".")[0] for version, _ in LOGS} == {"3.4", "3.5", "3.6", "3.7", "3.8", "3.9"}


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


@cache
def files_of(version: str, kind: str) -> Mapping[str, bytes]:
    return recorded_files(version, kind)


@cache
def one_log(version: str, kind: str) -> tuple[str, bytes]:
    files = files_of(version, kind)
    name = max((n for n in files if n.startswith("log.")), key=lambda n: len(files[n].rstrip(b"\0")))
    return name, files[name].rstrip(b"\0") + bytes(300)


def attempt(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | ZkDataError:
    """What reading gives, or the typed error that it ends in; any other error is a failure."""
    try:
        return read(*args, **kwargs)
    except ZkDataError as error:
        return error


@contextlib.contextmanager
def only_typed_errors() -> Iterator[None]:
    with contextlib.suppress(ZkDataError):
        yield


def pack(data: bytes, ending: str) -> bytes:
    """As a server with that `snapshot.compression.method` would write it."""
    if ending == ".gz":
        return gzip.compress(data, 1, mtime=0)
    return pack_snappy(data) if ending == ".snappy" else data


def read_whole(data: bytes, name: str) -> list[SnapshotNode]:
    """Every node of a snapshot, to its last seal; what reading it costs is bounded by what there is."""
    reader = CountingReader(BytesReader(data))
    nodes = list(read_snapshot(reader, name))
    assert reader.bytes_read <= len(data) + 64
    return nodes


@cache
def newest_snapshot(version: str, kind: str) -> tuple[str, bytes, list[SnapshotNode]]:
    files = files_of(version, kind)
    name = max((n for n in files if n.startswith("snapshot.")), key=lambda n: int(n.split(".")[1], 16))
    name = name.removesuffix(".gz").removesuffix(".snappy")
    return name, files[name], read_whole(files[name], name)


@pytest.mark.parametrize(("version", "kind"), LOGS)
def test_mutated_logs_are_read_or_refused(version: str, kind: str) -> None:
    name, good = one_log(version, kind)
    rng = random.Random(f"log {version} {kind}")
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


@pytest.mark.parametrize(("version", "kind"), LOGS)
def test_the_tail_of_a_mutated_log_is_what_a_full_scan_confirms(version: str, kind: str) -> None:
    name, good = one_log(version, kind)
    rng = random.Random(f"tail {version} {kind}")
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
    name, good, nodes = newest_snapshot(version, "observer-snap")
    # Cut just before a section that a later version added, it is a whole file of an older one.
    whole = {good, good[:-21], good[:-33], good[:-54]}
    rng = random.Random(f"snapshot {version}")
    for turn in range(ROUNDS):
        data = mutate(good, rng)
        ending = (".gz", ".snappy", "", "")[turn % 4]
        packed = pack(data, ending)
        if data in whole:
            assert read_whole(packed, name + ending) == nodes
            continue
        with pytest.raises(ZkDataError) as caught:
            read_whole(packed, name + ending)
        assert caught.value.file == name + ending
        assert caught.value.offset is not None


@pytest.mark.parametrize(("version", "ending"), COMPRESSED)
def test_mutated_compressed_snapshots_are_what_they_were_or_refused(version: str, ending: str) -> None:
    plain, _, nodes = newest_snapshot(version, "compressed")
    name = f"{plain}.{ending}"
    good = files_of(version, "compressed")[name]
    rng = random.Random(f"compressed {version} {ending}")
    refused = 0
    for _ in range(PACKED_ROUNDS):
        data = mutate(good, rng)
        found = attempt(read_whole, data, name)
        problem = check_snapshot(BytesReader(data), name)
        tail = attempt(newest, BytesDirectory({name: data}))
        if isinstance(found, ZkDataError):
            assert found.file == name
            assert found.offset is not None
            assert problem
            assert isinstance(tail, ZkDataError)
            refused += 1
        else:
            # A changed byte of gzip's own header (its time, its system) changes nothing that is read.
            assert found == nodes
            assert problem == ""
            assert not isinstance(tail, ZkDataError)
            assert tail.zxid == snapshot_zxid(name)
    assert refused > PACKED_ROUNDS * 3 // 4


@pytest.mark.parametrize(
    ("version", "kind"),
    [(v, "standalone") for v in VERSIONS] + [(v, f"compressed {e}") for v, e in COMPRESSED],
)
def test_mutated_directories_give_a_tree_and_a_delta_or_a_reason(version: str, kind: str) -> None:
    kind, _, ending = kind.partition(" ")
    files = dict(files_of(version, kind))
    if ending:  # one snapshot only: the others would stand in for it
        kept = newest_snapshot(version, kind)[0] + f".{ending}"
        files = {n: d for n, d in files.items() if n == kept or n.startswith("log.")}
    rng = random.Random(f"directory {version} {kind}")
    names = sorted(name for name in files if not name.endswith("Epoch"))
    chroot = "/kafka" if kind == "standalone" else "/"
    true = load_tree(BytesDirectory(files), chroot=Chroot(chroot))
    for _ in range(DIRECTORIES):
        name = rng.choice(names)
        directory = BytesDirectory({**files, name: mutate(files[name].rstrip(b"\0") or b"\0", rng)})
        with only_typed_errors():
            tree = load_tree(directory, chroot=Chroot(chroot))
            assert tree.zxid <= true.zxid
            if tree.zxid == true.zxid:
                assert {p: n for p, n in tree.nodes.items() if p != "/"} == {
                    p: n for p, n in true.nodes.items() if p != "/"
                }
        result = delta(directory, chroot=Chroot("/nobody"), after=10, upto=true.zxid, owners={})
        assert result.held is not False
        if result.held:
            assert result.last == true.zxid


@cache
def payloads_of(version: str, kind: str) -> list[bytes]:
    return [found.payload for found in walk(BytesDirectory(files_of(version, kind)))]


@pytest.mark.parametrize(("version", "kind"), LOGS)
def test_mutated_payloads_decode_or_are_refused(version: str, kind: str) -> None:
    rng = random.Random(f"payload {version} {kind}")
    payloads = payloads_of(version, kind)
    for _ in range(PAYLOADS):
        data = mutate(rng.choice(payloads), rng)
        txn = attempt(decode_txn, data)
        if isinstance(txn, ZkDataError):
            assert txn.offset is not None
            assert 0 <= txn.offset <= len(data)
        else:
            assert (txn.header.zxid, txn.header.type) == struct.unpack_from(">q8xi", data, 12)


# Every place where a length or a count may stand is made to claim a lot: a claim alone must take no memory.
@pytest.mark.parametrize("claim", [0x7FFFFFFF, 0x03FFFFFF, 0x000FFFFF])
@pytest.mark.parametrize("ending", ["", ".gz", ".snappy"])
def test_no_claim_in_a_snapshot_takes_memory(claim: int, ending: str) -> None:
    name, good, _ = newest_snapshot("3.9.3", "observer-snap")
    mark = struct.pack(">i", claim)
    inputs = [pack(good[:at] + mark + good[at + 4 :], ending) for at in range(8, len(good) - 4, 3)]
    whole = pack(good, ending)
    inputs += [whole[:at] + mark + whole[at + 4 :] for at in range(0, len(whole) - 4, 3)]
    assert peak_of(inputs, lambda data: read_whole(data, name + ending)) < 8 << 20


@pytest.mark.parametrize("claim", [0x7FFFFFFF, 0x03FFFFFF, 0x000FFFFF])
def test_no_claim_in_a_log_or_a_payload_takes_memory(claim: int) -> None:
    mark = struct.pack(">i", claim)
    name, good = one_log("3.9.3", "standalone")
    used = good.rstrip(b"\0")
    logs = [used[:at] + mark + used[at + 4 :] for at in range(8, len(used) - 4, 97)]
    assert peak_of(logs, lambda data: list(scan(BytesReader(data), name, full=True))) < 8 << 20
    small = [p for p in payloads_of("3.9.3", "standalone") if len(p) < 2000]
    marked = [p[:at] + mark + p[at + 4 :] for p in small for at in range(32, len(p) - 3, 3)]
    assert peak_of(marked, decode_txn) < 8 << 20


def peak_of(inputs: list[bytes], read: Callable[[bytes], object]) -> int:
    """The most bytes that reading any of these took at once, beside the inputs themselves."""
    tracemalloc.start()
    try:
        for data in inputs:
            with only_typed_errors():
                read(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


SEEDS = [
    *((v, kind, one_log(v, kind)[0]) for v, kind in LOGS),
    *((v, "compressed", f"{newest_snapshot(v, 'compressed')[0]}.{ending}") for v, ending in COMPRESSED),
    *((v, "observer-snap", newest_snapshot(v, "observer-snap")[0]) for v in VERSIONS),
]
EDITS = st.lists(
    st.tuples(
        st.floats(0, 1, allow_nan=False),
        st.integers(0, 64),
        st.binary(max_size=12) | st.integers(-(1 << 31), (1 << 31) - 1).map(lambda n: struct.pack(">i", n)),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(DRAWN), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SEEDS), EDITS)
def test_edits_of_any_recorded_file(
    seed: tuple[str, str, str], edits: list[tuple[float, int, bytes]]
) -> None:
    version, kind, name = seed
    good = files_of(version, kind)[name]
    good = good.rstrip(b"\0") if name.startswith("log.") else good
    data = good
    for place, removed, inserted in edits:
        at = int(place * len(data))
        data = data[:at] + inserted + data[at + removed :]
    directory = BytesDirectory({name: data})
    if name.startswith("log."):
        true = [found.zxid for found in scan(BytesReader(good), name)]
        with only_typed_errors():
            found = [record.zxid for record in walk(directory, full=True)]
            assert found == true[: len(found)]
        return
    nodes = attempt(read_whole, data, name)
    if isinstance(nodes, ZkDataError):
        assert nodes.file == name
        assert nodes.offset is not None
    else:
        assert nodes == newest_snapshot(version, kind)[2]
        assert newest(directory).zxid == snapshot_zxid(name)


@settings(max_examples=examples(400), deadline=None)
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


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_at_all(data: bytes) -> None:
    for name in ("log.5", "snapshot.5", "snapshot.5.gz", "snapshot.5.snappy"):
        for start in (b"", b"ZKLG\0\0\0\x02" + bytes(8), b"ZKSN\0\0\0\x02" + bytes(8), SNAPPY_HEADER):
            directory = BytesDirectory({name: start + data})
            with only_typed_errors():
                newest(directory)
            with only_typed_errors():
                load_tree(directory)
    with contextlib.suppress(MalformedError):
        decode_txn(data)
