"""The largest znode of an ensemble, bounded as cheaply as the question allows."""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.inventory.inventory import Dest, Source
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.look import Look
from zkmigrate.zookeeper.data.four_letter_words import Mntr
from zkmigrate.zookeeper.data.tree import load_tree
from zkmigrate.zookeeper.facts.disk import directories, read_disk


@dataclass(frozen=True)
class Largest:
    """At most ``size`` bytes are in any one znode; ``where`` is its path, or how the bound was had."""

    size: int
    where: str


def largest_znode(
    look: Look, host: str, of: Source | Dest, whole: Reading[Mntr], enough: int
) -> Reading[Largest]:
    """A bound for the data of the largest znode.

    whole: ``mntr`` of the host; it gives the size of all data and paths together (zk_approximate_data_size),
    which no znode exceeds. Only where that is above ``enough`` bytes, or not known, are the newest snapshot
    and the logs after it read from disk, which costs O(tree) outside any window.
    """
    if isinstance(whole, Seen):
        total = _total(whole.value)
        if total is not None and total <= enough:
            return Seen(Largest(total, f"all data together, by mntr of {host}"))
    tree = read_disk(lambda: load_tree(*directories(look, host, of)), host)
    if not isinstance(tree, Seen):
        return tree
    sizes = ((node.data_length, path) for path, node in tree.value.nodes.items())
    size, path = max(sizes, default=(0, "/"))
    return Seen(Largest(size, f"{path}, by the disk of {host}"))


def _total(mntr: Mntr) -> int | None:
    value = mntr.number("zk_approximate_data_size")
    return None if value is None else int(value)
