"""What a report makes of the produce canary's samples: gaps, where they fall, and how they are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.unit.report.test_report import Run
from zkmigrate.kafka.rules.produce_gaps import summarize_produce
from zkmigrate.report import pictures
from zkmigrate.report.data import data
from zkmigrate.report.markdown import markdown
from zkmigrate.report.page import page
from zkmigrate.report.tables import figures
from zkmigrate.runbook.model.change import Fence, HostVerb
from zkmigrate.runbook.model.report import Report, Visit, Window

Row = tuple[float, dict[str, Any]]


def row(at: float, acks: dict[str, Any], late: list[Any] | None = None) -> Row:
    return at, {"kind": "produce", "topic": "canary", "acks": acks, "late": late or []}


def visit(step: str, start: float, end: float) -> Visit:
    return Visit(step, False, start, end, end - start, "done", (), ())


WINDOW = Window("cutover", False, 40.0, 45.0, "opened", (), None, {})


def test_a_gap_is_from_one_acknowledgement_to_the_next_while_records_are_sent() -> None:
    rows = [
        row(1.0, {"0": [["b1", 800.0, 3.0], ["b1", 500.0, 4.0]]}),
        row(3.0, {"0": []}, [["b1", 0, 2.2, "b1: refused"]]),
        row(4.0, {"0": [["b2", 500.0, 2750.0]]}),
    ]
    [one] = summarize_produce(rows, [visit("roll.roll", 0.0, 10.0)], WINDOW, "roll")
    assert (one.partition, one.by) == ("canary-0", {"b1": 2, "b2": 1})
    assert [at for at, _ in one.took] == pytest.approx([0.2, 0.5, 3.5])
    assert [ms for _, ms in one.took] == [3.0, 4.0, 2750.0]
    assert [round(gap.seconds, 3) for gap in one.gaps] == [3.0, 0.3, 0.003]
    assert (one.gaps[0].start, one.gaps[0].end) == (0.5, 3.5)
    assert (one.gaps[0].why, one.gaps[0].during) == ("b1: refused", ("roll.roll",))
    assert one.roll == one.gaps[0]
    assert one.window is None


def test_a_time_in_which_nothing_was_sent_is_no_gap() -> None:
    rows = [row(1.0, {"0": [["b1", 0.0, 3.0]]}), row(3600.0, {"0": [["b1", 0.0, 700.0]]})]
    [one] = summarize_produce(rows, [], None, "roll")
    assert [round(gap.seconds, 3) for gap in one.gaps] == [0.7, 0.003]
    assert (one.roll, one.window) == (None, None)


def test_a_record_that_still_waits_when_the_samples_end_is_an_open_gap() -> None:
    rows = [
        row(40.5, {"0": [["b1", 500.0, 3.0]], "1": [["b2", 250.0, 3.0]]}),
        row(49.0, {"1": [["b2", 0.0, 4.0]]}, [["b1", 0, 8.75, "b1: timed out"]]),
    ]
    first, second = summarize_produce(rows, [], WINDOW, "roll")
    assert first.window is not None
    assert (first.window.start, first.window.end, first.window.why) == (40.0, None, "b1: timed out")
    assert first.window.seconds == pytest.approx(9.0)
    assert second.window is not None
    assert second.window.end is not None


def test_a_partition_that_never_had_an_acknowledgement_is_told() -> None:
    [one] = summarize_produce(
        [row(5.0, {}, [["b1", 0, 2.0, "no leader"], ["b2", None, 1.0, "no topic"]])], [], None, "roll"
    )
    assert (one.partition, one.by, one.took) == ("canary-0", {}, ())
    assert [(gap.start, gap.end, gap.seconds) for gap in one.gaps] == [(3.0, None, 2.0)]


@pytest.mark.parametrize(
    "body",
    [
        {"acks": 3, "late": 4},
        {
            "acks": {"x": [["b1", 1, 2]], "0": "no list", "1": [["b1", 1], 5, ["b1", "1", None]]},
            "late": [3, [1]],
        },
        {"late": [["b1", True, 1.0, "why"], ["b1", 0, "1", "why"]]},
    ],
)
def test_entries_of_another_form_are_left_out(body: dict[str, Any]) -> None:
    told = summarize_produce([(1.0, {"kind": "produce", **body})], [], None, "roll")
    assert all(one.took == () and one.gaps == () for one in told)


@pytest.fixture
def moved(tmp_path: Path) -> Report:
    """A roll and a window, with a canary that was held up for 1.5 s in the one, for 2.5 s in the other."""
    run = Run(tmp_path)
    zero = run.clock.mono
    rows = []

    def sample(at: float, acks: list[tuple[float, float]], late: list[Any] | None = None) -> None:
        told = [["b1", round((at - when) * 1000, 1), ms] for when, ms in acks]
        head = {"at": run.clock.wall - run.clock.mono + zero + at, "mono": zero + at, "kind": "produce"}
        rows.append({**head, "topic": "canary", "acks": {"0": told}, "late": late or []})

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
    sample(1.0, [(0.25 * n, 3.0) for n in range(1, 5)])
    sample(3.0, [(2.5, 1250.0), (2.75, 3.0), (3.0, 3.0)])
    sample(8.0, [(8.0, 3.0)])
    sample(10.0, [], [["b1", 0, 1.75, "b1: NotEnoughReplicasError"]])
    sample(11.0, [(10.5, 2250.0), (10.75, 3.0)])
    (run.dir / "samples.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return run.report()


def test_the_longest_gap_in_roll_and_in_the_window_is_told_first(moved: Report) -> None:
    told = {what: (much, note) for what, much, note in figures(moved)}
    assert told["longest produce gap in roll"] == ("1.5 s", "canary-0, in roll.roll")
    much, note = told["longest produce gap in the window"]
    assert (much, note.partition(",")[0]) == ("2.5 s", "canary-0")


def test_page_markdown_and_json_tell_the_canary(moved: Report) -> None:
    text = " ".join(markdown(moved).split())
    assert "The produce canary" in text
    assert "b1: NotEnoughReplicasError" in text
    assert "longest produce gap in the window" in page(moved)
    [one] = data(moved)["produced"]
    assert (one["partition"], one["by"], one["roll"]["seconds"]) == (
        "canary-0",
        {"b1": 10},
        pytest.approx(1.5),
    )


def test_acknowledgements_stand_below_the_ensembles_with_the_gaps_left_out(moved: Report) -> None:
    window = next(w for w in moved.windows if not w.rehearsal)
    for drawn in (pictures.timeline(moved), pictures.close_up(window, moved)):
        rects = [e.attrib for e in ElementTree.fromstring(drawn).iter() if "data-acked" in e.attrib]
        assert rects
        assert {a["data-acked"] for a in rects} == {"canary-0"}
        assert ">canary 0: acks<" in drawn, "a long name of a topic would not fit"
        spans = sorted((float(a["data-from"]), float(a["data-to"])) for a in rects)
        ensembles = [e.attrib for e in ElementTree.fromstring(drawn).iter() if "data-lane" in e.attrib]
        assert max(float(a["y"]) for a in ensembles) < min(float(a["y"]) for a in rects)
        [gap] = [x.window for x in moved.produced]
        assert gap is not None
        assert gap.end is not None
        assert not [s for s in spans if s[0] < gap.end - 0.01 and s[1] > gap.start + 0.01], (
            "nothing in the gap"
        )
