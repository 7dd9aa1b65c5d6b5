"""The live view's lines: what they tell, and that they fit whatever terminal there is."""

from __future__ import annotations

from typing import Any

import pytest

from zkmigrate.kafka.changes import KAFKA, ReassignPartition
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.history import REHEARSED
from zkmigrate.runbook.model.change import Fence
from zkmigrate.runbook.model.step import Hazard, Way
from zkmigrate.runbook.runs import playbook_files
from zkmigrate.runbook.ui import sentences
from zkmigrate.runbook.ui.board import Board, Pace

DEST = ("dest1", "dest2", "dest3")
STAGES = ("preflight", "install", "join", "rehearse", "roll", "cutover", "verify", "finalize")


class Wall:
    """A board with a clock that a test moves."""

    def __init__(self, brokers: int = 3) -> None:
        self.now = 100.0
        self.board = Board(lambda: self.now, views=playbook_files.load(playbook_files.DEFAULT).views())
        hosts = (*DEST, *(f"broker{n}" for n in range(1, brokers + 1)))
        self.tell(events.RunBegun("r-1", "move", Way.FORWARD, False, hosts, tuple((s, s) for s in STAGES)))

    def tell(self, *told: events.Event) -> None:
        for event in told:
            self.board.take(event)

    def sample(self, kind: str, **body: Any) -> None:
        self.board.sample(self.now, kind, body)

    def step(self, stage: str, step: str, way: Way = Way.FORWARD) -> None:
        self.tell(
            events.StageBegun(stage, stage, way, False, False),
            events.StepBegun(stage, step, step, Hazard.REVERSIBLE, way),
        )

    def text(self, width: int = 120, height: int = 40) -> list[str]:
        return [text for text, _ in self.board.lines(width, height)]

    def line(self, start: str) -> str:
        return next(line for line in self.text() if line.strip().startswith(start))

    def style(self, start: str) -> str:
        return next(style for text, style in self.board.lines(120, 40) if text.strip().startswith(start))


@pytest.fixture
def wall() -> Wall:
    return Wall()


def test_a_host_tells_its_last_change_and_how_long_ago(wall: Wall) -> None:
    wall.tell(events.ChangeSent("dest1", "op", Fence("dest1", 5000)))
    wall.now += 2
    assert wall.line("dest1").endswith(
        "... for 2 s: refuse clients (lease 5000 ms) and end their connections"
    )
    wall.tell(events.ChangeEnded("dest1", "op", "done", 0, ""))
    wall.now += 150
    assert "done 2 min ago: refuse clients" in wall.line("dest1")
    assert wall.style("dest1") == ""
    wall.tell(events.ChangeEnded("dest1", "op", "failed", 5, "no room"))
    assert "failed 0 s ago" in wall.line("dest1")
    assert wall.style("dest1") == "bad"


def test_changes_of_a_cluster_share_its_row(wall: Wall) -> None:
    moves = [ReassignPartition(KAFKA, "t", n, (3, 2), (1, 2)) for n in range(2)]
    wall.tell(*(events.ChangeSent(f"t-{n}", f"op{n}", move) for n, move in enumerate(moves)))
    wall.tell(*(events.ChangeEnded(f"t-{n}", f"op{n}", "done", 0, "") for n in range(2)))
    wall.now += 3
    assert wall.line("kafka").endswith("done 3 s ago: reassign t-1 to brokers 3,2 (before: 1,2)")
    wall.tell(events.ChangeEnded("t-2", "op2", "skipped", -1, ""))
    assert not [line for line in wall.text() if line.strip().startswith("t-")]


def test_dest_tells_its_phase_its_mode_and_how_far_it_is_behind(wall: Wall) -> None:
    servers = {"source1": ["leader", "0x200000010"], "source2": ["follower", "0x20000000f"],
               "source3": ["refused"], "dest1": ["observer", "0x20000000c"],
               "dest2": ["observer", "0x200000010"], "dest3": ["observer", "0x300000001"]}  # fmt: skip
    wall.sample("ensembles", servers=servers)
    wall.sample("phases", hosts={"dest1": ["fenced", None]})
    assert wall.line("dest1").split(None, 1)[1] == "fenced, observer, 4 behind"
    assert wall.line("dest2").split(None, 1)[1] == "observer, up to date"
    assert wall.line("dest3").split(None, 1)[1] == "observer, another epoch"
    assert wall.line("source") == " source: source1 leads, 2 of 3 serve, zxid 0x200000010"
    wall.now += 12
    assert wall.line("dest1").split(None, 1)[1] == "observer, 4 behind (12 s old)", "phases are the window's"
    wall.sample("ensembles", servers={name: ["not serving"] for name in servers})
    assert (wall.line("source"), wall.style("source")) == (" source: no leader, 0 of 3 serve", "bad")


