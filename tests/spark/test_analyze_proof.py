"""analyze proof and diff beside the proofs of one process, on what real servers left and on made disks."""

from __future__ import annotations

import random
import shutil
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.unit.zkdata_fixtures import (
    OPEN_ACL,
    VERSIONS,
    create_payload,
    log_from,
    payload,
    set_payload,
    text,
)
from zkmigrate.errors import UsageError
from zkmigrate.spark.disk import disks
from zkmigrate.spark.input import Input
from zkmigrate.spark.jobs import diff, proof
from zkmigrate.spark.request import Place, Request
from zkmigrate.spark.section import Section
from zkmigrate.spark.subtree_at import load_subtree, znode
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.proofs import PROOFS, Side
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.tree import load_tree
from zkmigrate.zookeeper.data.txnlog import MAX_RECORD
from zkmigrate.zookeeper.disks import prove as single
from zkmigrate.zookeeper.disks.location import Disks, parse_place

OLD, NEW = 1 << 32, 2 << 32
BROKER, OTHER, FAR = 0x11, 0x33, -(1 << 60)
READ_ONLY = struct.pack(">iii", 1, 1, 5) + b"world" + struct.pack(">i", 6) + b"anyone"


def snapshot_of(nodes: dict[str, tuple[bytes, int, int]]) -> bytes:
    """A sealed snapshot: of each path data, the zxid of all its stats, and the ephemeral owner."""
    listed = b"".join(
        text("" if path == "/" else path)
        + struct.pack(">i", len(data))
        + data
        + struct.pack(">q", -1)
        + struct.pack(">qqqqiiiqq", zxid, zxid, 1, 1, 0, 0, 0, owner, zxid)
        for path, (data, zxid, owner) in nodes.items()
    )
    body = struct.pack(">4siqii", b"ZKSN", 2, -1, 0, 0) + listed + text("/")
    return body + struct.pack(">q", zlib.adler32(body)) + text("/")


def delete_payload(zxid: int, path: str) -> bytes:
    return payload(zxid, 2, text(path))


def acl_payload(zxid: int, path: str, acl: bytes = OPEN_ACL) -> bytes:
    return payload(zxid, 7, text(path) + acl + struct.pack(">i", 1))


def close_payload(zxid: int, session: int, paths: Sequence[str] | None, cxid: int = 0) -> bytes:
    """paths None: as 3.4 and 3.5 log it."""
    named = b"" if paths is None else struct.pack(">i", len(paths)) + b"".join(text(path) for path in paths)
    return payload(zxid, -11, named, session, cxid)


def multi_payload(zxid: int, operations: Sequence[bytes]) -> bytes:
    """Of payloads; with the type -1 one fails."""
    parts = [struct.pack(">ii", int.from_bytes(one[28:32], "big", signed=True), len(one) - 32) + one[32:]
             for one in operations]  # fmt: skip
    return payload(zxid, 14, struct.pack(">i", len(parts)) + b"".join(parts))


TREE = dict.fromkeys(("/", "/kafka", "/other"), (b"", 0, 0))


def disk(folder: Path, log: Sequence[bytes], snapshots: dict[int, bytes] | None = None) -> Path:
    inside = folder / "version-2"
    inside.mkdir(parents=True)
    for zxid, content in (snapshots or {OLD: snapshot_of(TREE)}).items():
        (inside / f"snapshot.{zxid:x}").write_bytes(content)
    if log:
        first = int.from_bytes(log[0][12:20], "big")
        (inside / f"log.{first:x}").write_bytes(log_from(log) + bytes(4096))
    return folder


def history() -> list[bytes]:
    """The ninth is another tenant's."""
    made = [payload(OLD + 1, -10, struct.pack(">i", 18_000), BROKER)]
    made.append(create_payload(OLD + 2, "/kafka/ids", session=BROKER))
    made.append(create_payload(OLD + 3, "/kafka/ids/1", ephemeral=True, session=BROKER))
    made += [create_payload(OLD + n, f"/kafka/n{n}", session=BROKER, cversion=n) for n in range(4, 8)]
    made.append(set_payload(OLD + 8, "/kafka/n4", "Größe \U0001f600".encode()))
    made.append(create_payload(OLD + 9, "/other/a", session=OTHER))
    made.append(acl_payload(OLD + 10, "/kafka/n5"))
    return made


