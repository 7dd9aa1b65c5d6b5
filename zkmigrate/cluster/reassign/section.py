"""The section ``reassign`` of the inventory: a plan, and how fast it is carried out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints, computed_field

from zkmigrate import input_file
from zkmigrate.cluster.placement import maps
from zkmigrate.cluster.placement.check import log_dirs_of
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.cluster.reassign.adapt import Adapt
from zkmigrate.errors import InventoryError, UsageError
from zkmigrate.inventory.hours import Hours
from zkmigrate.inventory.inventory import Door, Inventory, local_path
from zkmigrate.inventory.types import LocalPath
from zkmigrate.kafka.rates import Role, amount

Sets = Mapping[Name, tuple[int, ...]]
"""Replica lists by topic and partition, in the order of a plan."""

Dirs = Mapping[Name, tuple[str, ...]]
"""Log directories by topic and partition, one for each replica; ``any`` leaves the choice to Kafka."""

Phases = tuple[tuple[Sets, Dirs], ...]
"""Reassignments that are carried out one after the other, each as (replica lists, log directories)."""

_SERVER = r"^[A-Za-z0-9.-]+:[0-9]{1,5}$"
_FILE = "a file name without blanks, quotes or shell characters"


class Pace(BaseModel):
    """The settings that say how fast partitions move.

    throttle_bytes_s: the most that a broker sends, and the most that it receives, for all moves together.
    in_flight: the most moves at once.
    per_broker: the most moves at once to one broker, and from one leader.
    stalled_s: seconds without progress after which the run stops.
    adapt: how the rate follows the load; None for a fixed rate.
    hours: when moves may begin, going forward; None for always. Moves in flight go on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    throttle_bytes_s: Annotated[int, Field(ge=1000, le=2**53)]
    in_flight: Annotated[int, Field(ge=1, le=1000)] = 20
    per_broker: Annotated[int, Field(ge=1, le=1000)] = 5
    stalled_s: Annotated[int, Field(ge=10, le=86400)] = 600
    adapt: Adapt | None = None
    hours: Hours | None = None


class Reassign(Pace):
    """The section of the inventory that says what the playbook kafka_reassign moves, and how fast.

    plan: the file of a plan, Kafka's reassignment JSON.
    back: the file with the replica lists that the plan expects; ``zkmigrate placement`` writes it beside a
    plan.
    others: what to do about reassignments of other tools in flight: refuse the run, wait for their end, or
    take them. A run that takes them throttles them and reports their progress.
    zookeeper: servers of Kafka's ensemble, ``ADDRESS:PORT``, which are read too before a move counts as
    complete.
    phases: files that lead to the plan's replica lists, each carried out once the one before is complete.
    """

    plan: LocalPath
    back: LocalPath | None = None
    phases: tuple[LocalPath, ...] = ()
    others: Literal["refuse", "wait", "take"] = "refuse"
    zookeeper: tuple[Annotated[str, StringConstraints(pattern=_SERVER)], ...] = ()


class PacedInventory(Inventory):
    """The inventory of a playbook that moves partitions."""

    @property
    def pace(self) -> Pace:
        """The settings for how fast partitions move, from the playbook's own section."""
        raise NotImplementedError

    @property
    def canary_topic(self) -> str | None:
        adapt = self.pace.adapt
        return None if adapt is None or adapt.latency_limit_ms is None else super().canary_topic

    def with_files(self, path: Path) -> Self:
        if why := self._adapts_wrong():
            raise InventoryError(f"{path}: adapt: {why}")
        return self

    def _adapts_wrong(self) -> str:
        """Return why the rates could not follow the load, or an empty string if they can."""
        adapt, begins = self.pace.adapt, self.pace.throttle_bytes_s
        if adapt is None:
            return ""
        try:
            settings = adapt.settings()
        except UsageError as error:
            return str(error)
        most = min(settings.ceiling(None, role) for role in Role)
        if not settings.floor <= begins <= most:
            needed = f"{amount(settings.floor)} (the floor) to {amount(most)} (percent of the cap)"
            return f"the rate to begin with is {amount(begins)} (needed: throttle_bytes_s from {needed})"
        if wrong := adapt.source_wrong():
            return wrong
        if adapt.source == "proc" and not self.has("ssh"):
            return (
                "the run reads the load on the brokers' hosts (needed: the section ssh, or "
                "source: prometheus)"
            )
        if adapt.latency_limit_ms is not None and self.canary_topic is None:
            return "latency_limit_ms limits the produce canary (needed: kafka.canary_topic, its topic)"
        return ""


