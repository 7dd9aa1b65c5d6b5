"""The section ``removal`` of the inventory: the brokers to remove, and the settings for their removal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from zkmigrate.cluster.reassign.section import Pace, PacedInventory
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.inventory.types import RemotePath
from zkmigrate.runbook.model import policy


class Exclusion(StrEnum):
    """How new replicas are kept off the brokers. AUTO means CORDON if Kafka supports it, else WATCH."""

    AUTO = "auto"
    CORDON = "cordon"
    """Kafka's own setting cordoned.log.dirs, from 4.3 on. Explicit assignments still pass."""
    POLICY = "policy"
    """A CreateTopicPolicy that the brokers have loaded.

    With ``policy_file`` it is zkmigrate's own policy. Another policy has to refuse the right assignments by
    itself.
    """
    WATCH = "watch"
    """New replicas are not kept off. The run finds and moves new replicas until the brokers stop."""


class Removal(Pace):
    """The section of the inventory for the playbook kafka_remove_brokers: the brokers to remove, and how.

    brokers: the ids of the brokers.
    shutdown: whether to stop them once they are empty.
    exclusion: how new replicas are kept off them.
    policy_file: the file on each broker's host from which our policy reads the assignments to refuse; None
    for another policy.
    margin: the share of each other broker's free bytes that stays free.
    """

    brokers: Annotated[tuple[Annotated[int, Field(ge=0, le=2**31 - 1)], ...], Field(min_length=1)]
    shutdown: bool = True
    exclusion: Annotated[Exclusion, Field(strict=False)] = Exclusion.AUTO
    policy_file: RemotePath | None = None
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.1

    @model_validator(mode="after")
    def _policy_reads_it(self) -> Self:
        if self.policy_file is not None and self.exclusion is not Exclusion.POLICY:
            raise ValueError("policy_file needs exclusion: policy")
        return self

    @field_validator("brokers")
    @classmethod
    def _in_order(cls, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ids sorted and without duplicates, so that equal requests compare equal."""
        return tuple(sorted(set(ids)))


class RemovalInventory(PacedInventory):
    """The inventory of the playbook kafka_remove_brokers. Its pace may change during a run."""

    not_binding: ClassVar[Mapping[str, Any]] = {"removal": set(Pace.model_fields)}
    needed: ClassVar[Mapping[str, str]] = {
        "removal.brokers": "ids of brokers, such as [5, 6]",
        "removal.exclusion": f"one of {', '.join(Exclusion)}",
    }

    removal: Removal

    @property
    def pace(self) -> Pace:
        return self.removal

    @property
    def stoppable(self) -> tuple[str, ...]:
        """The hosts of the brokers to be removed that may be stopped, as far as the inventory names them."""
        gone = self.removal.brokers if self.removal.shutdown and self.has("ssh") else ()
        return tuple(broker.name for broker in self.brokers if broker.id in gone)

    @property
    def policed(self) -> tuple[str, ...]:
        """The hosts on which our policy reads a file: those of all brokers, or none."""
        return self.broker_names if self.removal.policy_file is not None and self.has("ssh") else ()

    @property
    def hosts(self) -> dict[str, tuple[str, ...]]:
        """The hosts by part. A run changes those of removed brokers, or all if our policy reads a file."""
        every, gone = super().hosts, self.stoppable
        stay = tuple(name for name in self.broker_names if name not in gone)
        part = "policed" if self.policed else "brokers"
        every = {**every, "brokers": (), part: stay, "removed": gone}
        return {part: names for part, names in every.items() if names}

    @property
    def broker_ids(self) -> frozenset[int]:
        return super().broker_ids | frozenset(self.removal.brokers)


def stoppable(inventory: Inventory) -> tuple[str, ...]:
    """Return the hosts of the brokers to be removed that may be stopped."""
    return inventory.stoppable if isinstance(inventory, RemovalInventory) else ()


def policed(inventory: Inventory) -> tuple[str, ...]:
    """Return the hosts on which our policy reads a file."""
    return inventory.policed if isinstance(inventory, RemovalInventory) else ()


def stoppable_alone(inventory: Inventory) -> tuple[str, ...]:
    """Return the hosts of the brokers to stop; none if a policy file needs zkm-host on all hosts."""
    return () if policed(inventory) else stoppable(inventory)


def host_policy(inventory: Inventory, host: str) -> tuple[str, ...]:
    """Return what zkm-host may change on a host: our policy's file, and the service of a broker to stop."""
    file, kafka = removal(inventory).policy_file, inventory.kafka
    writes = (policy.put(file, "root:root"),) if file and host in policed(inventory) else ()
    stops = (
        policy.service(kafka.service.unit, ("stop", "start"), kafka.commands(host))
        if host in stoppable(inventory)
        else ()
    )
    return (policy.LOCK, *writes, *stops) if writes or stops else ()


def removed(inventory: Inventory) -> tuple[int, ...]:
    """Return the ids of the brokers to be removed."""
    return removal(inventory).brokers


def goes_on(inventory: Inventory) -> str:
    """Return the key that keeps the brokers running once they are empty, or an empty string."""
    return "" if removal(inventory).shutdown else "removal.shutdown: false"


def removal(inventory: Inventory) -> Removal:
    """Return the section ``removal``. Raises TypeError if the playbook removes no brokers."""
    if not isinstance(inventory, RemovalInventory):
        raise TypeError("the inventory of this playbook needs a section removal")
    return inventory.removal
