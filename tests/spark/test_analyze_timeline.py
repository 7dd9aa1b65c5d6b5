"""analyze timeline: a run that the journal itself wrote, with clients, a broker and a ZooKeeper of known
times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.unit.report.test_report import Run
from tests.unit.zkdata_fixtures import create_payload, log_from, payload
from zkmigrate.errors import JournalError, UsageError
from zkmigrate.runbook.model.change import Fence, HostVerb
from zkmigrate.spark.input import Input
from zkmigrate.spark.jobs import timeline
from zkmigrate.spark.request import Place, Request
from zkmigrate.zookeeper.data.txn import HEADER_SIZE, TxnType

ZERO, MONO = 2_000_000.0, 500.0
"""When the run begins, 1970-01-24 03:33:20 UTC, by the operator's two clocks."""
BROKER = """\
[1970-01-24 04:33:27,000] INFO [Log partition=a-0] Subtree (kafka.log.Log)
[1970-01-24 04:33:29,250] INFO [Controller id=1] Newly elected (kafka.controller.KafkaController)
java.lang.IllegalStateException: a stack has no time
\tat kafka.Kafka.main(Kafka.scala)
[1970-13-41 04:33:29,300] INFO [Controller id=1] no such day (kafka.controller.KafkaController)
1970-01-24 04:33:29,500 WARN [main] ClientCnxn: Unable to reconnect, session 0xb000000000000001 has expired
"""


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """A run whose window lasts from second 8 to second 11."""
    run = Run(tmp_path)
    run.step("roll.roll", "begin")
    run.clock.pass_(4.0)
    run.step("roll.roll", "done", seconds=4.0)
    run.clock.pass_(4.0)
    run.step("cutover.fence", "begin")
    run.change("cutover.fence", "d1", Fence("d1", 5000), 1)
    run.clock.pass_(1.0)
    run.step("cutover.fence", "done", seconds=2.0)
    run.step("cutover.open", "begin")
    run.change("cutover.open", "d1", HostVerb("d1", "open"), 2)
    run.step("cutover.open", "done", seconds=1.0)
    run.clock.pass_(2.0)
    run.journal.append("end", {"code": 0, "message": "done"})
    run.journal.close()
    return run.dir


def history(path: Path, lines: list[tuple[float, str, dict[str, Any]]], mono: float) -> str:
    """Lines of a client whose monotonic clock was at `mono` when the run began."""
    written = [
        {"event": event, "mono_ns": round((mono + at) * 1e9), "epoch_ms": round((ZERO + at) * 1e3), **more}
        for at, event, more in lines
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in written))
    return str(path)


def zookeeper(folder: Path) -> Place:
    """Three writes at 8.1 to 8.3 s, one elsewhere, a session that is closed at 9.75 s."""
    at = [round((ZERO + second) * 1000) for second in (8.1, 8.2, 8.3, 8.4, 9.75)]
    paths = ("/kafka/a", "/kafka/b", "/kafka/c", "/other/a")
    bodies = [create_payload(n, path)[HEADER_SIZE:] for n, path in enumerate(paths, 1)]
    made = [payload(n, TxnType.create, body, time_ms=at[n - 1]) for n, body in enumerate(bodies, 1)]
    closed = payload(5, TxnType.closeSession, b"", -(1 << 60), time_ms=at[4])
    (folder / "version-2").mkdir(parents=True)
    (folder / "version-2" / "log.1").write_bytes(log_from([*made, closed]))
    return Place("zk", str(folder))


