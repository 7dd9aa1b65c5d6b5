"""Divide partitions among several copiers by rendezvous hashing.

Each copier computes its share by itself. If the number of copiers changes, a partition stays with its copier,
unless that copier no longer exists or a new copier gets the partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b


@dataclass(frozen=True)
class Share:
    """The share of one copier in the work of several copiers.

    number: the number of the copier, counted from 1. copiers: how many copiers there are.
    """

    number: int
    copiers: int

    def __str__(self) -> str:
        return f"{self.number}/{self.copiers}"

    def of(self, parts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the partitions, among the given ones, that belong to this share."""
        return [part for part in parts if owner(self.copiers, part) == self.number]


WHOLE = Share(1, 1)


def owner(copiers: int, part: tuple[str, int]) -> int:
    """Return the number of the copier that copies a partition, from 1 to ``copiers``.

    It is the copier with the largest hash for this partition.
    """
    return max(range(1, copiers + 1), key=lambda number: _weight(number, part))


def _weight(number: int, part: tuple[str, int]) -> bytes:
    topic, partition = part
    return blake2b(f"{number}/{partition}/{topic}".encode(), digest_size=8).digest()
