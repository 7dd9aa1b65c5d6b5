"""The state of a partition that is being copied: its position, and its queued steps."""

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
    """The state of one partition that a copier copies. All times are seconds of a monotonic clock.

    position: the end of target's log, or None until it was read.
    due: when the position may be read, or None until the partition was taken over.
    fetched: the next offset to fetch from source.
    stable: source's last stable offset.
    producer: the producer id and the sequence number for the next batch.
    steps: the next steps to carry out.
    later: for each response of source, its size in bytes and its steps that are not built yet.
    tries: how many times the position was read since the last progress.
    why: what the partition waits for, or why this copier may no longer write it.
    failed: why it cannot be copied further; empty if it can.
    taken: whether this copier may no longer write it, because another copier may, or because none may.
    asked: when target last confirmed that this copier may write end markers.
    heard: when target last accepted a batch of this producer.
    served: when source last sent records.
    joins: whether small batches are joined.
    bytes: how many bytes were copied so far.
    goal: source's last stable offset when copying began.
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
        """Whether this copier still has to copy the partition."""
        return not self.failed and not self.taken

    @property
    def open(self) -> bool:
        return self.position is not None and self.left

    @property
    def queued(self) -> int:
        """The number of bytes of source's responses that are queued."""
        return sum(size for size, _ in self.later)

    @property
    def at_goal(self) -> bool:
        """Whether target has everything that source had committed when copying began."""
        return self.position is not None and self.goal is not None and self.position >= self.goal

    def make(self) -> None:
        """Build the next steps, but no more than are sent at once, because unpacked batches take memory.

        Raises BatchError if a batch cannot be copied.
        """
        while self.later and len(self.steps) < WINDOW:
            step = next(self.later[0][1], None)
            if step is None:
                self.later.popleft()
            else:
                self.steps.append(step)

    def head(self, most: int) -> list[Append]:
        """Return at most ``most`` batches from the beginning of the queued steps."""
        found: list[Append] = []
        for step in islice(self.steps, most):
            if not isinstance(step, Append):
                break
            found.append(step)
        return found

    def again(self, why: str) -> None:
        """Discard the queued steps, so that the position is read again.

        why: the reason, for messages.
        """
        self.position, self.due, self.why, self.heard = None, None, why, -inf
        self._forget()

    def fail(self, why: str) -> None:
        """Stop copying, because the partition has failed.

        why: the reason, for messages.
        """
        self.failed = why
        self._forget()

    def give_up(self, why: str = TAKEN_OVER) -> None:
        """Stop copying, because this copier may no longer write the partition.

        why: the reason, for messages.
        """
        self.taken, self.why = True, why
        self._forget()

    def _forget(self) -> None:
        self.steps.clear()
        self.later.clear()
