"""What the demo's result rests on beside the recordings, and that source is looked at in full."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.judge_fixtures import verdict_of
from zkmigrate.lab.canary_topic import acknowledged, assigned
from zkmigrate.lab.demo import Demo
from zkmigrate.lab.demo_result import result_of, summary
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.source_state import MYID, UNIT, complete
from zkmigrate.lab.spec import LabSpec
from zkmigrate.lab.timeline import opened_by
from zkmigrate.lab.versions import kafka_version, wanted_versions

WANTED = wanted_versions(LabSpec())


def facts(**changed: Any) -> dict[str, Any]:
    """A demo in which everything was as it had to be."""
    return {
        "backend": "nspawn",
        "versions": dict(WANTED),
        "floor_s": 1.5,
        "source_files_unchanged": True,
        "steps": [],
        "run_complete": True,
        "owners_on_dest_at_survey": True,
        "canary_acknowledged": {"broker1": 40, "broker2": 41, "broker3": 39},
        "opened_by": {"dest1": "operator"},
        "limits": {"ack_gap_s": 10.0, "tenant_gap_s": 5.0},
        "machine": {"start_s": 1.1, "slowness": 1.0},
        "tries": [],
        "analysed": True,
        **changed,
    }


def test_a_whole_demo_holds_and_says_what_it_was_judged_by(tmp_path: Path) -> None:
    result = result_of(verdict_of(tmp_path), facts(), WANTED)
    assert result["held"] is True
    assert result["limits"] == {"ack_gap_s": 10.0, "tenant_gap_s": 5.0}
    required = {
        "backend", "versions", "acked", "consumed", "lost", "duplicated", "longest_ack_gap_s", "window_s",
        "floor_s", "sessions_before", "sessions_preserved", "ephemerals_same_owner_and_czxid",
        "controller_epoch_unchanged_in_window", "other_tenant_unharmed", "source_files_unchanged",
        "acked_creates_missing", "steps",
    }  # fmt: skip
    assert required <= set(result)
    assert "every claim held" in summary(result)


@pytest.mark.parametrize(
    ("changed", "condition"),
    [
        ({"backend": "namespaces"}, "real_hosts"),
        ({"versions": {**WANTED, "kafka": "2.3.1"}}, "versions_as_asked"),
        ({"versions": {**WANTED, "zookeeper_dest": "3.5.8, 3.8.4"}}, "versions_as_asked"),
        ({"source_files_unchanged": False}, "source_files_unchanged"),
        ({"run_complete": False}, "run_complete"),
        ({"owners_on_dest_at_survey": False}, "owners_on_dest_at_survey"),
        ({"canary_acknowledged": {"broker1": 9, "broker2": 0}}, "canary_acknowledged_by_each_broker"),
        ({"analysed": False}, "analysed"),
        ({"floor_s": 0.01}, "window_over_floor"),
    ],
)
def test_a_condition_that_does_not_hold_spoils_the_result(
    tmp_path: Path, changed: dict[str, Any], condition: str
) -> None:
    result = result_of(verdict_of(tmp_path), facts(**changed), WANTED)
    assert result["held"] is False
    assert [name for name, held in result["conditions"].items() if not held] == [condition]
    assert "NOT every claim held" in summary(result)


@pytest.mark.parametrize(("floor_s", "held"), [(0.1, False), (10.0, True)])
def test_the_window_is_judged_by_the_floor_of_the_same_machine(
    tmp_path: Path, floor_s: float, held: bool
) -> None:
    result = result_of(verdict_of(tmp_path), facts(floor_s=floor_s), WANTED)
    assert result["window_over_floor"] == round(result["window_s"] / floor_s, 2)
    assert result["conditions"]["window_over_floor"] is held is result["held"]


class Tool:
    """Answers the tool's calls with these exit codes, and keeps what was asked for."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.calls: list[str] = []

    def __call__(self, verb: str, *options: str) -> int:
        self.calls.append(" ".join((verb, options[-1])))
        return self.codes.pop(0)


def walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *codes: int
) -> tuple[Tool, list[str], list[str], list[dict[str, Any]]]:
    """A demo's way from the rehearsal to the open door, with the tool's exit codes: the calls, the lines on
    the screen, before which call the baseline was saved, and what the result says of tries."""
    tool, said, saved = Tool(*codes), list[str](), list[str]()
    demo = Demo(None, tmp_path, said.append)  # type: ignore[arg-type]
    monkeypatch.setattr(demo, "_ran", tool)
    monkeypatch.setattr(demo, "_wait_flowing", lambda _load: None)
    monkeypatch.setattr("zkmigrate.lab.demo.save_baseline", lambda _lab, _path: saved.append(tool.calls[-1]))
    demo._rolled_and_cut_over(None)  # type: ignore[arg-type]
    return tool, said, saved, demo.tries


def test_a_move_that_succeeds_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool, said, saved, tries = walked(tmp_path, monkeypatch, 0, 0)
    assert tool.calls == ["resume roll", "resume cutover"]
    assert (said, tries) == ([], [])
    assert saved == ["resume roll"]


