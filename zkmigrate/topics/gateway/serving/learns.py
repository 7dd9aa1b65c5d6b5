"""Track PRODUCE requests whose answer did not reach the client, because the client may send them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from zkmigrate.topics.gateway.rules import outcomes
from zkmigrate.topics.gateway.rules.apis import PRODUCE
from zkmigrate.topics.gateway.rules.messages import Bytes, Head
from zkmigrate.topics.gateway.rules.seen import fit
from zkmigrate.topics.gateway.serving.gateway import Gateway
from zkmigrate.topics.gateway.serving.link import PREFIX, Waiting

FIRST = 4096
"""How many bytes at the start of a streamed request hold its header and the fields that are read."""
MOST_WHOLE = 8192
"""The largest request, in bytes, that is kept whole until its answer."""
MOST_KEPT = 16
"""The most unanswered PRODUCE requests of a connection whose batches are remembered."""
MOST_BATCHES = 500
"""The number of remembered batches of a connection above which no further request is remembered."""


class Learns:
    """The tracking of the PRODUCE requests of one connection.

    there: a function that returns True while the client has not closed its side. cluster: the name of the
    cluster to which the connection goes. logged_in: whether the broker has accepted the client's login.
    missed: whether an answer did not reach the client. waited: whether a request has waited at the gate; if
    the client closes during such a wait, the gateway does not notice at once.
    """

    def __init__(self, gateway: Gateway, there: Callable[[], bool]) -> None:
        self._gateway, self._there = gateway, there
        self.peer = self.cluster = ""
        self.logged_in = False
        self.missed = self.waited = self._left = False

    @staticmethod
    def part_to_remember(
        head: Head, frame: Bytes, size: int, waiting: Sequence[Waiting]
    ) -> bytes | outcomes.Headers | None:
        """Return the part of a request to remember until its answer, or None if there is no room for it.

        frame: the bytes read so far. size: the bytes of the whole frame. waiting: the connection's requests
        without an answer.
        """
        if len(waiting) >= MOST_KEPT:
            return None
        if len(frame) == size <= MOST_WHOLE:
            return bytes(frame)
        parts = (len(one.wrote.found) for one in waiting if isinstance(one.wrote, outcomes.Headers))
        if sum(parts) >= MOST_BATCHES:
            return None
        end = min(len(frame), PREFIX + FIRST)
        kept = outcomes.part_to_remember(head.version, bytes(frame[head.body : end]), size - end)
        if not isinstance(kept, outcomes.Headers):
            return bytes(frame[:end])
        if len(frame) > end:
            kept.feed(memoryview(frame)[end:])
        return kept

    def record_all_lost(self, waiting: Iterable[Waiting]) -> None:
        """Record every unanswered request as lost, because the client has left and may send it again."""
        if not self._left:
            self._left = True
            for one in waiting:
                self._lose(one)

    def record_answer(self, one: Waiting, frame: Bytes) -> None:
        """Record the answer to a PRODUCE as received, or as lost if the client has left meanwhile.

        frame: the first bytes of the answer.
        """
        version, gateway = one.head.version, self._gateway
        if self._left:
            return
        if self.missed or (self.waited and not self._there()):
            self._lose(one, outcomes.errors(version, frame))
        elif gateway.outcomes[one.app] or outcomes.unsure(version, frame):
            told = outcomes.errors(version, frame)
            gateway.outcomes[one.app].record_answer(self._name(one), self._wrote(one), told, gateway.now())

    def _lose(self, one: Waiting, told: outcomes.Errors | None = None) -> None:
        """Record that the client does not know the outcome of a request.

        told: the error codes in the answer that the client missed. If the broker demands a login and the
        client has not logged in, nothing was written, so nothing is recorded.
        """
        if self.cluster in self._gateway.logins and not self.logged_in:
            return
        if one.head.key == PRODUCE and one.ready is None:
            own = self._gateway.outcomes[one.app]
            own.record_lost(self._name(one), self._wrote(one), self._gateway.now(), told)

    def _wrote(self, one: Waiting) -> outcomes.Headers | None:
        kept = one.wrote[one.head.body :] if isinstance(one.wrote, bytes) else one.wrote
        return None if kept is None else outcomes.headers(one.head.version, kept)

    def _name(self, one: Waiting) -> str:
        return f"{fit(one.head.client)} at {self.peer}"
