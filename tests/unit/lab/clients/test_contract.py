"""What the Python programs of the client matrix write, and which ids they send."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkmigrate.lab.clients import contract
from zkmigrate.lab.clients.contract import Reading, Sending, Task, run, value_of
from zkmigrate.lab.load.json_lines import Event, Recorder, load_recording
from zkmigrate.lab.load.process import Orders


def task(folder: Path, rate: float = 1e6) -> Task:
    return Task("produce", "h:1", "clients", "a/x/", folder / "a-producer.jsonl", rate)


def written(folder: Path) -> list[Event]:
    clocks = ("mono_ns", "epoch_ms")
    events = load_recording(folder, "a-producer").events
    return [{name: value for name, value in event.items() if name not in clocks} for event in events]


def test_each_id_is_due_once(tmp_path: Path) -> None:
    with Recorder(tmp_path, "a-producer", {}) as record:
        sending = Sending(task(tmp_path), record)
        due: list[str] = []
        while len(due) < 100:
            due += filter(None, [sending.due()])
    assert due == [f"a/x/{n}" for n in range(100)]
    assert sending.counts == {"sent": 100, "acked": 0, "failed": 0}


def test_nothing_is_due_before_its_time(tmp_path: Path) -> None:
    with Recorder(tmp_path, "a-producer", {}) as record:
        sending = Sending(task(tmp_path, rate=1e-6), record)
        assert [sending.due() for _ in range(3)] == ["a/x/0", None, None]
        assert sending.wait_s == contract.TICK_S


def test_what_is_written_of_a_record(tmp_path: Path) -> None:
    with Recorder(tmp_path, "a-producer", {}) as record:
        sending, reading = Sending(task(tmp_path), record), Reading(record)
        for offset in (7, None, -1001):
            sending.acked("a/x/0", 5, 2, offset)
        sending.failed("a/x/1", ValueError("too late"))
        reading.got("clients", 2, 7, value_of("a/x/0"))
        reading.changed("assigned", [("clients", 1), ("clients", 0)])
    ack = {"event": "ack", "topic": "clients", "partition": 2, "id": "a/x/0", "sent_mono_ns": 5}
    assert written(tmp_path)[1:] == [
        {**ack, "offset": 7},
        {**ack, "offset": None},
        {**ack, "offset": None},
        {"event": "failed", "topic": "clients", "id": "a/x/1", "error": "ValueError: too late"},
        {"event": "consumed", "topic": "clients", "partition": 2, "offset": 7, "id": "a/x/0"},
        {"event": "assigned", "partitions": [["clients", 0], ["clients", 1]]},
    ]
    assert sending.counts == {"sent": 0, "acked": 3, "failed": 1}


@pytest.mark.parametrize(("words", "part"), [(["produce", "0.5"], "produce"), (["consume"], "consume")])
def test_the_command_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], part: str
) -> None:
    file = tmp_path / "a-producer.jsonl"
    role, *rate = words
    monkeypatch.setattr("sys.argv", ["program", role, "h:1,h:2", "clients", "a/x/", str(file), *rate])
    asked: list[tuple[str, Task]] = []

    def named(name: str) -> contract.Part:
        def work(task: Task, _record: Recorder, _orders: Orders) -> dict[str, int]:
            asked.append((name, task))
            return {"sent": 3}

        return work

    assert run("library 1", named("produce"), named("consume")) == 0
    assert asked == [(part, Task(role, "h:1,h:2", "clients", "a/x/", file, float(rate[0]) if rate else 0.0))]
    first, last = written(tmp_path)
    assert first["config"] == {"library": "library 1"}
    assert last == {"event": "closed", "reason": "ordered", "sent": 3}
