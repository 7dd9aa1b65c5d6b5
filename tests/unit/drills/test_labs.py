"""What drills share: the verdict on a load, and which cases are played after one that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.drills.labs import INTERRUPTED, Chain, OneLab, Series, finish_load, judge_last
from tests.drills.roll_site import Unexpected
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.load.runner import LoadRunner

ROOT = Path(__file__).parents[3]


def test_every_drill_is_in_its_page() -> None:
    drills = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "drills").glob("test_*.py")}
    page = (ROOT / "docs" / "how-to" / "drills.md").read_text().partition("## The client matrix")[0]
    assert drills == set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


def broken() -> Any:
    raise LabError("broken")


def test_a_load_is_judged_by_its_claims_and_by_how_it_ended(tmp_path: Path) -> None:
    wrong: list[str] = []
    load = cast(LoadRunner, SimpleNamespace(directory=tmp_path, finish=lambda: list(wrong)))
    assert finish_load(load, {"lost": None}) == "lost None"
    with pytest.raises(Unexpected, match="lost None; lost None: "):
        finish_load(load, {"lost": 0})
    wrong.append("tenant had to be killed")
    with pytest.raises(Unexpected, match="lost None; tenant had to be killed"):
        finish_load(load, {"lost": None})


@pytest.fixture
def interrupted() -> Iterator[None]:
    INTERRUPTED.set()
    yield
    INTERRUPTED.clear()


def test_a_wrong_load_is_told_at_the_end() -> None:
    wrong: list[str] = []
    judge_last(wrong, "lab ask", lambda: "lost 0")
    assert wrong == []
    judge_last(wrong, "lab ask", broken)
    assert wrong == ["load of lab ask: broken"]


@pytest.mark.usefixtures("interrupted")
def test_no_load_is_judged_after_an_interruption() -> None:
    wrong: list[str] = []
    judge_last(wrong, "lab ask", broken)
    assert wrong == []


def test_a_lab_that_recovers_plays_on_and_another_one_does_not() -> None:
    series = Series()
    for name in ("one", "two"):
        with pytest.raises(LabError, match=r"^broken$"):
            series.play(name, broken, lambda: None)
    assert series.play("three", lambda: "fine", broken) == "fine"
    with pytest.raises(LabError, match=r"^broken$"):
        series.play("four", broken, broken)
    with pytest.raises(Unexpected, match="not played: the lab did not come back after four: broken"):
        series.play("five", lambda: "fine", lambda: None)


def test_a_case_of_a_chain_is_played_after_those_before_it_and_each_once() -> None:
    played: list[str] = []

    def act(name: str) -> str:
        played.append(name)
        return name.upper()

    chain = Chain({name: partial(act, name) for name in "abc"})
    assert chain.play("b") == "B"
    assert chain.play("c") == "C"
    assert played == ["a", "b", "c"]


def test_the_cases_after_a_broken_one_of_a_chain_are_not_played() -> None:
    chain = Chain({"a": broken, "b": lambda: "fine"})
    with pytest.raises(LabError, match=r"^broken$"):
        chain.play("a")
    with pytest.raises(Unexpected, match="not played: a has failed"):
        chain.play("b")


def test_a_lab_stays_up_for_its_cases_and_is_down_before_the_next() -> None:
    told: list[str] = []

    @contextmanager
    def up(name: str) -> Iterator[str]:
        told.append(f"up {name}")
        yield name.upper()
        told.append(f"down {name}")

    labs = OneLab(up)
    assert [labs.of(name) for name in ("a", "a", "b")] == ["A", "A", "B"]
    labs.close()
    assert told == ["up a", "down a", "up b", "down b"]


def test_a_lab_that_cannot_be_built_is_tried_once() -> None:
    labs: OneLab[str, str] = OneLab(lambda _name: broken())
    with pytest.raises(LabError, match=r"^broken$"):
        labs.of("a")
    with pytest.raises(Unexpected, match="not played: no lab for a"):
        labs.of("a")