@pytest.mark.parametrize(
    ("phase", "mode", "told"),
    [
        ("fenced", "observer", "fenced, observer, 4 behind"),
        ("cut", "observer", "cut, observer, cut off from source"),
        ("checked", "follower", "checked, follower, cut off from source"),
        ("", "leader", "leader, cut off from source"),
    ],
)
def test_from_the_cut_on_no_distance_to_source_is_told(wall: Wall, phase: str, mode: str, told: str) -> None:
    """What the other tenants write after the cut is not missing on dest."""
    wall.sample("ensembles", servers={"source1": ["leader", "0x200000010"], "dest1": [mode, "0x20000000c"]})
    wall.sample("phases", hosts={"dest1": [phase, None]} if phase else {})
    assert wall.line("dest1").split(None, 1)[1] == told


def test_a_broker_tells_what_its_canary_said_and_when(wall: Wall) -> None:
    wall.sample("brokers", ms={"broker1": 2.4, "broker2": 900.0}, silent={"broker3": "refused"})
    assert wall.line("broker1").split(None, 1)[1] == "answers in 2 ms"
    assert wall.line("broker3").split(None, 1)[1] == "silent"
    assert wall.style("broker3") == "bad"
    wall.now += 4
    assert wall.line("broker2").split(None, 1)[1] == "answers in 900 ms (4 s old)"
    wall.now += 3
    wall.sample("brokers", ms={"broker1": 2.4}, silent={"broker2": "timed out", "broker3": "refused"})
    assert wall.line("broker2").split(None, 1)[1] == "silent for 7 s"


def test_a_wait_tells_how_long_it_lasts_and_may_last(wall: Wall) -> None:
    wall.step("verify", "verify")
    for seconds in range(0, 11, 5):
        wall.tell(events.Waits("verify", "verify", "it", f"{seconds} of 40 s", 50.0 - seconds))
        wall.now += 5
    assert wall.text()[-2:] == [
        "waits until it, 15 s so far, about 25 s to go; gives up in 40 s",
        "  10 of 40 s",
    ]
    wall.tell(events.StepEnded("verify", "verify", Way.FORWARD, 1.0, ()))
    assert "waits" not in "".join(wall.text())


def test_a_step_that_tells_its_time_left_is_not_guessed_at(wall: Wall) -> None:
    """Beside "about 2 min left" stood "about 25 s to go", from the numbers in its progress."""
    wall.step("move", "replicas")
    for seconds in range(0, 11, 5):
        wall.tell(events.Waits("move", "replicas", "it", f"{seconds} of 40 partitions", 50.0))
        wall.tell(events.Progressed("move", "replicas", Way.FORWARD, seconds, 40, "partitions", 900, 120.0))
        wall.now += 5
    assert wall.text()[-3:] == [
        "10 of 40 partitions done, 900 bytes left, about 2 min",
        "waits until it, 15 s so far; gives up in 50 s",
        "  10 of 40 partitions",
    ]


def test_a_long_look_is_a_wait_that_nobody_gives_up(wall: Wall) -> None:
    wall.step("cutover", "survey")
    for done in (500, 1000, 1500):
        wall.tell(events.Waits("cutover", "survey", "the tree", f"{done} of 4500 transactions", None))
        wall.now += 2
    assert wall.text()[-2:] == [
        "waits for the tree, 6 s so far, about 10 s to go",
        "  1500 of 4500 transactions",
    ]
    line = "   cutover.survey waits for the tree: 500 of 4500 transactions"
    assert (
        sentences.sentence(events.Waits("cutover", "survey", "the tree", "500 of 4500 transactions", None))
        == line
    )


def test_keys_are_told_while_it_waits_outside_the_window() -> None:
    board = Board(lambda: 1.0, "f findings")
    wait = events.Waits("roll", "roll", "it", "1 of 2", 9.0)
    for window, last in ((False, "  f findings"), (True, "  1 of 2")):
        board.take(events.StageBegun("roll", "roll", Way.FORWARD, window, False))
        board.take(wait)
        assert board.lines(80, 24)[-1][0] == last


