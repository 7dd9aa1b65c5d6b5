"""Explain findings: the verb ``help``, and the page *Findings* of the site that ``make docs`` builds.

Each text is kept once, beside its check or step: in a check's docstring, or in the ``MEANINGS`` of a module.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

from zkmigrate.errors import UsageError
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.move.dependent import Words
from zkmigrate.move.preflight import Gate, Scope, checks
from zkmigrate.move.preflight.check import Check
from zkmigrate.runbook.model.finding import Meaning, Severity

_HOUSE = (
    "zkmigrate.move.dependents",
    "zkmigrate.runbook.engine",
    "zkmigrate.topics.gateway",
    "zkmigrate.runbook.model",
    "zkmigrate.move.facts",
    "zkmigrate.move.rules",
)
"""Packages with modules that may have MEANINGS, in addition to those of every shipped playbook's steps."""

_ALIKE = 0.8
"""The least similarity, by difflib from 0 to 1, at which a known id is suggested for an unknown id."""

_AREAS = {
    "operator": "The operator's machine",
    "host": "Hosts",
    "run": "The run",
    "source": "Source",
    "dest": "Dest",
    "kafka": "Kafka",
    "roll": "The roll",
    "arm": "The cut-over",
    "open": "After the cut-over",
    "watch": "Watching",
    "clean-up": "Cleaning up",
    "retire": "Retiring a broker",
    "return": "The return to source",
    "gateway": "The gateway",
    "switch": "The switch of topics",
    "engine": "Every run",
}
_SAME_AREA = {
    "install": "roll", "join": "roll", "survey": "arm", "fence": "arm", "cut": "arm", "drain": "arm",
    "stop": "arm", "prove": "arm", "seal": "arm", "go": "arm", "serve": "arm", "check": "arm",
    "verify": "open", "finalize": "open", "brokers": "return", "brokers-back": "return", "replay": "return",
    "close": "return", "read": "return", "hook": "engine", "STEP": "arm",
}  # fmt: skip
"""The area of each first word of an id that has no area of its own."""

_HEAD = """# Findings

zkmigrate names everything that it checks by an id. `zkmigrate help ID` prints the entry of an id.
`zkmigrate help findings` prints all of them.

A finding holds, fails or is unknown. Unknown never passes. A failed or unknown finding blocks its gate,
unless its entry says *warns*. The page *Preflight* says how checks and gates work together.
"""


@dataclass(frozen=True)
class Entry:
    """The explanation of one finding's id.

    meaning: the id, what it means, its cause and its remedy. expected: what a check expects to be true; then
    ``meaning.means`` is empty.
    when: for what and at which gates a check runs, and whether it blocks.

    ``expected`` and ``when`` are empty for an id that is not a check.
    """

    meaning: Meaning
    expected: str = ""
    when: str = ""

    @property
    def area(self) -> str:
        """The first word of the id, or the word that it is listed under."""
        word = self.meaning.id.partition(".")[0]
        return _SAME_AREA.get(word, word)

    def lines(self) -> Iterator[str]:
        """Yield the entry as text, one paragraph for each line."""
        if self.expected:
            yield f"Expected: {self.expected}."
        elif self.meaning.cause.startswith("A remark"):
            yield f"Shows: {self.meaning.means}"
        else:
            yield f"Failed: {self.meaning.means}"
        yield f"Cause: {self.meaning.cause}"
        yield f"What to do: {self.meaning.todo}"
        if self.when:
            yield self.when


@cache
def entries() -> dict[str, Entry]:
    """Return the entry of every id: checks in the order of a preflight, then the others."""
    explained = [
        Entry(Meaning(check.id, "", _without_numbers(check.about), check.todo), check.claim,
              f"Checked {_targets(check, dependent.words)}, "
              f"at {_gates(check.gates)}; "
              f"{'blocks' if check.severity is Severity.BLOCK else 'warns'}.")
        for dependent in dependents() for check in checks(dependent)
    ]  # fmt: skip
    explained += [Entry(meaning) for meaning in _meanings()]
    found: dict[str, Entry] = {}
    for entry in explained:
        found.setdefault(entry.meaning.id, entry)
    return found


def dependents() -> Iterator[Any]:
    """Return every shipped dependent, Kafka first.

    The entry of a check that several dependents share uses the words of the first.
    """
    values = [value for module in _modules("zkmigrate.move.dependents") for value in vars(module).values()]
    found = [v for v in values if isinstance(getattr(v, "words", None), Words) and not isinstance(v, type)]
    return iter(sorted(found, key=lambda dependent: dependent.words.kind != KAFKA))


def _targets(check: Check, words: Words) -> str:
    return "once" if check.scope is Scope.CLUSTER else f"for {check.scope.replace('broker', words.one)}"


def _gates(gates: tuple[Gate, ...]) -> str:
    names = ", ".join(gates)
    return "every gate" if len(gates) == len(Gate) else f"the gate{'s' if len(gates) > 1 else ''} {names}"


def _without_numbers(about: str) -> str:
    return re.sub(r"^P\d\d(, P\d\d)*\. ", "", about)


def _meanings() -> Iterator[Meaning]:
    playbooks = [module.PLAYBOOK for module in _modules("playbooks")]
    steps = {type(step).__module__ for book in playbooks for stage in book.stages for step in stage.steps}
    for place in sorted({*_HOUSE, *(module.rpartition(".")[0] for module in steps)}):
        for module in _modules(place):
            yield from getattr(module, "MEANINGS", ())


def _modules(package: str) -> Iterator[ModuleType]:
    below = pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}.")
    yield from map(importlib.import_module, sorted(one.name for one in below))


def entry(id: str) -> Entry:
    """Return the entry of an id. An id such as ``cut.phase`` may use the general entry ``STEP.phase``.

    Raises UsageError for an unknown id; the message names similar ones.
    """
    known = entries()
    if id in known:
        return known[id]
    near = difflib.get_close_matches(id, known, n=3, cutoff=_ALIKE)
    for name, general in known.items():
        if not near and re.fullmatch(re.sub(r"[A-Z]+", r"[a-z0-9_-]+", re.escape(name)), id) and name != id:
            return replace(general, meaning=replace(general.meaning, id=id))
    near = near or difflib.get_close_matches(id, known, n=3) or [n for n in known if id and id in n][:3]
    hint = f"; similar ids: {', '.join(near)}" if near else "; `zkmigrate help findings` lists all of them"
    raise UsageError(f"{id!r} is neither the id of a finding nor a verb{hint}")


def page() -> str:
    """Return all entries as one page of Markdown, sorted by area."""
    parts = [_HEAD]
    areas = dict.fromkeys((*_AREAS, *(one.area for one in entries().values())))
    for area in areas:
        parts.append(f"## {_AREAS.get(area, area.capitalize())}\n")
        for one in entries().values():
            if one.area == area:
                lines = "".join(f"- {line}\n" for line in one.lines())
                parts.append(f"### {one.meaning.id}\n\n{lines}")
    return "\n".join(parts)
