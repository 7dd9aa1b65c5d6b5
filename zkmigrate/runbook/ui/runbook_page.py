"""Write the runbook as one Markdown page: the plan's changes as commands for a person, and their undo.

docs/how-to/by-hand.md says how ``zkm-host`` is used without the tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from zkmigrate.clean import clean, inline
from zkmigrate.errors import UsageError
from zkmigrate.hosts.transport import quote
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine import planfile
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.plan import NOTHING, Plan, PlannedStage, PlannedStep, command
from zkmigrate.runbook.engine.step_names import operation_id
from zkmigrate.runbook.model.change import Applied, Change, Changes, ClusterChange
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import AnyStep, Context, Hazard, Way

_RUN = re.compile(r"(?<=--run )RUN\b|(?<=/zkmigrate/)RUN(?=/)|\bRUN(?=\.OPID)")
"""The placeholder of the run's id in a command of the plan."""

_REFUSED = re.compile(r"\|[a-z-]+ is refused")
"""The beginning of the refusals in the pattern of an answer on the way back."""


@dataclass(frozen=True)
class Block:
    """Commands to be given one after the other. hosts: the hosts or clusters that they change."""

    hosts: tuple[str, ...]
    step: str
    way: Way
    lines: tuple[str, ...]

    def to_json(self) -> dict[str, str]:
        """Return the block as an object for ``--json``."""
        return {"host": ",".join(self.hosts), "step": self.step, "way": self.way.value} | {
            "text": "\n".join(self.lines)
        }


@dataclass(frozen=True)
class Runbook:
    """The content of the page.

    run: the id of the run in every command. leg: seconds since the epoch, a part of every operation id.
    history: the run's history if the tool has begun it; the page then also has the undo of what is done.
    """

    playbook: Playbook
    plan: Plan
    inventory: Inventory
    run: str
    leg: int
    history: History | None = None

    def parts(self) -> tuple[str | Block, ...]:
        """Return the lines and blocks of the page, in order. Raises UsageError for an unsafe command."""
        steps = (
            part
            for planned, stage in zip(self.plan.stages, self.playbook.stages, strict=True)
            for part in _stage(self, planned, stage)
        )
        return (*_head(self), *steps)


