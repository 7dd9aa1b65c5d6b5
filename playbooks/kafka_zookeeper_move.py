"""Move a Kafka cluster from one ZooKeeper ensemble to a new, empty one.

The table of contents is the same for every dependent: ``zkmigrate/steps/move.py``.
"""

from __future__ import annotations

from zkmigrate.dependents.kafka_plug import KAFKA
from zkmigrate.moves.by_hand import MANUAL
from zkmigrate.moves.report import REPORTING
from zkmigrate.steps.move import move

PLAYBOOK = move(KAFKA, MANUAL, REPORTING)
