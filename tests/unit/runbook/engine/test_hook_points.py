"""When a hook is run, waited for and believed: the engine's side, with programs that only answer."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import pytest

from tests.unit.engine_world import HOSTS, Killed, Points, Tiny, blocked, forward, resume, until
from zkmigrate.inventory.hooks import MAY_STOP, Hook, Hooks, Moment
from zkmigrate.runbook.engine import events, journal
from zkmigrate.runbook.engine.history import hook_key
from zkmigrate.runbook.engine.hook_points import variables
from zkmigrate.runbook.engine.ports import Answer, HookCall, HookEnd, HookRunner

MOMENTS: tuple[Moment, ...] = get_args(Moment)
FINE = HookEnd("done", 0, 0.1, "fine", "log")
SICK = HookEnd("done", 3, 0.1, "disk is full", "log")
KILLED = HookEnd("timeout", None, 30.0, "", "log")
MISSING = HookEnd("not-started", None, 0.0, "no such file", "")


@dataclass
class Programs(HookRunner):
    """Answers for the operator's programs: ``ends`` by moment, or by moment and stage."""

    ends: dict[str, HookEnd] = field(default_factory=dict)
    calls: list[HookCall] = field(default_factory=list)
    waited: list[str] = field(default_factory=list)
    beside: list[tuple[str, Callable[[], None]]] = field(default_factory=list)

    def run(self, call: HookCall, /) -> HookEnd:
        self.calls.append(call)
        self.waited.append(_name(call))
        return self._end(call)

    def start(self, call: HookCall, done: Callable[[HookEnd], None], /) -> None:
        self.calls.append(call)
        self.beside.append((_name(call), lambda: done(self._end(call))))

    def _end(self, call: HookCall) -> HookEnd:
        return self.ends.get(_name(call), self.ends.get(call.name, FINE))


def _name(call: HookCall) -> str:
    """``moment stage way targets``, as far as they are said."""
    said = (call.variables[f"ZKMIGRATE_{key}"] for key in ("STAGE", "WAY", "TARGETS"))
    return " ".join(word for word in (call.name, *said) if word not in ("", "forward"))


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    """One hook at every moment."""
    made = Tiny(tmp_path / "r", runner=Programs())
    made.hooks = Hooks(**{moment: (Hook(run=f"/hooks/{moment}"),) for moment in MOMENTS})
    return made


def programs(tiny: Tiny) -> Programs:
    assert isinstance(tiny.runner, Programs)
    return tiny.runner


ALL_HOSTS = " ".join(HOSTS)


def test_a_whole_move_has_its_moments_in_order(tiny: Tiny) -> None:
    assert tiny.process(forward).code == 0
    assert programs(tiny).waited == [
        "before_run preflight", "before_stage preflight", "after_stage preflight", "before_stage prepare",
        f"before_wave prepare {ALL_HOSTS}", f"before_wave prepare {ALL_HOSTS}", "after_stage prepare",
        "before_stage rehearse", "before_window rehearse", "after_stage rehearse", "before_stage main",
        "before_window main", "after_open main", "after_stage main", "on_end",
    ]  # fmt: skip
    assert [name for name, _ in programs(tiny).beside] == ["before_stage rehearse back"], (
        "the door is still shut when a rehearsal turns round"
    )
    begun = [(e.moment, e.waited) for e in tiny.seen if isinstance(e, events.HookBegun)]
    assert ("before_window", True) in begun
    assert ("before_stage", False) in begun
    last = tiny.seen[-1]
    assert isinstance(last, events.RunEnded), "no event comes after it"


def test_a_hook_is_told_by_variables_and_by_one_json_object(tiny: Tiny) -> None:
    tiny.steps["look"].verdict = blocked("tiny.sick")
    assert tiny.process(forward).code == 3
    call = programs(tiny).calls[-2]
    assert (call.name, call.run, call.args) == ("on_failure", "/hooks/on_failure", ())
    assert call.variables == {
        "ZKMIGRATE_MOMENT": "on_failure",
        "ZKMIGRATE_RUN": "tiny-1",
        "ZKMIGRATE_NAME": "tiny",
        "ZKMIGRATE_PLAYBOOK": "tiny",
        "ZKMIGRATE_STAGE": "preflight",
        "ZKMIGRATE_STEP": "preflight.look",
        "ZKMIGRATE_WAY": "forward",
        "ZKMIGRATE_REHEARSAL": "false",
        "ZKMIGRATE_TARGETS": "",
        "ZKMIGRATE_CODE": "3",
        "ZKMIGRATE_MESSAGE": "preflight.look is blocked; fix the findings, then resume",
        "ZKMIGRATE_MAY_STOP": "false",
        "ZKMIGRATE_TIMEOUT_S": "30.0",
    }
    told = json.loads(call.text)
    assert told["findings"][0]["id"] == "tiny.sick"
    assert (told["moment"], told["code"], told["targets"]) == ("on_failure", 3, [])
    assert told["at"] == tiny.clock.wall()


