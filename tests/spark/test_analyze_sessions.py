"""analyze sessions: the answers of the readers that take one directory in one process."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.unit.zkdata_fixtures import (
    VERSIONS,
    create_payload,
    log_from,
    payload,
    recorded_files,
    snapshot_of,
    text,
)
from zkmigrate.spark.input import Input
from zkmigrate.spark.jobs import sessions
from zkmigrate.spark.request import Place, Request
from zkmigrate.spark.section import Section
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.sums import read_sums
from zkmigrate.zookeeper.data.tree import load_tree


def answer(spark: SparkSession, folder: Path, chroot: str = "/kafka") -> Section:
    return sessions.run(Input(spark, Request((Place("zk", str(folder)),), chroot=Chroot(chroot))))


def agree(found: Section, folder: Path, chroot: str) -> None:
    """Who is open, and who owns what, is as the reader of the whole state says."""
    directory = FileDirectory(folder)
    sums = read_sums(directory, directory, chroot=Chroot(chroot))
    assert {row.session: row.timeout_ms for row in found.frames["open"].collect()} == sums.sessions
    owners = {row.session: (row.znodes, row.path, row.timeout_ms) for row in found.frames["owners"].collect()}
    assert owners == {one: (len(of), of[0], sums.sessions[one]) for one, of in sums.owners.items()}
    smallest = load_tree(directory, directory, chroot=Chroot(chroot)).smallest_timeout_ms
    assert found.figures["smallest_timeout_ms"] == smallest
    assert (found.figures["open"], found.figures["owners"]) == (len(sums.sessions), len(sums.owners))
    opened, closed = Counter[int](), dict[int, int]()
    for record in walk(directory):
        if record.type == -10:
            opened[record.session] += 1
        elif record.type == -11:
            closed.setdefault(record.session, record.cxid)  # a second one has no effect
    assert (found.figures["opened"], found.figures["closed"]) == (len(opened), len(closed))
    expired = sum(cxid == 0 for cxid in closed.values())
    assert found.figures["expired"] + found.figures["end_untold"] == expired


@pytest.mark.parametrize("version", VERSIONS)
def test_as_from_one_process(version: str, spark: SparkSession, recorded: Path) -> None:
    folder = recorded / version / "standalone" / "version-2"
    found = answer(spark, folder)
    agree(found, folder, "/kafka")
    assert (found.figures["expired"], found.figures["end_untold"]) == (1, 0)
    assert found.figures["closed_by_client"] == found.figures["closed"] - 1
    assert "the rollback deadline, is 20000 ms" in found.answer
    assert "reconnects" in found.answer


@pytest.mark.parametrize("version", ["3.4.14", "3.9.3"])
def test_a_snapshot_is_rolled_forward(version: str, spark: SparkSession, tmp_path: Path) -> None:
    for name, content in recorded_files(version, "observer").items():
        (tmp_path / name).write_bytes(content)
    found = answer(spark, tmp_path, "/")
    assert found.figures["snapshot"] == "snapshot.100000007"
    agree(found, tmp_path, "/")


def opens(zxid: int, session: int, timeout_ms: int, time_ms: int) -> bytes:
    return payload(zxid, -10, struct.pack(">i", timeout_ms), session, 0, time_ms)


def closes(zxid: int, session: int, cxid: int, time_ms: int, *paths: str) -> bytes:
    body = struct.pack(">i", len(paths)) + b"".join(map(text, paths)) if paths else b""
    return payload(zxid, -11, body, session, cxid, time_ms)


def failed_multi(zxid: int, path: str, session: int) -> bytes:
    create = create_payload(zxid, path, ephemeral=True)[32:]
    parts = [(1, create), (-1, struct.pack(">i", -101))]
    body = b"".join(struct.pack(">ii", kind, len(part)) + part for kind, part in parts)
    return payload(zxid, 14, struct.pack(">i", 2) + body, session)


def test_ends_owners_and_negative_ids(spark: SparkSession, tmp_path: Path) -> None:
    high, other, gone, short = -0x7FFF_0000_0000_0001, 0x22, 0x33, 0x44
    made = [
        create_payload(1, "/kafka"),
        opens(2, high, 9_000, 1_000),
        opens(3, other, 6_000, 2_000),
        opens(4, gone, 4_000, 3_000),
        opens(5, short, 30_000, 4_000),
        create_payload(6, "/kafka/ü", ephemeral=True, session=high),
        create_payload(7, "/kafkaesque", ephemeral=True, session=other),
        create_payload(8, "/kafka/gone", ephemeral=True, session=gone),
        create_payload(9, "/kafka/again", ephemeral=True, session=gone),
        payload(10, 2, text("/kafka/again"), gone),
        create_payload(11, "/kafka/again", ephemeral=True, session=high),
        payload(12, 21, create_payload(12, "/kafka/ttl")[32:-5] + struct.pack(">iq", 9, 5_000), other),
        failed_multi(13, "/kafka/never", other),
        closes(14, gone, 0, 8_000),
        closes(15, short, 0, 9_000),
        closes(16, gone, 7, 9_500),
        opens(17, 0x55, 5_000, 10_000),
        closes(18, 0x55, 1, 10_010),
        closes(19, 0x66, 4, 11_000, "/kafka/before", "/x"),
    ]
    (tmp_path / "log.1").write_bytes(log_from(made) + bytes(100))
    found = answer(spark, tmp_path)
    agree(found, tmp_path, "/kafka")
    assert found.figures["first_owners"] == [
        {"session": format_session(high), "timeout_ms": 9000, "znodes": 2, "path": "/kafka/again"}
    ]
    ends = {row.session: (row.end, row.lived_ms) for row in found.frames["sessions"].collect()}
    assert ends == {
        high: (None, None),
        other: (None, None),
        gone: (sessions.EXPIRED, 5_000),
        short: (sessions.UNTOLD, 5_000),
        0x55: (sessions.CLIENT, 10),
        0x66: (sessions.CLIENT, None),
    }
    assert found.figures["opened_before_the_log"] == 1
    assert "for an unknown reason" in found.answer


def test_a_log_that_does_not_reach_the_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    made = [opens(9, 0x11, 4_000, 1_000), create_payload(10, "/kafka/a", ephemeral=True, session=0x11)]
    (tmp_path / "log.9").write_bytes(log_from(made))
    (tmp_path / "snapshot.5").write_bytes(snapshot_of({}))
    found = answer(spark, tmp_path)
    assert (found.figures["opened"], found.figures["open"], found.figures["owners"]) == (1, None, None)
    assert found.figures["smallest_timeout_ms"] is None
    assert "0x9 follows nothing, but the log must be continuous from 0x5" in found.answer
    (tmp_path / "log.9").unlink()
    torn = log_from([create_payload(5, "/kafka"), *made[:1]])
    (tmp_path / "log.5").write_bytes(torn)
    assert "of 0x9 to 0x9" not in (found := answer(spark, tmp_path)).answer
    assert "0x9 follows 0x5" in found.answer


def test_no_transaction_and_nobody(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.6").write_bytes(log_from([]) + bytes(100))
    (tmp_path / "snapshot.5").write_bytes(snapshot_of({"/kafka": b""}))
    found = answer(spark, tmp_path)
    assert (found.figures["opened"], found.figures["open"], found.figures["owners"]) == (0, 0, 0)
    assert "has no transaction" in found.answer
    assert "there is no rollback deadline" in found.answer
