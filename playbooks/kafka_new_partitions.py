"""Create a topic, or add partitions to one, with the replica lists that ``zkmigrate placement`` chose."""

from __future__ import annotations

from zkmigrate.cluster.new_partitions.create_step import CreateStep
from zkmigrate.cluster.new_partitions.grow_step import GrowStep
from zkmigrate.cluster.new_partitions.look_step import PlanCheckStep
from zkmigrate.cluster.new_partitions.section import NewPartitionsInventory, new_partitions_of
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.rules.sampling import BROKERS
from zkmigrate.runbook.model.playbook import Playbook, Stage


def grows(inventory: Inventory) -> str:
    """Return the inventory key whose plan adds partitions, which rules out the creation of a topic.

    The text is empty if the plan creates a topic.
    """
    return "new_partitions.plan" if new_partitions_of(inventory).first else ""


def creates(inventory: Inventory) -> str:
    """Return the inventory key whose plan creates a topic, which rules out adding partitions to a topic.

    The text is empty if the plan adds partitions.
    """
    return "" if new_partitions_of(inventory).first else "new_partitions.plan"


PLAYBOOK = Playbook(
    id="kafka_new_partitions",
    title="Create a topic, or add partitions to one",
    stages=(
        Stage("preflight", "Check the plan", (PlanCheckStep(),), locked=False, refused=3, gate=True),
        Stage(
            "create-topic", "Create the topic", (CreateStep(),), consent="Create the topic now?", idle=grows
        ),
        Stage(
            "grow-topic",
            "Add the partitions",
            (GrowStep(),),
            consent="Add the partitions now? This cannot be undone.",
            idle=creates,
        ),
    ),
    inventory=NewPartitionsInventory,
    sections=("kafka", "new_partitions"),
    alters_clusters=True,
    sampling=(BROKERS,),
    clusters={KAFKA: "zkmigrate.kafka.clients.admin:alterer"},
)
