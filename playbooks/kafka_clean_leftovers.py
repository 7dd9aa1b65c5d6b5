"""Find leftovers of deleted topics, past operations and a move in a Kafka cluster, and remove named ones."""

from __future__ import annotations

from zkmigrate.cluster.leftovers.look_step import LeftoversCheckStep
from zkmigrate.cluster.leftovers.remove_step import RemoveStep
from zkmigrate.cluster.leftovers.section import (
    LeftoversInventory,
    foreseen,
    named_hosts,
    no_tenants,
    removable,
    tenants,
)
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.rules.sampling import BROKERS
from zkmigrate.move.dependents.kafka import KAFKA as KAFKA_BROKERS
from zkmigrate.move.steps.clean_up import CleanUpStep
from zkmigrate.move.steps.clean_up_check import CleanUpCheckStep
from zkmigrate.move.steps.install import InstallStep
from zkmigrate.runbook.model.playbook import Playbook, Role, Stage
from zkmigrate.zookeeper.changes import DEST, ZNODES

PLAYBOOK = Playbook(
    id="kafka_clean_leftovers",
    title="Clean up leftovers of a Kafka cluster",
    stages=(
        Stage(
            "preflight",
            "Find leftovers",
            (LeftoversCheckStep(), CleanUpCheckStep(KAFKA_BROKERS, tenants)),
            locked=False,
            refused=3,
            gate=True,
        ),
        Stage(
            "install",
            "Install the host program",
            (InstallStep(KAFKA_BROKERS, keep=True, hosts=named_hosts, allows=removable),),
            locked=False,
        ),
        Stage(
            "remove", "Remove the named leftovers", (RemoveStep(),), consent="Remove the named leftovers now?"
        ),
        Stage(
            "clean-up",
            "Delete what other tenants left on dest",
            (CleanUpStep(KAFKA_BROKERS, tenants),),
            consent="Delete the named subtrees of other tenants from dest now?",
            idle=no_tenants,
        ),
    ),
    inventory=LeftoversInventory,
    sections=("kafka",),
    roles=(Role("brokers", "brokers", changed=True, witness=True),),
    alters_clusters=True,
    foreseen=foreseen,
    sampling=(BROKERS,),
    clusters={
        KAFKA: "zkmigrate.kafka.clients.admin:alterer",
        ZNODES: "zkmigrate.kafka.clients.znodes:alterer",
        DEST: "zkmigrate.move.clients.dest_znodes:Alter",
    },
)