@pytest.mark.parametrize("code", [7, 9])
def test_a_window_that_turned_back_is_run_again_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    tool, said, saved, tries = walked(tmp_path, monkeypatch, code, 0, code, 0)
    assert tool.calls == ["resume roll", "run roll", "resume cutover", "run cutover"]
    assert saved == ["run roll"], "sessions that the first cut-over lost must be missing after the second"
    assert [line[-11:] for line in said] == ["try 2 of 3.", "try 3 of 3."]
    assert f"exit code {code}" in said[0]
    assert [entry["until"] for entry in tries] == ["roll", "cutover"]


def test_a_closed_gate_is_followed_by_another_rehearsal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool, _said, saved, tries = walked(tmp_path, monkeypatch, 0, 6, 0, 0, 0)
    assert tool.calls == [
        "resume roll", "resume cutover", "rollback rehearse", "run roll", "resume cutover",
    ]  # fmt: skip
    assert saved == ["resume roll", "run roll"], "the brokers were restarted in between"
    assert [entry["then"] for entry in tries] == ["rehearse"]


@pytest.mark.parametrize("codes", [(7, 7, 7), (0, 9, 7, 9), (8,), (0, 8), (0, 6, 3)])
def test_what_does_not_end_well_after_three_tries_or_needs_an_operator_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...]
) -> None:
    with pytest.raises(LabError, match=rf"exit code {codes[-1]}; .*docs/reference/exit-codes.md"):
        walked(tmp_path, monkeypatch, *codes)


def test_the_version_is_the_one_a_broker_logged_last() -> None:
    line = "2026-11-21 01:14:29,818 INFO [main] AppInfoParser: Kafka version: {}\n"
    assert kafka_version({"b1": line.format("2.3.1") + line.format("2.8.2"), "b2": line.format("2.8.2")}) == (
        "2.8.2"
    )
    assert kafka_version({"b1": line.format("2.8.2"), "b2": line.format("3.9.1")}) == "2.8.2, 3.9.1"
    with pytest.raises(LabError, match="b2 does not contain"):
        kafka_version({"b1": line.format("2.8.2"), "b2": ""})


def journal(directory: Path, *entries: tuple[str, dict[str, Any]]) -> Path:
    lines = [json.dumps({"kind": kind, "body": body}) + "\n" for kind, body in entries]
    (directory / "journal.jsonl").write_text("".join(lines))
    return directory


def test_who_opened_is_told_host_by_host(tmp_path: Path) -> None:
    def intent(host: str, verb: str = "open") -> tuple[str, dict[str, Any]]:
        change = {"type": "HostVerb", "host": host, "verb": verb}
        return "intent", {"operation": f"{verb}.{host}", "target": host, "way": "forward", "change": change}

    def outcome(host: str, status: str, verb: str = "open") -> tuple[str, dict[str, Any]]:
        return "outcome", {"operation": f"{verb}.{host}", "status": status}

    run = journal(
        tmp_path,
        intent("d1"),
        outcome("d1", "done"),
        intent("d2"),
        outcome("d2", "unknown"),
        intent("d3", "checked"),
        outcome("d3", "done", "checked"),
    )
    assert opened_by(run, ["d1", "d2", "d3"]) == {"d1": "operator", "d2": "finisher", "d3": "finisher"}


DIGEST = "0" * 64
STATE = (
    f"{DIGEST}  /etc/zookeeper/conf/zoo.cfg\n{DIGEST}  {MYID}\n{DIGEST}  {UNIT}\n"
    "absent  /var/lib/zkmigrate\nExecMainStartTimestampMonotonic=123\nMainPID=44\n"
)


def test_a_whole_state_of_source_is_taken_as_it_is() -> None:
    assert complete("source1", STATE) == STATE


@pytest.mark.parametrize("line", STATE.splitlines(keepends=True), ids=lambda line: line.split()[-1])
def test_a_state_of_source_that_lacks_a_part_is_refused(line: str) -> None:
    with pytest.raises(LabError, match="source1: the recorded state of source is incomplete"):
        complete("source1", STATE.replace(line, ""))


def test_a_server_of_source_that_does_not_run_is_refused() -> None:
    with pytest.raises(LabError, match="a running zookeeper"):
        complete("source1", STATE.replace("MainPID=44", "MainPID=0"))


def test_each_broker_is_the_preferred_leader_of_one_partition_of_the_canarys_topic() -> None:
    assert assigned([1, 2, 3]) == [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    assert assigned([4, 5, 6, 7])[3] == [7, 4, 5]
    assert assigned([1]) == [[1]]


def test_acknowledgements_are_counted_by_who_gave_them() -> None:
    rows: list[dict[str, Any]] = [
        {"kind": "brokers", "ms": {"broker9": 1.0}, "silent": {}},
        {"kind": "produce", "acks": {"0": [["broker1", 1, 2], ["broker2", 1, 2]], "1": []}, "late": []},
        {"kind": "produce", "acks": {"1": [["broker2", 1, 2]]}, "late": []},
    ]
    assert acknowledged(rows) == {"broker1": 1, "broker2": 2}
