"""A table that this process reads is the one that Spark's tasks read."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.memory_files import BytesDirectory
from tests.unit.pipeline_rows import expected
from tests.unit.zkdata_fixtures import VERSIONS, build_log, snapshot_of
from zkmigrate.spark import archive, session
from zkmigrate.spark.reading import StretchCache, load
from zkmigrate.spark.sources.files import File, files
from zkmigrate.spark.sources.stretches import Part, Stretches
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.snapname import snapshot_zxid
from zkmigrate.zookeeper.data.txnlog import log_zxid

JAVA_S = 600


def here(frame: DataFrame) -> bool:
    """Whether this process has read it."""
    return "zktxnlog" not in (plan := frame._jdf.queryExecution().toString()) and "zksnapshot" not in plan


@pytest.mark.parametrize("version", VERSIONS)
def test_logs_and_snapshots_are_the_same(
    version: str, spark: SparkSession, recorded: Path, read_here: Callable[[int], None]
) -> None:
    place = str(recorded / version / "standalone")
    logs = files((place,), "zk", lambda name: log_zxid(name) is not None)
    every = str(recorded / version / "*")
    snapshots = files((every,), "zk", lambda name: snapshot_zxid(name) is not None)
    kept = StretchCache()
    for source, found, options in (
        ("zktxnlog", logs, {"data": "true"}),
        ("zktxnlog", logs, {"columns": "zxid,path,time", "types": "create,create2", "pathPrefix": "/kafka"}),
        ("zksnapshot", snapshots, {"data": "true", "mode": "permissive"}),
        ("zksnapshot", snapshots, {"table": "sessions"}),
    ):
        frames = []
        for most in (1 << 20, 0):
            read_here(most)
            frames.append(load(spark, source, found, options, kept))
        ours, theirs = frames
        assert (here(ours), here(theirs)) == (True, False)
        assert ours.schema == theirs.schema
        rows = [sorted(map(repr, frame.collect())) for frame in (ours, theirs)]
        assert rows[0] == rows[1]
        assert rows[0] or "types" in options


def test_nothing_in_one_file_leaves_what_the_next_has(spark: SparkSession, recorded: Path) -> None:
    """The first of these snapshots has no session."""
    inside = recorded / "3.8.4" / "standalone" / "version-2"
    found = [_file(inside / name) for name in ("snapshot.0", "snapshot.37")]
    frame = load(spark, "zksnapshot", found, {"table": "sessions"})
    assert here(frame)
    assert [row.file for row in frame.collect()] == ["snapshot.37"]


def test_damage_is_told_where_the_table_is_used(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log.1").write_bytes(
        build_log(1, 3)[:-20] + bytes(10) + b"B" + bytes(9) + build_log(4, 1)[16:]
    )
    frame = load(spark, "zktxnlog", [_file(tmp_path / "log.1")], {})
    with pytest.raises(PySparkException, match=r"log\.1 at offset \d+"):
        frame.collect()


def test_what_is_larger_is_read_by_tasks(
    spark: SparkSession, tmp_path: Path, read_here: Callable[[int], None]
) -> None:
    (tmp_path / "log.1").write_bytes(build_log(1, 100))
    log = _file(tmp_path / "log.1")
    for most, so in ((log.size, True), (log.size - 1, False)):
        read_here(most)
        frame = load(spark, "zktxnlog", [log], {"columns": "zxid"})
        assert here(frame) is so
        assert frame.count() == 100


def test_so_is_a_snapshot_that_is_small_only_while_it_is_packed(
    spark: SparkSession, tmp_path: Path, read_here: Callable[[int], None]
) -> None:
    packed = gzip.compress(snapshot_of({f"/n{n}": bytes(1000) for n in range(1000)}))
    (tmp_path / "snapshot.5.gz").write_bytes(packed)
    read_here(100_000)
    assert len(packed) < 100_000
    frame = load(spark, "zksnapshot", [_file(tmp_path / "snapshot.5.gz")], {"data": "true"})
    assert not here(frame)
    assert frame.count() == 1001


def test_a_log_is_looked_through_once(spark: SparkSession, tmp_path: Path) -> None:
    """What was written meanwhile shows that it was read once."""
    place, kept = tmp_path / "log.1", StretchCache()
    place.write_bytes(build_log(1, 100))
    log = _file(place)
    assert load(spark, "zktxnlog", [log], {"columns": "zxid"}, kept).count() == 100
    place.write_bytes(build_log(1, 50))
    assert load(spark, "zktxnlog", [log], {"columns": "path,zxid"}, kept).count() == 100
    assert load(spark, "zktxnlog", [log], {"columns": "path,zxid"}).count() == 50


def test_of_a_part_of_a_log_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "log.1").write_bytes(build_log(1, 3))
    log, kept = _file(tmp_path / "log.1"), StretchCache()
    whole = list(kept(log, Part("log.1"), _stretches(log, Part("log.1"))))
    begin = whole[0].base + whole[0].starts[1]
    part = Part("log.1", begin)
    found = list(kept(log, part, _stretches(log, part)))
    assert [(one.base, len(one.starts)) for one in (*whole, *found)] == [(16, 3), (begin, 2)]


def _stretches(log: File, part: Part) -> Stretches:
    return Stretches(log.reader(), log.server, part)


def test_an_empty_table_has_its_columns(spark: SparkSession, recorded: Path) -> None:
    logs = files((str(recorded / "3.8.4" / "standalone"),), "zk", lambda name: log_zxid(name) is not None)
    frame = load(spark, "zktxnlog", logs, {"columns": "zxid,acl", "fromZxid": "0x7fffffff00000000"})
    assert here(frame)
    assert (frame.columns, frame.collect()) == (["zxid", "acl"], [])


def _file(path: Path) -> File:
    return File("zk", str(path), path.stat().st_size)


def test_java_says_nothing_of_an_archive_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output has the answers."""
    monkeypatch.setattr(session, "ARCHIVE", tmp_path / "spark-classes.jsa")
    assert list(session.archive_options()) == []
    (tmp_path / "spark-classes.jsa").write_bytes(b"no archive" * 1000)
    options = [word.strip('"') for one in session.archive_options() for word in one.split()]
    java = shutil.which("java")
    assert java is not None
    ran = subprocess.run(
        [java, *options, "-version"], capture_output=True, text=True, timeout=JAVA_S, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "")
    assert "17" in ran.stderr


def test_the_log_that_an_archive_is_made_with_is_one() -> None:
    rows = expected(walk(BytesDirectory({"log.1": archive._log()})))
    assert [(row["zxid"], row["path"]) for row in rows] == [
        (1, None),
        (2, "/kafka"),
        (3, "/kafka/a"),
        (4, "/other"),
    ]
