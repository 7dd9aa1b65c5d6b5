"""How long acknowledgements took, by second."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from tests.unit.judge_fixtures import SECOND, Event, closed, event, opened
from zkmigrate.lab.cli import lab
from zkmigrate.lab.judge.latency import Second, by_second, p99_ms
from zkmigrate.lab.load.json_lines import Recording

MS = 1_000_000


def ack(sent_ns: int, ms: int) -> Event:
    return event("ack", sent_ns + ms * MS, sent_mono_ns=sent_ns)


LINES = [
    opened("producer"),
    event("rate", 0, rate=100.0, step=0),
    *(ack(n * SECOND // 100, 2 if n else 900) for n in range(100)),
    event("rate", SECOND + SECOND // 2, rate=3.0, step=1),
    ack(SECOND, 5),
    ack(SECOND + 1, 5000),
    ack(3 * SECOND, 7),
    closed(9 * SECOND),
]
SECONDS = (
    Second(0, 100.0, 100, 2.0, 2.0, 900.0),
    Second(1, 3.0, 2, 5.0, 5000.0, 5000.0),
    Second(3, 3.0, 1, 7.0, 7.0, 7.0),
)


def test_a_record_counts_in_the_second_in_which_it_was_sent() -> None:
    assert by_second(Recording("producer", LINES)) == SECONDS


def test_without_a_plan_there_is_no_planned_rate() -> None:
    lines = [line for line in LINES if line["event"] != "rate"]
    assert {second.planned for second in by_second(Recording("producer", lines))} == {None}


def test_the_p99_of_all() -> None:
    assert p99_ms(Recording("producer", LINES).of("ack")) == 900.0
    assert p99_ms([]) is None


def test_the_command_shows_a_recording_that_still_grows(tmp_path: Path) -> None:
    (tmp_path / "producer.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES[:-1]))
    done = CliRunner().invoke(lab, ["load", "latency", "--json", str(tmp_path)])
    assert json.loads(done.output)[1] == {
        "at_s": 1, "planned": 3.0, "acked": 2, "p50_ms": 5.0, "p99_ms": 5000.0, "max_ms": 5000.0
    }  # fmt: skip
    told = CliRunner().invoke(lab, ["load", "latency", str(tmp_path)])
    assert "1 s       2 records  p50     5.000 ms  p99  5000.000 ms" in told.output
    assert told.output.count("planned") == 3
