"""Keep copies of the journal on the playbook's witnesses.

With a copy, a run survives the loss of the operator's machine. Only the part that a host lacks is sent. The
verb ``journal`` of zkm-host appends bytes to the host's copy. If the bytes do not continue the copy, the verb
reports the copy's length and checksum instead. A copy with other lines than this journal is kept, unless this
journal was recovered.
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
from zkmigrate.runbook.model.change import ANSWER_S, Outcome

Ask = Callable[[str, tuple[str, ...], int], Outcome]
"""``ask(host, words, fencing)``: a verb of zkm-host. Raises HostError without an answer."""

_LATE_S = 3.0
"""Seconds to wait for a silent host when most others have their copy. The steps wait for copies."""
_AT_ONCE = 192 * 1024
"""Bytes in one message: the shell there reads it byte by byte."""
_REFUSED = 3
_HOLDS = re.compile(r"holds ([0-9]{1,15}) bytes with sha256 ([0-9a-f]{64})")


class Copies:
    """Brings the copies on hosts up to date. A host that did not answer is brought up to date later.

    hosts: returns the hosts that granted the lock. number: returns the fencing number. recovered: returns
    whether the journal was recovered without some of its lines; if so, it replaces copies with other lines.
    Because of the time limit the channels also skip a host that is known not to answer.
    """

    def __init__(
        self,
        ask: Ask,
        hosts: Callable[[], tuple[str, ...]],
        number: Callable[[], int],
        now: Callable[[], float],
        recovered: Callable[[], bool] = bool,
    ) -> None:
        self._ask, self._hosts, self._number, self._now = ask, hosts, number, now
        self._recovered = recovered
        self._held: dict[str, int] = {}

    def __call__(self, content: bytes) -> dict[str, str]:
        """Send the journal's content to all hosts. Return host → why its copy is not up to date."""

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
        """Send one host the part of the journal that it lacks. Return why that failed, or an empty string.

        The first message assumes that the host's copy ends where this process last stopped sending. If this
        process has sent nothing yet, it assumes that the copy is complete. The host's answer corrects that.
        """
        said = self._send(host, content, self._held.get(host, len(content)))
        if said.rc == _REFUSED and (match := _HOLDS.search(said.output)):
            length = int(match[1])
            same = length <= len(content) and hashlib.sha256(content[:length]).hexdigest() == match[2]
            if not same and not self._recovered():
                return (
                    f"its copy of {length:,} bytes is not the beginning of this journal of "
                    f"{len(content):,} bytes, so it was kept. Next: compare both files, and remove the wrong "
                    "one"
                )
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
