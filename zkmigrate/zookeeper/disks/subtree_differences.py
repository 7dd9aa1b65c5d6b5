"""Search for the znodes in which two large subtrees differ, with bounded memory.

Only the buckets whose sums differ are read (`zookeeper.data.sums`). If they hold few znodes, these are
compared in memory. Otherwise the znodes are first written to temporary files, several buckets per file, and
compared file by file.
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
"""The largest number of znodes of both sides together that are compared in memory, about 1 kB each."""

Znodes = Iterable[tuple[str, Znode]]


def find_differences(
    left: Znodes, right: Znodes, buckets: frozenset[int], expected: int, *, in_memory: int = IN_MEMORY
) -> Iterator[Difference]:
    """Yield every path that differs, sorted within each group of buckets.

    left, right: the znodes of both sides, in any order. expected: about how many znodes of both sides are in
    ``buckets``. in_memory: the largest number of znodes that are compared in memory. Raises the errors of
    reading the znodes, and OSError if there is no room for temporary files.
    """
    groups = min(BUCKETS, expected // in_memory + 1)
    if groups == 1:
        yield from differences(_in_buckets(left, buckets), _in_buckets(right, buckets))
        return
    with tempfile.TemporaryDirectory(prefix="zkmigrate-differences-") as directory:
        folder = Path(directory)
        lefts = _write_groups(left, buckets, groups, folder, "left")
        rights = _write_groups(right, buckets, groups, folder, "right")
        for one, other in zip(lefts, rights, strict=True):
            yield from differences(_read_group(one), _read_group(other))
            one.unlink()
            other.unlink()


def _in_buckets(znodes: Znodes, buckets: frozenset[int]) -> dict[str, Znode]:
    return {path: node for path, node in znodes if bucket_of(path) in buckets}


def _write_groups(
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


def _read_group(name: Path) -> dict[str, Znode]:
    found: dict[str, Znode] = {}
    with name.open("rb") as file:
        while True:
            try:
                path, node = pickle.load(file)
            except EOFError:
                return found
            found[path] = node
