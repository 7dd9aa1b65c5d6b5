"""The section ``new_partitions`` of the inventory: a plan with the replica lists of new partitions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, PrivateAttr, computed_field

from zkmigrate import input_file
from zkmigrate.cluster.placement import maps
from zkmigrate.errors import InventoryError, UsageError
from zkmigrate.inventory.inventory import Inventory, local_path
from zkmigrate.inventory.types import LocalPath

Sets = tuple[tuple[int, ...], ...]
"""Replica lists of partitions with consecutive numbers."""


class NewPartitions(BaseModel):
    """The section of the inventory that says what the playbook kafka_new_partitions creates.

    plan: the file that ``zkmigrate placement new-topic`` or ``grow`` wrote.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    plan: LocalPath


class NewPartitionsInventory(Inventory):
    """The inventory of the playbook kafka_new_partitions.

    A run is bound to the replica lists of its plan, not to the name of the file.
    """

    not_binding: ClassVar[Mapping[str, Any]] = {"new_partitions": True}
    needed: ClassVar[Mapping[str, str]] = {
        "new_partitions.plan": "a file name without blanks, quotes or shell characters"
    }

    new_partitions: NewPartitions

    _topic: str = PrivateAttr(default="")
    _first: int = PrivateAttr(default=0)
    _sets: Sets = PrivateAttr(default=())

    @property
    def topic(self) -> str:
        """The topic of the plan."""
        return self._topic

    @property
    def first(self) -> int:
        """The number of the plan's first partition: 0 for a new topic."""
        return self._first

    @property
    def sets(self) -> Sets:
        """The plan's replica lists, from partition ``first`` on."""
        return self._sets

    @property
    def broker_ids(self) -> frozenset[int]:
        return super().broker_ids | {id_ for of in self._sets for id_ in of}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def planned(self) -> str:
        """The topic and replica lists of the plan, to which a run is bound."""
        return f"{self._topic} from {self._first}: {[list(of) for of in self._sets]}"

    def with_sets(self, topic: str, first: int, sets: Sets) -> Self:
        """Return a copy with the topic, the first partition and the replica lists of a plan."""
        made = self.model_copy()
        made._topic, made._first, made._sets = topic, first, sets
        return made

    def with_files(self, path: Path) -> Self:
        name = self.new_partitions.plan
        try:
            found = maps.parse(input_file.content(Path(local_path(path, name))), name)
        except OSError as error:
            raise _wrong(
                path, f"{name}: the file cannot be read: {error.strerror} (needed: the file of a plan)"
            ) from None
        except UsageError as error:
            raise _wrong(path, str(error)) from None
        topics = sorted({topic for topic, _ in found})
        numbers = sorted(number for _, number in found)
        if len(topics) != 1 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            seen = f"{name}: {len(found)} partitions of {len(topics)} topics"
            raise _wrong(path, f"{seen} (needed: partitions of one topic whose numbers follow each other)")
        sets = tuple(found[topics[0], number] for number in numbers)
        return super().with_files(path).with_sets(topics[0], numbers[0], sets)


def _wrong(path: Path, why: str) -> InventoryError:
    return InventoryError(f"{path}: new_partitions.plan: {why}")


def new_partitions_of(inventory: Inventory) -> NewPartitionsInventory:
    """Return the inventory with its plan. Raises TypeError if it belongs to another playbook."""
    if not isinstance(inventory, NewPartitionsInventory):
        raise TypeError("the inventory of this playbook needs a section new_partitions")
    return inventory
