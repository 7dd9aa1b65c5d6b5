"""The real apply: changes as words over each host's held-open channel to zkm-host.

Three changes go another way: installing the program, its uninstalling, which ends it, and an election, for
which Kafka is asked. A change is sent once. When its reply does not come, HostError says that the outcome is
unknown; the host's own record answers.
"""

from __future__ import annotations

from collections.abc import Callable

from zkmigrate.engine.apply import Outcome
from zkmigrate.model.change import Change, ElectLeaders, InstallProgram, UninstallProgram
from zkmigrate.transport.channels import Channels
from zkmigrate.transport.program import Program

DEADLINES_S: dict[str, float] = {
    "service": 180.0,
    "arm": 300.0,
    "disarm": 120.0,
    "image": 300.0,
    "started-observer": 120.0,
    "halt": 120.0,
    "finalize": 120.0,
    "uninstall": 60.0,
}
"""Seconds to wait for the reply of the verbs that stop or start a service or copy data."""

DEADLINE_S = 20.0
"""Seconds to wait for every other verb. In the window all of them have less (``rules.window.limits``)."""


class ChannelApply:
    """``apply(change, operation, fencing)`` for the engine; the words come from the change itself."""

    def __init__(self, channels: Channels, program: Program, elect: Callable[[str], str]) -> None:
        """elect: asks Kafka at ``address:port`` for the election; what came of it, HostError if that is
        unknown."""
        self._channels = channels
        self._program = program
        self._elect = elect

    def __call__(self, change: Change, operation: str, fencing: int) -> Outcome:
        """Send one change. HostError when the host did not confirm it: then the outcome is unknown."""
        if isinstance(change, InstallProgram):
            return Outcome(0, self._program.install(change.host))
        if isinstance(change, ElectLeaders):
            return Outcome(0, self._elect(change.bootstrap))
        deadline_s = DEADLINES_S.get(change.verb, DEADLINE_S)
        if isinstance(change, UninstallProgram):
            self._channels.forget(change.host)
            done = self._program.uninstall(change.host, operation, fencing, deadline_s)
            return Outcome(done.rc, done.text if done.rc == 0 else done.said)
        answer = self._channels.ask(
            change.host, change.verb, operation, *change.arguments(), fencing=fencing, deadline_s=deadline_s
        )
        return Outcome(answer.rc, answer.output)