def request_for(source: Path, dests: dict[str, Path], **more: Any) -> Request:
    places = tuple(Place(name, str(path)) for name, path in dests.items())
    return Request(
        (Place("source", str(source)),), places, **{"chroot": Chroot("/kafka"), "top": 1000, **more}
    )


def run(spark: SparkSession, given: Request) -> Section:
    return proof.run(Input(spark, given))


def by_one_process(source: Path, dest: Path, given: Request) -> dict[str, Any]:
    """The proofs of the command line."""
    opened = [Disks(None).directory(parse_place(str(path))) for path in (source, dest)]
    sides = [Side(name, where, where) for name, where in zip(("source", "dest"), opened, strict=True)]
    proofs = single.ProofRequest(
        given.chroot, PROOFS, given.zxid, given.after_cut, given.on_dest, given.top, None, MAX_RECORD
    )
    return single.body(single.prove(sides[0], sides[1:], proofs, lambda _line: None))


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """One dest server's proofs are those of one process. Which path carries the largest zxid is a choice."""
    for kind in PROOFS:
        assert found[kind]["held"] == wanted[kind]["held"], (kind, found[kind], wanted[kind])
    tail, reach = found["tail"], wanted["tail"]["dests"]["dest"]
    assert tail["needed"] == wanted["tail"]["needed"]
    assert {name: tail[name] for name in reach} == reach
    for name in ("missing", "allowed", "unproved", "records"):
        if name == "unproved":
            assert found["delta"][name] in wanted["delta"][name]
        else:
            assert found["delta"][name] == wanted["delta"][name]
    keys = ("path", "kind", "source", "dest")
    differences = [{name: one[name] for name in keys} for one in wanted["digest"]["differences"]]
    assert found["digest"]["differences"] == differences
    digest = wanted["digest"]["dests"]["dest"]
    assert found["digest"]["differences_count"] == digest["differences"]
    for name in ("zxid", "znodes", "znodes_on_source", "unproved"):
        assert found["digest"][name] == digest[name]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_of_a_real_server_holds_all(
    version: str, spark: SparkSession, recorded: Path, tmp_path: Path
) -> None:
    source = recorded / version / "standalone"
    shutil.copytree(source, tmp_path / "dest")
    given = request_for(source, {"dest": tmp_path / "dest"}, chroot=Chroot("/"))
    found = run(spark, given)
    assert found.held is True
    assert_same(found.figures["dests"]["dest"], by_one_process(source, tmp_path / "dest", given))


def test_what_each_dest_lacks_is_what_one_process_says(spark: SparkSession, tmp_path: Path) -> None:
    source = disk(tmp_path / "source", history())
    changed = history()
    changed[7] = set_payload(OLD + 8, "/kafka/n4", b"else")
    own = [payload(NEW + 1, -10, struct.pack(">i", 6_000), OTHER)]
    dests = {
        "behind": disk(tmp_path / "behind", history()[:-1]),
        "other-data": disk(tmp_path / "data", changed),
        "named-only": disk(
            tmp_path / "named", [],
            {OLD: snapshot_of(TREE), OLD + 10: snapshot_of({**TREE, "/kafka/x": (b"x", OLD, 0)})},
        ),
        "other-acl": disk(
            tmp_path / "acl", [*history()[:-1], acl_payload(OLD + 10, "/kafka/n5", READ_ONLY)]
        ),
        "gone-on": disk(tmp_path / "own", [*history(), *own]),
        "hole": disk(tmp_path / "hole", [*history()[:4], *history()[5:]]),
    }  # fmt: skip
    given = request_for(source, dests)
    found = run(spark, given)
    assert found.held is False
    for name, path in dests.items():
        wanted = by_one_process(source, path, given)
        assert_same(found.figures["dests"][name], wanted)
    missing = found.figures["dests"]["behind"]["delta"]["missing"]
    assert [(one["type"], one["path"]) for one in missing] == [("setACL", "/kafka/n5")]
    kinds = {one["kind"] for one in found.figures["dests"]["named-only"]["digest"]["differences"]}
    assert {"only on source", "only on dest"} <= kinds


