"""Move a Kafka cluster from one ZooKeeper ensemble to a new, empty one.

The table of contents is the same for every dependent: ``zkmigrate/moves/move.py``.
"""

from __future__ import annotations

from zkmigrate.dependents.kafka import KAFKA
from zkmigrate.moves.by_hand import MANUAL
from zkmigrate.moves.move import move
from zkmigrate.moves.report import REPORTING

PLAYBOOK = move(KAFKA, MANUAL, REPORTING)
