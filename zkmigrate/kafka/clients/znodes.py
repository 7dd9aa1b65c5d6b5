"""Delete znodes that operations left in Kafka's subtree, and create them again, with kazoo."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.rules.znodes import removable
from zkmigrate.runbook.model.change import ClusterChange
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.changes import CreateZnode, DeleteZnode
from zkmigrate.zookeeper.clients.ensemble import ANSWER_S, connect, named, to_kazoo
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.txn import Acl

_named = partial(named, "ZooKeeper")


def alterer(inventory: Inventory, _look: Look) -> Alter:
    """Return the sender of changes to the ensemble, which it reaches through the inventory's doors."""
    return Alter([Server(door.address, door.port) for door in inventory.doors.values()])


class Alter:
    """A sender of changes to the ensemble of these servers, each over its own session."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers

    def __call__(self, change: ClusterChange) -> tuple[int, str]:
        """Send one change and return (0, result), or (1, reason) if nothing was done.

        Raises HostError if the outcome is unknown.
        """
        if not isinstance(change, DeleteZnode | CreateZnode):
            return 1, f"nothing was sent: {change.describe()} is not a change of a znode"
        if not removable(change.path):
            return 1, f"nothing was sent: {change.path} is no znode that operations leave behind"
        with connect("ZooKeeper", self._servers) as client:
            if isinstance(change, DeleteZnode):
                return _delete(client, change.chroot + change.path, change)
            return _create(client, change.chroot + change.path, change)

    def close(self) -> None:
        """Do nothing, because no connection is kept open."""


def _delete(client: KazooClient, path: str, change: DeleteZnode) -> tuple[int, str]:
    with _named(path):
        stat = client.exists_async(path).get(timeout=ANSWER_S)
        if stat is None:
            return 0, f"{change.path} is gone"
        now = f"{stat.czxid:x} {stat.mzxid:x} {stat.version}"
        if now != change.mark:
            return 1, f"{change.path} was changed, or made anew, since it was read; it stays"
        try:
            client.delete_async(path, version=stat.version).get(timeout=ANSWER_S)
        except NoNodeError:
            return 0, f"{change.path} is gone"
        except BadVersionError:
            return 1, f"{change.path} was changed since it was read; it stays"
        except NotEmptyError:
            return 1, f"{change.path} has a znode below it that was not read; it stays"
        except NoAuthError:
            return 1, f"no ACL lets this client delete {change.path}"
    return 0, change.describe()


def _create(client: KazooClient, path: str, change: CreateZnode) -> tuple[int, str]:
    acl = to_kazoo(Acl(*one) for one in change.acl)
    with _named(path):
        try:
            client.create_async(path, change.data, acl=acl).get(timeout=ANSWER_S)
        except NodeExistsError:
            return 0, f"{change.path} exists, and stays as it is"
        except NoNodeError:
            return 1, f"{change.path} has no znode above it any more"
        except NoAuthError:
            return 1, f"no ACL lets this client make {change.path}"
    return 0, change.describe()