def test_expiries_behind_a_cut_are_allowed_as_by_one_process(spark: SparkSession, tmp_path: Path) -> None:
    """One broker's session lives on, the other's was closed on dest, and one's id is negative."""
    common = [
        *history(),
        create_payload(OLD + 11, "/kafka/ids/2", ephemeral=True, session=OTHER),
        create_payload(OLD + 12, "/kafka/ids/3", ephemeral=True, session=FAR),
    ]
    behind = [
        close_payload(OLD + 13, BROKER, ["/kafka/ids/1"]),
        close_payload(OLD + 14, OTHER, None),
        payload(OLD + 15, -10, struct.pack(">i", 18_000), 0x55),
        close_payload(OLD + 16, FAR, None, cxid=9),
        create_payload(OLD + 17, "/kafka/late", ephemeral=True, session=0x55),
    ]
    source = disk(tmp_path / "source", [*common, *behind])
    own = [close_payload(NEW + 1, OTHER, ["/kafka/ids/2"]), create_payload(NEW + 2, "/kafka/new")]
    dest = disk(tmp_path / "dest", [*common, *own])
    given = request_for(source, {"dest": dest}, after_cut=True)
    found = run(spark, given).figures["dests"]["dest"]
    assert_same(found, by_one_process(source, dest, given))
    assert [one["path"] for one in found["delta"]["allowed"]] == ["/kafka/ids/1"]
    assert [one["path"] for one in found["delta"]["missing"]] == [
        "/kafka/ids/2",
        "/kafka/ids/3",
        "",
        "/kafka/late",
    ]


def random_log(seed: int) -> tuple[list[bytes], bytes]:
    """A history over few paths, and a fuzzy snapshot before it: with znodes that come later, and without
    parents that go later."""
    draw = random.Random(seed)
    names = ["/kafka", *(f"/kafka/{a}" for a in "abü"), *(f"/kafka/{a}/{b}" for a in "abü" for b in "xy")]
    names += [f"{name}/z" for name in names if name.count("/") == 3]
    sessions = [BROKER, OTHER, FAR]
    fuzzy = {"/": (b"", 0, 0), "/kafka": (b"", 1, 0)}
    for name in names[1:]:
        if draw.random() < 0.5:
            fuzzy[name] = (name.encode(), OLD - draw.randrange(9), draw.choice([0, 0, *sessions, -(1 << 63)]))
    log = []
    for zxid in range(OLD + 1, OLD + 120):
        path = draw.choice(names[1:])
        kind = draw.randrange(12)
        owner = draw.choice(sessions)
        one = create_payload(
            zxid, path, bytes([draw.randrange(9)]), session=owner, ephemeral=draw.random() < 0.4,
            cversion=draw.choice([-1, 1, 3, zxid - OLD]),
        )  # fmt: skip
        if kind == 4:
            one = set_payload(zxid, path, b"later", draw.randrange(9))
        elif kind == 5:
            one = acl_payload(zxid, path, READ_ONLY)
        elif kind in (6, 7):
            one = delete_payload(zxid, path)
        elif kind == 8:
            one = close_payload(zxid, owner, draw.choice([None, [], [path]]))
        elif kind == 9:
            more = [one, delete_payload(zxid, draw.choice(names[1:])), set_payload(zxid, path, b"m")]
            if draw.random() < 0.4:
                more.append(payload(zxid, -1, struct.pack(">i", -101)))
            one = multi_payload(zxid, draw.choice([more, []]))
        elif kind == 10:
            tail = struct.pack(">i", 2) + b"tt" + OPEN_ACL + struct.pack(">i", 5)
            ttl = draw.random() < 0.5
            one = payload(
                zxid, 21 if ttl else 19, text(path) + tail + (struct.pack(">q", 5000) if ttl else b"")
            )
        elif kind == 11:
            versions = draw.randrange(9), draw.randrange(9)
            one = multi_payload(zxid, [set_payload(zxid, path, b"%d" % v, v) for v in versions])
        log.append(one)
    return log, snapshot_of(fuzzy)


