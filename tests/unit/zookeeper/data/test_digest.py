"""The tree digest against every digest that real servers wrote: behind each transaction, and in snapshots.

A digest covers every path, data and stat, so each that is met proves that replay up to it did what the server
did.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from tests.memory_files import BytesDirectory, BytesReader
from tests.unit.zkdata_fixtures import (
    RECORDED,
    VERSIONS,
    create_payload,
    delete_payload,
    log_from,
    payload,
    recorded,
    recorded_files,
    text,
)
from tests.unit.zookeeper.data.whole_tree import (
    DIGEST_VERSION,
    WholeTree,
    data_of,
    load_whole,
    tree_digest,
    znode_digest,
)
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.snapname import snapshot_files, snapshot_zxid
from zkmigrate.zookeeper.data.snapshot import read_snapshot
from zkmigrate.zookeeper.data.tree import Tree, load_tree
from zkmigrate.zookeeper.data.txn import TxnType

KINDS = ("standalone", "observer", "compressed", "reconfig")
DIGESTED = [
    (version, kind)
    for version in VERSIONS
    for kind in KINDS
    if version >= "3.6" and (RECORDED / version / kind).is_dir()
]


def begun_from(files: dict[str, bytes], name: str) -> Tree:
    """A whole tree as one snapshot holds it."""
    tree = WholeTree(Chroot("/"))
    tree.load(read_snapshot(BytesReader(files[name]), name), snapshot_zxid(name) or 0)
    return tree


def test_all_versions_with_digests_are_recorded_in_every_kind() -> None:
    assert {version.rpartition(".")[0] for version, _ in DIGESTED} == {"3.6", "3.7", "3.8", "3.9"}
    assert len(DIGESTED) == 16


@pytest.mark.parametrize(("version", "kind"), DIGESTED)
def test_replay_from_every_snapshot_meets_the_digest_of_every_transaction(version: str, kind: str) -> None:
    files = recorded_files(version, kind)
    directory = BytesDirectory(files)
    txns = [record.txn() for record in walk(directory)]
    data = data_of(directory)
    first = txns[0].header.zxid
    met: set[TxnType] = set()
    for file in snapshot_files(directory):
        if file.zxid < first - 1 and kind != "reconfig":
            continue  # the observer's log does not reach back to its snapshot.0
        tree = begun_from(files, file.name)
        for txn in txns:
            if txn.header.zxid <= file.zxid:
                continue
            tree.apply(txn)
            if txn.digest is not None:
                assert txn.digest.version == DIGEST_VERSION
                assert tree_digest(tree, data) == txn.digest.tree_digest, (file.name, txn)
                met.add(txn.header.type)
    assert {txn.header.type for txn in txns if txn.digest is None} <= {TxnType.error}
    if kind == "standalone":
        assert met == set(TxnType) - {TxnType.error, TxnType.check, TxnType.reconfig}
    if kind == "reconfig":
        assert TxnType.reconfig in met


@pytest.mark.parametrize(("version", "kind"), DIGESTED)
def test_the_content_of_a_snapshot_has_the_digest_it_says(version: str, kind: str) -> None:
    files = recorded_files(version, kind)
    directory = BytesDirectory(files)
    logged = {record.zxid: record.txn().digest for record in walk(directory)}
    data = data_of(directory)
    checked = 0
    for file in snapshot_files(directory):
        snapshot = read_snapshot(BytesReader(files[file.name]), file.name)
        list(snapshot)
        digest = tree_digest(begun_from(files, file.name), data)
        if snapshot.digest is not None and snapshot.digest.zxid:
            assert snapshot.digest.zxid == file.zxid
            assert digest == snapshot.digest.digest
            checked += 1
        behind = logged.get(file.zxid)
        if behind is not None:
            assert digest == behind.tree_digest
    assert checked == {"standalone": 1, "compressed": 1}.get(kind, 0)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= "3.6"])
def test_a_log_alone_gives_the_digests_too(version: str) -> None:
    files = {n: d for n, d in recorded_files(version, "standalone").items() if n.startswith("log.")}
    directory = BytesDirectory(files)
    last = [record.txn() for record in walk(directory)][-1]
    assert last.digest is not None
    assert tree_digest(load_whole(directory), data_of(directory)) == last.digest.tree_digest


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= "3.5"])
def test_a_reconfig_sets_the_config_znode_as_a_client_read_it(version: str) -> None:
    wanted: list[dict[str, Any]] = json.loads((RECORDED / version / "reconfig.json").read_text())["configs"]
    txns = [record.txn() for record in walk(recorded(version, "reconfig"))]
    bodies = [txn.body for txn in txns if txn.header.type is TxnType.reconfig]
    assert [(body.path, (body.data or b"").decode(), body.version) for body in bodies] == [  # type: ignore[union-attr]
        ("/zookeeper/config", config["data"], config["version"]) for config in wanted
    ]
    for config in wanted:
        tree = load_whole(recorded(version, "reconfig"), config["zxid"])
        node = tree.nodes["/zookeeper/config"]
        assert (node.mzxid, node.version, node.data_length) == (
            config["zxid"],
            config["version"],
            len(config["data"]),
        )
    assert "/zookeeper/config" not in load_tree(recorded(version, "reconfig")).nodes


def test_what_a_digest_sees_and_what_not() -> None:
    base = [create_payload(1, "/a"), create_payload(2, "/a/b", b"x")]

    def digest(*more: bytes) -> int:
        directory = BytesDirectory({"log.1": log_from([*base, *more])})
        return tree_digest(load_whole(directory), data_of(directory))

    acl = struct.pack(">ii", 1, 1) + text("ip") + text("::1")
    seen = {
        digest(),
        digest(payload(3, 5, text("/a/b") + struct.pack(">i", 1) + b"y" + struct.pack(">i", 1))),
        digest(payload(3, 7, text("/a/b") + acl + struct.pack(">i", 1))),
        digest(delete_payload(3, "/a/b")),
        digest(create_payload(3, "/zookeeper/z", cversion=1)),  # by its parent, which counts
    }
    assert len(seen) == 5
    assert digest(payload(3, -10, struct.pack(">i", 4000))) == digest()
    assert digest(create_payload(3, "/zookeeper/quota/q", cversion=1)) == digest()
    assert digest(payload(3, 7, text("/a/b") + acl + struct.pack(">i", 0))) == digest()


def test_a_digest_is_signed_as_records_carry_it() -> None:
    directory = BytesDirectory({"log.1": log_from([create_payload(1, "/a")])})
    tree, data = load_whole(directory), data_of(directory)
    parts = [znode_digest(path, node, data) for path, node in tree.nodes.items()]
    assert all(0 <= part < 1 << 32 for part in parts)
    assert tree_digest(tree, data) == sum(parts)