def test_a_variable_is_one_that_a_system_takes() -> None:
    assert variables({"a": None, "b": "x\0y", "c": ["p", "q"], "d": True}) == {
        "ZKMIGRATE_A": "",
        "ZKMIGRATE_B": "xy",
        "ZKMIGRATE_C": "p q",
        "ZKMIGRATE_D": "true",
    }
    assert len(variables({"m": "x" * 10**6})["ZKMIGRATE_M"]) == 8192


@pytest.mark.parametrize(
    ("place", "code", "written"),
    [
        ("before_run preflight", 6, set[str]()),
        ("before_stage prepare", 6, set[str]()),
        (f"before_wave prepare {ALL_HOSTS}", 6, set[str]()),
        ("after_stage prepare", 6, {"/one", "/two"}),
        ("before_window main", 7, {"/one", "/two"}),
    ],
)
@pytest.mark.parametrize("end", [SICK, KILLED, MISSING])
def test_a_hook_that_fails_stops_the_run_and_is_asked_again(
    tiny: Tiny, place: str, code: int, written: set[str], end: HookEnd
) -> None:
    programs(tiny).ends[place] = end
    ended = tiny.process(forward)
    assert ended.code == code
    assert ended.findings[0].id == f"hook.{place.split()[0]}"
    assert {path for _, path in tiny.hosts.files} == written
    assert programs(tiny).calls[-2].name == "on_failure"
    again = tiny.process(forward if code == 7 else resume)
    assert again.code == code, "the same hook says the same"
    programs(tiny).ends.clear()
    assert tiny.process(forward if code == 7 else resume).code == 0
    assert tiny.hosts.files == tiny.everything()


def test_before_the_window_turns_back_what_was_armed(tiny: Tiny) -> None:
    programs(tiny).ends["before_window rehearse"] = SICK
    ended = tiny.process(forward)
    assert (ended.code, ended.message) == (
        7,
        "back at the start of rehearse: a before_window hook of rehearse.fence stopped the run",
    )
    assert not any(path in ("/fence", "/cut") for _, path in tiny.hosts.files)
    assert ended.findings[0].seen == "exit code 3: disk is full"


def test_a_failure_that_means_go_is_said_and_not_asked_again(tiny: Tiny) -> None:
    tiny.hooks = Hooks(before_stage=(Hook(run="/hooks/x", failure="go"),))
    programs(tiny).ends["before_stage"] = SICK
    assert tiny.process(until("prepare")).code == 0
    ended = [e for e in tiny.seen if isinstance(e, events.HookEnded)]
    assert [(e.stage, e.code, e.stops) for e in ended] == [("preflight", 3, False), ("prepare", 3, False)]
    assert tiny.process(resume).code == 0
    assert programs(tiny).waited.count("before_stage prepare") == 1


@pytest.mark.parametrize("moment", sorted(set(MOMENTS) - MAY_STOP))
def test_where_stopping_is_worse_a_failure_is_only_said(tiny: Tiny, moment: Moment) -> None:
    programs(tiny).ends[moment] = SICK
    assert tiny.process(forward).code == 0
    assert tiny.hosts.files == tiny.everything()


def test_nothing_is_waited_for_while_clients_are_shut_out(tiny: Tiny) -> None:
    tiny.steps["prove"].verdict = blocked("tiny.tail")
    ended = tiny.process(forward)
    assert ended.code == 7
    beside = [name for name, _ in programs(tiny).beside]
    assert beside == ["before_stage rehearse back", "on_turn_back main back", "before_stage main back"]
    assert programs(tiny).waited[-2:] == ["on_failure back", "on_end back"]


def test_what_runs_beside_the_walk_is_journaled_when_it_ends(tiny: Tiny) -> None:
    tiny.steps["prove"].verdict = blocked("tiny.tail")
    original = Programs.start

    def start(self: Programs, call: HookCall, done: Callable[[HookEnd], None]) -> None:
        original(self, call, done)
        self.beside[-1][1]()

    tiny.runner.start = start.__get__(tiny.runner)  # type: ignore[method-assign]
    assert tiny.process(forward).code == 7
    kept = journal.read(tiny.run_dir)
    assert any(key.startswith("on_turn_back back main") for key in kept.hooks)


def test_what_ends_after_the_run_says_nothing_any_more(tiny: Tiny) -> None:
    tiny.hooks = Hooks(on_stop=(Hook(run="/hooks/x"),))
    tiny.confirm.words["hold cut"] = Answer("stop")
    tiny.hold("cut")
    assert tiny.process(forward).code == 130
    ((name, finish),) = programs(tiny).beside
    assert name == "on_stop main"
    lines, told = (tiny.run_dir / journal.NAME).read_bytes(), len(tiny.seen)
    finish()
    assert (tiny.run_dir / journal.NAME).read_bytes() == lines
    assert len(tiny.seen) == told


