"""Logs and snapshots through a real Spark: the same rows as without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceReader

from tests.unit.kafka_segments import batch, put, unpack
from tests.unit.pipeline_rows import expected
from tests.unit.zkdata_fixtures import VERSIONS, create_payload, log_from, payload, set_payload, text
from zkmigrate.spark.sources.logdirs import LogDirSource
from zkmigrate.spark.sources.options import OwnSchemaSource
from zkmigrate.spark.sources.snapshots import SnapshotSource
from zkmigrate.spark.sources.source import TxnLogSource
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.reader import FileDirectory, FileReader
from zkmigrate.zookeeper.data.snapname import snapshot_files
from zkmigrate.zookeeper.data.snapshot import read_snapshot


def log(spark: SparkSession, path: Path | str, **options: str | int) -> DataFrame:
    return spark.read.format("zktxnlog").options(**options).load(str(path))


def plain(row: Row) -> dict[str, Any]:
    """A row as the reader without Spark gives it; Spark's times have no zone."""
    found = row.asDict(recursive=True)
    found["time"] = found["time"].replace(tzinfo=UTC)
    found["data"] = None if found["data"] is None else bytes(found["data"])
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_logs_of_every_server_version(version: str, spark: SparkSession, recorded: Path) -> None:
    folder = recorded / version / "standalone"
    found = log(spark, folder, server="s", data=True).collect()
    wanted = expected(walk(FileDirectory(folder / "version-2")), data=True)
    assert sorted(map(plain, found), key=_place) == wanted


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return row["zxid"], row["sequence"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_snapshots_of_every_server_version(version: str, spark: SparkSession, recorded: Path) -> None:
    folder = recorded / version / "observer-snap"
    newest = snapshot_files(FileDirectory(folder / "version-2"))[0]
    reader = read_snapshot(FileReader(folder / "version-2" / newest.name), newest.name)
    wanted = {(node.path, node.stat.mzxid, node.stat.version) for node in reader}
    frame = spark.read.format("zksnapshot").load(str(folder)).filter(F.col("file") == newest.name)
    assert {(row.path, row.mzxid, row.version) for row in frame.collect()} == wanted
    sessions = spark.read.format("zksnapshot").option("table", "sessions").load(str(folder))
    found = {row.session: row.timeout_ms for row in sessions.filter(F.col("file") == newest.name).collect()}
    assert found == reader.sessions


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two servers with two logs each."""
    folder = tmp_path_factory.mktemp("two")
    for server in ("zk1", "zk2"):
        inside = folder / server / "version-2"
        inside.mkdir(parents=True)
        for first in (1, 101):
            made = [_made(zxid) for zxid in range(first, first + 100)]
            (inside / f"log.{first:x}").write_bytes(log_from(made) + bytes(4096))
        (inside / "snapshot.0").write_bytes(b"no log")
    return folder


def _made(zxid: int) -> bytes:
    if zxid % 10 == 0:
        return payload(zxid, 2, text(f"/other/{zxid}"), time_ms=zxid * 1000)
    return create_payload(zxid, f"/kafka/{zxid}")


def test_servers_are_named_by_their_directories(spark: SparkSession, two: Path) -> None:
    frame = log(spark, two / "zk*")
    assert {(row.server, row["count"]) for row in frame.groupBy("server").count().collect()} == {
        ("zk1", 200), ("zk2", 200)
    }  # fmt: skip
    several = spark.read.format("zktxnlog").load(
        [str(two / "zk1"), str(two / "zk2" / "version-2" / "log.65")]
    )
    assert several.count() == 300
    assert log(spark, (two / "zk1").as_uri(), server="x").filter("server = 'x'").count() == 200


@pytest.mark.parametrize(
    ("condition", "zxids"),
    [
        ("zxid > 195", range(196, 201)),
        ("zxid >= 99 AND zxid < 103", range(99, 103)),
        ("type = 'delete'", range(10, 201, 10)),
        ("path LIKE '/other/1%'", [10, *range(100, 200, 10)]),
        ("path = '/other/10'", [10]),
        ("time > TIMESTAMP '1970-01-01 00:03:15'", [200]),
        ("type IN ('delete', 'create') AND zxid <= 10", range(1, 11)),
        ("NOT type = 'create'", range(10, 201, 10)),
        ("path IS NULL", []),
    ],
)
def test_filters(condition: str, zxids: Sequence[int], spark: SparkSession, two: Path) -> None:
    found = log(spark, two / "zk1").filter(condition)
    assert sorted(row.zxid for row in found.select("zxid").collect()) == list(zxids)


@pytest.mark.parametrize(
    ("options", "zxids"),
    [
        ({"fromZxid": "0xc4"}, range(196, 201)),
        ({"fromZxid": 99, "toZxid": 102}, range(99, 103)),
        ({"types": "delete"}, range(10, 201, 10)),
        ({"pathPrefix": "/other/1"}, [10, *range(100, 200, 10)]),
        ({"since": "1970-01-01T00:03:15Z", "until": "1970-01-01 00:03:20"}, [200]),
        ({"types": "delete, create", "toZxid": 10}, range(1, 11)),
    ],
)
def test_options_that_leave_rows_out(
    options: dict[str, str | int], zxids: Sequence[int], spark: SparkSession, two: Path
) -> None:
    found = log(spark, two / "zk1", **options)
    assert sorted(row.zxid for row in found.select("zxid").collect()) == list(zxids)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fromZxid": "0xzz"}, "a zxid, such as 0x1a00000000"),
        ({"since": "yesterday"}, "a time, such as"),
        ({"columns": "path,colour"}, "there are no columns colour. Possible: server, file"),
        ({"columns": "path", "mode": "permissive"}, "Needed: corrupt among the columns"),
        ({"types": "create,explode"}, "there are no types explode. Possible: create, delete"),
        ({"pathPrefix": "/ümläut"}, "only ASCII"),
    ],
)
def test_options_that_are_refused(
    options: dict[str, str], message: str, spark: SparkSession, two: Path
) -> None:
    with pytest.raises(PySparkException, match=message):
        log(spark, two / "zk1", **options).count()


def test_a_table_can_be_asked_again_and_joined_with_itself(spark: SparkSession, two: Path) -> None:
    """Were filters pushed down, Spark 4.3.0 would answer the second query with the first one's rows."""
    frame = log(spark, two / "zk1")
    deletes, creates = frame.filter("type = 'delete'"), frame.filter("type = 'create'")
    assert (deletes.count(), frame.count(), creates.count(), frame.count()) == (20, 200, 180, 200)
    assert deletes.union(creates).count() == 200
    behind = creates.select((F.col("zxid") - 1).alias("zxid"))
    assert deletes.join(behind, "zxid").count() == 19


def test_logs_that_hold_no_wanted_zxid_are_not_read(spark: SparkSession, two: Path) -> None:
    def tasks(filter: str = "", **options: int) -> int:
        frame = log(spark, two / "zk*", splitMB=0, **options)
        return (frame.filter(filter) if filter else frame).rdd.getNumPartitions()

    assert tasks() == 4
    assert tasks(fromZxid=151) == 2
    assert tasks("zxid > 150") == 4  # Spark's own filters do not reach the reader


@pytest.mark.parametrize("options", [{"fromZxid": 201}, {"toZxid": 0}, {"fromZxid": 150, "toZxid": 120}])
def test_logs_without_a_wanted_zxid_are_an_empty_table(
    options: dict[str, int], spark: SparkSession, two: Path
) -> None:
    frame = log(spark, two / "zk*", **options)
    assert frame.collect() == []
    assert frame.agg(F.max("zxid")).collect()[0][0] is None


def test_a_log_of_a_header_alone_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.1").write_bytes(log_from([]))
    assert log(spark, tmp_path).collect() == []


def test_a_log_directory_without_partitions_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    assert spark.read.format("kafkalogdir").load(str(tmp_path)).collect() == []


def test_a_real_brokers_directory_reads_as_kafka_reads_it(tmp_path: Path, spark: SparkSession) -> None:
    told = unpack(tmp_path / "logs")
    rows = spark.read.format("kafkalogdir").load(str(tmp_path / "logs")).collect()
    assert {f"{row.folder}/{row.file}": (row.record_bytes, row.next_offset) for row in rows} == {
        name: (wanted["bytes"], wanted["next"]) for name, wanted in told.items()
    }
    assert {row.broker for row in rows} == {"7"}
    assert {row.topic: row.state for row in rows}["gone"] == "deleted"
    assert {row.high_watermark for row in rows if row.state == "current"} == {60}
    assert not any(row.corrupt for row in rows)


def test_what_a_log_directory_may_hold_has_a_state_or_a_reason(tmp_path: Path, spark: SparkSession) -> None:
    uuid, one = "f60c9836d10b4fb9b5763e8ede4aa9dc", batch(0, 1_790_000_000_000, size=500)
    for name in ("orders-0", f"gone-0.{uuid}-delete", f"moves-0.{uuid}-future"):
        put(tmp_path / name, 0, one)
    put(tmp_path / "bad-0", 0, b"not a record batch at all" * 4)
    (tmp_path / "bad-0" / "notes.txt").write_text("x")
    (tmp_path / "junk").mkdir()
    (tmp_path / "meta.properties").write_text("#\nversion=0\nnode.id=2\n")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\norders 0 15\nnonsense\n")
    rows = spark.read.format("kafkalogdir").load(str(tmp_path)).collect()
    assert {row.broker for row in rows} == {"2"}
    states = {row.topic: row.state for row in rows if row.corrupt is None}
    assert states == {"orders": "current", "gone": "deleted", "moves": "future"}
    assert {row.topic: row.high_watermark for row in rows}["orders"] == 15
    assert sorted((row.folder, row.file) for row in rows if row.corrupt) == [
        ("bad-0", "00000000000000000000.log"), ("bad-0", "notes.txt"), ("junk", None)
    ]  # fmt: skip


def test_what_is_no_log_directory_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(PySparkException, match="a broker's log"):
            spark.read.format("kafkalogdir").load(str(path)).collect()


@pytest.mark.parametrize("source", [TxnLogSource, SnapshotSource, LogDirSource])
def test_no_filter_is_pushed_into_a_source(source: type[OwnSchemaSource], two: Path, tmp_path: Path) -> None:
    """A filter that Spark 4.3.0 pushed into a DataFrame stays in it, and its next query lacks rows."""
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    made = source({"path": str(tmp_path if source is LogDirSource else two / "zk1")})
    assert type(made.reader(made.schema())).pushFilters is DataSourceReader.pushFilters


def test_columns_that_are_named_are_the_only_ones(spark: SparkSession, two: Path, recorded: Path) -> None:
    frame = log(spark, two / "zk1", columns="path, zxid,data")
    assert frame.columns == ["path", "zxid", "data"]
    every = log(spark, two / "zk1", data=True).select("path", "zxid", "data")
    assert frame.orderBy("zxid").collect() == every.orderBy("zxid").collect()
    both = log(spark, two / "zk1", columns="zxid", types="delete", fromZxid=100)
    assert sorted(row.zxid for row in both.collect()) == list(range(100, 201, 10))
    folder = str(recorded / "3.5.8" / "observer-snap")
    nodes = spark.read.format("zksnapshot").load(folder)
    some = spark.read.format("zksnapshot").option("columns", "mzxid,path").load(folder)
    assert sorted(some.collect()) == sorted(nodes.select("mzxid", "path").collect())
    sessions = spark.read.format("zksnapshot").options(table="sessions", columns="session").load(folder)
    assert sessions.columns == ["session"]


def test_short_logs_are_read_together_by_one_task(spark: SparkSession, two: Path) -> None:
    frame = log(spark, two / "zk*")
    assert frame.rdd.getNumPartitions() == 1
    assert frame.count() == log(spark, two / "zk*", splitMB=0).count() == 400


def test_a_log_in_parts_is_the_same_log(spark: SparkSession, tmp_path: Path) -> None:
    inside = tmp_path / "zk" / "version-2"
    inside.mkdir(parents=True)
    made = (create_payload(zxid, f"/kafka/{zxid}", bytes(2000)) for zxid in range(1, 5001))
    (inside / "log.1").write_bytes(log_from(made) + bytes(4096))
    whole, parts = log(spark, inside, splitMB=0), log(spark, inside, splitMB=2)
    assert (whole.rdd.getNumPartitions(), parts.rdd.getNumPartitions()) == (1, 4)
    assert parts.select("zxid").distinct().count() == parts.count() == 5000
    assert parts.agg(F.sum("offset")).first() == whole.agg(F.sum("offset")).first()


# --- damage


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A record whose checksum does not match, and one whose body does not decode."""
    bad_body = payload(5, 5, text("/kafka/5"))
    made = [bad_body if zxid == 5 else set_payload(zxid, "/kafka/n", b"x" * 50) for zxid in range(1, 11)]
    content = bytearray(log_from(made))
    at = content.index(b"x" * 50, content.index(b"x" * 50) + 60)
    content[at] ^= 1
    inside = tmp_path / "zk" / "version-2"
    inside.mkdir(parents=True)
    (inside / "log.1").write_bytes(bytes(content))
    return tmp_path / "zk"


def test_damage_fails_the_job_and_names_file_and_offset(spark: SparkSession, damaged: Path) -> None:
    with pytest.raises(PySparkException, match=r"log\.1 at offset \d+: .*checksum does not match"):
        log(spark, damaged).collect()


def test_permissive_tells_damage_and_reads_on(spark: SparkSession, damaged: Path) -> None:
    rows = log(spark, damaged, mode="permissive").collect()
    assert sorted(row.zxid for row in rows if row.corrupt is None) == [1, 3, 4, 6, 7, 8, 9, 10]
    told = [(row.server, row.file, row.corrupt) for row in rows if row.corrupt is not None]
    assert [one[:2] for one in told] == [("zk", "log.1")] * 2
    assert "checksum does not match" in told[0][2]
    assert "offset" in told[1][2]


def test_a_damaged_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "snapshot.5").write_bytes(b"ZKSN" + bytes(60))
    frame = spark.read.format("zksnapshot")
    with pytest.raises(PySparkException, match=r"snapshot\.5"):
        frame.load(str(tmp_path)).collect()
    rows = frame.option("mode", "permissive").load(str(tmp_path)).collect()
    assert [(row.file, row.zxid, row.path) for row in rows] == [("snapshot.5", 5, None)]
    assert rows[0].corrupt


@pytest.mark.parametrize(
    ("ask", "why"),
    [
        (lambda spark, two: log(spark, two / "none"), "there is no file to read"),
        (lambda spark, two: log(spark, two), "there is no file to read"),
        (lambda spark, two: log(spark, two / "zk1", mode="lax"), "Possible: failfast, permissive"),
        (lambda spark, two: log(spark, two / "zk1", splitMB="-1"), "Needed: a whole number"),
        (lambda spark, two: log(spark, two / "zk1", splitmb="0", dta="true"), "unknown option dta"),
        (lambda spark, two: log(spark, "nowhere://x/y"), "Needed: a scheme that fsspec knows"),
        (lambda spark, two: spark.read.format("zktxnlog").load(), "no path"),
        (
            lambda spark, two: spark.read.format("zktxnlog").schema("zxid long").load(str(two / "zk1")),
            "has its own schema",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(
    ask: Callable[[SparkSession, Path], DataFrame], why: str, spark: SparkSession, two: Path
) -> None:
    with pytest.raises(PySparkException, match=why):
        ask(spark, two).collect()
