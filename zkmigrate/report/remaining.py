"""Say what is left to do in a run, without side effects."""

from __future__ import annotations

from zkmigrate.runbook.engine.history import Arrived, History, Next
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.report import Chain, counted
from zkmigrate.runbook.model.step import Way


def left_to_do(history: History, playbook: Playbook | None, chain: Chain) -> tuple[str, ...]:
    """Return sentences about what is left to do, the next task first.

    Commands have the word INVENTORY where the path of the inventory belongs, because no journal knows it.
    """
    out = []
    of = f" --playbook {history.playbook}" if history.playbook else ""
    same = f"-i INVENTORY{of} --run-id {history.run}"
    if chain.state == "damaged":
        keep = playbook.many_witnesses if playbook is not None else "hosts"
        return (
            f"restore an intact copy of the journal (the {keep} have one), or give the direction: "
            f"zkmigrate resume {same} --journal-lost forward|back",
        )
    open_ = history.unconfirmed()
    if open_:
        names = ", ".join(applied.operation for applied in open_)
        out.append(f"resume first checks on the hosts {counted(len(open_), 'unconfirmed change')}: {names}")
    if playbook is None:
        return (
            *out,
            f"unknown, because playbook {history.playbook} is not installed here; name it with --playbook",
        )
    at = history.next(playbook)
    if isinstance(at, Arrived) and at.turn is None:
        return (*out, playbook.report.afterwards)
    if isinstance(at, Arrived):
        if history.way is Way.BACK and not history.begun:
            return (*out, f"nothing to undo. Start again: zkmigrate run {same}")
        return (
            *out,
            f"fix the cause of the turn, then run: zkmigrate run {same}",
            *_ahead(history, playbook),
        )
    if isinstance(at, Next) and at.way is Way.BACK:
        steps = [n.id for n in history.to_undo(playbook, history.turn.to if history.turn else "")]
        still = "steps still to undo: " + ", ".join(steps)
        return (*out, f"finish the way back: zkmigrate resume {same}", still)
    where = at.id if isinstance(at, Next) else f"{at.stage.id}, which must be undone"
    return (*out, f"continue at {where}: zkmigrate resume {same}", *_ahead(history, playbook))


def _ahead(history: History, playbook: Playbook) -> tuple[str, ...]:
    """Return a sentence for each stage that is still ahead.

    A way back withdraws the consents to the stages that it undid.
    """
    begun = {step.partition(".")[0] for step in history.begun}
    agreed = {s for s in history.consents if history.way is Way.FORWARD or s in begun}
    out = []
    for stage in playbook.stages:
        steps = [s.id for s in stage.steps if f"{stage.id}.{s.id}" not in history.done]
        if stage.id in history.stages_done or not steps:
            continue
        some = f" (from {steps[0]})" if len(steps) < len(stage.steps) else ""
        asks = f"; prompts first: {stage.consent}" if stage.consent and stage.id not in agreed else ""
        out.append(f"{stage.id}{some}: {stage.title}{asks}")
    return tuple(out)