def test_the_countdown_goes_on_between_two_events(wall: Wall) -> None:
    wall.tell(events.Countdown(6.2))
    assert wall.text()[-1] == "6.2 s left to turn back"
    wall.now += 4
    assert (wall.text()[-1], wall.style("2.2 s left")) == ("2.2 s left to turn back", "bad")
    wall.now += 4
    assert wall.text()[-1] == "0.0 s left to turn back"


def test_a_hold_that_is_asked_for_and_one_that_holds_are_told_apart(wall: Wall) -> None:
    wall.tell(events.HoldAsked("before roll", "anna@desk: lunch"))
    assert wall.text()[-1] == "a hold is requested, before roll (anna@desk: lunch)"
    wall.tell(events.Holding("", None, before="roll.preflight", who="anna@desk: lunch"))
    assert wall.text()[-1] == (
        "holding before roll.preflight (anna@desk: lunch): zkmigrate release, or "
        "go (g), stop (s) or back (b)?"
    )
    done = "1 of 3 brokers done (broker2)"
    wall.tell(events.Holding("", None, before="roll.roll", who="anna@desk", progress=done))
    assert wall.text()[-1].startswith(f"holding in roll.roll, {done} (anna@desk): zkmigrate release")
    wall.tell(events.HoldEnded("roll.preflight", "released", "anna@desk"))
    assert "hold" not in "".join(wall.text()[2:])


def test_what_holds_the_run_is_told_in_full_on_a_narrow_terminal(wall: Wall) -> None:
    wall.tell(events.Holding("", None, before="roll.roll", who="anna@desk: look at the first broker"))
    assert wall.text(60)[-3:] == [
        "holding before roll.roll (anna@desk: look at the first",
        "  broker): zkmigrate release, or go (g), stop (s) or back",
        "  (b)?",
    ]


def test_the_stages_tell_what_is_over_and_what_became_of_it(wall: Wall) -> None:
    wall.step("preflight", "preflight")
    wall.tell(events.StepEnded("preflight", "preflight", Way.FORWARD, 0.1, ()))
    assert wall.text()[1].startswith("[preflight: preflight done]  install  join")
    wall.step("rehearse", "arm")
    wall.tell(events.Turned(Way.BACK, "rehearse", REHEARSED))
    wall.step("rehearse", "arm", Way.BACK)
    assert "preflight ok  install  join  [rehearse: <- arm]" in wall.text()[1]
    wall.tell(events.StepEnded("rehearse", "arm", Way.BACK, 0.1, ()))
    wall.step("roll", "roll")
    assert "rehearse ok  [roll: roll]" in wall.text()[1]
    wall.step("roll", "roll", Way.BACK)
    wall.tell(events.StepEnded("roll", "roll", Way.BACK, 0.1, ()))
    wall.step("join", "join", Way.BACK)
    assert "[join: <- join]  rehearse ok  roll undone" in wall.text()[1]
    wall.tell(events.StageSkipped("rehearse", "nothing is known", "--skip"))
    assert "rehearse skipped" in wall.text()[1]


