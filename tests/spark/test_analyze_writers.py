"""analyze writers and quiet: the answers of the reader that takes one log in one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.unit.zkdata_fixtures import VERSIONS, create_payload, log_from, multi_payload, payload, text
from zkmigrate.errors import UsageError
from zkmigrate.spark.input import Input, under
from zkmigrate.spark.jobs import quiet, writers
from zkmigrate.spark.request import Place, Request
from zkmigrate.zookeeper.data import log_writers as single
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.sums import read_sums
from zkmigrate.zookeeper.disks.writer_addresses import body


@pytest.mark.parametrize(
    ("version", "chroot"),
    [*((version, "/kafka") for version in VERSIONS), ("3.8.4", "/"), ("3.8.4", "/kafka/brokers/ids")],
)
def test_writers_as_from_one_process(version: str, chroot: str, spark: SparkSession, recorded: Path) -> None:
    folder = recorded / version / "standalone"
    directory = FileDirectory(folder / "version-2")
    owners = read_sums(directory, directory, chroot=Chroot(chroot)).owners
    wanted = body(single.writers(directory, chroot=Chroot(chroot), owners=owners), {})
    found = dict(writers.run(Input(spark, Request((Place("", str(folder)),), chroot=Chroot(chroot)))).figures)
    assert found.pop("server") == "standalone"
    assert wanted.pop("gaps") == []
    assert json.loads(json.dumps(found)) == wanted


def test_what_a_session_did_last_is_told_by_epoch_zxid_and_place_in_a_multi(
    spark: SparkSession, tmp_path: Path
) -> None:
    epochs = [n << 32 for n in (1, 2)]
    registered = [
        create_payload(epoch | count, f"/brokers/ids/{id}", session=0x77)
        for epoch, count, id in ((epochs[0], 9, 2), (epochs[1], 1, 1))
    ]
    multis = []
    for n in range(8):
        ends = ("a", "z") if n % 2 else ("z", "a")
        made = [create_payload(0, f"/{n}/{end}") for end in (*ends, *ends)]
        multis.append(multi_payload(epochs[1] | 2 + n, *made, session=n + 1))
    folder = tmp_path / "version-2"
    folder.mkdir()
    (folder / "log.100000009").write_bytes(log_from([*registered, *multis]))
    found = writers.run(Input(spark, Request((Place("", str(tmp_path)),), chroot=Chroot("/")))).figures
    wanted = body(single.writers(FileDirectory(folder), chroot=Chroot("/")), {})
    assert found["writers"] == wanted["writers"]
    assert {one["last_path"][-1] for one in found["writers"][1:]} == {"a", "z"}
    assert found["writers"][0]["broker"] == 1
    assert (found["records"], found["under_chroot"]) == (10, 10)


def test_addresses_come_from_the_servers_own_log(spark: SparkSession, recorded: Path, tmp_path: Path) -> None:
    folder = recorded / "3.5.8" / "standalone"
    given = Request((Place("", str(folder)),), chroot=Chroot("/kafka"))
    session = writers.run(Input(spark, given)).figures["writers"][0]["session"]
    log = tmp_path / "zookeeper.log"
    log.write_text(
        f"2026-11-21 00:40:00,001 [myid:1] - INFO - Established session {session} with negotiated "
        "timeout 6000 for client /192.0.2.9:4711\nsomething else\n"
    )
    request = Request(given.source, chroot=Chroot("/kafka"), server_logs=(str(log),))
    found = writers.run(Input(spark, request)).figures["writers"]
    assert [one["address"] for one in found if one["address"]] == ["192.0.2.9:4711"]


def test_quiet_counts_transactions_of_the_subtree_alone(spark: SparkSession, tmp_path: Path) -> None:
    made = [
        payload(5 + n, 2, text(f"/{'kafka' if n % 3 else 'other'}/n{n}"), time_ms=1_794_787_200_000 + n * 500)
        for n in range(30)
    ]
    (tmp_path / "version-2").mkdir()
    (tmp_path / "version-2" / "log.5").write_bytes(log_from(made))
    request = Request((Place("", str(tmp_path)),), chroot=Chroot("/kafka"), window_s=3)
    found = quiet.run(Input(spark, request)).figures
    assert found["transactions"] == 20
    (hour,) = found["hours"]  # seconds 1 to 13, two operations in each, one of three elsewhere
    assert (hour["name"], hour["seen"], hour["expected"]) == ("Mon 00:00", 11, 4)


def test_quiet_refuses_a_log_without_a_transaction(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.5").write_bytes(log_from([]) + bytes(4096))
    with pytest.raises(UsageError, match="has no transaction"):
        quiet.run(Input(spark, Request((Place("", str(tmp_path)),))))


@pytest.mark.parametrize(
    "chroot",
    [
        Chroot("/"), Chroot("/kafka"), Chroot("/kafka/x"), Chroot("/", ("brokers", "kafka")),
        Chroot("/zookeeper"),
    ],
)  # fmt: skip
def test_a_column_of_paths_is_under_a_chroot_as_one_path_is(chroot: Chroot, spark: SparkSession) -> None:
    paths = ["/", "/kafka", "/kafka/a", "/kafkab", "/brokers/ids/1", "/zookeeper", "/zookeeper/config"]
    quotas = ("", "/a", "/kafka", "/kafka/x", "/kafkab", "/brokers")
    paths += [f"/zookeeper/quota{of}{name}" for of in quotas for name in ("", "/zookeeper_limits")]
    frame = spark.createDataFrame([(path,) for path in (*paths, None)], "path string")
    rows = frame.select("path", under(F.col("path"), chroot).alias("inside")).collect()
    found = {row.path: row.inside for row in rows}
    assert found == {path: chroot.holds(path) for path in paths} | {None: False}
