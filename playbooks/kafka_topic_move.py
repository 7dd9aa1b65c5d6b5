"""Switch topics and their applications to a Kafka cluster that mirrors them, and undo it on request."""

from __future__ import annotations

from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.steps.install import InstallStep
from zkmigrate.runbook.model.playbook import Playbook, Role, Stage
from zkmigrate.runbook.model.step import AnyStep
from zkmigrate.topics.gateway.order import GATEWAY
from zkmigrate.topics.mirror.changes import MIRRORED
from zkmigrate.topics.topic_move.arm_step import ArmStep
from zkmigrate.topics.topic_move.check_step import CheckStep
from zkmigrate.topics.topic_move.drain_step import DrainStep
from zkmigrate.topics.topic_move.facts import describe_gateway
from zkmigrate.topics.topic_move.finish_step import FinishStep
from zkmigrate.topics.topic_move.go_step import GoStep
from zkmigrate.topics.topic_move.grant_step import GrantStep
from zkmigrate.topics.topic_move.hold_step import HoldStep
from zkmigrate.topics.topic_move.look_step import LookStep
from zkmigrate.topics.topic_move.open_step import OpenStep
from zkmigrate.topics.topic_move.prove_step import ProveStep
from zkmigrate.topics.topic_move.report import REPORTING, SWITCH
from zkmigrate.topics.topic_move.seal_step import SealStep
from zkmigrate.topics.topic_move.section import (
    GATEWAYS,
    MIRRORS,
    TopicMoveInventory,
    mirror_hosts,
    mirror_policy,
)
from zkmigrate.topics.topic_move.settle_step import SettleStep
from zkmigrate.topics.topic_move.turn_step import TurnStep
from zkmigrate.topics.topic_move.verify_step import VerifyStep
from zkmigrate.topics.topic_move.window_rules import WINDOW

_ARM_TO_PROVE: tuple[AnyStep, ...] = (ArmStep(), SettleStep(), HoldStep(), DrainStep(), ProveStep())

PLAYBOOK = Playbook(
    id="kafka_topic_move",
    title="Switch topics to another cluster",
    stages=(
        Stage("preflight", "Look first", (LookStep(),), locked=False, refused=3, gate=True),
        Stage(
            "install",
            "Install the host program",
            (InstallStep(KAFKA, keep=True, hosts=mirror_hosts, allows=mirror_policy),),
            locked=False,
        ),
        Stage(
            "rehearse",
            "Rehearse up to the proof, then release all requests",
            _ARM_TO_PROVE,
            consent="Rehearse now? Consumers wait for some seconds, all requests for one or two seconds.",
            rehearsal=True,
            window=WINDOW,
            noticed=True,
            skip="it is not known how long requests wait and whether the mirror drains in time",
        ),
        Stage(
            "switch",
            "Switch",
            (LookStep(), *_ARM_TO_PROVE, SealStep(), GrantStep(), GoStep(), CheckStep(), OpenStep()),
            consent="Switch now? Everything up to OPEN has a way back.",
            window=WINDOW,
            noticed=True,
            gate=True,
        ),
        Stage("after", "Mirror back to source", (TurnStep(),)),
        Stage("verify", "Verify", (VerifyStep(),)),
        Stage(
            "finish",
            "Finish",
            (FinishStep(),),
            consent="Stop the copiers that mirror back to source? From then on source falls behind.",
        ),
    ),
    inventory=TopicMoveInventory,
    sections=("ssh", "clusters", GATEWAYS, MIRRORS, "sets", "topic_move"),
    roles=(
        Role(GATEWAYS, "gateways", changed=True, ordered=GATEWAY, told=describe_gateway),
        Role(MIRRORS, "mirror hosts", changed=True, witness=True),
    ),
    report=REPORTING,
    sampling=(SWITCH,),
    alters_clusters=True,
    clusters={MIRRORED: "zkmigrate.topics.mirror.clients.alter:alterer"},
)