def test_a_run_taken_up_in_the_window_waits_for_nothing(tiny: Tiny) -> None:
    tiny.confirm.words["hold cut"] = Answer("stop")
    tiny.hold("cut")
    tiny.process(forward)
    tiny.confirm.words.clear()
    done, programs(tiny).beside = len(programs(tiny).waited), []
    programs(tiny).ends["before_run"] = SICK
    assert tiny.process(resume).code == 0
    assert [name for name, _ in programs(tiny).beside][:1] == ["before_run main"]
    assert programs(tiny).waited[done:][0] == "after_open main"


def test_the_way_back_is_stopped_by_no_hook(tiny: Tiny) -> None:
    tiny.process(until("prepare"))
    programs(tiny).ends = dict.fromkeys(MOMENTS, SICK)
    programs(tiny).waited = []
    assert tiny.process(lambda walk: walk.back()).code == 0
    assert tiny.hosts.files == {}
    assert programs(tiny).waited == [
        "before_run rehearse back",
        "on_turn_back back",
        "before_stage prepare back",
        f"before_wave prepare back {ALL_HOSTS}",
        f"before_wave prepare back {ALL_HOSTS}",
        "before_stage preflight back",
        "on_end back",
    ]


def test_going_forward_again_the_moments_come_again(tiny: Tiny) -> None:
    tiny.process(until("prepare"))
    tiny.process(lambda walk: walk.back("prepare"))
    programs(tiny).waited = []
    tiny.process(until("prepare"))
    assert programs(tiny).waited == [
        "before_run prepare",
        "before_stage prepare",
        f"before_wave prepare {ALL_HOSTS}",
        f"before_wave prepare {ALL_HOSTS}",
        "after_stage prepare",
        "on_end rehearse",
    ], "and those of the stage that stayed done do not"


def test_killed_anywhere_what_is_journaled_does_not_run_again_and_nothing_is_left_out(tmp_path: Path) -> None:
    """Killed at every fsync in turn, then resumed. A rehearsal that is cut short begins again, and so do its
    moments."""
    at = 0
    while True:
        at += 1
        tiny = Tiny(tmp_path / f"r{at}", runner=Programs())
        moments: tuple[Moment, ...] = ("before_stage", "before_wave", "after_open", "after_stage")
        tiny.hooks = Hooks(**{moment: (Hook(run=f"/hooks/{moment}"),) for moment in moments})
        points = Points(at, kinds=("fsync",))
        try:
            tiny.process(forward, points)
        except Killed:
            assert tiny.process(resume).code == 0
        hooks = [e.body for e in journal.kept_lines(tiny.run_dir) if e.kind == "hook"]
        keys = [hook_key(body["moment"], body["place"], body["number"]) for body in hooks]
        counted = Counter(key for key in keys if " rehearse " not in key)
        assert set(counted.values()) == {1}, at
        assert len(counted) == 3 + 2 + 1 + 3, at
        if points.seen < at:
            break
    assert at > 30


def test_ctrl_c_during_a_hook_stops_resumable_and_asks_it_again(tiny: Tiny) -> None:
    programs(tiny).ends["before_stage prepare"] = HookEnd("interrupted", None, 1.0, "", "log")
    ended = tiny.process(forward)
    assert (ended.code, ended.message) == (
        130,
        "interrupted during a before_stage hook of prepare; zkmigrate resume continues",
    )
    assert programs(tiny).calls[-2].name == "on_stop"
    programs(tiny).ends.clear()
    assert tiny.process(resume).code == 0
    assert programs(tiny).waited.count("before_stage prepare") == 2


def test_after_waiting_for_a_hook_the_hosts_are_looked_at_again(tiny: Tiny) -> None:
    """What a wave does was decided before the hook ran, which may have taken an hour."""
    calls = programs(tiny)
    original = calls.run

    def run(call: HookCall) -> HookEnd:
        if call.name == "before_wave" and not tiny.hosts.files:
            tiny.hosts.files[("d2", "/one")] = b"new"
        return original(call)

    calls.run = run  # type: ignore[method-assign]
    assert tiny.process(until("prepare")).code == 0
    assert not any(".d2." in operation and ".one." in operation for operation in tiny.hosts.sent)
    assert "before_wave prepare d1 d3" in calls.waited, "another wave, another moment"


def test_a_defect_calls_whoever_is_called_when_a_run_fails(tiny: Tiny) -> None:
    def broken(_way: object) -> None:
        raise ZeroDivisionError("bug")

    tiny.steps["one"].verdict = broken
    with pytest.raises(ZeroDivisionError):
        tiny.process(forward)
    failure = programs(tiny).calls[-2]
    assert (failure.name, failure.variables["ZKMIGRATE_CODE"]) == ("on_failure", "1")
    assert failure.variables["ZKMIGRATE_MESSAGE"].startswith("ZeroDivisionError: bug; run tiny-1 is at")
