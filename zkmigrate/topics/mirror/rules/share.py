"""Which copier copies which partition, when several share the topics: rendezvous hashing.

Each copier finds that out by itself. Another number of copiers moves only the partitions that a new one gets,
or that an old one leaves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True)
class Share:
    """What the copier ``number`` of ``copiers`` copies; they count from 1."""

    number: int
    copiers: int

    def __str__(self) -> str:
        return f"{self.number}/{self.copiers}"

    def of(self, parts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Its partitions among these: topic and number."""
        return [part for part in parts if owner(self.copiers, part) == self.number]


WHOLE = Share(1, 1)


def owner(copiers: int, part: tuple[str, int]) -> int:
    """The copier of a partition, from 1 to ``copiers``: the one whose hash with it is the largest."""
    return max(range(1, copiers + 1), key=lambda number: _weight(number, part))


def _weight(number: int, part: tuple[str, int]) -> bytes:
    topic, partition = part
    return blake2b(f"{number}/{partition}/{topic}".encode(), digest_size=8).digest()
