"""Remove brokers of a Kafka cluster, several at once, while topics are created, and undo it on request."""

from __future__ import annotations

from zkmigrate.cluster.reassign.look_step import foreseen_back
from zkmigrate.cluster.reassign.moves import planned, to_move
from zkmigrate.cluster.reassign.moves_step import MovesStep
from zkmigrate.cluster.reassign.preferred_step import PreferredStep
from zkmigrate.cluster.reassign.throttle_step import ThrottleStep
from zkmigrate.cluster.reassign.way_back import way_back
from zkmigrate.cluster.removal.clean_step import CleanStep
from zkmigrate.cluster.removal.exclude_step import ExcludeStep
from zkmigrate.cluster.removal.planned_step import PlannedStep
from zkmigrate.cluster.removal.policy_step import PolicyStep
from zkmigrate.cluster.removal.section import (
    RemovalInventory,
    goes_on,
    host_policy,
    policed,
    removed,
    stoppable_alone,
)
from zkmigrate.cluster.removal.stop_step import StopStep
from zkmigrate.cluster.removal.sweep_step import SweepStep
from zkmigrate.cluster.removal.unthrottle_steps import LoosenStep, OthersUnthrottleStep
from zkmigrate.cluster.removal.validate_step import (
    FirstRates,
    ValidateStep,
    foreseen,
    measured_writes,
    planned_moves,
)
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.rules import throttle_series
from zkmigrate.kafka.rules.sampling import BROKERS
from zkmigrate.move.dependents.kafka import KAFKA as KAFKA_BROKERS
from zkmigrate.move.steps.install import InstallStep
from zkmigrate.runbook.model.playbook import Counted, Playbook, Role, Stage

PLAYBOOK = Playbook(
    id="kafka_remove_brokers",
    title="Remove brokers",
    stages=(
        Stage(
            "validated",
            "Check that the brokers can be removed",
            (ValidateStep(),),
            locked=False,
            refused=3,
            gate=True,
        ),
        Stage(
            "excluded",
            "Keep new replicas off the brokers",
            (
                InstallStep(KAFKA_BROKERS, keep=True, hosts=policed, allows=host_policy),
                ExcludeStep(),
                PolicyStep("refuse", "Configure zkmigrate's topic policy with the excluded brokers"),
            ),
            consent="Keep new replicas off these brokers, and empty them?",
        ),
        Stage("planned", "Plan the moves", (PlannedStep(),)),
        Stage(
            "moving",
            "Move the partitions",
            (
                ThrottleStep(every_broker=True, foresee=planned_moves, first=FirstRates),
                MovesStep(planned, planned_moves, replans=True),
            ),
            consent="Move these partitions now?",
            noticed=True,
        ),
        Stage("empty", "Empty the brokers", (SweepStep(),), noticed=True),
        Stage(
            "stopped",
            "Stop the brokers",
            (
                InstallStep(KAFKA_BROKERS, keep=True, hosts=stoppable_alone, allows=host_policy),
                LoosenStep(leave=removed),
                PolicyStep("close", "Forbid the creation of topics"),
                StopStep(),
                PolicyStep("open", "Allow the creation of topics again"),
            ),
            consent="Stop these brokers now?",
            idle=goes_on,
            locked=False,
            noticed=True,
        ),
        Stage(
            "clean",
            "Clean up",
            (
                PreferredStep(foresee=planned_moves),
                OthersUnthrottleStep(every_broker=True, foresee=planned_moves),
                CleanStep(),
            ),
        ),
    ),
    counted=(Counted("moving.replicas", "partitions", to_move, paced=True, told=True),),
    inventory=RemovalInventory,
    sections=("kafka", "removal"),
    roles=(
        Role("brokers", "brokers"),
        Role("policed", "brokers with zkmigrate's topic policy", changed=True),
        Role("removed", "brokers to be removed", changed=True),
    ),
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
