"""Move a Kafka cluster from one ZooKeeper ensemble to a new, empty one: the table of contents.

Each step is one file in ``zkmigrate/steps``, its undo beside it. The protocol: docs/explanation/protocol.md.
"""

from __future__ import annotations

from zkmigrate.inventory import SECTIONS, Inventory, without_brokers
from zkmigrate.model.playbook import Counted, Playbook, Role, Stage
from zkmigrate.model.step import AnyStep
from zkmigrate.rules.window import WINDOW
from zkmigrate.steps.arm import ArmStep
from zkmigrate.steps.check import CheckStep
from zkmigrate.steps.cut import CutStep
from zkmigrate.steps.drain import DrainStep
from zkmigrate.steps.fence import FenceStep
from zkmigrate.steps.finalize import FinalizeStep
from zkmigrate.steps.go import GoStep
from zkmigrate.steps.install import InstallStep
from zkmigrate.steps.join import JoinStep
from zkmigrate.steps.open_door import OpenStep
from zkmigrate.steps.preflight import PreflightStep
from zkmigrate.steps.prove import ProveStep
from zkmigrate.steps.roll import RollStep
from zkmigrate.steps.seal import SealStep
from zkmigrate.steps.serve import ServeStep
from zkmigrate.steps.stop import StopStep
from zkmigrate.steps.survey import SurveyStep
from zkmigrate.steps.verify import VerifyStep

ARM_TO_CHECK: tuple[AnyStep, ...] = (
    ArmStep(),
    SurveyStep(),
    FenceStep(),
    DrainStep(),
    CutStep(),
    StopStep(),
    ProveStep(),
    SealStep(),
    GoStep(),
    ServeStep(),
    CheckStep(),
)


def _zookeeper(inventory: Inventory) -> tuple[str, tuple[str, ...]]:
    return inventory.dest.service.unit, inventory.dest.commands


PLAYBOOK = Playbook(
    id="kafka_zookeeper_move",
    title="Move Kafka to a ZooKeeper ensemble of its own",
    stages=(
        Stage("preflight", "Look first", (PreflightStep(),), locked=False, refused=3),
        Stage("install", "Install the host program", (InstallStep(),), locked=False),
        Stage("join", "Join dest as observers of source", (JoinStep(),)),
        Stage(
            "rehearse",
            "Rehearse the cut-over, then restore",
            ARM_TO_CHECK,
            consent="Rehearse on the dest hosts now? No broker uses them yet.",
            rehearsal=True,
            window=WINDOW,
            skip="nobody has tried dest's configs, rights and start; how long the window will be is not "
            "known, and the way back counts with policy.way_back_s",
        ),
        Stage(
            "roll",
            "Roll the brokers to dest",
            (PreflightStep(gate="roll"), RollStep()),
            consent="Restart the brokers one wave at a time?",
            noticed=True,
        ),
        Stage(
            "cutover",
            "Cut over",
            (PreflightStep(gate="cutover"), *ARM_TO_CHECK, OpenStep()),
            consent="Cut over now? Everything up to OPEN has a way back.",
            window=WINDOW,
            noticed=True,
        ),
        Stage("verify", "Verify", (VerifyStep(),), noticed=True),
        Stage(
            "finalize",
            "Finalize",
            (FinalizeStep(),),
            consent="Remove the images and zkm-host? There is no way back after this.",
        ),
    ),
    counted=(
        Counted("join.join", "dest hosts", lambda inventory: inventory.dest_names),
        Counted("roll.roll", "brokers", lambda inventory: inventory.broker_names, paced=True),
    ),
    sections=SECTIONS,
    roles=(
        Role("source", "source hosts"),
        Role("dest", "dest hosts", changed=True, witness=True, service=_zookeeper),
        Role("brokers", "brokers", changed=True, without=without_brokers),
    ),
)
