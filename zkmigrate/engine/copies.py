"""Copies of the journal on the dest hosts, so that a lost operator machine is not the end of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

from zkmigrate import deadline
from zkmigrate.engine.apply import Apply
from zkmigrate.engine.channel import DEADLINE_S
from zkmigrate.engine.lanes import Late, together
from zkmigrate.engine.runs import copy_path
from zkmigrate.errors import HostError
from zkmigrate.model.change import PutFile

_LATE_S = 3.0
"""Seconds for a host that is silent when most others have taken theirs. The steps wait for copies."""


class Copies:
    """Puts the journal on hosts; a silent one gets it with the first call after it has answered again.

    The limit also makes the channels tell a host that is known to be silent at once.
    """

    def __init__(
        self,
        apply: Apply,
        run: str,
        hosts: Callable[[], tuple[str, ...]],
        number: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        """hosts, number: those that gave the lock, and the fencing number."""
        self._apply, self._path = apply, copy_path(run)
        self._hosts, self._number, self._now = hosts, number, now

    def __call__(self, content: bytes) -> dict[str, str]:
        """Why hosts took none, by host."""
        operation = f"journal.{hashlib.sha256(content).hexdigest()[:16]}"

        def put(host: str) -> str:
            change = PutFile(host, self._path, content, "root:root", "0600")
            try:
                outcome = self._apply(change, operation, self._number())
            except HostError as error:
                return str(error)
            return outcome.output.strip() or f"exit {outcome.rc}" if outcome.rc else ""

        late = Late(_LATE_S, lambda _host: "no answer yet", self._now)
        with deadline.within(DEADLINE_S):
            said = together({host: partial(put, host) for host in self._hosts()}, late)
        return {host: why for host, why in said.items() if why}
