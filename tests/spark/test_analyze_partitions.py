"""analyze partitions, on hand-made directories of two brokers and on a real one's."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from tests.unit.kafka_segments import batch, put, unpack
from zkmigrate.cli.main import cli
from zkmigrate.cluster.placement.cluster import Broker, Cluster, LogDir
from zkmigrate.errors import UsageError
from zkmigrate.spark.input import Input
from zkmigrate.spark.jobs import partitions
from zkmigrate.spark.request import Request

UUID = "f60c9836d10b4fb9b5763e8ede4aa9dc"
NEWEST = 1_790_000_000
MIB = 1 << 20
EMPTY = '{"format": 1, "servers": {}, "files": [], "left": []}'


def ago(seconds: int) -> int:
    """Milliseconds, so long before the newest record."""
    return (NEWEST - seconds) * 1000


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str, str]:
    """Broker 1 with two directories, broker 2 with one, named by what their files say."""
    a, b, c = (tmp_path / name for name in ("größe eins", "one-b", "two"))
    orders = (
        (0, batch(0, ago(86_400), ago(3600), records=10, size=8280)),
        (10, batch(10, ago(3600), ago(0), records=5, size=3600)),
    )
    for base, log in orders:
        put(a / "orders-0", base, log)
    put(c / "orders-0", *orders[1])
    put(a / "big-0", 0, batch(0, ago(7200), records=9, size=3 * MIB))
    put(c / "big-0", 0, batch(0, ago(7200), records=4, size=MIB))
    put(c / "cut.off-1", 100, batch(100, ago(600), ago(0), size=600) + batch(101, ago(0), size=700)[:500])
    put(a / f"gone-0.{UUID}-delete", 0, batch(0, ago(900), size=500))
    put(b / f"moves-0.{UUID}-future", 0, batch(0, ago(900), size=300))
    put(b / "twice-0", 0, b"")
    put(a / "twice-0", 0, b"")
    put(a / "bad-0", 0, b"not a record batch at all" * 4)
    (a / "junk").mkdir()
    (c / os.fsdecode(b"\xff-")).mkdir()
    (a / "bad-0" / "notes.txt").write_text("x")
    (c / "none-0").mkdir()
    for folder, id_ in ((a, "broker.id=1"), (b, "broker.id=1"), (c, "node.id=2")):
        (folder / "meta.properties").write_text(f"#\nversion=0\n{id_}\n")
    (a / "replication-offset-checkpoint").write_text("0\n2\norders 0 15\nnonsense\n")
    for file in tmp_path.rglob("*.log"):
        os.utime(file, (NEWEST, NEWEST))
    return str(a), f"file://{b}", str(c)


def test_sizes_and_rates_of_two_brokers(two: tuple[str, str, str], spark: SparkSession) -> None:
    dirs = (LogDir(two[0], 10 * MIB), LogDir(two[1], 20 * MIB))
    cluster = Cluster.of([Broker(1, "a", 30 * MIB, dirs=dirs), Broker(2, "b", 5 * MIB)], [])
    found = partitions.run(Input(spark, Request((), broker_dirs=two, cluster=cluster)))
    figures = found.figures
    one, other = figures["brokers"]
    assert (one["broker"], one["dirs"], one["partitions"], one["deleted_bytes"]) == ("1", 2, 4, 500)
    assert (one["future_bytes"], one["current_bytes"]) == (300, 8280 + 3600 + 3 * MIB + 100)
    assert (other["broker"], other["partitions"], other["torn"]) == ("2", 3, 1)
    assert other["current_bytes"] == 3600 + MIB + 600 + 500
    assert figures["newest_s"] == NEWEST
    rates = {
        (r["broker"], r["topic"]): (r["per_second_hour"], r["per_second_day"]) for r in figures["busiest"]
    }
    assert rates[("1", "orders")] == (1.0, round(11_880 / 86_400, 3))
    assert rates[("2", "orders")] == (1.0, 1.0)  # its beginning was deleted: only an hour is known
    assert rates[("2", "cut.off")] == (1.0, 1.0)
    assert rates[("1", "big")] == (0.0, round(3 * MIB / 86_400, 3))
    [unlike] = figures["unlike"]
    assert (unlike["topic"], unlike["apart"], unlike["offsets_apart"]) == ("big", 2 * MIB, 5)
    assert [row["topic"] for row in figures["in_two_dirs"]] == ["twice"]
    assert sorted(row["corrupt"].partition(":")[0] for row in figures["unread"]) == [
        "00000000000000000000.log", "folder ?-", "folder junk", "folder none-0 holds no segment", "notes.txt",
    ]  # fmt: skip
    largest = figures["largest"][0]
    assert (largest["topic"], largest["broker"], largest["bytes"]) == ("big", "1", 3 * MIB)
    orders = next(r for r in figures["largest"] if (r["topic"], r["broker"]) == ("orders", "1"))
    assert (orders["high_watermark"], orders["next_offset"], orders["first_offset"]) == (15, 15, 0)
    assert "2 brokers (1, 2), 7 replicas" in found.answer
    assert "twice-0 in 2 directories" in found.answer
    assert found.held is None
    assert (one["removal_bytes"], other["removal_bytes"]) == (
        one["current_bytes"], 8280 + 3600 + 3 * MIB + 1100,
    )  # fmt: skip
    rows = {(row.broker, row.topic): row for row in found.frames["partitions"].collect()}
    assert rows["1", "orders"].dir == two[0]
    assert {row.until.timestamp() for row in rows.values()} == {NEWEST}
    written = rows["1", "big"].per_second_day + rows["1", "orders"].per_second_day
    first, second = figures["disks"]
    assert (first["broker"], first["dir"], first["free"]) == ("1", two[0], 10 * MIB)
    assert datetime.fromisoformat(first["full"]).timestamp() == pytest.approx(NEWEST + 10 * MIB / written)
    assert first["full_kept"] == first["full"]
    assert (second["broker"], second["dir"], second["free"]) == ("2", two[2], 5 * MIB)
    assert second["full_kept"] > second["full"]
    assert f"The first full disk is {two[0]} of broker 1, on 2026-09-24 " in found.answer
    hours = {(row.broker, row.hour): row for row in found.frames["hours"].collect()}
    assert len(hours) == 3 * 23
    busy = (NEWEST - 7200) // 3600 % 24
    assert hours["1", busy].p95 == pytest.approx(0.1 + 3 * MIB / 3600, abs=0.001)
    assert hours["1", (busy + 12) % 24].mean == 0.1
    assert hours["2", (busy + 12) % 24].mean == 0.0
    assert hours["all", busy].mean == pytest.approx(hours["1", busy].mean + hours["2", busy].mean, abs=0.002)


def test_figures_of_collected_directories_are_those_of_the_directories(
    two: tuple[str, str, str], spark: SparkSession, tmp_path: Path
) -> None:
    a, b, c = (place.removeprefix("file://") for place in two)
    out = str(tmp_path / "collected")
    words = ["collect", "--broker-dirs", f"x={a}", f"x={b}", f"y={c}", "--out", out]
    assert CliRunner().invoke(cli, words).exit_code == 0
    named = (f"x={a}", f"x={b}", f"y={c}")
    wanted = partitions.run(Input(spark, Request((), broker_dirs=named)))
    found = partitions.run(Input(spark, Request((), broker_dirs=(out,))))
    assert (found.figures, found.answer) == (wanted.figures, wanted.answer)
    for name, frame in wanted.frames.items():
        assert isinstance(frame, DataFrame)
        other = found.frames[name]
        assert isinstance(other, DataFrame)
        assert other.schema == frame.schema
        assert sorted(map(str, other.collect())) == sorted(map(str, frame.collect()))
    (day,) = (tmp_path / "collected" / "y").iterdir()
    one = partitions.run(Input(spark, Request((), broker_dirs=(str(day),))))
    assert [row["broker"] for row in one.figures["brokers"]] == ["y"]
    with pytest.raises(UsageError, match="without a name"):
        partitions.run(Input(spark, Request((), broker_dirs=(f"z={out}",))))
    day.with_name("2020-01-01.parquet").write_bytes(day.read_bytes())
    pair = (str(tmp_path / "collected" / "x" / day.name), str(day.with_name("2020-01-01.parquet")))
    stale = partitions.run(Input(spark, Request((), broker_dirs=pair)))
    assert stale.figures["older"] == {pair[1]: "2020-01-01"}
    assert f"such as {pair[1]}: its figures are of 2020-01-01." in stale.answer
    days = spark.read.parquet(f"{out}/*/*.parquet").select("broker", "_metadata.file_name").distinct()
    assert sorted(days.collect()) == sorted([("x", day.name), ("y", day.name), ("y", "2020-01-01.parquet")])
    (tmp_path / "collected" / "manifest.json").write_text(EMPTY)
    with pytest.raises(UsageError, match="has no broker's segments"):
        partitions.run(Input(spark, Request((), broker_dirs=(out,))))


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


def test_what_is_no_log_directory_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="Needed: --broker-dir"):
        partitions.run(Input(spark, Request(())))
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(Exception, match="a broker's log"):
            partitions.run(Input(spark, Request((), broker_dirs=(str(path),))))
    (tmp_path / "meta.properties").write_text("version=1\n")
    found = partitions.run(Input(spark, Request((), broker_dirs=(f"x={tmp_path}",))))
    assert found.figures["brokers"] == []
    assert found.figures["newest_s"] is None
