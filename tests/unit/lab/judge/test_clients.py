"""The judge of a client matrix: random runs in which nothing is wrong, and runs with one kind of flaw."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.judge_fixtures import SECOND, Event, closed, event, opened
from zkmigrate.lab.judge.clients import FLAWS, Played, Row, judge_clients
from zkmigrate.lab.judge.history import Log
from zkmigrate.lab.load.json_lines import Recording, read_recording
from zkmigrate.runbook.model.finding import Held

CLIENTS = ("a", "b")
TOPIC = "clients"
FOREIGN = "somebody else's"


@dataclass
class Run:
    """A run, as lists that a test can put a flaw into. log: by partition, the offset is the index. acks: (id,
    partition, offset). reads: (id, partition, offset)."""

    log: dict[int, list[str]] = field(default_factory=dict)
    acks: dict[str, list[tuple[str, int, int | None]]] = field(
        default_factory=lambda: {c: [] for c in CLIENTS}
    )
    reads: dict[str, list[tuple[str, int, int]]] = field(default_factory=lambda: {c: [] for c in CLIENTS})
    failed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLIENTS, 0))
    closing: dict[str, Event | None] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    log_problem: str = ""

    def write(self, id: str, partition: int) -> int:
        """Append a record, which every group reads; its offset."""
        own = self.log.setdefault(partition, [])
        own.append(id)
        for reads in self.reads.values():
            reads.append((id, partition, len(own) - 1))
        return len(own) - 1

    def judged(self) -> dict[str, Row]:
        records = {(TOPIC, at): dict(enumerate(ids)) for at, ids in self.log.items()}
        played = [
            Played(
                name, f"{name}/", self._producer(name), self._consumer(name), {"consumer": "its last words"}
            )
            for name in CLIENTS
        ]
        return {row.client: row for row in judge_clients(played, Log(records, {}, self.log_problem))}

    def _producer(self, name: str) -> Recording:
        lines = [
            event("ack", n * SECOND, topic=TOPIC, partition=at, offset=offset, id=id, sent_mono_ns=0)
            for n, (id, at, offset) in enumerate(self.acks[name])
        ]
        lines += [event("failed", 0, topic=TOPIC, id=f"{name}/x", error="given up")] * self.failed[name]
        sent = self.sent.get(name, len(lines))
        lines.append(event("stopping", len(lines) * SECOND))
        return self._recording(f"{name}-producer", lines, sent=sent)

    def _consumer(self, name: str) -> Recording:
        lines = [
            event("consumed", 0, topic=TOPIC, partition=at, offset=offset, id=id)
            for id, at, offset in self.reads[name]
        ]
        lines += [event("kafka", 0, error="a cut", fatal=False)] * self.told.count(name)
        return self._recording(f"{name}-consumer", lines)

    def _recording(self, name: str, lines: list[Event], **counters: Any) -> Recording:
        last = self.closing.get(name, closed(0, **counters))
        whole = [opened(name, library=f"library of {name[0]}"), *lines, *([last] if last else [])]
        return read_recording(name, "".join(json.dumps(line) + "\n" for line in whole).encode())


def run_of(order: Sequence[tuple[str, int]]) -> Run:
    """A run in which nothing is wrong. order: who wrote, and to which partition."""
    made, counts = Run(), dict.fromkeys(CLIENTS, 0)
    for name, partition in order:
        if name in CLIENTS:
            id = f"{name}/{counts[name]}"
            counts[name] += 1
            made.acks[name].append((id, partition, made.write(id, partition)))
        else:
            made.write(name, partition)
    return made


written = st.tuples(st.sampled_from([*CLIENTS, FOREIGN]), st.integers(0, 2))
runs = st.lists(written, max_size=30).map(lambda more: run_of([("a", 0), ("b", 0), *more]))
data = st.data()


def some(drawn: st.DataObject, of: Sequence[Any]) -> list[Any]:
    """Some of these, at least one."""
    return drawn.draw(st.lists(st.sampled_from(of), min_size=1, unique=True))


def flawed(row: Row) -> dict[str, int | None]:
    return {name: found for name in FLAWS if (found := getattr(row.figures, name)) != 0}


@given(runs)
def test_a_run_without_a_flaw_holds(run: Run) -> None:
    for name, row in run.judged().items():
        assert (row.held, row.why, flawed(row)) == (Held.YES, "", {})
        assert (row.figures.acked, row.figures.failed) == (len(run.acks[name]), 0)
        assert (row.figures.consumed, row.figures.again) == (sum(map(len, run.log.values())), 0)
        assert row.figures.library == f"library of {name}"


@given(runs)
def test_an_acknowledgement_without_an_offset_needs_its_record_in_the_partition(run: Run) -> None:
    run.acks["a"] = [(id, at, None) for id, at, _ in run.acks["a"]]
    assert run.judged()["a"].held is Held.YES
    id, at, _ = run.acks["a"][0]
    run.acks["a"][0] = (id, at + 1, None)
    assert flawed(run.judged()["a"]) == {"moved": 1}


@given(runs, data)
def test_a_record_that_the_log_does_not_have_is_lost(run: Run, drawn: st.DataObject) -> None:
    taken = some(drawn, run.acks["a"])
    for _, at, offset in taken:
        run.log[at][offset] = FOREIGN
        for name in CLIENTS:
            run.reads[name] = [one for one in run.reads[name] if one[1:] != (at, offset)]
    found = run.judged()
    assert flawed(found["a"]) == {"lost": len(taken)}
    assert found["a"].held is Held.NO
    assert taken[0][0] in found["a"].why or len(taken) > 3
    assert (found["b"].held, flawed(found["b"])) == (Held.YES, {})


@given(runs, data)
def test_what_was_read_and_is_gone_is_told_of_each_group(run: Run, drawn: st.DataObject) -> None:
    taken = some(drawn, run.acks["a"])
    for _, at, offset in taken:
        run.log[at][offset] = FOREIGN
    found = run.judged()
    assert flawed(found["a"]) == {"lost": len(taken), "gone": len(taken)}
    assert flawed(found["b"]) == {"gone": len(taken)}
    assert found["b"].held is Held.NO


@given(runs, data)
def test_a_record_at_another_offset_than_the_acknowledged_one_has_moved(
    run: Run, drawn: st.DataObject
) -> None:
    taken = some(drawn, range(len(run.acks["a"])))
    for n in taken:
        id, at, offset = run.acks["a"][n]
        run.acks["a"][n] = (id, at, (offset or 0) + 1000)
    found = run.judged()
    assert (found["a"].held, flawed(found["a"])) == (Held.NO, {"moved": len(taken)})
    assert found["b"].held is Held.YES


@given(runs, data)
def test_a_record_that_is_in_the_log_again_is_twice_its_producers(run: Run, drawn: st.DataObject) -> None:
    taken = some(drawn, run.acks["a"])
    for id, at, _ in taken:
        run.write(id, at)
    found = run.judged()
    assert (found["a"].held, flawed(found["a"])) == (Held.NO, {"twice": len(taken)})
    assert found["b"].held is Held.YES


@given(runs, data)
def test_what_a_group_did_not_get_is_unseen_by_it_alone(run: Run, drawn: st.DataObject) -> None:
    ours = [one for one in run.reads["a"] if one[0] != FOREIGN]
    taken = some(drawn, ours)
    run.reads["a"] = [one for one in run.reads["a"] if one not in taken] + [("not/ours", 7, 7)]
    found = run.judged()
    assert (found["a"].held, flawed(found["a"])) == (Held.NO, {"unseen": len(taken)})
    assert found["b"].held is Held.YES


@given(runs, data)
def test_what_a_group_got_again_is_counted_and_held_against_nobody(run: Run, drawn: st.DataObject) -> None:
    taken = some(drawn, run.reads["a"])
    run.reads["a"] += taken * 2
    found = run.judged()
    assert found["a"].figures.again == 2 * len(taken)
    assert found["b"].figures.again == 0
    assert found["a"].held is Held.YES


@given(runs, st.integers(1, 9), st.integers(0, 9))
def test_records_that_a_client_gave_up_or_never_answered_are_failed(
    run: Run, failed: int, silent: int
) -> None:
    run.failed["a"] = failed
    run.sent["a"] = len(run.acks["a"]) + failed + silent
    found = run.judged()
    assert (found["a"].held, found["a"].figures.failed) == (Held.NO, failed + silent)
    assert "given up" in found["a"].why
    assert found["b"].held is Held.YES


@pytest.mark.parametrize("part", ["producer", "consumer"])
def test_a_program_that_failed_is_named_with_its_message(part: str) -> None:
    run = run_of([("a", 0), ("b", 0)])
    run.closing[f"a-{part}"] = event("closed", 0, reason="error: NullPointerException")
    found = run.judged()
    assert found["a"].held is Held.NO
    assert f"{part} ended by error: NullPointerException" in found["a"].why
    assert "its consumer printed: its last words" in found["a"].why
    assert found["b"].held is Held.YES


@pytest.mark.parametrize("part", ["producer", "consumer"])
def test_a_file_that_was_cut_short_proves_nothing(part: str) -> None:
    run = run_of([("a", 0), ("b", 0)])
    run.closing[f"a-{part}"] = None
    assert run.judged()["a"].held is Held.UNKNOWN


@pytest.mark.parametrize(
    ("recorded", "closes", "held", "unseen"),
    [(0, False, Held.UNKNOWN, None), (0, True, Held.NO, 2), (1, False, Held.NO, 1), (1, True, Held.NO, 1)],
)
def test_records_are_unseen_unless_the_consumer_recorded_nothing_at_all(
    recorded: int, closes: bool, held: Held, unseen: int | None
) -> None:
    run = run_of([("a", 0), ("b", 0)])
    run.reads["a"] = run.reads["a"][:recorded]
    run.closing |= {} if closes else {"a-consumer": None}
    row = run.judged()["a"]
    assert (row.held, flawed(row)) == (held, {"unseen": unseen})


def test_a_client_that_did_nothing_proves_nothing() -> None:
    run = run_of([("b", 0)])
    run.reads, run.log = {name: [] for name in CLIENTS}, {0: [FOREIGN]}
    found = run.judged()
    assert (found["a"].held, found["a"].why.partition(";")[0]) == (Held.UNKNOWN, "nothing acknowledged")
    assert found["b"].held is Held.NO


def test_without_the_whole_log_the_figures_of_the_log_are_not_known() -> None:
    run = run_of([("a", 0), ("b", 0)])
    run.log_problem = "incomplete: a leader did not answer"
    row = run.judged()["a"]
    assert flawed(row) == dict.fromkeys(FLAWS)
    assert row.held is Held.UNKNOWN
    assert "log: incomplete: a leader did not answer" in row.why


def test_gaps_reach_until_production_ended() -> None:
    """Producer a wrote for three seconds and stopped, b for six; all was delivered in the first instant."""
    run = run_of([*[("a", 0)] * 3, *[("b", 0)] * 6])
    found = run.judged()
    assert [found[name].figures.produce_gap_s for name in CLIENTS] == [1.0, 1.0]
    assert [found[name].figures.consume_gap_s for name in CLIENTS] == [6.0, 6.0]


def test_an_error_that_a_library_got_over_is_counted_and_held_against_nobody() -> None:
    run = run_of([("a", 0), ("b", 0)])
    run.told = ["a", "a"]
    found = run.judged()
    assert [(found[name].held, found[name].figures.errors) for name in CLIENTS] == [
        (Held.YES, 2),
        (Held.YES, 0),
    ]
