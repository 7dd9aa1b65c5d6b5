"""Read the records of a finished move from its journal on this machine."""

from __future__ import annotations

import os

from zkmigrate.errors import ZkmigrateError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.facts.records import Stopped
from zkmigrate.move.questions import ReadCut
from zkmigrate.runbook.engine import journal, runs
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.model.step_record import recorded


class FinishedMoves:
    """Answers requests about the finished moves of one inventory."""

    def __init__(self, inventory: Inventory, _look: Look) -> None:
        self._inventory = inventory

    def close(self) -> None:
        """Do nothing, because nothing is kept open."""

    def cut(self, request: ReadCut) -> Reading[int]:
        try:
            history = journal.read(runs.directory(runs.base(os.environ), request.run))
            body = history.records().get("cutover.stop")
            tails = recorded(Stopped, body, request.run).tails if body else {}
        except ZkmigrateError as error:
            return Unknown("failed", str(error))
        if history.name != self._inventory.name:
            return Unknown(
                "failed", f"{request.run} is a run of {history.name}, not of {self._inventory.name}"
            )
        if not (tails and history.is_over and history.way is Way.FORWARD):
            return Unknown(
                "failed", f"{request.run} is not a finished move; needed: a move whose finalize is done"
            )
        if not tails.keys() <= {*self._inventory.dest_names}:
            return Unknown("failed", f"{request.run} moved to other dest hosts: {', '.join(tails)}")
        return Seen(max(tails.values()))
