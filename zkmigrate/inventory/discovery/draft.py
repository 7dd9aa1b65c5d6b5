"""Hold the draft of migration.yml, each value with the place where it was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

LISTED = 3


@dataclass(frozen=True)
class Found(Generic[T]):
    """A value and the place where it was found.

    value: None if it was not found; ``where`` then says where it was searched.
    """

    value: T | None
    where: str = ""


@dataclass(frozen=True)
class HostLine:
    """One host in a list.

    number: myid or broker id. observer: whether it is a ZooKeeper server without a vote. where: the source
    of the line.
    """

    name: str
    address: str
    number: int | None
    also: tuple[str, ...] = ()
    port: int | None = None
    where: str = ""
    observer: bool = False


@dataclass(frozen=True)
class Ensemble:
    """The draft of the source or the dest section.

    user, group, unit: for dest only. settings: more zoo.cfg lines. admin: port of source's AdminServer; not
    found if it is ZooKeeper's default.
    """

    hosts: tuple[HostLine, ...]
    hosts_where: str
    client: Found[int]
    secure: Found[int]
    quorum: Found[int]
    election: Found[int]
    config: Found[str]
    data_dir: Found[str]
    log_dir: Found[str]
    java_env: Found[str]
    user: Found[str] = Found(None)
    group: Found[str] = Found(None)
    unit: Found[str] = Found(None)
    settings: Mapping[str, str] = field(default_factory=dict)
    settings_where: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The settings of source that are not copied, each with the reason."""
    admin: Found[int] = Found(None)


@dataclass(frozen=True)
class KafkaDraft:
    """The draft of the kafka section."""

    cluster_id: Found[str]
    chroot: Found[str]
    brokers: tuple[HostLine, ...]
    brokers_where: str
    config: Found[str]
    unit: Found[str]
    user: Found[str]
    group: Found[str]


@dataclass(frozen=True)
class SshDraft:
    """The draft of the ssh section; paths are as given."""

    user: str
    port: int
    key: str
    known_hosts: str
    bastion: str = ""
    config: str = ""


@dataclass(frozen=True)
class Draft:
    """The draft of a whole migration.yml.

    notes: lines for the head of the file.
    """

    name: str
    operator: tuple[str, ...]
    ssh: SshDraft
    source: Ensemble
    dest: Ensemble
    kafka: KafkaDraft
    notes: tuple[str, ...] = ()


def agreed(found: Mapping[str, Found[T]]) -> Found[T]:
    """Return the value that most hosts have, with a note on the hosts that differ.

    If no host has a value, the result says where it was searched.
    """
    values = {host: one for host, one in found.items() if one.value is not None}
    if not values:
        reasons = dict.fromkeys(one.where for one in found.values() if one.where)
        return Found(None, "; ".join([*reasons][:LISTED]) or "no host was queried")
    most = Counter(one.value for one in values.values()).most_common(1)[0][0]
    first = next(one for one in values.values() if one.value == most)
    others = [f"{host} has {one.value}" for host, one in values.items() if one.value != most]
    others += [f"{host}: {one.where}" for host, one in found.items() if one.value is None]
    more = f" BUT {'; '.join(others[:LISTED])}" if others else ""
    same = sum(one.value == most for one in values.values())
    of = f", {same} hosts" if same > 1 else ""
    return Found(most, f"{first.where}{of}{more}")
