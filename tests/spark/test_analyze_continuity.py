"""analyze continuity: damage that was made on purpose is named, and what real servers left is whole."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.unit.zkdata_fixtures import (
    VERSIONS,
    build_log,
    create_payload,
    log_from,
    payload,
    record,
    set_payload,
    snapshot_of,
    text,
)
from zkmigrate.errors import UsageError
from zkmigrate.spark.input import Input
from zkmigrate.spark.jobs import continuity
from zkmigrate.spark.request import Place, Request
from zkmigrate.spark.section import Section
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.zxid import format_zxid


def put(folder: Path, **content: bytes) -> Path:
    """Files of a server; `_` in a name stands for a dot."""
    inside = folder / "version-2"
    inside.mkdir(parents=True, exist_ok=True)
    for name, raw in content.items():
        (inside / name.replace("_", ".")).write_bytes(raw)
    return folder


def answer(spark: SparkSession, *source: Path, dest: tuple[Path, ...] = (), top: int = 20) -> Section:
    """Servers are named by their folders."""
    places = [tuple(Place("", str(one)) for one in of) for of in (source, dest)]
    return continuity.run(Input(spark, Request(places[0], dest=places[1], top=top)))


def server(found: Section, name: str) -> dict[str, Any]:
    return next(one for one in found.figures["servers"] if one["server"] == name)


def gaps(folder: Path) -> list[dict[str, Any]]:
    """As the walk of one process lists them."""
    going = walk(FileDirectory(folder / "version-2"), full=True)
    for _ in going:
        pass
    return [
        {"file": g.file, "offset": g.offset, "before": format_zxid(g.before), "after": format_zxid(g.after)}
        for g in going.gaps
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_real_servers_left_is_whole(version: str, spark: SparkSession, recorded: Path) -> None:
    folder = recorded / version / "standalone"
    places = (Place("a", str(folder)), Place("b", str(folder)))
    found = continuity.run(Input(spark, Request(places, dest=places[:1])))
    records = [one.zxid for one in walk(FileDirectory(folder / "version-2"))]
    assert found.held is True
    assert (found.figures["compared"], found.figures["divergent"]) == (len(records), 0)
    for one in found.figures["servers"]:
        assert (one["records"], one["damages"], one["torn"], one["strays"]) == (len(records), 0, [], [])
        assert (one["first_zxid"], one["last_zxid"]) == (format_zxid(records[0]), format_zxid(records[-1]))
        assert one["first_holes"] == gaps(folder) == []


def acl(zxid: int, who: str) -> bytes:
    item = struct.pack(">i", 31) + text("world") + text(who)
    return payload(zxid, 7, text("/kafka/ü") + struct.pack(">i", 1) + item + struct.pack(">i", 1))


def multi(zxid: int, *parts: tuple[int, bytes]) -> bytes:
    body = b"".join(struct.pack(">ii", kind, len(part)) + part for kind, part in parts)
    return payload(zxid, 14, struct.pack(">i", len(parts)) + body)


SAME = [
    create_payload(1, "/kafka", session=-0x77),
    create_payload(2, "/kafka/ü"),
    set_payload(3, "/kafka/ü", b"x" * 40),
    acl(4, "anyone"),
    multi(5, (2, text("/a")), (2, text("/b"))),
    payload((1 << 32) | 1, 2, text("/kafka/ü")),
]


def test_divergences_are_named_with_all_records(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "zk1", log_1=log_from(SAME[:5]), log_100000001=log_from(SAME[5:]) + bytes(99))
    torn = record(create_payload((1 << 32) | 2, "/torn"))[:20]
    data = [*SAME[:2], set_payload(3, "/kafka/ü", b"y" * 40), *SAME[3:]]
    put(tmp_path / "zk2", log_1=log_from(data) + torn)
    others = [*SAME[:3], acl(4, "nobody"), multi(5, (2, text("/a")), (2, text("/c"))), SAME[5]]
    put(tmp_path / "zk3", log_1=log_from(others[:5]) + bytes(16))
    found = answer(spark, tmp_path / "zk*", dest=(tmp_path / "zk1",))
    assert found.held is False
    assert (found.figures["compared"], found.figures["divergent"]) == (6, 3)
    assert found.figures["first_divergent_zxid"] == "0x3"
    named = found.figures["divergences"]
    assert [(one["zxid"], one["ensemble"], one["server"]) for one in named] == [
        (zxid, *place)
        for zxid in ("0x3", "0x4", "0x5")
        for place in (("source", "zk1"), ("source", "zk2"), ("source", "zk3"), ("dest", "zk1"))
    ]
    assert {one["zxid"]: one["differs"] for one in named} == {
        "0x3": "data_sha256",
        "0x4": "acl",
        "0x5": "path",
    }
    first = {one["server"]: one for one in named if one["zxid"] == "0x3"}
    assert first["zk1"]["hash"] == first["zk3"]["hash"] != first["zk2"]["hash"]
    offset = 16 + sum(len(record(one)) for one in SAME[:2])
    assert first["zk2"] | {"hash": ""} == first["zk2"] | {
        "file": "log.1", "offset": offset, "session": "0x77", "cxid": 1, "type": "setData",
        "path": "/kafka/ü", "time": "1970-01-01T00:00:01+00:00", "hash": "",
    }  # fmt: skip
    assert [one["path"] for one in named if one["zxid"] == "0x5"] == ["/b", "/b", "/c", "/b"]
    assert found.frames["divergences"].count() == 12
    assert "have different transactions. The first is 0x3, which differs in data_sha256" in found.answer
    assert [len(server(found, name)["torn"]) for name in ("zk1", "zk2", "zk3")] == [0, 1, 0]
    assert all(one["damages"] == one["holes"] == 0 for one in found.figures["servers"])


def test_what_differs_between_versions_without_a_fault(spark: SparkSession, tmp_path: Path) -> None:
    digest = struct.pack(">iq", 2, 77)
    error, create = struct.pack(">i", -101), create_payload(1, "/kafka/no")[32:]
    ours = [
        create_payload(1, "/kafka") + digest,
        payload(2, -11, struct.pack(">i", 2) + text("/a") + text("/b") + digest),
        multi(3, (1, create), (-1, error)),
        create_payload(4, "/x") + digest,
    ]
    put(tmp_path / "new", log_1=log_from(ours))
    theirs = [create_payload(1, "/kafka"), payload(2, -11, b""), multi(3, (-1, create), (-1, error))]
    put(tmp_path / "old", log_1=log_from([*theirs, create_payload(4, "/x")]))
    found = answer(spark, tmp_path / "new", tmp_path / "old")
    assert (found.held, found.figures["compared"]) == (True, 4)
    put(tmp_path / "other", log_1=log_from([*ours[:3], ours[3][:-1] + b"\x01"]))
    found = answer(spark, tmp_path / "new", tmp_path / "old", tmp_path / "other")
    assert {one["zxid"]: one["differs"] for one in found.figures["divergences"]} == {"0x4": "digest"}


def test_holes_are_those_of_the_walk(spark: SparkSession, tmp_path: Path) -> None:
    edge, later = 1 << 20, 2 << 32
    zxids = [edge - 2, edge - 1, edge, edge + 1, edge + 4, edge + 6]
    made = log_from(create_payload(zxid, "/kafka/n") for zxid in zxids)
    second = log_from(create_payload(zxid, "/kafka/n") for zxid in (2 * edge + 1, later + 2, later + 3))
    one = put(tmp_path / "one", log_ffffe=made, log_200001=second)
    whole = put(
        tmp_path / "whole", log_ffffe=made[:16] + b"".join(map(record, [create_payload(edge - 2, "/")]))
    )
    put(whole, log_300000001=build_log((3 << 32) | 1, 2), log_1=b"")
    found = answer(spark, one, whole)
    assert server(found, "one")["first_holes"] == gaps(one)
    assert server(found, "one")["holes"] == found.frames["holes"].count() == 4
    assert server(found, "whole")["first_holes"] == gaps(whole) == []
    assert found.held is False
    assert found.figures["compared"] == 1


def test_a_hole_that_a_snapshot_ends_is_told(spark: SparkSession, tmp_path: Path) -> None:
    folder = put(tmp_path / "zk", log_1=build_log(1, 3), log_8=build_log(8, 2), snapshot_7=snapshot_of({}))
    found = answer(spark, folder)
    assert server(found, "zk")["first_holes"] == gaps(folder) != []
    assert (found.held, server(found, "zk")["ended_by_snapshot"]) == (True, ["snapshot.7"])
    assert "gap before a snapshot: 1" in found.answer
    put(folder, snapshot_7=snapshot_of({})[:-20])
    found = answer(spark, folder)
    assert (found.held, len(server(found, "zk")["half_written_snapshots"])) == (False, 1)


def test_damage_is_told_with_file_and_offset(spark: SparkSession, tmp_path: Path) -> None:
    flipped = bytearray(log_from(SAME))
    flipped[flipped.index(b"x" * 40)] ^= 1
    put(tmp_path / "flipped", log_1=bytes(flipped), log_1_bak=b"")
    (tmp_path / "flipped" / "version-2" / "log.77").mkdir()
    cut = bytearray(log_from(SAME[:2]))
    cut[-5] ^= 1
    put(tmp_path / "middle", log_1=bytes(cut), log_3=log_from(SAME[2:3]), log_9=b"ZKL")
    again = log_from([create_payload(2, "/kafka/ü")])
    sealed = bytearray(snapshot_of({"/kafka": b"data"}))
    sealed[sealed.index(b"data")] ^= 1
    put(tmp_path / "order", log_1=log_from(SAME[:3]), log_2=again, snapshot_3=bytes(sealed))
    put(tmp_path / "strange", log_1=b"not a log of ZooKeeper")
    found = answer(spark, *(tmp_path / name for name in ("flipped", "middle", "order", "strange")))
    assert found.held is False
    one = server(found, "flipped")
    at = 16 + sum(len(record(payload)) for payload in SAME[:2])
    assert (one["damages"], one["holes"]) == (1, 1)
    assert one["damage"][0].startswith(f"log.1 at offset {at}: the record's checksum does not match")
    assert one["strays"] == ["log.1.bak", "log.77"]
    one = server(found, "middle")
    assert one["damages"] == 2
    assert any("in a log that is not the newest" in told for told in one["damage"])
    assert any("a transaction log starts with 16" in told for told in one["damage"])
    one = server(found, "order")
    assert one["damages"] == 2
    assert any("0x2 comes after 0x3 of an older file" in told for told in one["damage"])
    assert any("seal" in told for told in one["damage"])
    one = server(found, "strange")
    assert (one["records"], one["first_zxid"], one["damages"]) == (0, None, 1)


def test_what_cannot_be_asked_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    one = put(tmp_path / "a" / "zk", log_1=build_log(1, 2))
    two = put(tmp_path / "b" / "zk", log_3=build_log(3, 2))
    with pytest.raises(UsageError, match=r"logs of server zk are in several directories.*NAME=DIR"):
        answer(spark, one, two)
    with pytest.raises(UsageError, match=r"there is no file to read\. Needed"):
        answer(spark, one, tmp_path / "none")
    with pytest.raises(UsageError, match="no transaction log of dest"):
        answer(spark, one, dest=(put(tmp_path / "c", snapshot_1=snapshot_of({})),))
