"""The section ``leftovers`` of the inventory: what a run removes, and where Kafka keeps its znodes."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from zkmigrate.inventory.inventory import Door, Inventory
from zkmigrate.kafka.rules.znodes import CONTROLLER
from zkmigrate.runbook.model import policy
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context

Connect = Annotated[
    str,
    StringConstraints(
        pattern=r"^([0-9A-Za-z.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}"
        r"(,([0-9A-Za-z.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5})*(/[A-Za-z0-9._-]+)*$",
        max_length=1024,
    ),
]
Subtree = Annotated[str, StringConstraints(pattern=r"^(/[^/\x00-\x1f\x7f]+)+$", max_length=4096)]
RunId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,23}$")]
Entry = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/:@%+*?-]+$", max_length=4096)]

NEVER = (CONTROLLER, "/controller_epoch", "/cluster/id", "/brokers/ids/0")
"""Znodes of a live cluster; an entry that matches one of them matches too much."""


class Leftovers(BaseModel):
    """The section of the inventory that says what the playbook kafka_clean_leftovers removes.

    zookeeper: the brokers' ``zookeeper.connect``; left out with KRaft.
    remove: names as preflight lists them, or patterns in which ``*`` stands for any characters and ``?`` for
    one. Only named leftovers are removed. If an entry is deleted during a run, its leftover is not removed.
    An entry that is added during a run takes effect in the next run.
    older_than_s: the age in seconds below which znodes and directories are not removed.
    after_move: the id of the finished move whose dest is searched for znodes of other tenants; None to skip
    that search.
    subtrees: the subtrees of other tenants to delete from dest.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    zookeeper: Connect | None = None
    remove: tuple[Entry, ...] = ()
    older_than_s: Annotated[int, Field(ge=1, le=365 * 86400)] = 3600
    after_move: RunId | None = None
    subtrees: tuple[Subtree, ...] = ()

    @field_validator("remove")
    @classmethod
    def _spares(cls, entries: tuple[str, ...]) -> tuple[str, ...]:
        for entry in entries:
            if covered := next((path for path in NEVER if fnmatchcase(path, entry)), None):
                raise ValueError(f"{entry!r} matches {covered}, which is never removed")
        return entries

    @property
    def chroot(self) -> str:
        """The subtree of ZooKeeper that contains Kafka; empty at the root."""
        _, slash, path = (self.zookeeper or "").partition("/")
        return (slash + path).rstrip("/")

    @property
    def doors(self) -> dict[str, Door]:
        """The client address of each ZooKeeper server, by ``ADDRESS:PORT``."""
        servers = (self.zookeeper or "").partition("/")[0]
        ends = [(server, *server.rpartition(":")[::2]) for server in servers.split(",") if server]
        return {server: Door(address.strip("[]"), int(port)) for server, address, port in ends}

    def names(self, name: str) -> bool:
        """Return whether ``remove`` names this leftover."""
        return any(fnmatchcase(name, entry) for entry in self.remove)


class LeftoversInventory(Inventory):
    """The inventory of the playbook kafka_clean_leftovers."""

    not_binding: ClassVar[Mapping[str, Any]] = {"leftovers": {"remove", "subtrees"}}
    needed: ClassVar[Mapping[str, str]] = {
        "leftovers.zookeeper": "the brokers' zookeeper.connect, ADDRESS:PORT,…/CHROOT",
        "leftovers.remove": "names as preflight lists them, or patterns with * and ?; never /controller",
        "leftovers.after_move": "the id of the move's run, 1 to 24 of a-z, 0-9 and -",
        "leftovers.subtrees": "paths as preflight lists them, such as /solr",
    }

    leftovers: Leftovers = Leftovers()

    @model_validator(mode="after")
    def _names_dest(self) -> Self:
        if self.leftovers.subtrees and self.leftovers.after_move is None:
            raise ValueError("leftovers.subtrees needs leftovers.after_move")
        if self.leftovers.after_move is not None and not self.has("operator", "ssh", "dest"):
            raise ValueError("leftovers.after_move needs the move's sections operator, ssh and dest")
        return self

    @property
    def doors(self) -> dict[str, Door]:
        """The client addresses of Kafka's ZooKeeper servers, and of the dest hosts if the file names any."""
        dest = {name: door for name, door in super().doors.items() if name in self.dest_names}
        return self.leftovers.doors | dest

    @property
    def hosts(self) -> dict[str, tuple[str, ...]]:
        """The hosts by part: those of the brokers with a directory that ``remove`` names.

        A run changes only these hosts, and these hosts keep its lock.
        """
        named = tuple(
            name
            for name in self.broker_names
            if any(
                ":" in entry and fnmatchcase(name, entry.partition(":")[0]) for entry in self.leftovers.remove
            )
        )
        return {"brokers": named} if named else {}


def named_hosts(inventory: Inventory) -> tuple[str, ...]:
    """Return the brokers with a directory that ``remove`` names."""
    return inventory.hosts.get("brokers", ())


def removable(inventory: Inventory, host: str) -> tuple[str, ...]:
    """Return what zkm-host may change on a host: it moves what ``remove`` names out of Kafka's disks."""
    assert isinstance(inventory, LeftoversInventory)
    entries = (entry.partition(":") for entry in inventory.leftovers.remove if ":" in entry)
    patterns = [pattern for named, _, pattern in entries if fnmatchcase(host, named)]
    return (policy.LOCK, *map(policy.leftover, patterns)) if host in named_hosts(inventory) else ()


def tenants(inventory: Inventory) -> tuple[str, tuple[str, ...]]:
    """Return the run of the move whose dest is cleaned, and the named subtrees of other tenants.

    The run is empty if no move is named.
    """
    assert isinstance(inventory, LeftoversInventory)
    return inventory.leftovers.after_move or "", inventory.leftovers.subtrees


def foreseen(c: Context, _look: Look) -> tuple[str, ...]:
    """Return the lines that ``plan`` prints about the subtrees of other tenants."""
    named = tenants(c.inventory)[1]
    return (f"  subtrees to delete from dest, batch by batch: {', '.join(named)}",) if named else ()


def no_tenants(inventory: Inventory) -> str:
    """Return the inventory key that is empty if no tenant's subtree is named, or "" if a subtree is named."""
    return "" if tenants(inventory)[1] else "leftovers.subtrees"
