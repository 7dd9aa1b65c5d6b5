"""Set one config on many topics of a Kafka cluster, with its way back: no ZooKeeper, no host takes part."""

from __future__ import annotations

from zkmigrate.kafka.rules.sampling import BROKERS
from zkmigrate.model.change import KAFKA
from zkmigrate.model.playbook import Counted, Playbook, Stage
from zkmigrate.topics.facts import to_change
from zkmigrate.topics.look_step import TopicCheckStep
from zkmigrate.topics.section import TopicConfigInventory
from zkmigrate.topics.set_step import TopicConfigStep
from zkmigrate.topics.watch import WATCH, foreseen

PLAYBOOK = Playbook(
    id="kafka_topic_config",
    title="Set one config on many topics",
    stages=(
        Stage("preflight", "Look first", (TopicCheckStep(),), locked=False, refused=3, gate=True),
        Stage(
            "set",
            "Set the config",
            (TopicConfigStep(),),
            consent="Set the config on these topics now?",
            watched=WATCH,
        ),
    ),
    counted=(Counted("set.topic-config", "topics", to_change, paced=True),),
    inventory=TopicConfigInventory,
    sections=("kafka", "topic_config"),
    alters_clusters=True,
    sampling=(BROKERS,),
    clusters={KAFKA: "zkmigrate.kafka.clients.admin:alterer"},
    foreseen=foreseen,
)
