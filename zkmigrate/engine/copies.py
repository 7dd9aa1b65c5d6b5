"""Copies of the journal on the playbook's witnesses, so that a lost operator machine is not the end of a run.

Only what a host lacks goes over: zkm-host's ``journal`` takes bytes that follow what is there, and otherwise
tells length and sum of that. A copy that is no beginning of this journal is begun anew.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from functools import partial

from zkmigrate import deadline
from zkmigrate.errors import HostError
from zkmigrate.hosts.parallel import GiveUp, together
from zkmigrate.model.change import ANSWER_S, Outcome

Ask = Callable[[str, tuple[str, ...], int], Outcome]
"""``ask(host, words, fencing)``: a verb of zkm-host; HostError where no answer came."""

_LATE_S = 3.0
"""Seconds for a host that is silent when most others have taken theirs. The steps wait for copies."""
_AT_ONCE = 192 * 1024
"""Bytes in one message: the shell there reads it byte by byte."""
_REFUSED = 3
_HOLDS = re.compile(r"holds ([0-9]{1,15}) bytes with sha256 ([0-9a-f]{64})")


class Copies:
    """Brings hosts up to the journal; a silent one with the first call after it has answered again.

    The limit also makes the channels tell a host that is known to be silent at once.
    """

    def __init__(
        self,
        ask: Ask,
        hosts: Callable[[], tuple[str, ...]],
        number: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        """hosts, number: those that gave the lock, and the fencing number."""
        self._ask, self._hosts, self._number, self._now = ask, hosts, number, now
        self._held: dict[str, int] = {}

    def __call__(self, content: bytes) -> dict[str, str]:
        """Why hosts took none, by host."""

        def bring(host: str) -> str:
            try:
                return self._bring(host, content)
            except HostError as error:
                return str(error)

        late = GiveUp(_LATE_S, lambda _host: "no answer yet", self._now)
        with deadline.within(ANSWER_S):
            said = together({host: partial(bring, host) for host in self._hosts()}, late)
        return {host: why for host, why in said.items() if why}

    def _bring(self, host: str, content: bytes) -> str:
        """Send what the host lacks; why that did not do, else empty. What it holds is guessed first: what it
        was given last, or, by a process that has given it nothing, all; its answer corrects that."""
        said = self._send(host, content, self._held.get(host, len(content)))
        if said.rc == _REFUSED and (told := _HOLDS.search(said.output)):
            length = int(told[1])
            same = hashlib.sha256(content[:length]).hexdigest() == told[2]
            said = self._send(host, content, length if same else 0)
        return said.output.strip() or f"exit {said.rc}" if said.rc else ""

    def _send(self, host: str, content: bytes, since: int) -> Outcome:
        total = hashlib.sha256(content[:since])
        while True:
            part = content[since : since + _AT_ONCE]
            total.update(part)
            text = base64.b64encode(part).decode("ascii") or "="
            words = ("journal", "more" if since else "new", total.hexdigest(), text)
            said = self._ask(host, words, self._number())
            if said.rc:
                return said
            since += len(part)
            self._held[host] = since
            if since >= len(content):
                return said