def text(parts: Sequence[str | Block]) -> str:
    """Return the page as Markdown, without characters that a terminal obeys."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Block):
            head = f"```sh host={','.join(part.hosts)} step={part.step} way={part.way.value}"
            lines += [head, *part.lines, "```", ""]
        else:
            lines.append(part)
    return clean("\n".join(lines) + "\n")


def _head(book: Runbook) -> Iterator[str]:
    yield f"# Runbook: {book.playbook.title}"
    yield ""
    digest = planfile.from_plan(book.plan).digest
    yield f"Inventory `{book.inventory.name}`, run `{book.run}`, plan `{digest}`."
    yield "Use it only when neither `zkmigrate resume` nor `zkmigrate rollback` works on any machine."
    yield "First read the page *By hand* of the documentation: it says how `zkm-host` is used."
    yield "Stop at each answer that is not the expected one. In the commands `N` stands for your fencing"
    yield "number, `BOOTSTRAP` for `ADDRESS:PORT` of a server of the cluster."
    for remark in book.plan.window:
        yield from ("", f"**{inline(remark.strip())}.** Nothing below is for this host.")
    if unknown := book.plan.unknown:
        yield from ("", "**THIS PAGE IS INCOMPLETE.** When it was made, this was not known:")
        yield from (f"- {where}: {inline(why)}" for where, why in unknown.items())
    yield ""


def _stage(book: Runbook, planned: PlannedStage, stage: Stage) -> Iterator[str | Block]:
    marks = " (rehearsal: afterwards undo every step, the last one first)" if planned.rehearsal else ""
    yield from (f"## {planned.id}: {planned.title}{marks}", "")
    if planned.consent:
        yield from (f"- [ ] **{planned.consent}** yes, said by ______ at ______", "")
    for step, real in zip(planned.steps, stage.steps, strict=True):
        yield from _step(book, planned, step, real)


def _step(book: Runbook, stage: PlannedStage, step: PlannedStep, real: AnyStep) -> Iterator[str | Block]:
    name = f"{stage.id}.{step.id}"
    yield from (f"### {name}: {step.title}", "")
    for line in step.brief.lines():
        heading, _, rest = line.partition(": ")
        yield from (f"**{heading}:** {rest}", "")
    if step.hazard is Hazard.FINAL:
        yield from ("**POINT OF NO RETURN.** There is no way back after this.", "")
    if step.unknown:
        why = inline(step.unknown)
        yield f"**Not known when this page was made:** {why}. Do not go on by hand from here."
        yield ""
        return
    if step.note:
        yield from (f"Changes: {step.note}.", "")
    yield from _forward(book, name, step)
    undo = _undo(book, stage, step, real)
    if undo:
        yield from ("**Way back:**", "")
        yield from _commands(book, name, Way.BACK, dict(reversed(undo.items())))
    if step.note != NOTHING:
        yield from ("- [ ] done at ______ by ______   seen: ______", "")


def _forward(book: Runbook, name: str, step: PlannedStep) -> Iterator[str | Block]:
    """Yield the commands, then the diffs and details of the plan. Targets with the same text share it."""
    changes = {target: tuple(one.change for one in planned) for target, planned in step.targets.items()}
    yield from _commands(book, name, Way.FORWARD, changes)
    shown: dict[tuple[str, ...], list[str]] = {}
    for target, planned in step.targets.items():
        for change in planned:
            for lines in (tuple(change.diff.splitlines()), change.detail):
                if lines:
                    shown.setdefault(lines, []).append(target)
    for lines, targets in shown.items():
        yield from (f"On {', '.join(dict.fromkeys(targets))}:", "", *(f"    {line}" for line in lines), "")


def _commands(book: Runbook, name: str, way: Way, changes: Mapping[str, Changes]) -> Iterator[str | Block]:
    """Yield the commands of each target. Targets with equally described changes share a block."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for target, all_ in changes.items():
        groups.setdefault(tuple(change.describe() for change in all_), []).append(target)
    for words, targets in groups.items():
        for number, said in enumerate(words, 1):
            each = {target: changes[target][number - 1] for target in targets}
            where = tuple(dict.fromkeys(change.where for change in each.values()))
            lines = tuple(
                _line(book, change, operation_id(name, target, way, book.leg, number))
                for target, change in each.items()
            )
            for line in lines:
                if inline(line) != line or line.startswith("```"):
                    raise UsageError(
                        f"{name} on {', '.join(where)}: a command contains {inline(line)}. Needed: one line "
                        "without control characters that does not begin with ```. No page was written. "
                        "Next: correct the value in the inventory or on the host"
                    )
            yield from (f"{number}. {inline(said)}, in this order: {', '.join(where)}", "")
            yield Block(where, name, way, lines)
            if answer := expected(each[targets[0]], way):
                yield from (f"Expect: {answer}.", "")


def _line(book: Runbook, change: Change, operation: str) -> str:
    if not isinstance(change, ClusterChange):
        quote.plain(change.arguments())
    line = _RUN.sub(book.run, command(change))
    line = re.sub(r"\bOPID\b", lambda _: operation, line)
    return line if isinstance(change, ClusterChange) else f"ssh {change.host} {line}"


def expected(change: Change, way: Way) -> str:
    """Return the answer to expect from the host or the cluster's tool, in words for a reader."""
    if isinstance(change, ClusterChange) or not change.expect:
        return change.expect
    pattern = f"{change.expect}|{change.spared}" if way is Way.BACK and change.spared else change.expect
    said, *refused = _REFUSED.split(pattern, maxsplit=1)
    plain = said.removeprefix("^").removesuffix("$").replace("\\", "").replace("[0-9]+", "N").strip()
    before, _, rest = plain.partition("(")
    words, _, after = rest.partition(")")
    replies = " or ".join(f"`{before}{word}{after}`" for word in words.split("|"))
    return replies + (", or a refusal because the host never got this far" if refused else "")


def _undo(book: Runbook, stage: PlannedStage, step: PlannedStep, real: AnyStep) -> dict[str, Changes]:
    """Return the changes that undo the step, by target: those of its plan, and those the tool has made."""
    if step.facts is None:
        return {}
    name, history = f"{stage.id}.{step.id}", book.history
    done: dict[str, tuple[Applied, ...]] = {}
    if history is not None and not stage.window:  # by hand, a window is begun anew
        done = {target: history.applied(name, target) for target in history.touched(name)}
    for target, changes in step.targets.items():
        done[target] = tuple(
            Applied(c.change, operation_id(name, target, Way.FORWARD, book.leg, number), True)
            for number, c in enumerate(changes, 1)
        )
    records = history.records() if history is not None else {}
    context = Context(book.run, book.inventory, 0, stage.rehearsal, records, way=Way.BACK)
    undone = {target: real.undo(context, step.facts, target, applied) for target, applied in done.items()}
    return {target: changes for target, changes in undone.items() if changes}
