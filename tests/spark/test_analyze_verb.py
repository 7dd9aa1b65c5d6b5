"""analyze, several jobs in one Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from zkmigrate.spark import jobs, verb
from zkmigrate.spark.input import Input
from zkmigrate.spark.request import Place, Request
from zkmigrate.spark.section import Section
from zkmigrate.spark.session import Bounds
from zkmigrate.zookeeper.data.chroot import Chroot


def test_what_a_job_kept_is_given_back(
    spark: SparkSession, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No frame that one job persisted is there for the next; its tables are written before that."""
    kept: dict[str, tuple[bool, bool]] = {}
    run = jobs.job

    def keeps() -> bool:
        return not spark._jsparkSession.sharedState().cacheManager().isEmpty()

    def watched(name: str) -> Callable[[Input], Section]:
        def both(given: Input) -> Section:
            before = keeps()
            found = run(name)(given)
            kept[name] = (before, keeps())
            return found

        return both

    @contextmanager
    def this(_bounds: Bounds, _hint: verb.Say) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr(verb, "job", watched)
    monkeypatch.setattr(verb, "session", this)
    disk = Place("zk", str(recorded / "3.8.4" / "standalone"))
    request = Request((disk,), dest=(Place("d", disk.path),), chroot=Chroot("/kafka"))
    said: list[str] = []
    names = ("sessions", "continuity", "proof")
    code = verb.analyze(names, request, Bounds(), tmp_path / "out", said.append, said.append, as_json=True)
    told = json.loads(next(line for line in said if line.startswith("{")))
    assert (told["schema"], bool(told["time"]), bool(told["proof"])) == (1, True, True)
    assert kept == dict.fromkeys(names, (False, True))
    assert not keeps()
    sessions = spark.read.parquet(str(tmp_path / "out" / "sessions" / "sessions.parquet")).count()
    body = json.loads((tmp_path / "out" / verb.JSON).read_text(encoding="utf-8"))
    assert 0 < body["sessions"]["opened"] <= sessions
    assert (code, body["proof"]["held"]) == (0, True)


def test_tables_that_this_process_writes_are_those_that_spark_writes(
    spark: SparkSession, recorded: Path, tmp_path: Path
) -> None:
    request = Request((Place("zk", str(recorded / "3.8.4" / "standalone")),), chroot=Chroot("/kafka"))
    for name in ("tenants", "writers", "quiet", "sessions"):
        found = jobs.job(name)(Input(spark, request))
        assert found.frames
        for here in (True, False):
            verb._frames(tmp_path / name / str(here), found, here=here)
        for table in found.frames:
            ours, theirs = (
                spark.read.parquet(str(tmp_path / name / str(here) / f"{table}.parquet"))
                for here in (True, False)
            )
            assert ours.schema == theirs.schema
            assert ours.collect() == theirs.collect()
