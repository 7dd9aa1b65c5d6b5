"""Move a Kafka cluster from one ZooKeeper ensemble to a new, empty one.

The stages and steps are the same for every dependent: see ``zkmigrate/move/move.py``.
"""

from __future__ import annotations

from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.go_no_go import page
from zkmigrate.move.move import move
from zkmigrate.move.report import REPORTING
from zkmigrate.move.steps.after_move import AfterMoveStep
from zkmigrate.runbook.model.playbook import Stage

AFTER = Stage("after", "Look after the move", (AfterMoveStep(KAFKA),))
PLAYBOOK = move(KAFKA, page, REPORTING, looks=(AFTER,))
