"""What target's topics need after source's have changed: partitions, settings, or an end of the copying.

Target has no place for notes. So a look compares both sides; what earlier looks of this run saw is a Memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from zkmigrate.mirror.rules.topic import NOT_COPIED, differences, refusal, wanted


@dataclass(frozen=True)
class State:
    """A topic now. id: Kafka's topic id, empty where brokers have none. settings: those that differ from
    Kafka's defaults. own: set on the topic itself, not by its brokers. known: all that its brokers have."""

    id: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]
    own: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Memory:
    """What earlier looks saw of source's topic. keys: settings that the mirror keeps equal. gone: the last
    look did not find it."""

    id: str = ""
    partitions: int = 0
    keys: frozenset[str] = frozenset()
    gone: bool = False


@dataclass(frozen=True)
class Grow:
    """Give target's topic this many partitions."""

    topic: str
    partitions: int


@dataclass(frozen=True)
class Configure:
    """Set and remove settings of target's topic."""

    topic: str
    put: Mapping[str, str]
    remove: tuple[str, ...]


@dataclass(frozen=True)
class Stop:
    """Copy this topic no more. why: for its partitions."""

    topic: str
    why: str


Change = Grow | Configure | Stop


@dataclass(frozen=True)
class Followed:
    """changes: for target. left: what stays different, by setting, and why; under "" of the whole topic."""

    changes: tuple[Change, ...]
    left: Mapping[str, str]
    memory: Memory


@dataclass(frozen=True)
class _Settings:
    put: dict[str, str] = field(default_factory=dict)
    remove: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def follow(name: str, here: State | None, there: State | None, before: Memory) -> Followed:
    """Of one topic. here, there: source's and target's, None without one.

    A topic is gone when two looks in a row miss it: a broker that has just started may not know it yet.
    """
    if here is None:
        stop = (Stop(name, "source has no such topic any more: it was deleted or renamed"),)
        return Followed(stop if before.gone else (), {}, replace(before, gone=True))
    if why := _anew(here, before):
        return Followed((Stop(name, why),), {}, before)
    if there is None:
        missing = "target has no such topic any more. Next: end this run and begin again"
        return Followed((), {"": missing}, Memory(here.id or before.id, here.partitions, before.keys))
    if why := refusal(name, here.partitions, there.partitions, there.settings):
        return Followed((Stop(name, why),), {}, before)
    changes: list[Change] = []
    if there.partitions < here.partitions:
        changes.append(Grow(name, here.partitions))
    found = _settings(here, there, before.keys)
    if found.put or found.remove:
        changes.append(Configure(name, found.put, tuple(found.remove)))
    keys = frozenset(wanted(here.settings, there.replicas)) | frozenset(found.remove)
    return Followed(tuple(changes), found.left, Memory(here.id or before.id, here.partitions, keys))


def _anew(here: State, before: Memory) -> str:
    """Why source's topic is not the one that was copied; empty if it may be."""
    if before.id and here.id and here.id != before.id:
        return f"source's topic was made anew: its id is {here.id}, was {before.id}"
    if here.partitions < before.partitions:
        return f"source's topic was made anew: it has {here.partitions} partitions, had {before.partitions}"
    return ""


def _settings(here: State, there: State, had: frozenset[str]) -> _Settings:
    """had: settings that an earlier look saw at source. Only those are removed from target."""
    found = _Settings(left={key: NOT_COPIED[key] for key in here.settings if key in NOT_COPIED})
    for key, (needed, _) in differences(wanted(here.settings, there.replicas), there.settings).items():
        if needed is not None and key in there.known:
            found.put[key] = needed
        elif needed is not None:
            found.left[key] = "target's Kafka has no such setting"
        elif key not in there.own:
            found.left[key] = "target's brokers set it, source has Kafka's default"
        elif key in had:
            found.remove.append(key)
        else:
            found.left[key] = "set on target only, the mirror leaves it"
    return found
