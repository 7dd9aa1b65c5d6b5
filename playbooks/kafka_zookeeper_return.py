"""Bring a Kafka cluster back to source after a move has let its clients use dest.

This is a separate run with the inventory of the move. Every broker is down at the same time; nothing that was
written on dest is lost. Each step is one file in ``zkmigrate/move/steps``, together with its undo.
docs/adr/0047 describes the procedure and its reasons.
"""

from __future__ import annotations

from zkmigrate.inventory.inventory import SECTIONS, Inventory, without_brokers
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.move import Move
from zkmigrate.move.rules.sampling import ENSEMBLES
from zkmigrate.move.steps.brokers_back import BrokersBackStep
from zkmigrate.move.steps.brokers_down import BrokersDownStep
from zkmigrate.move.steps.dest_down import DestDownStep
from zkmigrate.move.steps.install import InstallStep
from zkmigrate.move.steps.replay import ReplayStep
from zkmigrate.move.steps.replay_close import ReplayCloseStep
from zkmigrate.move.steps.replay_read import ReplayReadStep
from zkmigrate.move.steps.return_preflight import ReturnPreflightStep
from zkmigrate.runbook.model.playbook import Counted, Role, Stage
from zkmigrate.zookeeper.changes import SOURCE


def _zookeeper(inventory: Inventory) -> tuple[str, tuple[str, ...]]:
    return inventory.dest.service.unit, inventory.dest.commands


PLAYBOOK = Move(
    id="kafka_zookeeper_return",
    title="Bring Kafka back to its old ZooKeeper ensemble",
    stages=(
        Stage("preflight", "Look first", (ReturnPreflightStep(),), locked=False, refused=3, gate=True),
        Stage("install", "Install the host program", (InstallStep(KAFKA, keep=True),), locked=False),
        Stage(
            "outage",
            "Stop brokers and dest",
            (BrokersDownStep(), DestDownStep()),
            consent="Stop every broker now? No client is served until the stage start is done.",
            noticed=True,
        ),
        Stage(
            "source",
            "Replay dest's changes on source",
            (ReplayReadStep(), ReplayStep()),
            consent="Write to source now?",
        ),
        Stage(
            "start",
            "Start the brokers against source",
            (BrokersBackStep(), ReplayCloseStep()),
            consent="Start the brokers against source? There is no way back once one has registered.",
            noticed=True,
        ),
    ),
    counted=(Counted("outage.brokers", "brokers", lambda inventory, _: inventory.broker_names),),
    sections=SECTIONS,
    roles=(
        Role("source", "source hosts"),
        Role("dest", "dest hosts", changed=True, witness=True, service=_zookeeper),
        Role("brokers", "brokers", changed=True, without=without_brokers),
    ),
    sampling=(ENSEMBLES, *KAFKA.sampling),
    dependent=KAFKA,
    clusters={**KAFKA.clusters, SOURCE: "zkmigrate.move.clients.replay:alterer"},
)
