"""Run zkmigrate's command line and kill it, like ``kill -9``, at one change.

``python -m zkmigrate.lab.killing KIND HOST OTHERS VERB OPTIONS…`` kills the tool before it sends a change to
HOST, once OTHERS other hosts have confirmed the same change. KIND is the class of the change (``Seal``) or
its zkm-host verb (``halt``). HOST may also be ``any``, a topic whose config is changed, a partition
(``a-0``), or a command to a gateway (``seal``). If the other hosts do not confirm within ``WAIT_S`` seconds,
the process ends with ``NOT_CONFIRMED``, so that this end is not mistaken for the kill.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from zkmigrate.cli.main import main
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import AlterTopicConfig, CancelReassignment, ReassignPartition
from zkmigrate.runbook.engine.apply import Apply
from zkmigrate.runbook.model.change import Change, Outcome
from zkmigrate.runbook.site import wiring
from zkmigrate.topics.gateway.order import GatewayOrder

WAIT_S = 20.0
NOT_CONFIRMED = 99
"""An exit code that the tool itself never returns."""
ANY_HOST = "any"


class KillingSite(wiring.Site):
    """A site that kills the process at the chosen change."""

    kind, victim, others = "", "", 0

    def __init__(self, inventory: Inventory, run: str, clusters: Mapping[str, str] | None = None) -> None:
        super().__init__(inventory, run, clusters)
        self._real: Apply = self.apply
        self._confirmed = 0
        self._turn = threading.Condition()
        self.apply: Any = self._killing

    def _killing(self, change: Change, operation: str, fencing: int) -> Outcome:
        if self.kind not in (type(change).__name__, change.verb):
            return self._real(change, operation, fencing)
        with self._turn:
            if self.victim in (change.where, _part(change), ANY_HOST):
                self._wait(lambda: self._confirmed >= self.others)
                os.kill(os.getpid(), signal.SIGKILL)
            # The other hosts get theirs one by one, so that exactly OTHERS hosts have confirmed.
            if self.others:
                self._wait(lambda: self._confirmed < self.others)
            outcome = self._real(change, operation, fencing)
            self._confirmed += outcome.rc == 0
            self._turn.notify_all()
            return outcome

    def _wait(self, condition: Callable[[], bool]) -> None:
        if not self._turn.wait_for(condition, WAIT_S):
            print(f"killing: {self._confirmed} of {self.others} hosts confirmed {self.kind}", flush=True)
            os._exit(NOT_CONFIRMED)


def _part(change: Change) -> str:
    """Return the part of a cluster that a change concerns, or the command that it sends to a gateway."""
    if isinstance(change, AlterTopicConfig):
        return change.topic
    if isinstance(change, ReassignPartition | CancelReassignment):
        return f"{change.topic}-{change.partition}"
    if isinstance(change, GatewayOrder):
        return change.order
    return ANY_HOST


if __name__ == "__main__":
    KillingSite.kind, KillingSite.victim, KillingSite.others = sys.argv[1], sys.argv[2], int(sys.argv[3])
    wiring.Site = KillingSite  # type: ignore[misc]
    sys.argv = ["zkmigrate", *sys.argv[4:]]
    main()
