"""A stream of live logs through a real Spark: micro-batches, restarts, a new log, a purge."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.unit.zkdata_fixtures import create_payload, log_from, payload, record, text

PADDING = bytes(70_000)


@pytest.fixture
def servers(tmp_path: Path) -> tuple[Path, Path]:
    found = tmp_path / "zk1" / "version-2", tmp_path / "zk2" / "version-2"
    for folder in found:
        folder.mkdir(parents=True)
    return found


def made(zxids: Iterable[int]) -> list[bytes]:
    """Creates, and now and then a multi of two."""
    return [_multi(zxid) if zxid % 7 == 0 else create_payload(zxid, f"/kafka/ü{zxid}") for zxid in zxids]


def _multi(zxid: int) -> bytes:
    part = text(f"/other/{zxid}")
    one = (2).to_bytes(4, "big") + len(part).to_bytes(4, "big") + part
    return payload(zxid, 14, (2).to_bytes(4, "big") + one + one)


def grow(path: Path, zxids: Iterable[int], torn: bytes = b"") -> None:
    """As the server does: over the zeros that it keeps behind its records."""
    written = path.read_bytes().rstrip(b"\0") if path.exists() else log_from([])
    path.write_bytes(written + b"".join(record(one) for one in made(zxids)) + torn + PADDING)


def test_every_operation_once_over_growth_rolls_restarts_and_a_purge(
    spark: SparkSession, servers: tuple[Path, Path], tmp_path: Path
) -> None:
    place, out = str(tmp_path / "zk*"), str(tmp_path / "out")

    def follow(**options: str) -> int:
        """All that there is now, from the checkpoint on; how many micro-batches it took."""
        stream = spark.readStream.format("zktxnlog").option("data", "true").options(**options).load(place)
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(out)
        )
        query.awaitTermination()
        return len([one for one in query.recentProgress if one["numInputRows"]])

    def same() -> None:
        """What was written is what a batch read finds, each row once."""
        batch = spark.read.format("zktxnlog").option("data", "true").load(place)
        assert rows(spark.read.parquet(out)) == rows(batch)

    zk1, zk2 = servers
    half = record(made([41])[0])
    for folder in servers:
        grow(folder / "log.1", range(1, 41), torn=half[:30])
    assert follow(maxBytesPerTrigger="2500") > 2
    same()
    assert follow() == 0
    for folder in servers:
        (folder / "log.1").write_bytes(log_from(made(range(1, 42))))
        grow(folder / "log.1", range(42, 51))
    grow(zk1 / "log.33", range(51, 61), torn=half[:5])
    follow()
    same()
    (zk1 / "log.1").unlink()  # read to its end, as that of zk2 is not known to be
    grow(zk2 / "log.1", range(51, 56))
    grow(zk2 / "log.38", range(56, 61))
    follow()
    found = rows(spark.read.parquet(out))
    grow(zk1 / "log.1", range(1, 51))
    assert found == rows(spark.read.format("zktxnlog").option("data", "true").load(place))

    (zk2 / "log.1").unlink()
    (zk2 / "log.38").unlink()
    grow(zk2 / "log.50", range(80, 82))
    with pytest.raises(PySparkException, match=r"log\.38 at offset \d+: .*missing are 0x3d to 0x4f"):
        follow()
    follow(mode="permissive")
    more = spark.read.parquet(out).filter("server = 'zk2' AND (corrupt IS NOT NULL OR zxid >= 80)")
    told = {(row.file, row.zxid, "missing are 0x3d" in (row.corrupt or "")) for row in more.collect()}
    assert told == {("log.38", None, True), ("log.50", 80, False), ("log.50", 81, False)}


def rows(frame: DataFrame) -> list[str]:
    return sorted(str(row.asDict(recursive=True)) for row in frame.collect())
