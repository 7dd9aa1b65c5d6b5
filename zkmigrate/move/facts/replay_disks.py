"""The disks from which a run's replay is read, and the mark of the replay on source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.facts.replay import ReplayDisks, Tell, silent
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.effect import is_session
from zkmigrate.zookeeper.data.proofs import Side
from zkmigrate.zookeeper.data.reader import Directory
from zkmigrate.zookeeper.data.replay import Again, Mark, Replay, marker_of, needed_paths
from zkmigrate.zookeeper.data.sums import read_sums, whole_znode, znodes
from zkmigrate.zookeeper.facts.disk import list_directories
from zkmigrate.zookeeper.questions import ReadZnode


def host_disks(
    inventory: Inventory, look: Look, leader: str, tell: Callable[[str], Tell] = silent
) -> ReplayDisks:
    """Return the disks of source's leader and of every dest host, for a replay.

    leader: the name of the leader's host. tell: as in ``ReplayDisks``. Raises HostError.
    """

    def opened() -> Sequence[Side]:
        dests = (Side(host, *list_directories(look, host, inventory.dest)) for host in inventory.dest_names)
        return [Side(leader, *list_directories(look, leader, inventory.source)), *dests]

    return ReplayDisks(opened, inventory.kafka.subtree, 0, tell=tell)


def mark_on(look: Look, host: str, chroot: Chroot) -> Reading[tuple[Mark, int]]:
    """Read the mark of a replay and the mzxid of its znode from one host of an ensemble.

    Returns Absent if the ensemble holds no mark.
    """
    node = look.ask(ReadZnode(host, marker_of(chroot)))
    if isinstance(node, Absent | Unknown):
        return node
    try:
        mark = Mark.decode(node.value.data, node.value.version, node.value.czxid)
    except ValueError as error:
        return Unknown("garbled", f"{marker_of(chroot)}: {error}")
    return Seen((mark, node.value.mzxid))


Disk = Callable[[str], tuple[Directory, Directory]]
"""A function that returns the snapshot and log directories of a host, given its name. It may raise HostError.
"""


@dataclass
class Reader:
    """Reads dest's transactions after a cut in batches, from the disk of one dest host.

    The host's snapshot is read only once.
    """

    chroot: Chroot
    disk: Disk
    _replay: Replay | None = None
    _read_from: tuple[str, int] = ("", 0)

    def begin(self, host: str, cut: int) -> str:
        """Return the fingerprint before the first transaction after the cut.

        Raises the same errors as `ReplayDisks.examine`.
        """
        return self._opened(host, cut).fingerprint

    def read(self, host: str, cut: int, done: int, upto: int) -> list[tuple[Again, str]]:
        """Return the transactions after zxid `done` up to `upto`, with fingerprints.

        Each transaction has the fingerprint of all requests from the cut up to it. Raises the same errors as
        `begin`.
        """
        if self._replay is None or self._read_from != (host, cut) or self._replay.upto > done:
            self._replay, self._read_from = self._opened(host, cut), (host, cut)
        found: list[tuple[Again, str]] = []
        for again in self._replay:
            if again.zxid > done:
                found.append((again, self._replay.fingerprint))
            if again.zxid >= upto:
                break
        return found

    def _opened(self, host: str, cut: int) -> Replay:
        data, logs = self.disk(host)
        sums = read_sums(data, logs, chroot=self.chroot, upto=cut, view=whole_znode)
        paths = needed_paths(logs, chroot=self.chroot, after=cut)
        touched = {
            path: node
            for path, node in znodes(data, logs, sums)
            if path in paths or is_session(node.ephemeral_owner)
        }
        return Replay(logs, chroot=self.chroot, after=cut, at_cut=touched, owners=sums.owners)


def reader(inventory: Inventory, look: Look) -> Reader:
    """Return a reader of the transactions on the dest hosts' disks."""
    return Reader(inventory.kafka.subtree, lambda host: list_directories(look, host, inventory.dest))
