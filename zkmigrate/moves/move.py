"""The move of a dependent from one ZooKeeper ensemble to a new, empty one: the table of contents.

Each step is one file in ``moves/steps``, its undo in it. The protocol: docs/explanation/protocol.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from zkmigrate.errors import UsageError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.model.by_hand import Manual
from zkmigrate.model.look import Look
from zkmigrate.model.playbook import Counted, Playbook, Role, Stage
from zkmigrate.model.report import Reporting
from zkmigrate.model.step import AnyStep, Context
from zkmigrate.moves.dependent import AnyDependent
from zkmigrate.moves.facts.sessions import owning_sessions
from zkmigrate.moves.rules import probes, window_estimate
from zkmigrate.moves.rules.lease import in_force
from zkmigrate.moves.rules.plight import plight
from zkmigrate.moves.rules.sampling import ENSEMBLES
from zkmigrate.moves.rules.window_rules import WINDOW, keeps_s
from zkmigrate.moves.steps.arm import ArmStep
from zkmigrate.moves.steps.check import CheckStep
from zkmigrate.moves.steps.cut import CutStep
from zkmigrate.moves.steps.drain import DrainStep
from zkmigrate.moves.steps.fence import FenceStep
from zkmigrate.moves.steps.finalize import FinalizeStep
from zkmigrate.moves.steps.go import GoStep
from zkmigrate.moves.steps.install import InstallStep
from zkmigrate.moves.steps.join import JoinStep
from zkmigrate.moves.steps.open_door import OpenStep
from zkmigrate.moves.steps.preflight import PreflightStep
from zkmigrate.moves.steps.prove import ProveStep
from zkmigrate.moves.steps.roll import RollStep
from zkmigrate.moves.steps.seal import SealStep
from zkmigrate.moves.steps.serve import ServeStep
from zkmigrate.moves.steps.stop import StopStep
from zkmigrate.moves.steps.survey import SurveyStep
from zkmigrate.moves.steps.verify import VerifyStep


@dataclass(frozen=True)
class Move(Playbook):
    """A runbook that moves a dependent, there or back."""

    dependent: AnyDependent = field(kw_only=True)


def dependent_of(playbook: Playbook) -> AnyDependent:
    """The dependent that a runbook moves. UsageError for a runbook that moves none."""
    if not isinstance(playbook, Move):
        raise UsageError(f"{playbook.id} moves nothing that uses ZooKeeper; --playbook names another runbook")
    return playbook.dependent


def move(dependent: AnyDependent, manual: Manual | None = None, report: Reporting | None = None) -> Move:
    """The runbook of this dependent. manual, report: what is special of its page by hand and its report."""
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
        lease=in_force,
        probes=partial(probes.window_probes, dependent),
        plight=plight(dependent),
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
                skip="nobody has tried dest's configs, rights and start; how long the window will be is not "
                "known, and the way back counts with policy.way_back_s",
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
        manual=manual or Manual(),
        report=report or Reporting(),
        foreseen=foreseen,
        sampling=(ENSEMBLES, *dependent.sampling),
        clusters=dependent.clusters,
        dependent=dependent,
    )
