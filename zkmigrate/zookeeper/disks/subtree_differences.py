"""The znodes in which two large subtrees differ, found with bounded memory.

Only the znodes of the buckets whose sums differ are looked at (``zookeeper.data.sums``). Few are compared in
memory; many are laid down first in temporary files, some buckets to a file, and compared a file at a time.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from zkmigrate.zookeeper.data.sums import BUCKETS, bucket_of
from zkmigrate.zookeeper.data.tree import Difference, Znode, differences

IN_MEMORY = 200_000
"""Znodes of both sides together, about 1 kB each."""

Znodes = Iterable[tuple[str, Znode]]


def differing(
    left: Znodes, right: Znodes, buckets: frozenset[int], expected: int, *, in_memory: int = IN_MEMORY
) -> Iterator[Difference]:
    """Every path that differs, in the order of paths within each group of buckets.

    left, right: the znodes of both sides, in no order. expected: how many of them are in ``buckets``. Raises
    what reading them raises, and OSError where temporary files find no room.
    """
    groups = min(BUCKETS, expected // in_memory + 1)
    if groups == 1:
        yield from differences(_only(left, buckets), _only(right, buckets))
        return
    with tempfile.TemporaryDirectory(prefix="zkmigrate-differences-") as directory:
        sides = [_laid_down(side, buckets, groups, Path(directory), name) for name, side in
                 (("left", left), ("right", right))]  # fmt: skip
        for one, other in zip(*sides, strict=True):
            yield from differences(_taken_up(one), _taken_up(other))
            one.unlink()
            other.unlink()


def _only(znodes: Znodes, buckets: frozenset[int]) -> dict[str, Znode]:
    return {path: node for path, node in znodes if bucket_of(path) in buckets}


def _laid_down(
    znodes: Znodes, buckets: frozenset[int], groups: int, directory: Path, side: str
) -> list[Path]:
    names = [directory / f"{side}.{group}" for group in range(groups)]
    with ExitStack() as stack:
        files: list[IO[bytes]] = [stack.enter_context(name.open("wb")) for name in names]
        for path, node in znodes:
            at = bucket_of(path)
            if at in buckets:
                pickle.dump((path, node), files[at % groups], pickle.HIGHEST_PROTOCOL)
    return names


def _taken_up(name: Path) -> dict[str, Znode]:
    """What :func:`_laid_down` wrote, in this process."""
    found: dict[str, Znode] = {}
    with name.open("rb") as file:
        while True:
            try:
                path, node = pickle.load(file)
            except EOFError:
                return found
            found[path] = node
