"""The move of a dependent from one ZooKeeper ensemble to a new, empty one: all its stages and steps.

Each step is one file in ``move/steps``, together with the undo of the step. docs/explanation/protocol.md
describes the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from zkmigrate.errors import UsageError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.dependent import AnyDependent
from zkmigrate.move.facts.sessions import owning_sessions
from zkmigrate.move.rules import probes, window_estimate
from zkmigrate.move.rules.lease import lease_in_force
from zkmigrate.move.rules.sampling import ENSEMBLES
from zkmigrate.move.rules.unattended import unattended
from zkmigrate.move.rules.window_rules import WINDOW, keeps_s
from zkmigrate.move.steps.arm import ArmStep
from zkmigrate.move.steps.check import CheckStep
from zkmigrate.move.steps.cut import CutStep
from zkmigrate.move.steps.drain import DrainStep
from zkmigrate.move.steps.fence import FenceStep
from zkmigrate.move.steps.finalize import FinalizeStep
from zkmigrate.move.steps.go import GoStep
from zkmigrate.move.steps.install import InstallStep
from zkmigrate.move.steps.join import JoinStep
from zkmigrate.move.steps.open_door import OpenStep
from zkmigrate.move.steps.preflight import PreflightStep
from zkmigrate.move.steps.prove import ProveStep
from zkmigrate.move.steps.roll import RollStep
from zkmigrate.move.steps.seal import SealStep
from zkmigrate.move.steps.serve import ServeStep
from zkmigrate.move.steps.stop import StopStep
from zkmigrate.move.steps.survey import SurveyStep
from zkmigrate.move.steps.verify import VerifyStep
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Counted, GoNoGo, Playbook, Role, Stage
from zkmigrate.runbook.model.report import Reporting
from zkmigrate.runbook.model.step import AnyStep, Context


@dataclass(frozen=True)
class Move(Playbook):
    """A runbook that moves a dependent, in either direction."""

    dependent: AnyDependent = field(kw_only=True)


def dependent_of(playbook: Playbook) -> AnyDependent:
    """Return the dependent that a runbook moves.

    Raises UsageError if the runbook does not move a dependent.
    """
    if not isinstance(playbook, Move):
        raise UsageError(
            f"{playbook.id} moves no system that uses ZooKeeper; --playbook names another runbook"
        )
    return playbook.dependent


def move(
    dependent: AnyDependent,
    go_no_go: GoNoGo | None = None,
    report: Reporting | None = None,
    looks: tuple[Stage, ...] = (),
) -> Move:
    """Return the runbook that moves this dependent.

    go_no_go, report, looks: the fields of ``Playbook`` with these names.
    """
    words = dependent.words

    def zookeeper(inventory: Inventory) -> tuple[str, tuple[str, ...]]:
        return inventory.dest.service.unit, inventory.dest.commands

    def members(inventory: Inventory) -> tuple[str, ...]:
        return tuple(member.name for member in dependent.members(inventory))

    def foreseen(c: Context, look: Look) -> tuple[str, ...]:
        hosts = (*c.inventory.source_names, *c.inventory.dest_names)
        sessions = owning_sessions(look, hosts, dependent.chroot(c.inventory))
        return window_estimate.plan_lines(dependent, c, sessions)

    window = replace(
        WINDOW,
        remarks=window_estimate.cutover_lines,
        lease=lease_in_force,
        probes=partial(probes.window_probes, dependent),
        unattended=unattended(dependent),
        keeps_s=keeps_s,
    )
    arm_to_check: tuple[AnyStep, ...] = (
        ArmStep(),
        SurveyStep(dependent),
        FenceStep(dependent),
        DrainStep(),
        CutStep(),
        StopStep(),
        ProveStep(dependent),
        SealStep(),
        GoStep(dependent),
        ServeStep(),
        CheckStep(dependent),
    )
    return Move(
        id=f"{words.kind}_zookeeper_move",
        title=f"Move {words.system} to a ZooKeeper ensemble of its own",
        stages=(
            Stage("preflight", "Look first", (PreflightStep(dependent),), locked=False, refused=3, gate=True),
            Stage("install", "Install the host program", (InstallStep(dependent),), locked=False),
            Stage("join", "Join dest as observers of source", (JoinStep(),), outdates="joined dest"),
            Stage(
                "rehearse",
                "Rehearse the cut-over, then restore",
                arm_to_check,
                consent=f"Rehearse on the dest hosts now? No {words.one} uses them yet.",
                rehearsal=True,
                unnoticed=f"nothing, no {words.one} uses dest yet",
                window=window,
                skip="dest's configs, rights and start stay untested; the length of the window is not "
                "known, and the way back is assumed to take policy.way_back_s",
            ),
            Stage(
                "roll",
                f"Roll the {words.many} to dest",
                (PreflightStep(dependent, gate="roll"), RollStep(dependent)),
                consent=f"{words.again.capitalize()} the {words.many} one wave at a time?",
                noticed=True,
                gate=True,
            ),
            Stage(
                "cutover",
                "Cut over",
                (PreflightStep(dependent, gate="cutover"), *arm_to_check, OpenStep(dependent)),
                consent="Cut over now? Everything up to OPEN has a way back.",
                window=window,
                noticed=True,
                gate=True,
            ),
            Stage("verify", "Verify", (VerifyStep(dependent),), noticed=True),
            Stage(
                "finalize",
                "Finalize",
                (FinalizeStep(dependent),),
                consent="Remove the images and zkm-host? There is no way back after this.",
            ),
        ),
        counted=(
            Counted("join.join", "dest hosts", lambda inventory, _: inventory.dest_names),
            Counted("roll.roll", words.many, lambda inventory, _: members(inventory), paced=True),
        ),
        inventory=dependent.shape,
        sections=("operator", "ssh", "source", "dest", words.kind),
        roles=(
            Role("source", "source hosts"),
            Role("dest", "dest hosts", changed=True, witness=True, service=zookeeper),
            Role(words.many, words.many, changed=True, without=dependent.without),
        ),
        go_no_go=go_no_go,
        report=report or Reporting(),
        looks=looks,
        foreseen=foreseen,
        sampling=(ENSEMBLES, *dependent.sampling),
        clusters=dependent.clusters,
        dependent=dependent,
    )
