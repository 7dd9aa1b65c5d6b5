"""Operators of the model world whose runs leave samples and events, as the command line's do.

Every change takes a tenth of a second, so that what follows one another has different times.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.world.model.look import WorldLook
from tests.world.operator import Operator, quiet_world
from zkmigrate.report.build import build
from zkmigrate.report.sources import read
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.samples import Samples
from zkmigrate.runbook.model.change import Change, Outcome
from zkmigrate.runbook.model.report import Report
from zkmigrate.runbook.model.sampling import Question
from zkmigrate.runbook.runs import playbook_files
from zkmigrate.runbook.site.sampler import ask

CHANGE_S = 0.1


class Written(list[events.Event]):
    """Events that are also written down, with the world's time."""

    def __init__(self, operator: ToldOperator) -> None:
        self._operator = operator

    def append(self, event: events.Event, /) -> None:
        super().append(event)
        body = {"at": self._operator.world.wall, **events.to_json(event)}
        with open(self._operator.run_dir / "events.jsonl", "a") as file:
            file.write(json.dumps(body) + "\n")


@dataclass
class ToldOperator(Operator):
    """An operator who samples once a second of the world's time, and at each change."""

    questions: tuple[Question, ...] = field(default=())

    def _ports(self) -> dict[str, Any]:
        self.samples = Samples(self.run_dir, self.now, self.wall, pytest_fail)
        look = WorldLook(self.world, self.unreachable)
        sampling = self.playbook.sampling
        self.questions = tuple(q for one in sampling for q in one.questions(self.world.inventory, look))
        return super()._ports()

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        with self.world.lock:
            outcome = super()._apply(change, operation, fencing)
            self.pause(CHANGE_S)
            return outcome

    def pause(self, seconds: float) -> None:
        super().pause(seconds)
        for question in self.questions:
            ask(question, self.samples)


def pytest_fail(text: str) -> None:
    raise AssertionError(text)


def operator_in(directory: Path, **options: Any) -> ToldOperator:
    """A new operator over a quiet world; its run is ``directory/run``."""
    operator = ToldOperator(quiet_world(), directory / "run", **options)
    operator.run_dir.mkdir(mode=0o700, parents=True)
    operator.events = Written(operator)
    return operator


def again(operator: ToldOperator) -> ToldOperator:
    """The next process of the same run."""
    following = ToldOperator(operator.world, operator.run_dir)
    following.events = Written(following)
    return following


def report_of(operator: ToldOperator) -> Report:
    """The report of its run."""
    return build(read(operator.run_dir), playbook_files.load(playbook_files.DEFAULT))


def lines(operator: ToldOperator) -> list[dict[str, Any]]:
    """The journal as it lies there, read without the tool."""
    text = (operator.run_dir / "journal.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]
