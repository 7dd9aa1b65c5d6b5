"""A runbook with a section of its own and no host at all: it sets values of a store, which is a file.

The store remembers no operation. The site is the real one, over an inventory of none of the move's sections.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import AlterTopicConfig
from zkmigrate.runbook.model.change import Applied, Change, Changes, Outcome, inverses
from zkmigrate.runbook.model.finding import claim
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import Blocked, Context, Done, Hazard, Ready, Step, Verdict, Way
from zkmigrate.runbook.site.wiring import Site

TOPICS = ("a", "b")


class Shelf(BaseModel):
    """The section: where the store is. stop_at: a topic that the step does not set."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    file: str
    stop_at: str = ""


class ShelfInventory(Inventory):
    """The shape of its file."""

    shelf: Shelf


def values(inventory: Inventory) -> dict[str, str]:
    """What the store holds."""
    assert isinstance(inventory, ShelfInventory)
    path = Path(inventory.shelf.file)
    return json.loads(path.read_text()) if path.exists() else {}


@dataclass
class SetStep(Step[dict[str, str]]):
    """Sets one value of each topic, one after the other."""

    id: str = "set"
    title: str = "Set"
    hazard: Hazard = Hazard.REVERSIBLE

    def observe(self, c: Context, look: Look) -> dict[str, str]:
        return values(c.inventory)

    def check(self, c: Context, f: dict[str, str]) -> Verdict:
        left = [topic for topic in TOPICS if (f.get(topic) == "new") is (c.way is Way.BACK)]
        if not left:
            return Done()
        if c.way is Way.FORWARD and left[0] == c.inventory.shelf.stop_at:  # type: ignore[attr-defined]
            return Blocked((claim("shelf.free", "the topic is free", False),))
        return Ready((left[0],))

    def plan(self, c: Context, f: dict[str, str], target: str) -> Changes:
        return (AlterTopicConfig("shelf", target, "value", "new", f.get(target)),)

    def undo(self, c: Context, f: dict[str, str], target: str, applied: tuple[Applied, ...]) -> Changes:
        return inverses(applied)


class ShelfSite(Site):
    """The real site; only the store is not Kafka's."""

    def __init__(self, inventory: Inventory, run: str) -> None:
        super().__init__(inventory, run)
        self.apply: Any = self._set

    def _set(self, change: Change, _operation: str, fencing: int) -> Outcome:
        assert isinstance(change, AlterTopicConfig)
        assert isinstance(self.inventory, ShelfInventory)
        assert fencing == 0
        held = values(self.inventory) | {change.topic: change.value}
        path = Path(self.inventory.shelf.file)
        path.write_text(json.dumps({topic: value for topic, value in held.items() if value is not None}))
        return Outcome(0)


PLAYBOOK = Playbook(
    "shelf",
    "Set values of a store",
    (Stage("main", "Set", (SetStep(),)),),
    inventory=ShelfInventory,
    sections=("shelf",),
)
