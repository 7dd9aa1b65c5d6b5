"""Snapshots, and the tree they become with the log replayed, against what clients read from the same
servers."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
from dataclasses import replace
from typing import Any

import pytest

from tests.memory_files import BytesDirectory, BytesReader
from tests.unit.zkdata_fixtures import (
    OPEN_ACL,
    RECORDED,
    VERSIONS,
    build_log,
    close_payload,
    create_payload,
    delete_payload,
    log_from,
    pack_snappy,
    payload,
    recorded,
    recorded_files,
    snapshot_of,
    text,
)
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.effect import is_session
from zkmigrate.zookeeper.data.errors import (
    CorruptError,
    ForeignFileError,
    NoDataError,
    TruncatedHeaderError,
    ZkDataError,
)
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.seal import check_snapshot
from zkmigrate.zookeeper.data.session import parse_session
from zkmigrate.zookeeper.data.snapshot import read_snapshot
from zkmigrate.zookeeper.data.sums import read_sums
from zkmigrate.zookeeper.data.tree import Tree, Znode, diff, load_tree, max_zxid
from zkmigrate.zookeeper.data.txn import Acl, decode_txn
from zkmigrate.zookeeper.data.zxid import parse_zxid


def expected(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / version / "expected.json").read_text())
    return found


def as_client(tree: Tree, path: str) -> dict[str, Any]:
    """What a client would read of a znode: cversion counts deletions too, marks of containers and TTLs are
    hidden."""
    node = tree.nodes[path]
    children = sum(1 for other in tree.nodes if other != "/" and (other.rpartition("/")[0] or "/") == path)
    if path == "/":
        children += 1  # /zookeeper is left out of the tree
    return {
        "sha256": node.data_sha256.hex(),
        "length": node.data_length,
        "czxid": node.czxid,
        "mzxid": node.mzxid,
        "pzxid": node.pzxid,
        "ctime": node.ctime,
        "mtime": node.mtime,
        "version": node.version,
        "cversion": 2 * node.cversion - children,
        "aversion": node.aversion,
        "ephemeralOwner": node.ephemeral_owner if is_session(node.ephemeral_owner) else 0,
        "children": children,
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tree_is_what_a_client_read(version: str) -> None:
    wanted = expected(version)
    tree = load_tree(recorded(version, "standalone"))
    visible = {path: stat for path, stat in wanted["tree"].items() if not path.startswith("/zookeeper")}
    assert set(tree.nodes) == set(visible)
    for path, stat in visible.items():
        acl = stat.pop("acl")
        assert as_client(tree, path) == stat, path
        node = tree.nodes[path]
        if path != "/" or node.acl is not None:
            shown = [
                [a.perms, a.scheme, a.id if a.scheme != "digest" else a.id.split(":")[0] + ":x"]
                for a in node.acl or ()
            ]
            hidden = [[p, s, i if s != "digest" else i.split(":")[0] + ":x"] for p, s, i in acl]
            assert shown == hidden, path
    assert tree.zxid == parse_zxid(wanted["zxid"])
    sessions = {parse_session(name): timeout for name, timeout in wanted["sessions_ms"].items()}
    assert sessions.items() <= tree.sessions.items()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_snapshot_to_begin_from_gives_the_same_tree(version: str) -> None:
    files = recorded_files(version, "standalone")
    whole = load_tree(BytesDirectory(files), chroot=Chroot("/kafka"))
    snapshots = [name for name in files if name.startswith("snapshot.")]
    for name in snapshots:
        kept = {n: d for n, d in files.items() if n == name or n not in snapshots}
        other = load_tree(BytesDirectory(kept), chroot=Chroot("/kafka"))
        assert other.snapshot == name
        assert diff(whole, other) == ()
        assert other.sessions == whole.sessions
        assert other.owners == whole.owners
    bare = load_tree(
        BytesDirectory({n: d for n, d in files.items() if n not in snapshots}), chroot=Chroot("/kafka")
    )
    assert bare.snapshot == ""
    assert diff(whole, bare) == ()


def test_how_far_the_replay_is_is_told_with_the_number_of_transactions_where_that_is_known() -> None:
    payloads = [create_payload(1, "/kafka"), *(create_payload(n, f"/kafka/n{n}") for n in range(2, 1301))]
    directory = BytesDirectory({"log.1": log_from(payloads)})
    told: list[tuple[int, int | None]] = []
    load_tree(directory, chroot=Chroot("/kafka"), upto=1200, tell=lambda *words: told.append(words))
    assert told == [(500, 1200), (1000, 1200)]
    told.clear()
    load_tree(directory, chroot=Chroot("/kafka"), tell=lambda *words: told.append(words))
    assert told == [(500, None), (1000, None)]


@pytest.mark.parametrize("version", VERSIONS)
def test_replaying_everything_over_any_later_state_changes_nothing(version: str) -> None:
    """A dump is fuzzy: transactions that it already holds are replayed over it."""
    directory = recorded(version, "standalone")
    records = list(walk(directory))
    final = load_tree(directory, chroot=Chroot("/kafka"))
    for start in range(0, len(records), 5):
        tree = load_tree(directory, chroot=Chroot("/kafka"))
        for record in records[-1 - start :]:
            tree.apply(record.txn())
        assert diff(final, tree) == ()
        assert tree.owners == final.owners


@pytest.mark.parametrize("version", VERSIONS)
def test_a_chroot_sees_its_own_part_only(version: str) -> None:
    whole = load_tree(recorded(version, "standalone"))
    kafka = load_tree(recorded(version, "standalone"), chroot=Chroot("/kafka"))
    assert set(kafka.nodes) == {
        path for path in whole.nodes if path == "/kafka" or path.startswith("/kafka/")
    }
    assert all(kafka.nodes[path] == whole.nodes[path] for path in kafka.nodes)
    assert max_zxid(kafka) < max(node.pzxid for node in whole.nodes.values()) or max_zxid(kafka) == whole.zxid
    owned = kafka.owners
    assert sorted(path for paths in owned.values() for path in paths) == [
        "/kafka/brokers/ids/1",
        "/kafka/brokers/ids/2",
    ]
    assert kafka.smallest_timeout_ms == 20_000


@pytest.mark.parametrize("version", VERSIONS)
def test_an_earlier_state_is_exactly_that(version: str) -> None:
    directory = recorded(version, "standalone")
    records = list(walk(directory))
    for record in (records[5], records[len(records) // 2], records[-2]):
        tree = load_tree(directory, upto=record.zxid)
        assert tree.zxid == record.zxid
        assert max_zxid(tree) <= record.zxid
        for later in records:
            if later.zxid > record.zxid:
                tree.apply(later.txn())
        assert diff(tree, load_tree(directory)) == ()
    with pytest.raises(NoDataError, match="before the requested"):
        load_tree(directory, upto=records[-1].zxid + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_observers_state_begins_at_the_snapshot_its_log_reaches_back_to(version: str) -> None:
    """Beside it lies the empty snapshot.0 of a first start, from which the log has a hole."""
    directory = recorded(version, "observer")
    newest = load_tree(directory)
    asked = load_tree(directory, upto=newest.zxid)
    assert asked.snapshot == newest.snapshot
    assert asked.zxid == newest.zxid
    assert diff(asked, newest) == ()


def test_a_snapshot_that_was_just_received_needs_no_log_and_no_older_one() -> None:
    """After a SNAP sync of a quiet ensemble: the snapshot of the empty start, the one received, no log."""
    newest = 7
    files = {"snapshot.0": snapshot_of({}), f"snapshot.{newest:x}": snapshot_of({"/kafka": b"x"})}
    tree = load_tree(BytesDirectory(files), chroot=Chroot("/kafka"), upto=newest)
    assert (tree.zxid, list(tree.nodes), tree.snapshot) == (newest, ["/kafka"], f"snapshot.{newest:x}")
    with pytest.raises(NoDataError, match="before the requested 0x8"):
        load_tree(BytesDirectory(files), upto=newest + 1)


def test_a_received_snapshot_bridges_the_hole_in_the_log_that_was_written_on() -> None:
    """A host that was away for long was sent a snapshot, and its process went on in the same log."""
    zxids = (5, 6, 11, 12)
    files = {
        "snapshot.4": snapshot_of({"/kafka": b"old"}),
        "snapshot.a": snapshot_of({"/kafka": b"new", "/kafka/meanwhile": b""}),
        "log.5": log_from([create_payload(zxid, f"/kafka/n{zxid}") for zxid in zxids]) + bytes(64),
    }
    for upto in (None, 12):
        tree = load_tree(BytesDirectory(files), chroot=Chroot("/kafka"), upto=upto)
        assert (tree.zxid, tree.snapshot) == (12, "snapshot.a")
        assert sorted(tree.nodes) == ["/kafka", "/kafka/meanwhile", "/kafka/n11", "/kafka/n12"]
    summed = read_sums(BytesDirectory(files), chroot=Chroot("/kafka"), upto=12)
    assert (summed.zxid, summed.znodes) == (12, 4)
    rest = walk(BytesDirectory(files), after=10)
    assert [record.zxid for record in rest] == list(zxids)
    assert rest.gaps == []
    del files["snapshot.a"]
    with pytest.raises(CorruptError, match="0xb follows 0x6"):
        load_tree(BytesDirectory(files), chroot=Chroot("/kafka"), upto=12)


def test_a_log_that_goes_on_behind_a_received_snapshot_says_nothing_of_what_was_before() -> None:
    """A dest that was an observer for a second time, and then an ensemble of its own."""
    own = {f"log.{2 << 32 | 1:x}": log_from([create_payload(2 << 32 | 1, "/kafka/own")]) + bytes(64)}
    older = {"snapshot.0": snapshot_of({}), "snapshot.5": snapshot_of({"/kafka": b"old"})}
    received = {"snapshot.a": snapshot_of({"/kafka": b"new"})}
    for chroot in ("/", "/kafka"):
        tree = load_tree(BytesDirectory({**own, **older, **received}), chroot=Chroot(chroot), upto=10)
        assert tree.nodes["/kafka"].data_sha256 == hashlib.sha256(b"new").digest()
    with pytest.raises(CorruptError, match="must be continuous"):
        load_tree(BytesDirectory({**own, **older}), upto=10)


@pytest.mark.parametrize("version", VERSIONS)
def test_snapshot_sections_by_version(version: str) -> None:
    files = recorded_files(version, "observer-snap")
    name = max((n for n in files if n.startswith("snapshot.")), key=lambda n: int(n.split(".")[1], 16))
    snapshot = read_snapshot(BytesReader(files[name]), name)
    paths = [node.path for node in snapshot]
    assert {"/", "/kafka", "/kafka/controller", "/zookeeper/quota"} <= set(paths)
    assert (snapshot.digest is not None) == (version >= "3.6")
    assert (snapshot.last_processed is not None) == (version >= "3.9")
    assert list(snapshot.sessions.values()) == [20_000]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_damaged_byte_and_every_cut_of_a_snapshot_is_found(version: str) -> None:
    files = recorded_files(version, "observer-snap")
    name = max((n for n in files if n.startswith("snapshot.")), key=lambda n: int(n.split(".")[1], 16))
    good = files[name]
    assert check_snapshot(BytesReader(good), name) == ""
    # Cut just before the section that 3.6 or 3.9 added, it is a whole file of an older version.
    sections = {len(good) - 21, len(good) - 33, len(good) - 54}
    for at in range(16, len(good)):
        flipped = good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :]
        for damaged in (flipped, good[:at]):
            problem = check_snapshot(BytesReader(damaged), name)
            if damaged is flipped or at not in sections:
                assert problem, at
                with pytest.raises(ZkDataError):
                    list(read_snapshot(BytesReader(damaged), name))
    assert check_snapshot(BytesReader(good + b"\0"), name)
    with pytest.raises(CorruptError):
        list(read_snapshot(BytesReader(good + b"\0"), name))


def test_a_compressed_snapshot_with_a_log_behind_it_gives_the_same_tree() -> None:
    files = recorded_files("3.8.4", "standalone")
    plain = files.pop("snapshot.37")
    for name, data in (("snapshot.37.gz", gzip.compress(plain)), ("snapshot.37.snappy", pack_snappy(plain))):
        tree = load_tree(BytesDirectory({**files, name: data}))
        assert tree.snapshot == name
        assert diff(tree, load_tree(recorded("3.8.4", "standalone"))) == ()


def test_what_is_no_snapshot_is_named() -> None:
    with pytest.raises(TruncatedHeaderError):
        read_snapshot(BytesReader(b"ZKSN"), "snapshot.1")
    with pytest.raises(ForeignFileError, match=r"^snapshot\.1 at offset 0: the file starts with b'ZKLG'"):
        read_snapshot(BytesReader(b"ZKLG" + b"\0" * 50), "snapshot.1")
    with pytest.raises(ForeignFileError):
        read_snapshot(BytesReader(b"no"), "snapshot.1")
    with pytest.raises(ForeignFileError, match="at offset 4: the snapshot has version 3, but must have 2"):
        read_snapshot(BytesReader(b"ZKSN\0\0\0\3" + b"\0" * 50), "snapshot.1")


def test_a_damaged_snapshot_is_skipped_for_an_older_one_and_said() -> None:
    files = recorded_files("3.8.4", "standalone")
    files["snapshot.37"] = files["snapshot.37"][:-30]
    tree = load_tree(BytesDirectory(files))
    assert tree.snapshot == "snapshot.0"
    assert "snapshot.37" in tree.skipped
    assert diff(tree, load_tree(recorded("3.8.4", "standalone"))) == ()


def test_a_hole_between_snapshot_and_log_is_refused() -> None:
    files = recorded_files("3.8.4", "observer")
    del files["snapshot.100000007"]
    with pytest.raises(CorruptError, match="must be continuous from 0x0"):
        load_tree(BytesDirectory(files))
    with pytest.raises(NoDataError):
        load_tree(BytesDirectory({}))


def tree_of(*payloads: bytes, chroot: str = "/kafka") -> Tree:
    return load_tree(BytesDirectory({"log.1": log_from(payloads)}), chroot=Chroot(chroot))


def test_rules_of_replay() -> None:
    tree = tree_of(
        create_payload(1, "/kafka", cversion=1),
        create_payload(2, "/kafka/a", b"one", cversion=1),
        create_payload(3, "/kafka/a", b"again", cversion=7),  # there already: the parent's cversion only
        create_payload(4, "/kafka/no/parent"),
        payload(5, 5, text("/kafka/a") + struct.pack(">i", 3) + b"two" + struct.pack(">i", 4), time_ms=5000),
        create_payload(6, "/kafka/e", b"", ephemeral=True, session=9, cversion=8),
        delete_payload(7, "/kafka/gone"),  # not there: the parent's pzxid all the same
        payload(8, -10, struct.pack(">i", 4000), session=9),
        delete_payload(9, "/other"),
    )
    assert sorted(tree.nodes) == ["/kafka", "/kafka/a", "/kafka/e"]
    root, a = tree.nodes["/kafka"], tree.nodes["/kafka/a"]
    assert (root.cversion, root.pzxid) == (8, 7)
    assert (a.data_length, a.version, a.czxid, a.mzxid, a.mtime, a.ctime) == (3, 4, 2, 5, 5000, 1000)
    assert tree.owners == {9: ("/kafka/e",)}
    assert tree.smallest_timeout_ms == 4000
    assert tree.zxid == 9
    tree.apply(decode_txn(close_payload(10, 9)))
    assert "/kafka/e" not in tree.nodes
    assert tree.nodes["/kafka"].pzxid == 10
    assert tree.owners == {}


def test_ownerships_of_containers_and_ttls_are_no_sessions() -> None:
    base = struct.pack(">i", -1) + OPEN_ACL + struct.pack(">i", 1)
    tree = tree_of(
        create_payload(1, "/kafka"),
        payload(2, 19, text("/kafka/c") + base),
        payload(3, 21, text("/kafka/t") + base + struct.pack(">q", 5000)),
    )
    assert tree.owners == {}
    assert tree.nodes["/kafka/c"].ephemeral_owner == -(1 << 63)
    assert tree.nodes["/kafka/t"].ephemeral_owner & (1 << 40) - 1 == 5000
    assert tree.nodes["/kafka/c"].data_length == -1


def test_differences_are_named_and_cut() -> None:
    shared = [create_payload(n, "/kafka" if n == 1 else f"/kafka/{n}", cversion=n) for n in range(1, 4)]
    left = tree_of(*shared, *(create_payload(n, f"/kafka/{n}", cversion=n) for n in (4, 5)))
    right = tree_of(*shared, create_payload(4, "/kafka/4", b"x", cversion=4))
    found = diff(left, right)
    assert [(d.path, d.kind) for d in found] == [
        ("/kafka", "pzxid"),  # the first field that differs
        ("/kafka/4", "data_sha256"),
        ("/kafka/5", "only left"),
    ]
    assert (found[0].left, found[0].right) == ("0x5", "0x4")
    assert len(diff(left, right, limit=2)) == 2
    assert diff(left, left) == ()


def test_one_changed_access_list_is_a_difference() -> None:
    tree = tree_of(create_payload(1, "/kafka"))
    acl = struct.pack(">ii", 1, 1) + text("ip") + text("::1")
    other = tree_of(create_payload(1, "/kafka"), payload(2, 7, text("/kafka") + acl + struct.pack(">i", 1)))
    assert max_zxid(other) == max_zxid(tree)
    assert [d.kind for d in diff(tree, other)] == ["acl"]


def test_logs_may_live_in_their_own_directory() -> None:
    files = recorded_files("3.8.4", "standalone")
    data = BytesDirectory({n: d for n, d in files.items() if not n.startswith("log.")})
    log = BytesDirectory({n: d for n, d in files.items() if n.startswith("log.")})
    assert diff(load_tree(data, log), load_tree(BytesDirectory(files))) == ()
    assert load_tree(BytesDirectory({}), BytesDirectory({"log.1": build_log(1, 2, "/x")})).zxid == 2


def test_differences_are_told_as_zookeepers_shell_tells_them() -> None:
    def at(**changed: Any) -> Tree:
        node = Znode(b"\1" * 32, 3, (Acl(31, "world", "anyone"),), 1, 2, 3, 4, 5, 6, 7, 8, 0)
        return Tree(Chroot("/"), nodes={"/a": replace(node, **changed)})

    def told(**changed: Any) -> tuple[str, str, str]:
        (found,) = diff(at(), at(**changed))
        return found.kind, found.left, found.right

    assert told(acl=(Acl(1, "digest", "u:x"), Acl(16, "auth", ""))) == (
        "acl", "world:anyone:rwcda", "digest:u:x:r,auth::a"
    )  # fmt: skip
    assert told(acl=()) == ("acl", "world:anyone:rwcda", "nobody")
    assert told(acl=None) == ("acl", "world:anyone:rwcda", "unknown")
    assert told(mzxid=0x100000005) == ("mzxid", "0x2", "0x100000005")
    assert told(ephemeral_owner=-2) == ("ephemeral_owner", "0x0", "0xfffffffffffffffe")
    assert told(data_sha256=b"\xab" * 32) == ("data_sha256", "01" * 8, "ab" * 8)
    assert told(version=9) == ("version", "6", "9")


def test_a_create_replayed_over_a_later_state_does_not_set_its_parent_back() -> None:
    again = create_payload(2, "/kafka/a", cversion=1)
    tree = tree_of(create_payload(1, "/kafka"), again, delete_payload(3, "/kafka/a"))
    tree.apply(decode_txn(again))
    assert (tree.nodes["/kafka"].cversion, tree.nodes["/kafka"].pzxid) == (1, 3)
