"""The changes of a run that are not undone, indexed by step and target.

A look at one target of twenty thousand must not walk over the changes of all the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple

from zkmigrate.runbook.model.change import Applied, Change, Restore, inverse, undoes


class Row(NamedTuple):
    """One change with its step (``stage.step``) and target."""

    step: str
    target: str
    applied: Applied


class Sent:
    """Rows by operation id, in the order of sending."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._by_step: dict[str, dict[str, str]] = {}
        self._by_target: dict[tuple[str, str], dict[str, None]] = {}
        self._restorable: dict[str, set[str]] = {}
        self._in_doubt: dict[str, dict[str, str]] = {}

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def of(self, step: str, target: str) -> tuple[Applied, ...]:
        """A target's changes of a step, oldest first."""
        return tuple(self._rows[operation].applied for operation in self._by_target.get((step, target), ()))

    def steps(self) -> Collection[str]:
        """The steps that have changes."""
        return self._by_step.keys()

    def targets(self, step: str) -> Collection[str]:
        """The target of each change of a step, oldest first, with repeats."""
        return self._by_step.get(step, {}).values()

    def restorable(self, step: str) -> Collection[str]:
        """Targets of a step with a change that has a default inverse."""
        return self._restorable.get(step, ())

    def in_doubt(self, step: str) -> Collection[str]:
        """The target of each unconfirmed change of a step."""
        return self._in_doubt.get(step, {}).values()

    def undone_by(self, step: str, target: str, change: Change) -> tuple[str, ...]:
        """The operations that a change of the way back undoes."""
        if isinstance(change, Restore):
            return (change.operation,)
        return tuple(a.operation for a in self.of(step, target) if undoes(change, a))

    def add(self, row: Row) -> None:
        step, target, applied = row
        self._rows[applied.operation] = row
        self._by_step.setdefault(step, {})[applied.operation] = target
        self._by_target.setdefault((step, target), {})[applied.operation] = None
        if not applied.confirmed:
            self._in_doubt.setdefault(step, {})[applied.operation] = target
        if inverse(applied) is not None:
            self._restorable.setdefault(step, set()).add(target)

    def confirm(self, operation: str) -> None:
        """The target confirmed it; an unknown operation is ignored."""
        if operation in self._rows:
            row = self._rows[operation]
            self._rows[operation] = row._replace(applied=replace(row.applied, confirmed=True))
            self._in_doubt.get(row.step, {}).pop(operation, None)

    def drop(self, operation: str) -> None:
        """It was not sent after all, or is undone; an unknown operation is ignored."""
        row = self._rows.pop(operation, None)
        if row is None:
            return
        step, target, _ = row
        del self._by_step[step][operation], self._by_target[step, target][operation]
        self._in_doubt.get(step, {}).pop(operation, None)
        if not self._by_step[step]:
            del self._by_step[step]
        if all(inverse(a) is None for a in self.of(step, target)):
            self._restorable.get(step, set()).discard(target)

    def clear(self, step: str) -> None:
        """A step was walked back to its start."""
        for operation in tuple(self._by_step.get(step, ())):
            self.drop(operation)
