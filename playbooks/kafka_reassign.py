"""Move partitions of a Kafka cluster between brokers as planned, under a throttle, and undo it on request."""

from __future__ import annotations

from zkmigrate.cluster.reassign.look_step import (
    PlanCheckStep,
    foreseen,
    foreseen_back,
    measured_writes,
    of_plan,
)
from zkmigrate.cluster.reassign.moves import to_move
from zkmigrate.cluster.reassign.moves_step import MovesStep
from zkmigrate.cluster.reassign.originals_step import OriginalsStep
from zkmigrate.cluster.reassign.preferred_step import PreferredStep
from zkmigrate.cluster.reassign.section import ReassignInventory
from zkmigrate.cluster.reassign.throttle_step import ThrottleStep
from zkmigrate.cluster.reassign.unthrottle_step import UnthrottleStep
from zkmigrate.cluster.reassign.verify_step import VerifyStep
from zkmigrate.cluster.reassign.way_back import way_back
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.rules import throttle_series
from zkmigrate.kafka.rules.sampling import BROKERS
from zkmigrate.runbook.model.playbook import Counted, Playbook, Stage

PLAYBOOK = Playbook(
    id="kafka_reassign",
    title="Move partitions by a plan",
    stages=(
        Stage("preflight", "Check the plan", (PlanCheckStep(),), locked=False, refused=3, gate=True),
        Stage(
            "move",
            "Move the partitions",
            (
                OriginalsStep(),
                ThrottleStep(foresee=of_plan),
                MovesStep(),
                PreferredStep(foresee=of_plan),
                UnthrottleStep(foresee=of_plan),
            ),
            consent="Move these partitions now?",
            noticed=True,
        ),
        Stage("verify", "Verify", (VerifyStep(),), locked=False),
    ),
    counted=(Counted("move.replicas", "partitions", to_move, paced=True, told=True),),
    inventory=ReassignInventory,
    sections=("kafka", "reassign"),
    alters_clusters=True,
    throttled=True,
    report=throttle_series.REPORTING,
    sampling=(BROKERS,),
    clusters={KAFKA: "zkmigrate.kafka.clients.admin:alterer"},
    files=way_back,
    foreseen=foreseen,
    measured=measured_writes,
    foreseen_back=foreseen_back,
)
