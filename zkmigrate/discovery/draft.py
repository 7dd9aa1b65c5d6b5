"""What was found, value by value with the place where it was seen; values that hosts agree on, or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

LISTED = 3


@dataclass(frozen=True)
class Told(Generic[T]):
    """value None: not found. where: where it was seen; of one that was not found what was looked for."""

    value: T | None
    where: str = ""


@dataclass(frozen=True)
class HostLine:
    """One host as it will stand in a list. number: myid or broker id. where: what told of it."""

    name: str
    address: str
    number: int | None
    also: tuple[str, ...] = ()
    port: int | None = None
    where: str = ""


@dataclass(frozen=True)
class Ensemble:
    """A side of the move. service, user and group are dest's alone; settings: further zoo.cfg lines.

    admin: port of source's AdminServer, None where it is ZooKeeper's default.
    """

    hosts: tuple[HostLine, ...]
    hosts_where: str
    client: Told[int]
    quorum: Told[int]
    election: Told[int]
    config: Told[str]
    data_dir: Told[str]
    log_dir: Told[str]
    java_env: Told[str]
    user: Told[str] = Told(None)
    group: Told[str] = Told(None)
    unit: Told[str] = Told(None)
    settings: Mapping[str, str] = field(default_factory=dict)
    settings_where: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Settings of source that are not taken over → why."""
    admin: Told[int] = Told(None)


@dataclass(frozen=True)
class KafkaDraft:
    """The cluster that moves."""

    cluster_id: Told[str]
    chroot: Told[str]
    brokers: tuple[HostLine, ...]
    brokers_where: str
    config: Told[str]
    unit: Told[str]
    user: Told[str]
    group: Told[str]


@dataclass(frozen=True)
class SshDraft:
    """How hosts are reached, as it was for this look; paths as they were given."""

    user: str
    port: int
    key: str
    known_hosts: str
    bastion: str = ""
    config: str = ""


@dataclass(frozen=True)
class Draft:
    """A whole migration.yml. notes: what the reader has to know first."""

    name: str
    operator: tuple[str, ...]
    ssh: SshDraft
    source: Ensemble
    dest: Ensemble
    kafka: KafkaDraft
    notes: tuple[str, ...] = ()


def agreed(found: Mapping[str, Told[T]]) -> Told[T]:
    """The value that most hosts have, with those that have another; of none what was looked for."""
    values = {host: told for host, told in found.items() if told.value is not None}
    if not values:
        reasons = dict.fromkeys(told.where for told in found.values() if told.where)
        return Told(None, "; ".join([*reasons][:LISTED]) or "no host was asked")
    most = Counter(told.value for told in values.values()).most_common(1)[0][0]
    first = next(told for told in values.values() if told.value == most)
    others = [f"{host} has {told.value}" for host, told in values.items() if told.value != most]
    others += [f"{host}: {told.where}" for host, told in found.items() if told.value is None]
    more = f" BUT {'; '.join(others[:LISTED])}" if others else ""
    same = len(values) - len([h for h, t in values.items() if t.value != most])
    of = f", {same} hosts" if same > 1 else ""
    return Told(most, f"{first.where}{of}{more}")