def test_what_became_of_the_stages_is_told_by_the_next_process_too(wall: Wall) -> None:
    over = (("preflight", "ok"), ("rehearse", "skipped"), ("roll", "undone"))
    stages = tuple((s, s) for s in STAGES)
    wall.tell(events.RunBegun("r-1", "move", Way.FORWARD, True, DEST, stages, over))
    wall.step("join", "join")
    assert wall.text()[1].startswith(
        "preflight ok  install  [join: join]  rehearse skipped  roll undone  cutover"
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 12), (40, 10), (20, 8), (5, 4), (1, 1)])
@pytest.mark.parametrize("brokers", [3, 24, 200])
def test_it_fits_and_what_is_in_trouble_stays_in_sight(width: int, height: int, brokers: int) -> None:
    wall = Wall(brokers)
    wall.step("roll", "roll")
    silent = f"broker{brokers}"
    wall.sample("brokers", ms={f"broker{n}": 1.0 for n in range(1, brokers)}, silent={silent: "timed out"})
    wall.sample("ensembles", servers={"source1": ["leader", "0x1"]})
    wall.tell(
        events.Waits("roll", "roll", "every partition is fully in sync", "3 are not", 600.0),
        events.HoldAsked("at the next place", "anna"),
        events.Countdown(3.0),
    )
    lines = wall.text(width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    if width >= 40 and height >= 10:
        assert any(line.strip().startswith(silent) for line in lines)
        assert lines[-1] == "3.0 s left to turn back"
        assert "[roll: roll]" in lines[1]
    if brokers == 24 and (width, height) == (80, 24):
        assert " and 11 more hosts, none of them in trouble" in lines


def test_hosts_that_are_not_shown_but_in_trouble_are_counted() -> None:
    wall = Wall(24)
    wall.sample("brokers", ms={}, silent={f"broker{n}": "timed out" for n in range(1, 25)})
    lines = wall.text(80, 10)
    assert lines[-1] == " and 20 more hosts, 17 of them in trouble"
    wall.tell(events.ChangeSent("t-1", "op1", ReassignPartition(KAFKA, "t", 1, (3, 2), (1, 2))))
    assert wall.text(80, 10)[-1] == " and 20 more hosts and 1 more cluster, 17 of them in trouble"


def test_a_pace_is_told_only_where_there_is_one() -> None:
    pace = Pace()
    pace.note("it", "5 are not", 0.0)
    assert pace.eta_s(1.0) is None
    pace.note("it", "4 are not", 2.0)
    assert pace.eta_s(2.0) is None, "too early to say"
    pace.note("it", "3 are not", 10.0)
    assert pace.eta_s(10.0) == 15.0
    assert pace.eta_s(12.0) == 13.0
    pace.note("it", "7 are not", 14.0)
    assert pace.eta_s(14.0) is None, "it has grown again"
    pace.note("it", "dest1 refused", 15.0)
    assert pace.since == 0.0
    pace.note("that", "1 of 3", 20.0)
    assert (pace.since, pace.eta_s(30.0)) == (20.0, None)
    pace.note("these", "1,000 of 10,000 partitions", 40.0)
    pace.note("these", "1,900 of 10,000 partitions", 50.0)
    assert pace.eta_s(50.0) == 90.0


def test_the_produce_canary_has_a_line_while_it_sends(wall: Wall) -> None:
    assert not [line for line in wall.text() if "producer" in line]
    acks = {"0": [["broker1", 900.0, 3.2], ["broker1", 650.0, 5.4]], "1": [["broker2", 700.0, 4.1]]}
    wall.sample("produce", topic="canary", acks=acks, late=[])
    assert wall.line("producer") == (" producer: 2 partitions acknowledged by 2 brokers, the slowest in 5 ms")
    assert wall.style("producer") == ""
    wall.now += 11
    assert not [line for line in wall.text() if "producer" in line], "it rests"


def test_a_record_that_waits_is_told_in_red_with_what_was_met_and_for_how_long(wall: Wall) -> None:
    late = [["broker1", 0, 2.0, "broker1: refused"], ["broker2", 1, 7.0, "broker2: timed out"]]
    wall.sample("produce", topic="canary", acks={}, late=late)
    wall.now += 2
    assert wall.line("producer") == (
        " producer: canary-1 not acknowledged for 9 s, 1 more: broker2: timed out"
    )
    assert wall.style("producer") == "bad"
    wall.sample("produce", topic="canary", acks={}, late=[["broker3", None, 1.0, "no topic"]])
    assert wall.line("producer") == " producer: the partition of broker3 not acknowledged for 1 s: no topic"
    assert wall.line("producer") in wall.board.hosts()


def test_an_open_question_stands_below_the_hosts_until_it_is_answered(wall: Wall) -> None:
    """What was waited for before it is over, and "findings (f), stop (s)" is no answer to it."""
    wall.board.take(events.Waits("roll", "roll", "broker3 is back and in sync", "registered: no", 600.0))
    wall.board.take(events.Asking("roll.stopped broker2", "go (g), stop (s)?", 600.0))
    wall.now += 60
    shown = [text for text, _ in wall.board.lines(100, 40)]
    assert shown[-1] == "asks about roll.stopped broker2: go (g), stop (s)? (9 min left)"
    assert not any("waits until" in line for line in shown)
    wall.board.take(events.Consented("roll", "start it?", "go", "anna", "roll"))
    assert not any("asks about" in text for text, _ in wall.board.lines(100, 40))


def test_after_a_hold_nothing_is_waited_for_that_was_over_before_it(wall: Wall) -> None:
    wall.board.take(events.Waits("roll", "roll", "broker3 is back and in sync", "registered: no", 600.0))
    wall.board.take(events.Holding("", None, before="roll.roll", who="anna: coffee"))
    wall.board.take(events.HoldEnded("roll.roll", "released", "anna"))
    assert not any("waits until" in text for text, _ in wall.board.lines(100, 40))
