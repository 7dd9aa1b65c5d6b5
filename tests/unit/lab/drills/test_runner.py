"""How a drill program ends: its exit code, and what its result says of cases, errors and interruptions."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from zkmigrate.lab.drills import runner
from zkmigrate.lab.drills.result import FILE, Case
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.load.runner import LoadRunner


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A drill takes the signals of its process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def case(held: bool) -> Case:
    return Case("one", "what", "good", "outcome", 1.0, held)


def played(directory: Path, drill: Callable[[list[Case]], None]) -> tuple[object, dict[str, Any]]:
    """The exit code of a drill that does this, and its result."""
    with pytest.raises(SystemExit) as end:
        runner.run_drill("x", directory, lambda _directory, _progress, cases: drill(cases))
    return end.value.code, json.loads((directory / FILE).read_text())


def fail(cases: list[Case]) -> None:
    cases.append(case(True))
    raise LabError("the lab broke")


@pytest.mark.parametrize(
    ("drill", "code", "names"),
    [
        (lambda cases: cases.append(case(True)), 0, ["one"]),
        (lambda cases: cases.append(case(False)), 1, ["one"]),
        (lambda _cases: None, 1, []),
        (fail, 1, ["one", "whole"]),
    ],
    ids=["held", "failed", "no case", "broke off"],
)
def test_a_drill_holds_when_it_came_to_its_end_and_each_case_held(
    tmp_path: Path, drill: Callable[[list[Case]], None], code: int, names: list[str]
) -> None:
    ended, body = played(tmp_path / "drill", drill)
    assert (ended, body["held"]) == (code, code == 0)
    assert [case["name"] for case in body["cases"]] == names


def test_an_interrupted_drill_does_not_hold_and_keeps_its_cases(tmp_path: Path) -> None:
    def interrupted(_directory: Path, _progress: object, cases: list[Case]) -> None:
        cases.append(case(True))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run_drill("x", tmp_path, interrupted)
    body = json.loads((tmp_path / FILE).read_text())
    assert (body["held"], len(body["cases"])) == (False, 1)


def test_a_case_fails_by_the_error_of_its_act_or_of_what_comes_first() -> None:
    def broken() -> str:
        raise LabError("broken")

    lines: list[str] = []
    good = runner.play_case(lines.append, "a", "what", "good", lambda: "fine")
    assert (good.held, good.outcome) == (True, "fine")
    for acts in ((broken, lambda: None), (lambda: "fine", broken)):
        bad = runner.play_case(lines.append, "b", "what", "good", *acts)
        assert (bad.held, bad.outcome) == (False, "broken")
    assert [line.split(",")[0] for line in lines if "expected" in line or "WRONG" in line] == [
        "a: as expected", "b: WRONG", "b: WRONG",
    ]  # fmt: skip


def test_a_load_is_judged_by_its_claims_and_by_how_it_ended(tmp_path: Path) -> None:
    load = cast(LoadRunner, SimpleNamespace(directory=tmp_path, finish=lambda: ["tenant had to be killed"]))
    outcome, wrong = runner.finish_load(load, {"lost": 0})
    assert outcome == "lost None"
    assert [text.partition(":")[0] for text in wrong] == ["tenant had to be killed", "lost None"]
    assert runner.finish_load(load, {"lost": None})[1] == ["tenant had to be killed"]
