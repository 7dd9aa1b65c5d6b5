"""The judge over what real servers and clients left behind (tests/recorded/load)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.unit.judge_fixtures import not_held
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.judge.sessions import scan_broker_log
from zkmigrate.runbook.model.finding import Held

RECORDED = Path(__file__).parents[3] / "recorded" / "load"


def test_the_expiry_lines_of_a_real_broker_are_found() -> None:
    found = scan_broker_log((RECORDED / "broker-session-expired.log").read_text())
    assert found.started
    assert [line.partition("] INFO ")[2] for line in found.expired] == [
        "[ZooKeeperClient Kafka server] Session expired. (kafka.zookeeper.ZooKeeperClient)"
    ]


def test_a_real_short_run_is_judged() -> None:
    """Recorded from a lab (3.5.8, Kafka 2.8.2) in which nothing was migrated: no window, all else holds.

    The log was not read again in those days: what rests on that is unknown.
    """
    verdict = judge(load_history(RECORDED / "short-run"))
    unread = ("lost", "duplicated", "cut_back")
    assert not_held(verdict) == dict.fromkeys(("window_s", "load_spans_window", *unread), Held.UNKNOWN)
    assert (verdict["acked"].value, verdict["consumed"].value) == (94, 94)
    assert verdict["raw_acked"].value == {"source1": 28, "source2": 28, "source3": 28}
    assert verdict["sessions_preserved"].value == 3


def test_a_record_taken_out_of_a_real_run_is_lost(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "short-run", tmp_path / "run")
    path = tmp_path / "run" / "consumer.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    left = [line for line in lines if '"id":"p-40"' not in line]
    log: dict[str, list[tuple[int, str]]] = {}
    for event in map(json.loads, left):
        if event["event"] == "consumed":
            log.setdefault(f"{event['topic']}/{event['partition']}", []).append(
                (event["offset"], event["id"])
            )
    high = {part: max(offset for offset, _ in records) + 1 for part, records in log.items()}
    again = {"complete": True, "error": "", "high": high, "records": log}
    (tmp_path / "run" / "log.json").write_text(json.dumps(again))
    path.write_text("".join(left))
    verdict = judge(load_history(tmp_path / "run"))
    assert (verdict["lost"].held, verdict["lost"].value) == (Held.NO, 1)
    assert verdict["lost"].detail.startswith("p-40 at load-")


def test_creates_lost_by_a_real_ensemble_are_missing() -> None:
    """Recorded: d2 and d3, killed first, formed dest's quorum without what d1 had acknowledged meanwhile.

    The lost sequence numbers were handed out again, so that every acknowledged path is there in the end: only
    the zxids tell.
    """
    history = load_history(RECORDED / "lost-creates")
    paths = {event["path"] for event in history.recording("raw").of("ack")}
    assert all(paths <= set(tree.nodes) for tree in history.trees.values())
    verdict = judge(history)
    assert (verdict["acked_creates_missing"].held, verdict["acked_creates_missing"].value) == (Held.NO, 18)
    assert (verdict["raw_order_violations"].held, verdict["raw_order_violations"].value) == (Held.NO, 1)
    assert verdict["raw_sessions_lost"].held is Held.YES
    assert verdict["window_s"].value == 5.245
