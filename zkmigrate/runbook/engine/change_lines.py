"""Short lines for changes on clusters: they leave out what earlier lines tell.

A run of hours has tens of thousands of them. Changes on hosts, which somebody may have to read by hand, stand
in full, and so do journals of earlier versions. What is left out is put back when lines are read:

- A short ``intent`` has no ``operation``, which :func:`operation_id` gives. Other parts of it, and fields of
  a change of the same type, are those of the intent before where they are missing.
- A short ``outcome`` has ``of``, the number of its intent's line, instead of ``operation``. Where they are
  missing, ``status`` is done, ``rc`` 0, and ``output`` says in words what the change does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from zkmigrate.runbook.engine.codec import decode_change
from zkmigrate.runbook.model.entry import Entry, Kind
from zkmigrate.runbook.model.step import Way

_INTENT = frozenset({"stage", "step", "target", "way", "leg", "operation", "change", "mono"})
_OUTCOME = frozenset({"operation", "status", "rc", "output", "mono"})
_WELL = {"status": "done", "rc": 0}

Body = Mapping[str, Any]


def operation_id(step: str, target: str, way: Way, leg: int, number: int) -> str:
    """``<stage>.<step>.<target>.<leg>.<n>`` in at most 80 characters; a long target name is shortened. On the
    way back it is ``back<leg>``: without the journal, the host's own record must distinguish a change from
    its undo (``hosts/facts/operations.py``)."""
    ends = f".{'back' if way is Way.BACK else ''}{leg}.{number}"
    if len(step) + len(target) + 1 + len(ends) > 80:
        target = f"{target[:12]}-{hashlib.sha256(target.encode()).hexdigest()[:8]}"
    return f"{step}.{target}{ends}"


class ChangeLines:
    """What the lines so far tell, for those that follow. Each line is taken in once, in order."""

    def __init__(self) -> None:
        self._last: Body = {}
        self._number = 0
        self._open: dict[int, Body] = {}
        self._lines: dict[str, int] = {}

    def short(self, kind: Kind, body: Body) -> Body:
        """A body as its line holds it."""
        if kind == "intent" and body.keys() == _INTENT and _on_cluster(body):
            if body["operation"] == self._operation(body):
                return _less(body, self._last)
        elif kind == "outcome" and body.keys() == _OUTCOME and body["operation"] in self._lines:
            line = self._lines[body["operation"]]
            told = {**_WELL, "output": _words(self._open[line])}
            kept = {key: body[key] for key in told if body[key] != told[key]}
            return {**kept, "mono": body["mono"], "of": line}
        return body

    def whole(self, kind: Kind, body: Body) -> Body:
        """The body of a line; KeyError with what no line before it holds: a part, or the intent's line."""
        if kind == "intent" and "operation" not in body:
            change, before = body["change"], self._last.get("change", {})
            if "type" not in change or change["type"] == before.get("type"):
                change = {**before, **change}
            made = {**self._last, **body, "change": change}
            return {**made, "operation": self._operation(made)}
        if kind == "outcome" and "of" in body:
            intent = self._open[body["of"]]
            told = {**_WELL, "output": _words(intent) if "output" not in body else "", **body}
            return {key: told[key] for key in told if key != "of"} | {"operation": intent["operation"]}
        return body

    def take(self, entry: Entry) -> None:
        """Take in a line, with its whole body."""
        body = entry.body
        if entry.kind == "intent" and body.keys() == _INTENT and _on_cluster(body):
            self._number = self._next_number(body)
            self._last = body
            self._open[entry.seq] = body
            self._lines[body["operation"]] = entry.seq
        elif entry.kind == "outcome":
            self._open.pop(self._lines.pop(body.get("operation", ""), 0), None)

    def _operation(self, body: Body) -> str:
        step = f"{body['stage']}.{body['step']}"
        return operation_id(step, body["target"], Way(body["way"]), body["leg"], self._next_number(body))

    def _next_number(self, body: Body) -> int:
        """The number of a change: 1 for the first of its target in a wave."""
        same = all(body[key] == self._last.get(key) for key in ("stage", "step", "target", "way", "leg"))
        return self._number + 1 if same else 1


def _on_cluster(body: Body) -> bool:
    return "cluster" in body["change"]


def _less(body: Body, last: Body) -> Body:
    """An intent without its operation and what the last one told."""
    change, before = body["change"], last.get("change", {})
    if change["type"] == before.get("type"):
        change = {key: change[key] for key in change if change[key] != before[key]}
    differs = {key: body[key] for key in _INTENT - {"operation"} if body[key] != last.get(key)}
    return {**differs, "change": change, "target": body["target"]}


def _words(intent: Body) -> str:
    return decode_change(intent["change"]).describe()
