"""Divide partitions among several copiers by rendezvous hashing.

Each copier computes its share by itself. If the number of copiers changes, only partitions that a new copier
gets, or that a former one had, change their copier.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True)
class Share:
    """The share of the copier ``number`` among ``copiers``, counted from 1."""

    number: int
    copiers: int

    def __str__(self) -> str:
        return f"{self.number}/{self.copiers}"

    def of(self, parts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the partitions among these that belong to this share."""
        return [part for part in parts if owner(self.copiers, part) == self.number]


WHOLE = Share(1, 1)


def owner(copiers: int, part: tuple[str, int]) -> int:
    """Return the copier of a partition, from 1 to ``copiers``.

    It is the one with the largest hash for this partition.
    """
    return max(range(1, copiers + 1), key=lambda number: _weight(number, part))


def _weight(number: int, part: tuple[str, int]) -> bytes:
    topic, partition = part
    return blake2b(f"{number}/{partition}/{topic}".encode(), digest_size=8).digest()
