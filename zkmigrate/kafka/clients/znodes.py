"""Send the changes of znodes that operations left in Kafka's subtree."""

from __future__ import annotations

from collections.abc import Sequence

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.rules.znodes import removable
from zkmigrate.runbook.model.change import ClusterChange
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.changes import CreateZnode, DeleteZnode
from zkmigrate.zookeeper.clients import znodes
from zkmigrate.zookeeper.clients.ensemble import connect
from zkmigrate.zookeeper.clients.login import OPEN, Credentials, credentials_of
from zkmigrate.zookeeper.clients.subtree import Server

_NAME = "ZooKeeper"


def alterer(inventory: Inventory, _look: Look) -> Alter:
    """Return the sender of changes to Kafka's ensemble, through the ZooKeeper hosts that are not dest's."""
    doors = [door for name, door in inventory.doors.items() if name not in inventory.dest_names]
    return Alter([Server(door.address, door.port) for door in doors], credentials_of(inventory))


class Alter:
    """A sender of changes to the ensemble of these servers, each over its own session."""

    def __init__(self, servers: Sequence[Server], credentials: Credentials = OPEN) -> None:
        self._servers, self._credentials = servers, credentials

    def __call__(self, change: ClusterChange) -> tuple[int, str]:
        """Send one change and return (0, result), or (1, reason) if nothing was done.

        Raises HostError if the outcome is unknown.
        """
        if not isinstance(change, DeleteZnode | CreateZnode):
            return 1, f"nothing was sent: {change.describe()} is not a change of a znode"
        if not removable(change.path):
            return 1, f"nothing was sent: {change.path} is not a znode that operations leave behind"
        path = change.chroot + change.path
        with connect(_NAME, self._servers, self._credentials) as client:
            if isinstance(change, DeleteZnode):
                return znodes.delete(_NAME, client, [(path, change.data, change.acl, change.mark)])
            return znodes.create(_NAME, client, [(path, change.data, change.acl, "")])

    def close(self) -> None:
        """Do nothing, because no connection is kept open."""
