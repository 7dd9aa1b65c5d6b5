"""Find what deleted topics and past operations left in a Kafka cluster; remove what is named."""

from __future__ import annotations

from zkmigrate.cluster.leftovers.look_step import LeftoversCheckStep
from zkmigrate.cluster.leftovers.remove_step import RemoveStep
from zkmigrate.cluster.leftovers.section import LeftoversInventory, named_hosts
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.rules.sampling import BROKERS
from zkmigrate.move.dependents.kafka import KAFKA as KAFKA_BROKERS
from zkmigrate.move.steps.install import InstallStep
from zkmigrate.runbook.model.playbook import Playbook, Role, Stage
from zkmigrate.zookeeper.changes import ZNODES

PLAYBOOK = Playbook(
    id="kafka_clean_leftovers",
    title="Clean up leftovers of a Kafka cluster",
    stages=(
        Stage("preflight", "Find leftovers", (LeftoversCheckStep(),), locked=False, refused=3, gate=True),
        Stage(
            "install",
            "Install the host program",
            (InstallStep(KAFKA_BROKERS, keep=True, hosts=named_hosts),),
            locked=False,
        ),
        Stage("remove", "Remove what is named", (RemoveStep(),), consent="Remove what is named now?"),
    ),
    inventory=LeftoversInventory,
    sections=("kafka",),
    roles=(Role("brokers", "brokers", changed=True, witness=True),),
    alters_clusters=True,
    sampling=(BROKERS,),
    clusters={
        KAFKA: "zkmigrate.kafka.clients.admin:alterer",
        ZNODES: "zkmigrate.kafka.clients.znodes:alterer",
    },
)
