"""What a client learns of its PRODUCE requests: one whose answer it misses it sends again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from zkmigrate.gateway.rules import outcomes
from zkmigrate.gateway.rules.apis import PRODUCE
from zkmigrate.gateway.rules.messages import Bytes, Head
from zkmigrate.gateway.rules.seen import fit
from zkmigrate.gateway.serving.gateway import Gateway
from zkmigrate.gateway.serving.link import PREFIX, Waiting

FIRST = 4096
"""The header, and the fields that are read of a streamed request, stand in so many bytes."""
MOST_KEPT = 16
"""So many requests of a connection without an answer are kept to be known again."""
MOST_BATCHES = 500
"""So many batches of a connection's requests are kept before the next request is not."""


class Learns:
    """Those of one connection. there: whether the client has not closed its side. missed: an answer did not
    reach it. waited: a request waited at the gate, meanwhile its end is not noticed at once."""

    def __init__(self, gateway: Gateway, there: Callable[[], bool]) -> None:
        self._gateway, self._there = gateway, there
        self.peer = ""
        self.missed = self.waited = self._left = False

    @staticmethod
    def room(waiting: Sequence[Waiting]) -> bool:
        """Return True if one more request of a connection may be kept. waiting: those without an answer."""
        if len(waiting) >= MOST_KEPT:
            return False
        parts = (len(one.wrote.found) for one in waiting if isinstance(one.wrote, outcomes.Headers))
        return sum(parts) < MOST_BATCHES

    @staticmethod
    def kept(head: Head, frame: Bytes, size: int) -> bytes | outcomes.Headers:
        """What is kept of a request until its answer. frame: what has come of its ``size`` bytes."""
        end = min(len(frame), PREFIX + FIRST)
        kept = outcomes.kept(head.version, bytes(frame[head.body : end]), size - end)
        if len(frame) > end and isinstance(kept, outcomes.Headers):
            kept.feed(bytes(frame[end:]))
        return kept

    def left(self, waiting: Iterable[Waiting]) -> None:
        """The client has gone: it will not learn the outcome of what it waits for, and sends it again."""
        if not self._left:
            self._left = True
            for one in waiting:
                self._lose(one)

    def told(self, one: Waiting, frame: bytes) -> None:
        """A PRODUCE was answered, if its client was there. One that leaves while its next request waits at
        the gate is not noticed at once."""
        version, gateway = one.head.version, self._gateway
        if self._left:
            return
        if self.missed or (self.waited and not self._there()):
            self._lose(one, outcomes.errors(version, frame))
        elif gateway.outcomes[one.app] or outcomes.unsure(version, frame):
            told = outcomes.errors(version, frame)
            gateway.outcomes[one.app].answered(self._name(one), self._wrote(one), told, gateway.now())

    def _lose(self, one: Waiting, told: outcomes.Errors | None = None) -> None:
        """The client does not learn what became of a request."""
        if one.head.key == PRODUCE and one.ready is None:
            own = self._gateway.outcomes[one.app]
            own.lost(self._name(one), self._wrote(one), self._gateway.now(), told)

    def _wrote(self, one: Waiting) -> outcomes.Headers | None:
        return None if one.wrote is None else outcomes.headers(one.head.version, one.wrote)

    def _name(self, one: Waiting) -> str:
        return f"{fit(one.head.client)} at {self.peer}"
