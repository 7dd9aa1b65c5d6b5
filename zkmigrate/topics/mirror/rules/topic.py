"""Decide which partitions, replicas and settings target's topic must have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

TIME_TYPE, MIN_ISR, POLICY = "message.timestamp.type", "min.insync.replicas", "cleanup.policy"
BEFORE, AFTER = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
"""Settings that limit how much older or newer than the broker's clock the timestamp of a record may be.

They exist since Kafka 3.6.
"""
DIFFERENCE = "message.timestamp.difference.max.ms"
"""The setting for both limits, up to Kafka 3.9. It applies where ``BEFORE`` or ``AFTER`` sets no limit."""
NO_LIMIT = str((1 << 63) - 1)
"""The value for no limit, which is Kafka's default.

Since Kafka 4.0 the default of ``AFTER`` is one hour instead.
"""
LIMITS = frozenset({BEFORE, AFTER, DIFFERENCE})

NOT_COPIED: Mapping[str, str] = {
    TIME_TYPE: "target keeps source's timestamps, as CreateTime",
    "message.format.version": "target uses its own format",
    "leader.replication.throttled.replicas": "the value names source's brokers",
    "follower.replication.throttled.replicas": "the value names source's brokers",
    "remote.storage.enable": "target may have no remote storage",
}
"""The settings of source that are not copied to target, each with the reason."""
UNKNOWN_THERE, UNKNOWN_HERE = "target's Kafka has no such setting", "source's Kafka has no such setting"
THEIRS = "the setting is set on target only, and the mirror does not change it"


@dataclass(frozen=True)
class Settings:
    """A topic's settings.

    values: by setting that the topic's Kafka has, the value that applies. changed: the settings with a value
    that is not Kafka's default. beneath: for each setting that is set on the topic itself, the value that
    would apply without it; None if Kafka does not report that value.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    beneath: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Aligned:
    """The difference between target's settings and source's settings.

    put, remove: the settings to set and to remove on target, so that the settings become equal. left: by
    setting that remains as it is, the reason. differ: by setting, the needed value and the current value.
    """

    put: Mapping[str, str]
    remove: tuple[str, ...]
    left: Mapping[str, str]
    differ: Mapping[str, tuple[str, str]]


def wanted(here: Settings, known: Collection[str], replicas: int) -> dict[str, str]:
    """Return the values of settings that must apply on target.

    here: source's settings. known: the settings that target's Kafka has. replicas: target's replica count.
    """
    values = {**here.values, **_limits(here.values, known), TIME_TYPE: "CreateTime"}
    if MIN_ISR in values:
        values[MIN_ISR] = str(min(int(values[MIN_ISR]), replicas))
    return {k: v for k, v in values.items() if k in known and (k not in NOT_COPIED or k == TIME_TYPE)}


def _limits(values: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Return limits of timestamps with which target accepts every record that source accepts.

    values: source's settings. known: the settings that target's Kafka has. The limits have target's names for
    them. If target has a single setting for both limits, it gets the wider limit.
    """
    both = values.get(DIFFERENCE, NO_LIMIT)
    if DIFFERENCE in values and DIFFERENCE in known:
        return {DIFFERENCE: both, BEFORE: values.get(BEFORE, NO_LIMIT), AFTER: values.get(AFTER, NO_LIMIT)}
    sides = {key: both if values.get(key, NO_LIMIT) == NO_LIMIT else values[key] for key in (BEFORE, AFTER)}
    return {**sides, DIFFERENCE: NO_LIMIT if BEFORE in known else max(sides.values(), key=int)}


def named(here: Settings) -> frozenset[str]:
    """Return the names of the settings that source has changed, and target's names for the same settings."""
    return here.changed | (LIMITS if here.changed & LIMITS else frozenset())


def first(here: Settings, would: Settings | None, replicas: int) -> dict[str, str]:
    """Return the settings with which target's topic must be created.

    would: the settings of a topic that is created without any settings; None if Kafka (before 2.4) does not
    report them. In that case the first round of the mirror after the creation sets the rest.
    """
    if would is None:
        return wanted(here, here.changed - NOT_COPIED.keys(), replicas)
    needed = wanted(here, would.values.keys(), replicas)
    return {key: value for key, value in needed.items() if would.values[key] != value}


def align(here: Settings, there: Settings, replicas: int, had: Collection[str] = frozenset()) -> Aligned:
    """Compare target's settings with source's settings.

    had: the settings that source had changed in an earlier comparison. Only these are removed from target.
    """
    put, remove, differ = dict[str, str](), list[str](), dict[str, tuple[str, str]]()
    left = not_copied(here, there.values.keys())
    changed = named(here)
    for key, needed in sorted(wanted(here, there.values.keys(), replicas).items()):
        found = there.values[key]
        if found == needed or key == TIME_TYPE:
            continue
        differ[key] = (needed, found)
        if key not in there.beneath or key in changed:
            put[key] = needed
        elif key not in had:
            left[key] = THEIRS
        elif there.beneath[key] in (None, needed):
            remove.append(key)
        else:
            put[key] = needed
    for key in there.changed - here.values.keys() - LIMITS - NOT_COPIED.keys():
        left[key] = UNKNOWN_HERE
    return Aligned(put, tuple(remove), left, differ)


def not_copied(here: Settings, known: Collection[str]) -> dict[str, str]:
    """Return the settings of source that are not copied to target, each with the reason.

    known: the settings that target's Kafka has.
    """
    left = {key: NOT_COPIED[key] for key in here.changed if key in NOT_COPIED}
    left |= dict.fromkeys(here.changed - {*known} - LIMITS - NOT_COPIED.keys(), UNKNOWN_THERE)
    return left


def deletes(settings: Mapping[str, str]) -> bool:
    """Return whether Kafka accepts DeleteRecords for a topic with these settings."""
    return "delete" in settings.get(POLICY, "delete").split(",")


def compacts(settings: Mapping[str, str]) -> bool:
    """Return whether a topic with these settings accepts only records with a key."""
    return "compact" in settings.get(POLICY, "delete").split(",")


def refusal(name: str, partitions: int, found: int | None, settings: Mapping[str, str]) -> str:
    """Return why a topic cannot be mirrored; empty if it can.

    partitions: the number of partitions on source. found: the number of partitions on target; None if target
    does not have the topic. settings: the settings of target's topic.
    """
    if name.startswith("__"):
        return "this is an internal topic of Kafka; needed: a topic of applications"
    if found is not None and found > partitions:
        return f"target's topic has {found} partitions; needed: at most source's {partitions}"
    if settings.get(TIME_TYPE) == "LogAppendTime":
        return f"target's topic has {TIME_TYPE}=LogAppendTime, which replaces timestamps; needed: CreateTime"
    return ""


def describe(values: Iterable[tuple[str, str, int, Iterable[tuple[str, str, int]]]]) -> Settings:
    """Return a topic's settings from a broker's description of them.

    values: for each setting its name, its value, the source of the value, and the values that it overrides,
    each as name, value and source.
    """
    found, changed, beneath = dict[str, str](), set[str](), dict[str, str | None]()
    for name, value, origin, synonyms in values:
        found[name] = value
        below = [(inner, at) for _, inner, at in synonyms if at != OWN]
        default = next((inner for inner, at in below if at == DEFAULT), None)
        if origin != DEFAULT and value != default:
            changed.add(name)
        if origin == OWN:
            beneath[name] = below[0][0] if below else None
    return Settings(found, frozenset(changed), beneath)


DEFAULT, OWN = 5, 1
"""The config_source in DescribeConfigs of Kafka's own default, and of a value that is set on the topic."""
