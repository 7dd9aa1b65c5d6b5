"""The changes of a run that are not undone, by step and target.

They are indexed, so that a look at one target does not read the changes of twenty thousand others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from zkmigrate.runbook.model.change import Applied

Targets = Mapping[str, Mapping[str, Applied]]
"""Target → operation id → change, both in the order of sending."""


class SentChanges:
    """The changes by step (``stage.step``), target and operation id."""

    def __init__(self) -> None:
        self._steps: dict[str, dict[str, dict[str, Applied]]] = {}
        self._places: dict[str, tuple[str, str]] = {}

    def __iter__(self) -> Iterator[tuple[str, str, Applied]]:
        """Iterate over step, target and change, in the order of sending."""
        for operation, (step, target) in self._places.items():
            yield step, target, self._steps[step][target][operation]

    def steps(self) -> Mapping[str, Targets]:
        """Return the steps that have changes."""
        return self._steps

    def of_step(self, step: str) -> Targets:
        """Return the changes of a step, by target."""
        return self._steps.get(step, {})

    def of(self, step: str, target: str) -> tuple[Applied, ...]:
        """Return a target's changes of a step, oldest first."""
        return tuple(self.of_step(step).get(target, {}).values())

    def add(self, step: str, target: str, applied: Applied) -> None:
        """Add a change that is sent now."""
        self._steps.setdefault(step, {}).setdefault(target, {})[applied.operation] = applied
        self._places[applied.operation] = (step, target)

    def confirm(self, operation: str) -> None:
        """Mark a change as confirmed by its target; ignore an unknown operation."""
        if operation in self._places:
            step, target = self._places[operation]
            applied = self._steps[step][target][operation]
            self._steps[step][target][operation] = replace(applied, confirmed=True)

    def drop(self, operation: str) -> None:
        """Forget a change that was not sent after all, or is undone; ignore an unknown operation."""
        if operation in self._places:
            step, target = self._places.pop(operation)
            targets = self._steps[step]
            del targets[target][operation]
            if not targets[target]:
                del targets[target]
            if not targets:
                del self._steps[step]

    def clear(self, step: str) -> None:
        """Forget the changes of a step that was walked back to its start."""
        for changes in self._steps.pop(step, {}).values():
            for operation in changes:
                del self._places[operation]
