"""Define the shape of a lab: its ZooKeeper ensembles and Kafka clusters, and their hosts.

The module defines only values. `LabSpec` (spec.py) has the settings that all parts share; `hosts_of` lists
the hosts.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from zkmigrate.lab.failure import LabError

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z-]{0,7}[a-z]$")]
"""The first part of host names. Linux allows 15 characters for a network port, such as `NAME-ctl12`."""


def release(version: str) -> tuple[int, ...]:
    """Return the major and minor number of a version; a part that is not a number becomes 0."""
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))[:2]


def znode_path(path: str) -> str:
    """Return the path unchanged. Raises ValueError unless it is an absolute znode path or ``/``."""
    first, *others = path.split("/")
    if path == "/" or (first == "" and others and not {"", ".", ".."} & set(others)):
        return path
    raise ValueError(f"chroot {path!r} must be an absolute znode path such as /kafka, or / for none")


Megabytes = Annotated[int, Field(ge=64)]

FURTHER = ("gateway", "mirror", "client")
"""The first parts of the names of hosts that belong to no ensemble or cluster."""
FIRST_KRAFT, LAST_ZOOKEEPER = (3, 3), (3, 9)
"""Kafka's first release with KRaft for production, and its last release with ZooKeeper."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Part(_Value):
    """An ensemble or cluster.

    name: the first part of its hosts' names. version: the version of its servers.
    """

    name: Name
    version: str


class Ensemble(Part):
    """A ZooKeeper ensemble on hosts NAME1, NAME2 and so on.

    count: the number of hosts with a vote. observers: the number of hosts after them that have none. empty:
    whether ZooKeeper is only installed, without data, and stopped.
    """

    version: str = "3.5.8"
    count: Literal[1, 3, 5, 7] = 3
    observers: int = Field(default=0, ge=0, le=2)
    empty: bool = False


class Broker(_Value):
    """One broker.

    disks_mb: the sizes of the broker's disks, each a file system with one log directory. Without disks the
    broker has one log directory on the root file system. disk_mb_s: the limit of each disk's reads and of its
    writes, in megabytes (1,000,000 bytes) per second. controller: whether the broker is also a KRaft
    controller.
    """

    rack: str | None = None
    disks_mb: tuple[Megabytes, ...] = ()
    disk_mb_s: Annotated[int, Field(ge=1)] | None = None
    controller: bool = False

    @model_validator(mode="after")
    def _limits_its_own_disks(self) -> Self:
        if self.disk_mb_s is not None and not self.disks_mb:
            raise ValueError("disk_mb_s needs disks_mb: all hosts share the root file system's disk")
        return self


class KafkaCluster(Part):
    """A Kafka cluster on hosts NAME1 to NAMEn, one for each broker; broker ids count from 1.

    ensemble: the ensemble that holds the cluster's metadata below `chroot`; None means KRaft. With KRaft,
    `controllers` is the number of hosts NAME-ctl1 and so on that are only controllers; brokers may be
    controllers too.
    """

    version: str = "2.8.2"
    brokers: Annotated[tuple[Broker, ...], Field(min_length=1)]
    controllers: Annotated[int, Field(ge=0, le=9)] = 0
    ensemble: str | None = None
    chroot: Annotated[str, AfterValidator(znode_path)] = "/kafka"

    @model_validator(mode="after")
    def _one_kind_of_metadata(self) -> Self:
        own = self.controllers + sum(broker.controller for broker in self.brokers)
        if self.ensemble is not None and own:
            raise ValueError("a cluster has an ensemble or its own controllers, not both")
        if self.ensemble is not None and release(self.version) > LAST_ZOOKEEPER:
            raise ValueError(f"Kafka {self.version} has no ZooKeeper; leave `ensemble` out")
        if self.ensemble is None and not own:
            raise ValueError(
                "a cluster needs an ensemble or controllers, which are separate hosts or also brokers"
            )
        if self.ensemble is None and release(self.version) < FIRST_KRAFT:
            raise ValueError(f"Kafka {self.version} has no KRaft for production; name an `ensemble`")
        return self


class Shape(_Value):
    """All ensembles, clusters and further hosts of a lab.

    gateways, mirrors: the numbers of gateway and mirror hosts between the lab's two clusters. clients: the
    number of client hosts.
    """

    ensembles: tuple[Ensemble, ...] = ()
    clusters: tuple[KafkaCluster, ...] = ()
    gateways: Annotated[int, Field(ge=0, le=9)] = 0
    mirrors: Annotated[int, Field(ge=0, le=9)] = 0
    clients: Annotated[int, Field(ge=1, le=9)] = 1

    @property
    def parts(self) -> tuple[Part, ...]:
        """The ensembles, then the clusters."""
        return (*self.ensembles, *self.clusters)

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        names = [part.name for part in self.parts]
        if not names:
            raise ValueError("a lab needs an ensemble or a cluster")
        if twice := [name for name, times in Counter([*names, *FURTHER]).items() if times > 1]:
            raise ValueError(f"the name {twice[0]} is used twice or reserved")
        if (self.gateways or self.mirrors) and len(self.clusters) != 2:
            raise ValueError(f"gateways and mirrors need two clusters; the shape has {len(self.clusters)}")
        serving = {ensemble.name for ensemble in self.ensembles if not ensemble.empty}
        with_zookeeper = [c for c in self.clusters if c.ensemble is not None]
        for cluster in with_zookeeper:
            if cluster.ensemble not in serving:
                possible = ", ".join(sorted(serving)) or "none"
                raise ValueError(
                    f"{cluster.name}: there is no running ensemble {cluster.ensemble}. Running ensembles: "
                    f"{possible}"
                )
        places = Counter((cluster.ensemble, cluster.chroot) for cluster in with_zookeeper)
        if shared := [f"{chroot} of {name}" for (name, chroot), times in places.items() if times > 1]:
            raise ValueError(f"two clusters have the chroot {shared[0]}. Each cluster needs its own chroot")
        return self

    @classmethod
    def from_json(cls, value: Any) -> Shape:
        """Return the shape that this JSON or YAML value describes.

        Raises LabError for a wrong value, with its place and the reason.
        """
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            wrong = [f"{'.'.join(map(str, e['loc'])) or 'shape'}: {e['msg']}" for e in error.errors()]
            raise LabError("this shape is not possible: " + "; ".join(wrong)) from error
