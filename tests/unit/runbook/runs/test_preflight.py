"""The verb preflight asks a step again for as long as it waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from zkmigrate.runbook.model.finding import claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Reads, Verdict, Waiting
from zkmigrate.runbook.runs.preflight import looked

FOUND = claim("x.y", "all is well", True)


@dataclass
class Clock:
    t: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.t

    def wall(self) -> float:
        return self.t

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.t += seconds


class Patient(Reads[int]):
    """Waits until it has looked so often."""

    id = "patient"
    title = "Wait"

    def __init__(self, looks: int, verdict: Done | Blocked) -> None:
        self._looks, self._verdict = looks, verdict

    def observe(self, c: Context, look: Look) -> int:
        return int(c.kept.get("looks", 0)) + 1

    def check(self, c: Context, f: int) -> Verdict:
        if f >= self._looks:
            return self._verdict
        return Waiting("more looks", f"{f}", 3.0, poll_s=0.5, keep={"looks": f})


def asked(step: Patient) -> tuple[Any, Clock]:
    clock = Clock()
    context = Context("look", cast(Any, None))
    return looked(step, context, cast(Look, None), clock), clock


@pytest.mark.parametrize("verdict", [Done((FOUND,)), Blocked((FOUND,))])
def test_what_a_step_finds_after_a_wait_is_told(verdict: Done | Blocked) -> None:
    found, clock = asked(Patient(3, verdict))
    assert (found, clock.pauses) == ((FOUND,), [0.5, 0.5])


def test_a_wait_that_is_over_is_a_finding() -> None:
    [found], clock = asked(Patient(100, Done((FOUND,))))
    assert (found.id, found.blocks, found.seen) == ("engine.wait-over", True, "7")
    assert clock.t == 3.0