def test_all_is_joined_in_the_order_of_time(moved: Path, tmp_path: Path, spark: SparkSession) -> None:
    acks = [0.5, 4.0, 7.5, 10.25, 11.5]
    here = [(at, "ack", {"topic": "t", "partition": 0, "offset": n}) for n, at in enumerate(acks)]
    producer = history(tmp_path / "produ[c]er.jsonl", [*here, (11.75, "stopping", {})], MONO)
    with Path(producer).open("a") as file:
        file.write(
            'not json\n\n[1]\n{"event": "ack"}\n{"event": "ack", "epoch_ms": 1e300}\n{"event": "ack", "mono_'
        )
    there = [(8.75, "ack", {}), (9.0, "disconnected", {"session": "0xb000000000000001", "host": "d1"})]
    other = history(tmp_path / "other.jsonl", [*there, (11.9, "closed", {})], 77_000.0)
    (tmp_path / "server.log").write_text(BROKER)
    request = Request(
        (zookeeper(tmp_path / "zk"),), chroot="/kafka", run=moved, broker_log_zone="Europe/Berlin",
        client_history=(producer, f"far={other}"), broker_logs=(f"b1={tmp_path / 'server.log'}",),
    )  # fmt: skip
    found = timeline.run(Input(spark, request))
    frame = found.frames["events"].withColumn("s", F.unix_micros("at") / 1e6 - ZERO)
    rows = [row for row in frame.collect() if 7 < row.s < 12]
    assert [(round(row.s, 3), row.source, row.kind) for row in rows] == [
        (7.5, "client", "ack"), (8.0, "journal", "window"), (8.0, "journal", "step"),
        (8.0, "journal", "change"), (8.0, "zookeeper", "write"), (8.75, "client", "ack"),
        (9.0, "client", "client"), (9.0, "journal", "change"), (9.25, "broker", "controller"),
        (9.5, "broker", "session"), (9.75, "zookeeper", "session"), (10.0, "journal", "step"),
        (10.0, "journal", "step"), (10.0, "journal", "change"), (10.25, "client", "ack"),
        (11.0, "journal", "window"), (11.0, "journal", "step"), (11.0, "journal", "change"),
        (11.5, "client", "ack"), (11.75, "client", "client"), (11.9, "client", "client"),
    ]  # fmt: skip
    by_kind = {(row.source, row.kind): row for row in rows}
    write = by_kind[("zookeeper", "write")]
    assert (write["count"], write.zxid, write.path) == (3, 3, "/kafka")
    assert by_kind[("zookeeper", "session")].session == -(1 << 60)
    assert by_kind[("broker", "session")].session == 0xB000000000000001 - (1 << 64)
    assert found.figures["window"]["seconds"] == 3.0
    assert [(gap["client"], gap["seconds"], gap["end"]) for gap in found.figures["gaps"]] == [
        ("far", 3.15, None),
        ("produ[c]er", 2.75, "1970-01-24T03:33:30.250000+00:00"),
    ]
    assert [row["who"] for row in found.figures["meanwhile"] if "begins" in row["what"]] == ["cutover.open"]
    remarks = " ".join(found.figures["remarks"])
    assert "produ[c]er.jsonl is timed by the operator's monotonic clock" in remarks
    assert "other.jsonl is timed by its own wall clock" in remarks
    assert "5 lines are no events" in remarks
    assert "6 lines, taken as Europe/Berlin, 3 of them without a time" in remarks
    shown = next(table for table in found.tables if table.id == "window")
    assert ("1970-01-24 03:33:28.750", "+0.750", "client", "far", "ack", "") not in shown.rows
    assert any(row[3:5] == ("far", "1 acknowledgements in this second") for row in shown.rows)
    assert len(found.pictures) == 4
    assert "cutover.open" in found.pictures[0].drawn


def test_bad_input_is_told(moved: Path, tmp_path: Path, spark: SparkSession) -> None:
    def run(**more: Any) -> Any:
        return timeline.run(Input(spark, Request((), **more)))

    empty = tmp_path / "empty"
    empty.write_text("")
    found = run(run=moved, client_history=(str(empty),), broker_logs=(str(empty),))
    assert set(found.figures["events"]) == {"journal"}
    assert "No client's acknowledgements" in found.answer
    with pytest.raises(UsageError, match="Needed: --run DIR"):
        run()
    with pytest.raises(UsageError, match="no time zone 'Mars/Base'"):
        run(run=moved, broker_log_zone="Mars/Base")
    with pytest.raises(UsageError, match="absent is not a file"):
        run(run=moved, broker_logs=(str(tmp_path / "absent"),))
    with pytest.raises(UsageError, match="has no journal"):
        run(run=tmp_path)
    journal = moved / "journal.jsonl"
    whole = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*whole[:3], b"{}\n", *whole[4:]]))
    found = run(run=moved)
    assert found.figures["state"] == "damaged"
    assert "The journal is damaged after line 3" in found.answer
    assert found.figures["window"] is None
    journal.write_bytes(b"")
    with pytest.raises((UsageError, JournalError), match="is not a run's journal"):
        run(run=moved)
