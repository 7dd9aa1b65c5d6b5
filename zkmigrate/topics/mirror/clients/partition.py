"""The state of a partition that is being copied: its position, and the steps that are queued for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from zkmigrate.topics.mirror.clients.cluster import Part
from zkmigrate.topics.mirror.rules.gaps import Append, Step
from zkmigrate.topics.mirror.rules.position import WINDOW, Producer

TAKEN_OVER = "another copier has taken over this partition"


@dataclass
class Partition:
    """The state of one partition that a copier copies.

    position: the end of target's log; None until it was read. due: when the position may be read; None until
    the partition was taken over. fetched: the next offset to fetch from source. stable: source's last stable
    offset. producer: the producer id and the sequence number for the next batch. steps: the next steps to
    carry out. later: for each response of source, its size in bytes and its steps that are not built yet.

    tries: how often the position was read since the last progress. why: what the partition waits for, or why
    it is taken. failed: why it cannot be copied further. taken: whether this copier may no longer write it,
    because another copier may, or because none may. asked: when target last confirmed that this copier may
    write end markers.

    heard: when target last accepted a batch of this producer. served: when source last sent records.

    joins: whether small batches are joined. bytes: how many were copied so far. goal: source's last stable
    offset at the start.
    """

    part: Part
    position: int | None = None
    due: float | None = None
    fetched: int = 0
    stable: int = -1
    producer: Producer = field(default_factory=lambda: Producer(0, 0))
    steps: deque[Step] = field(default_factory=deque)
    later: deque[tuple[int, Iterator[Step]]] = field(default_factory=deque)
    tries: int = 0
    why: str = "copying has not started"
    failed: str = ""
    taken: bool = False
    asked: float = -inf
    heard: float = -inf
    served: float = -inf
    joins: bool = True
    bytes: int = 0
    goal: int | None = None

    @property
    def left(self) -> bool:
        """Whether the partition is still to be copied."""
        return not self.failed and not self.taken

    @property
    def open(self) -> bool:
        return self.position is not None and self.left

    @property
    def queued(self) -> int:
        """The bytes of source's responses that are queued."""
        return sum(size for size, _ in self.later)

    @property
    def at_goal(self) -> bool:
        """Whether everything that source had committed at the beginning is on target."""
        return self.position is not None and self.goal is not None and self.position >= self.goal

    def make(self) -> None:
        """Build the next steps, at most as many as are sent at once, because unpacked batches take memory.

        Raises BatchError.
        """
        while self.later and len(self.steps) < WINDOW:
            step = next(self.later[0][1], None)
            if step is None:
                self.later.popleft()
            else:
                self.steps.append(step)

    def head(self, most: int) -> list[Append]:
        """Return the batches at the beginning of the queued steps, at most ``most``."""
        found: list[Append] = []
        for step in islice(self.steps, most):
            if not isinstance(step, Append):
                break
            found.append(step)
        return found

    def again(self, why: str) -> None:
        """Discard what is queued, and let the position be read again."""
        self.position, self.due, self.why, self.heard = None, None, why, -inf
        self._forget()

    def fail(self, why: str) -> None:
        """Stop copying, because the partition has failed."""
        self.failed = why
        self._forget()

    def give_up(self, why: str = TAKEN_OVER) -> None:
        """Stop copying, because this copier may no longer write the partition."""
        self.taken, self.why = True, why
        self._forget()

    def _forget(self) -> None:
        self.steps.clear()
        self.later.clear()
