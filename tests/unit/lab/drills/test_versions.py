"""The drill of version pairs: what it asks the demo for, and what it makes of how one ended."""

from __future__ import annotations

from typing import Any

import pytest

from zkmigrate.lab import demo
from zkmigrate.lab.drills.versions import case_of, options_of
from zkmigrate.move.preflight.drilled import DRILLED

DRILL = DRILLED[0]


def found(held: bool = True, claim: str = "yes", condition: bool = True) -> dict[str, Any]:
    return {
        "held": held,
        "lost": 0,
        "duplicated": 0,
        "window_s": 3.5,
        "claims": {"lost": {"held": claim}},
        "conditions": {"versions_as_asked": condition},
    }


@pytest.mark.parametrize("drill", DRILLED, ids=str)
def test_the_demo_takes_what_it_is_asked_for(drill: Any) -> None:
    context = demo.main.make_context("demo", options_of(drill))
    asked = context.params
    assert (asked["source_version"], asked["dest_version"], asked["kafka_version"]) == (
        drill.source,
        drill.dest,
        drill.kafka,
    )


def test_a_demo_in_which_every_claim_held_holds() -> None:
    case = case_of(DRILL, 0, found(), 90.04)
    assert case.held
    assert case.outcome == "every claim held; lost 0, duplicated 0, window_s 3.5"
    assert (case.name, case.seconds) == (str(DRILL), 90.0)


@pytest.mark.parametrize(
    ("code", "result", "said"),
    [
        (None, None, "no end in time"),
        (1, None, "ended with 1 without a result"),
        (1, found(held=False, claim="no"), "not held: lost; lost 0"),
        (1, found(held=False, condition=False), "not held: versions_as_asked"),
        (0, found(held=False), "every claim held"),
        (3, found(), "every claim held"),
    ],
)
def test_anything_else_does_not(code: int | None, result: dict[str, Any] | None, said: str) -> None:
    case = case_of(DRILL, code, result, 1)
    assert not case.held
    assert case.outcome.startswith(said)