class ReassignInventory(PacedInventory):
    """The inventory of the playbook kafka_reassign.

    A run is bound to the replica lists of its plan, not to the name of the file.
    """

    not_binding: ClassVar[Mapping[str, Any]] = {"reassign": True}
    needed: ClassVar[Mapping[str, str]] = {
        "reassign.plan": _FILE,
        "reassign.back": _FILE,
        "reassign.phases": _FILE,
        "reassign.zookeeper": "ADDRESS:PORT of ZooKeeper servers",
    }

    reassign: Reassign

    @property
    def pace(self) -> Pace:
        return self.reassign

    _sets: Sets = PrivateAttr(default_factory=dict)
    _back: Sets = PrivateAttr(default_factory=dict)
    _dirs: Dirs = PrivateAttr(default_factory=dict)
    _phases: Phases = PrivateAttr(default=())

    @property
    def sets(self) -> Sets:
        """The replica lists of the plan, by topic and partition."""
        return self._sets

    @property
    def back(self) -> Sets:
        """The replica lists that the plan expects to find; empty if ``reassign.back`` names no file."""
        return self._back

    @property
    def doors(self) -> dict[str, Door]:
        """The ZooKeeper servers of the section and of the base inventory, by name."""
        servers = (server.rpartition(":") for server in self.reassign.zookeeper)
        return super().doors | {f"{at}:{port}": Door(at, int(port)) for at, _, port in servers}

    @property
    def dirs(self) -> Dirs:
        """The log directories that the plan names, for partitions with at least one named directory."""
        return self._dirs

    @property
    def phases(self) -> Phases:
        """The reassignments to carry out one after the other; only the plan itself if it has no phases."""
        return self._phases or ((self._sets, self._dirs),)

    @property
    def broker_ids(self) -> frozenset[int]:
        every = (*(sets for sets, _ in self.phases), self._back)
        return super().broker_ids | {id for sets in every for ids in sets.values() for id in ids}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def plan_sha256(self) -> str:
        """The digest of the plan's replica lists and directories, however its file spells them."""
        texts = (
            maps.text((name, of, dirs.get(name, ())) for name, of in sets.items())
            for sets, dirs in self.phases
        )
        return hashlib.sha256("".join(texts).encode()).hexdigest()

    def with_sets(self, sets: Sets, back: Sets, dirs: Dirs | None = None, phases: Phases = ()) -> Self:
        """Return a copy with the replica lists, log directories and phases of a plan."""
        made = self.model_copy()
        made._sets, made._back, made._dirs, made._phases = sets, back, dirs or {}, phases
        return made

    def with_files(self, path: Path) -> Self:
        wanted = self.reassign
        back = {} if wanted.back is None else _read(path, "back", wanted.back)[0]
        super().with_files(path)
        sets, dirs = _read(path, "plan", wanted.plan)
        phases = tuple(_read(path, "phases", name) for name in wanted.phases)
        if phases and (wrong := _not_leading_to(sets, phases)):
            raise InventoryError(f"{path}: reassign.phases: {wrong}; needed: the phases of reassign.plan")
        return self.with_sets(sets, back, dirs, phases)


def _not_leading_to(sets: Sets, phases: Phases) -> str:
    """Return why phases do not end at these replica lists, or an empty string if they do."""
    ends = {name: of for own, _ in phases for name, of in own.items()}
    odd = [name for name in {**sets, **ends} if ends.get(name) != sets.get(name)]
    named = [f"{t}-{n} ends at {ends.get((t, n))}, the plan at {sets.get((t, n))}" for t, n in odd[:3]]
    return ", ".join(named)


def _read(inventory: Path, key: str, name: str) -> tuple[Sets, Dirs]:
    file = Path(local_path(inventory, name))
    try:
        content = input_file.content(file)
        sets = maps.parse(content, name)
        named = log_dirs_of(content.decode("utf-8-sig"))
        return sets, {at: dirs for at, dirs in named.items() if any(path != maps.ANY for path in dirs)}
    except OSError as error:
        seen = f"{name}: the file cannot be read: {error.strerror} (needed: the file of a plan)"
    except UsageError as error:
        seen = str(error)
    raise InventoryError(f"{inventory}: reassign.{key}: {seen}")
