"""What a run notes in passing: whole lines beside the journal, and nothing that could stop the run."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from tests.answers import Answering
from tests.world.operator import inventory
from zkmigrate.kafka.clients.produce import Ack, Late, sample
from zkmigrate.kafka.questions import DescribeCluster, KafkaView, ListTopics, PartitionState
from zkmigrate.kafka.rules.sampling import cluster_state, questions
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.samples import NAME, Samples
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.runbook.model.look import Look, Pulse
from zkmigrate.runbook.model.sampling import Body, Question
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.site.sampler import CanarySampler, ClusterSampler, Sampler, ask


class Fixture:
    """A file of samples under a clock that the test moves, and what the operator was told."""

    def __init__(self, run_dir: Path, limit: int = 1 << 20) -> None:
        self.path = run_dir / NAME
        self.time = 50.0
        self.said: list[str] = []
        self.samples = Samples(
            run_dir, lambda: self.time, lambda: 1000.0 + self.time, self.said.append, limit
        )

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines() if line]


def test_a_sample_has_both_times_and_a_later_process_goes_on_below_a_torn_line(tmp_path: Path) -> None:
    first = Fixture(tmp_path)
    first.samples.note("phases", {"hosts": {"dest1": ["cut", None]}})
    first.samples.close()
    with open(first.path, "a") as file:
        file.write('{"at":1')
    second = Fixture(tmp_path)
    second.time = 51.5
    second.samples.note_at(51.25, "brokers", {"ms": {}, "silent": {}})
    second.samples.close()
    second.samples.note("brokers", {"ms": {}, "silent": {}})
    text = second.path.read_text().splitlines()
    assert text.index('{"at":1') > 0
    whole = [json.loads(line) for line in text if line and line != '{"at":1']
    assert [(x["kind"], x["at"], x["mono"]) for x in whole] == [
        ("process", 1050.0, 50.0),
        ("phases", 1050.0, 50.0),
        ("process", 1050.0, 50.0),
        ("brokers", 1051.25, 51.25),
    ]
    assert second.path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_ends_the_sampling_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = Fixture(tmp_path)

    def full(_fd: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        fixture.samples.note("phases", {"hosts": {}})
    fixture.samples.note("phases", {"hosts": {}})
    assert [line["kind"] for line in fixture.lines()] == ["process"]
    assert len(fixture.said) == 1
    assert "No space left on device; the run goes on" in fixture.said[0]


def test_a_disk_that_takes_half_a_line_ends_the_sampling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixture = Fixture(tmp_path)
    real = os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda fd, data: real(fd, data[: len(data) // 2]))
        fixture.samples.note("phases", {"hosts": {}})
    fixture.samples.note("phases", {"hosts": {}})
    assert len(fixture.said) == 1
    assert len(fixture.path.read_text().splitlines()) == 3, "blank, process, the torn line, and nothing after"


def test_a_place_that_cannot_be_written_and_a_limit_are_said_and_stop_nothing(tmp_path: Path) -> None:
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    linked = Fixture(tmp_path)
    linked.samples.note("phases", {"hosts": {}})
    assert len(linked.said) == 1
    assert not (tmp_path / "elsewhere").exists(), "a link is not followed"
    small = tmp_path / "small"
    small.mkdir()
    limited = Fixture(small, limit=120)
    for _ in range(9):
        limited.samples.note("phases", {"hosts": {}})
    assert limited.path.stat().st_size <= 120
    assert len(limited.said) == 1
    assert "the limit is 120" in limited.said[0]


def test_a_question_that_fails_is_asked_again_and_holds_no_other_up(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    again, other = threading.Event(), threading.Event()
    tries: list[int] = []

    def failing() -> Body:
        tries.append(1)
        if len(tries) > 1:
            again.set()
        raise RuntimeError("unforeseen")

    class Answers(Answering):
        def pulses(self, within_s: float) -> dict[str, Pulse]:
            assert within_s == 1.0
            other.set()
            return {"broker1": Pulse(0.0, took_s=0.00123), "broker2": Pulse(None, "refused")}

    asked = questions(inventory(), cast(Look, Answers()))
    sampler = Sampler((Question("failing", 0.001, failing), *asked), fixture.samples)
    sampler.begin()
    assert again.wait(10)
    assert other.wait(10)
    sampler.close()
    assert fixture.lines()[-1] == {
        "at": 1050.0, "mono": 50.0, "kind": "brokers",
        "ms": {"broker1": 1.23}, "silent": {"broker2": "refused"},
    }  # fmt: skip


def test_the_cluster_is_noted_when_it_has_changed_and_now_and_then(tmp_path: Path) -> None:
    fixture = Fixture(tmp_path)
    note = ClusterSampler("kafka", DescribeCluster, cluster_state, fixture.samples)

    asked = DescribeCluster()

    def view(isr: tuple[int, ...], leader: int = 1) -> Seen[KafkaView]:
        states = (PartitionState("t", 0, leader, (1, 2), isr),)
        return Seen(KafkaView("id", 1, {1: ("a", 1, ""), 2: ("b", 1, "")}, states))

    for seconds, reading in ((0.0, view((1, 2))), (0.2, view((1, 2))), (0.4, view((2,), -1))):
        fixture.time = 50.0 + seconds
        note(asked, reading)
    note(asked, Unknown("timeout", "no answer"))
    note(ListTopics("kafka"), view((1,)))
    fixture.time = 55.5
    note(asked, view((2,), -1))
    told = [(x["mono"], x["under"], x["offline"]) for x in fixture.lines() if x["kind"] == "kafka"]
    assert told == [(50.0, 0, 0), (50.4, 1, 1), (55.5, 1, 1)]


class Canary:
    """Says what it was told to do, and has one record acknowledged and one waiting."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begin(self) -> None:
        self.told.append("begin")

    def rest(self) -> None:
        self.told.append("rest")

    def close(self) -> None:
        self.told.append("close")

    def sampled(self, now: float) -> Body | None:
        if self.told[-1] == "rest":
            return sample("canary", [], [], now)
        acks, late = [Ack(0, "b1", 49.5, 0.0123)], [Late("b2", 1, 48.0, "x" * 999)]
        return sample("canary", acks, late, now)


def test_the_produce_canary_sends_in_its_stages_only_and_its_last_answers_are_noted(tmp_path: Path) -> None:
    fixture, canary, passed = Fixture(tmp_path), Canary(), list[events.Event]()
    produced = CanarySampler("produce", canary, ("roll", "cutover"), fixture.samples)
    emit = fixture.samples.noting_stage(passed.append)
    ask(produced.question, fixture.samples)
    stages = [events.StageBegun(s, s, Way.FORWARD, False, False) for s in ("join", "roll", "finalize")]
    for stage in stages:
        emit(stage)
        ask(produced.question, fixture.samples)
    assert canary.told == ["rest", "rest", "begin", "rest"]
    assert passed == stages
    produced.close()
    assert canary.told[-1] == "close"
    kinds = [line["kind"] for line in fixture.lines()]
    assert kinds == ["process", "produce", "produce"]
    noted = fixture.lines()[1]
    assert (noted["mono"], noted["topic"]) == (50.0, "canary")
    assert noted["acks"] == {"0": [["b1", 500.0, 12.3]]}
    assert noted["late"] == [["b2", 1, 2.0, "x" * 200]]
