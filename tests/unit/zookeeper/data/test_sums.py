"""Sums of a subtree beside the tree itself, read from directories that real servers wrote."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.memory_files import BytesDirectory
from tests.unit.zkdata_fixtures import (
    VERSIONS,
    build_log,
    create_payload,
    delete_payload,
    log_from,
    payload,
    recorded,
    set_payload,
    snapshot_of,
    text,
)
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.errors import CorruptError, NoDataError, ZkDataError
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.sums import (
    BUCKETS,
    Sums,
    bucket_of,
    differing_buckets,
    hash_of,
    read_sums,
    znodes,
)
from zkmigrate.zookeeper.data.tree import Tree, Znode, load_tree, max_zxid
from zkmigrate.zookeeper.data.txn import Acl

NODE = Znode(b"\1" * 32, 3, (Acl(31, "world", "anyone"),), 1, 2, 3, 4, 5, 6, 7, 8, 0)


def summed(tree: Tree) -> tuple[int, ...]:
    """The sums of a whole tree, one znode after the other."""
    sums = [0] * BUCKETS
    for path, node in tree.nodes.items():
        sums[bucket_of(path)] += hash_of(path, node)
    return tuple(value % (1 << 256) for value in sums)


def assert_as_tree(found: Sums, tree: Tree) -> None:
    assert found.sums == summed(tree)
    assert (found.zxid, found.znodes, found.largest) == (tree.zxid, len(tree.nodes), max_zxid(tree))
    assert found.owners == tree.owners
    assert found.sessions == tree.sessions
    assert found.snapshot == tree.snapshot
    if found.largest:
        node = tree.nodes[found.largest_path]
        assert found.largest in (node.czxid, node.mzxid, node.pzxid)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("chroot", ["/", "/kafka", "/kafka/brokers", "/nobody"])
def test_sums_are_those_of_the_tree_at_every_zxid_it_can_be_read_at(version: str, chroot: str) -> None:
    directory = recorded(version, "standalone")
    at = [record.zxid for record in walk(directory)]
    compared = 0
    for upto in [None, *at[::7]]:
        try:
            tree = load_tree(directory, chroot=Chroot(chroot), upto=upto)
        except ZkDataError as error:
            with pytest.raises(type(error)):
                read_sums(directory, chroot=Chroot(chroot), upto=upto)
            continue
        found = read_sums(directory, chroot=Chroot(chroot), upto=upto)
        assert_as_tree(found, tree)
        assert dict(znodes(directory, None, found)) == tree.nodes
        compared += 1
    assert compared > 3


@pytest.mark.parametrize("version", VERSIONS)
def test_an_observer_that_was_sent_a_snapshot_has_the_sums_of_its_tree(version: str) -> None:
    for kind in ("observer", "observer-snap"):
        directory = recorded(version, kind)
        assert_as_tree(read_sums(directory), load_tree(directory))


def test_only_what_the_log_touches_is_held() -> None:
    tree = {"/kafka": b"", **{f"/kafka/n{n}": b"x" for n in range(300)}}
    log = log_from([set_payload(9, "/kafka/n7", b"new"), delete_payload(10, "/kafka/n8")])
    found = read_sums(
        BytesDirectory({"snapshot.8": snapshot_of(tree), "log.9": log}), chroot=Chroot("/kafka")
    )
    assert (found.znodes, found.zxid) == (300, 10)
    # n7; and the parent of both, whose pzxid the deletion raises. n8 is gone.
    assert found.held == 2


@pytest.mark.parametrize(
    "other",
    [
        replace(NODE, data_sha256=b"\2" * 32), replace(NODE, data_length=-1), replace(NODE, acl=None),
        replace(NODE, acl=()), replace(NODE, acl=(Acl(1, "world", "anyone"),)),
        replace(NODE, acl=(Acl(31, "worl", "danyone"),)), replace(NODE, czxid=9), replace(NODE, mzxid=9),
        replace(NODE, pzxid=9), replace(NODE, ctime=9), replace(NODE, mtime=9), replace(NODE, version=9),
        replace(NODE, cversion=9), replace(NODE, aversion=9), replace(NODE, ephemeral_owner=-9),
    ],
)  # fmt: skip
def test_every_field_counts(other: Znode) -> None:
    assert hash_of("/kafka", NODE) != hash_of("/kafka", other)


@settings(max_examples=examples(200), deadline=None)
@given(st.text(max_size=8), st.text(max_size=8))
def test_a_path_counts_and_decides_its_bucket(one: str, other: str) -> None:
    assert (hash_of(one, NODE) == hash_of(other, NODE)) is (one == other)
    assert 0 <= bucket_of(one) < BUCKETS


def test_sums_that_differ_tell_the_bucket() -> None:
    nodes = {"/kafka": b"", "/kafka/a": b"1", "/kafka/b": b"2"}
    left = read_sums(BytesDirectory({"snapshot.8": snapshot_of(nodes)}))
    right = read_sums(BytesDirectory({"snapshot.8": snapshot_of({**nodes, "/kafka/b": b"3"})}))
    assert differing_buckets(left, right) == {bucket_of("/kafka/b")}
    assert left.digest != right.digest
    assert left.digest == read_sums(BytesDirectory({"snapshot.9": snapshot_of(nodes)})).digest


def test_a_damaged_snapshot_is_passed_over_and_named() -> None:
    good = snapshot_of({"/kafka": b""})
    files = {"snapshot.9": good[:-5] + b"xxxxx", "snapshot.8": good, "log.9": build_log(9, 3)}
    found = read_sums(BytesDirectory(files), chroot=Chroot("/kafka"))
    assert (found.snapshot, found.zxid, found.znodes) == ("snapshot.8", 11, 4)
    assert list(found.skipped) == ["snapshot.9"]


def test_a_hole_in_the_log_is_an_error_and_a_log_from_the_start_needs_no_snapshot() -> None:
    first = create_payload(1, "/kafka")
    log = log_from([first, create_payload(2, "/kafka/a")])
    found = read_sums(BytesDirectory({"log.1": log}), chroot=Chroot("/kafka"))
    assert_as_tree(found, load_tree(BytesDirectory({"log.1": log}), chroot=Chroot("/kafka")))
    assert dict(znodes(BytesDirectory({"log.1": log}), None, found)).keys() == {"/kafka", "/kafka/a"}
    broken = log_from([first, create_payload(3, "/kafka/a")])
    with pytest.raises(CorruptError, match="0x3 follows 0x1"):
        read_sums(BytesDirectory({"log.1": broken}))
    with pytest.raises(NoDataError):
        read_sums(BytesDirectory({}))


def test_a_snapshot_that_is_purged_between_two_readings_is_told() -> None:
    files = {"snapshot.8": snapshot_of({"/kafka": b""})}
    found = read_sums(BytesDirectory(files))
    with pytest.raises(NoDataError, match=r"snapshot\.8 was removed"):
        list(znodes(BytesDirectory({}), None, found))


def test_how_far_it_is_is_told() -> None:
    nodes = {"/kafka": b"", **{f"/kafka/n{n}": b"x" for n in range(20_001)}}
    payloads = [set_payload(zxid, "/kafka/n1", b"y") for zxid in range(9, 1200)]
    directory: Directory = BytesDirectory({"snapshot.8": snapshot_of(nodes), "log.9": log_from(payloads)})
    told: list[tuple[str, int, int | None]] = []
    read_sums(directory, upto=1100, tell=lambda *words: told.append(words))
    assert told == [("znodes", 20_000, None), ("transactions", 500, 1092), ("transactions", 1000, 1092)]


def test_a_closing_that_names_no_path_marks_the_parent_of_what_it_deletes() -> None:
    """As 3.4 and 3.5 log it; nothing else touches the parent."""
    node = struct.pack(">i", 0) + struct.pack(">q", -1)
    owned = struct.pack(">qqqqiiiqq", 1, 1, 0, 0, 0, 0, 0, 0x77, 1)
    of_others = struct.pack(">qqqqiiiqq", 1, 1, 0, 0, 0, 0, 0, 0, 1)
    listed = {"": of_others, "/kafka": of_others, "/kafka/b": owned}
    nodes = b"".join(text(path) + node + stat for path, stat in listed.items())
    body = struct.pack(">4siqii", b"ZKSN", 2, -1, 0, 0) + nodes + text("/")
    snapshot = body + struct.pack(">q", zlib.adler32(body)) + text("/")
    log = log_from([payload(2, -11, b"", session=0x77, cxid=0)])
    directory = BytesDirectory({"snapshot.1": snapshot, "log.2": log})
    found = read_sums(directory, chroot=Chroot("/kafka"))
    assert (found.largest, found.largest_path) == (2, "/kafka")
    assert_as_tree(found, load_tree(directory, chroot=Chroot("/kafka")))
    assert dict(znodes(directory, None, found)) == load_tree(directory, chroot=Chroot("/kafka")).nodes