@pytest.mark.parametrize("seed", range(3))
def test_a_log_over_a_fuzzy_snapshot_makes_the_tree_of_one_process(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    log, fuzzy = random_log(seed)
    folder = disk(tmp_path / "one", log, {OLD: fuzzy})
    opened = disks([Place("one", str(folder))], MAX_RECORD)[0]
    upto = OLD + 119 - 30 * seed
    found = load_subtree(spark, opened, Chroot("/kafka"), upto)
    wanted = load_tree(FileDirectory(folder / "version-2"), chroot=Chroot("/kafka"), upto=upto)
    got = {row.path: znode(row) for row in found.nodes.collect()}
    assert got == wanted.nodes
    assert (found.zxid, found.snapshot) == (wanted.zxid, wanted.snapshot)


@pytest.mark.parametrize("chroot", [Chroot("/kafka"), Chroot("/", ("kafka", "admin"))])
def test_quotas_and_new_znodes_directly_below_slash_are_those_of_one_process(
    chroot: Chroot, spark: SparkSession, tmp_path: Path
) -> None:
    quota = "/zookeeper/quota/kafka"
    there = {**TREE, f"{quota}/zookeeper_stats": (b"count=1", 0, 0), "/zookeeper/config": (b"x", 0, 0)}
    log = [
        create_payload(OLD + 1, "/admin"), create_payload(OLD + 2, "/admin/a"),
        create_payload(OLD + 3, quota), create_payload(OLD + 4, f"{quota}/zookeeper_limits", b"count=9"),
        set_payload(OLD + 5, f"{quota}/zookeeper_stats", b"count=2"), create_payload(OLD + 6, "/tenant"),
    ]  # fmt: skip
    folder = disk(tmp_path / "one", log, {OLD: snapshot_of(there)})
    found = load_subtree(spark, disks([Place("one", str(folder))], MAX_RECORD)[0], chroot, OLD + 6)
    wanted = load_tree(FileDirectory(folder / "version-2"), chroot=chroot, upto=OLD + 6)
    assert {row.path: znode(row) for row in found.nodes.collect()} == wanted.nodes
    assert len(wanted.nodes) == (6 if chroot.names else 4)


def test_diff_counts_each_kind(spark: SparkSession, tmp_path: Path) -> None:
    source = disk(
        tmp_path / "source",
        [],
        {OLD: snapshot_of({**TREE, "/kafka/a": (b"1", 5, 0), "/kafka/b": (b"", 5, 0)})},
    )
    other = {**TREE, "/kafka/a": (b"2", 6, BROKER), "/kafka/c": (b"", 5, 0)}
    dest = disk(tmp_path / "dest", [], {OLD: snapshot_of(other)})
    found = diff.run(Input(spark, request_for(source, {"dest": dest}, zxid=OLD))).figures["dests"]["dest"]
    assert found["kinds"] == {
        "only on source": 1, "only on dest": 1, "data_sha256": 1, "czxid": 1, "mzxid": 1, "pzxid": 1,
        "ephemeral_owner": 1,
    }  # fmt: skip
    assert found["differing"] == 3
    assert {"path": "/kafka/a", "kind": "czxid", "source": "0x5", "dest": "0x6"} in found["samples"]


def test_what_cannot_be_asked_is_said(spark: SparkSession, tmp_path: Path) -> None:
    source = disk(tmp_path / "a" / "zk", history())
    dest = disk(tmp_path / "b" / "zk", history())
    with pytest.raises(UsageError, match="--dest-dir"):
        run(spark, request_for(source, {}))
    with pytest.raises(UsageError, match="no znode /nobody"):
        run(spark, request_for(source, {"dest": dest}, chroot=Chroot("/nobody")))
    with pytest.raises(UsageError, match="both have the server name zk"):
        disks([Place("", str(source)), Place("", str(dest))], MAX_RECORD)


def test_damage_leaves_a_proof_unmade(spark: SparkSession, tmp_path: Path) -> None:
    source = disk(tmp_path / "source", history())
    torn = disk(tmp_path / "torn", history())
    log = next((torn / "version-2").glob("log.*"))
    log.write_bytes(log_from(history())[:-20])
    empty = disk(tmp_path / "empty", [], {OLD: b"no snapshot"})
    given = request_for(source, {"torn": torn, "empty": empty})
    found = run(spark, given).figures["dests"]
    assert_same(found["torn"], by_one_process(source, torn, given))
    assert [found["empty"][kind]["held"] for kind in PROOFS] == [None, None, None]
