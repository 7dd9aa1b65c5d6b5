"""A stream behind a real server that writes meanwhile, begins new logs and is started anew."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.servers.ensembles import Member, client, serving
from tests.spark.test_sources import plain
from tests.unit.pipeline_rows import expected
from zkmigrate.lab.wait import wait_until
from zkmigrate.zookeeper.data.logdir import log_files, walk
from zkmigrate.zookeeper.data.reader import FileDirectory

ENOUGH_S = 600


@contextmanager
def written(version: str, member: Member, name: str) -> Iterator[None]:
    """A server that begins a new log every few hundred transactions, and a client that writes until the block
    ends: data of any length, multis, an ephemeral."""
    stop = threading.Event()

    def write() -> None:
        with client(member) as session:
            session.create(f"/{name}", b"")
            session.create(f"/{name}/ephemeral", b"", ephemeral=True)
            number = 0
            while not stop.wait(0.001):
                number += 1
                path = f"/{name}/{number}"
                if number % 5:
                    session.create(path, b"d" * (number * 37 % 3000))
                else:
                    multi = session.transaction()
                    multi.create(path, b"")
                    multi.set_data(f"/{name}", str(number).encode())
                    assert not [one for one in multi.commit() if isinstance(one, Exception)]

    with serving(version, member, options=["-Dzookeeper.snapCount=400"]):
        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            stop.set()
            writer.join(ENOUGH_S)
            assert not writer.is_alive()


@pytest.mark.timeout(6 * ENOUGH_S)
@pytest.mark.parametrize("version", ["3.5.8", "3.9.5"])
def test_a_live_server_is_followed(version: str, spark: SparkSession, tmp_path: Path) -> None:
    member = Member(1, tmp_path / "zk")
    inside, out = member.data / "version-2", str(tmp_path / "out")

    def followed(*, to_the_end: bool = False) -> StreamingQuery:
        options = {"data": "true", "server": "s", "splitMB": "1"}
        stream: DataFrame = spark.readStream.format("zktxnlog").options(**options).load(str(member.data))
        sink = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        if to_the_end:
            return sink.trigger(availableNow=True).start(out)
        return sink.trigger(processingTime="100 milliseconds").start(out)

    def has(rows: int, query: StreamingQuery) -> None:
        def missing() -> str | None:
            if (error := query.exception()) is not None:
                raise error
            if not Path(out, "_spark_metadata", "0").exists():
                return "no micro-batch"
            found = spark.read.parquet(out).count()
            return None if found >= rows else f"{found} rows"

        wait_until(f"{rows} rows of the stream", missing, ENOUGH_S)

    def logs() -> int:
        return len(log_files(FileDirectory(inside)))

    for name in ("first", "second"):
        with written(version, member, name):
            before = spark.read.parquet(out).count() if name == "second" else 0
            wait_until("a log", lambda: None if inside.exists() and logs() else "none", ENOUGH_S)
            for rows in (300, 900):  # it goes on from the checkpoint, in the middle of a log
                query = followed()
                try:
                    has(before + rows, query)
                finally:
                    query.stop()
    query = followed(to_the_end=True)
    assert query.awaitTermination(ENOUGH_S)
    assert logs() >= 5
    found = [plain(row) for row in spark.read.parquet(out).orderBy("zxid", "sequence").collect()]
    assert found == expected(walk(FileDirectory(inside)), data=True)
    assert len(found) > 1800
