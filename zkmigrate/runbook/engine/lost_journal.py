"""Continue a run after its journal was lost or damaged, with the help of the hosts' own records.

Where the sources contradict each other, the first of these decides: the world as it is now; each host's own
record (its operations and before-images); the remaining lines of the journal. Only the operator chooses the
direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from zkmigrate.errors import HostError
from zkmigrate.hosts.facts.operations import Operation, not_undone, operations
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine.history import History, Next
from zkmigrate.runbook.engine.step_names import operation_id
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.step import AnyStep, Blocked, Context, Done, Hazard, Way


@dataclass(frozen=True)
class Found:
    """The state of a run as its hosts report it.

    - operations: changes of the way forward that are not undone.
    - stages, steps: what is done, a step as ``stage.step``.
    - unrecorded: steps that are done but whose record (such as a baseline) is lost.
    - consented: stages with a question that must have been agreed to.
    - leg: the highest leg of any operation.
    - newer: whether the hosts did more than the remaining lines say.
    """

    operations: tuple[Operation, ...]
    stages: tuple[str, ...]
    steps: tuple[str, ...]
    unrecorded: tuple[str, ...]
    consented: tuple[str, ...]
    leg: int
    newer: bool

    def body(self, text: str) -> Mapping[str, Any]:
        """Return the body of the journal's ``found`` line."""
        operations = [
            {"operation": op.id, "step": op.step, "target": op.host, "verb": op.verb, "path": op.path,
             "confirmed": op.done}
            for op in self.operations
        ]  # fmt: skip
        lists = {key: list(getattr(self, key)) for key in ("stages", "steps", "unrecorded", "consented")}
        return {"text": text, "leg": self.leg, **lists, "operations": operations}


def ask_hosts(left: History, playbook: Playbook, inventory: Inventory, look: Look, run: str) -> Found:
    """Read the records that the hosts themselves keep, and observe the steps.

    Every host that the run may change is read. left: the history from the remaining lines. Raises HostError,
    before anything is written, if a host does not answer: it may have a file that must be put back.
    """
    every = _records(playbook, playbook.without(inventory, left.retired), look)
    steps = playbook.step_ids()
    newer = [op for op in every if op.leg > left.known_leg]
    stages, done = _known(left, playbook, newer)
    context = Context(run, inventory, records=left.records())
    if over := _over(playbook, context, look):
        reporting = {op.host for op in every}
        uninstalled = any(host not in reporting for host in playbook.witnesses(inventory))
        last = over[-1] if uninstalled else over[0]
        stages |= {stage.id for stage in playbook.stages[:last]}
        done |= _gone(playbook.stages[last], context, look, opened=True)
    else:
        for stage in _entered(playbook, newer):
            done |= _gone(stage, context, look, opened=False)
    whole = [stage for stage in playbook.stages if stage.id in stages]
    done |= {f"{stage.id}.{step.id}" for stage in whole for step in stage.steps}
    begun = {step.partition(".")[0] for step in done}
    return Found(
        operations=not_undone(every, steps),
        stages=tuple(s.id for s in playbook.stages if s.id in stages),
        steps=tuple(step for step in steps if step in done),
        unrecorded=tuple(step for step in steps if step in done and step not in left.done),
        consented=tuple(s.id for s in playbook.stages if s.consent and s.id in begun),
        leg=max((op.leg for op in every), default=0),
        newer=bool(newer),
    )


def _records(playbook: Playbook, inventory: Inventory, look: Look) -> tuple[Operation, ...]:
    hosts = playbook.changed(inventory)
    steps = playbook.step_ids()
    asked = look.each(hosts, lambda host: operations(look, host, steps))
    silent = {host: reading for host, reading in asked.items() if not isinstance(reading, Seen)}
    if silent:
        raise HostError(
            f"without the journal only the hosts' records show what was done, and {len(silent)} of "
            f"{len(hosts)} hosts did not report theirs: "
            f"{'; '.join(f'{host}: {reading}' for host, reading in silent.items())}. Needed: the "
            f"record of all {playbook.many_changed}. Nothing was changed. Next: bring these hosts "
            "back, then run the same command again"
        )
    found = (op for reading in asked.values() if isinstance(reading, Seen) for op in reading.value)
    # Hosts on one machine have one record there. Each operation names its own host.
    return tuple(op for op in found if op.id == operation_id(op.step, op.host, op.way, op.leg, op.number))


def _known(left: History, playbook: Playbook, newer: list[Operation]) -> tuple[set[str], set[str]]:
    """Return the stages and steps that are done, by the remaining lines and the hosts' records.

    Everything before the latest work, in either direction, is done. A window is walked again from its first
    step, because its steps count only while their lease lasts.
    """
    position = left.next(playbook)
    at = position.id if isinstance(position, Next) else ""
    latest = _latest(newer).step if newer else at
    onward = left.way is Way.FORWARD and all(op.way is Way.FORWARD for op in newer)
    if not latest or (onward and _stage(latest) == _stage(at)):
        return set(left.stages_done), set(left.done)
    ids = [stage.id for stage in playbook.stages]
    before = set(ids[: ids.index(_stage(latest))])
    stage = playbook.stages[len(before)]
    steps = [f"{stage.id}.{step.id}" for step in stage.steps]
    passed = set() if stage.window else set(steps[: steps.index(latest)])
    if newer:
        return before, passed
    return left.stages_done | (left.stages_reset & before), passed


def _over(playbook: Playbook, context: Context, look: Look) -> list[int]:
    """Return the indices of the stages that cannot be walked back any more.

    In such a stage the check of a final step (``Hazard.FINAL``) reports that there is no way back.
    """
    return [
        number
        for number, stage in enumerate(playbook.stages)
        for step in stage.steps
        if step.hazard is Hazard.FINAL and _no_way_back(step, context, look)
    ]


def _no_way_back(step: AnyStep, context: Context, look: Look) -> bool:
    back = replace(context, way=Way.BACK)
    verdict = step.check(back, step.observe(back, look))
    return isinstance(verdict, Blocked) and verdict.no_way_back


def _entered(playbook: Playbook, newer: list[Operation]) -> list[Stage]:
    """Return the window in which the run was last, as a list of one stage; empty if it was in none.

    A rehearsal is left out, because it is walked back and begun again instead.
    """
    latest = _stage(_latest(newer).step) if newer else ""
    return [s for s in playbook.stages if s.window and not s.rehearsal and s.id == latest]


def _gone(stage: Stage, context: Context, look: Look, *, opened: bool) -> set[str]:
    """Return the ids of the window's steps that count as over.

    Once the hosts' block is permanent, they finish the window without the operator. opened: whether any host
    already lets clients in. If so, all steps up to the seal count as over, because the other hosts can then
    only go forward.
    """
    ids = [step.id for step in stage.steps]
    if stage.window is None or stage.window.steps.seals not in ids:
        return set()
    sealed = ids.index(stage.window.steps.seals) + 1
    passed = sealed if opened else 0
    for number, step in list(enumerate(stage.steps))[sealed:]:
        if step.hazard is not Hazard.WINDOW:
            continue
        if not isinstance(step.check(context, step.observe(context, look)), Done):
            break
        passed = number + 1
    return {f"{stage.id}.{id}" for id in ids[:passed]}


def _latest(operations: list[Operation]) -> Operation:
    return max(operations, key=lambda op: op.leg)


def _stage(step: str) -> str:
    return step.partition(".")[0]
