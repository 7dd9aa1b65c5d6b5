"""What target's topic must be like: partitions, replicas, settings."""

from __future__ import annotations

from collections.abc import Mapping

TIME_TYPE, MIN_ISR, POLICY = "message.timestamp.type", "min.insync.replicas", "cleanup.policy"

NOT_COPIED: Mapping[str, str] = {
    TIME_TYPE: "target keeps source's times, as CreateTime",
    "message.format.version": "target's own format",
    "leader.replication.throttled.replicas": "it names source's brokers",
    "follower.replication.throttled.replicas": "it names source's brokers",
    "remote.storage.enable": "target may have no remote storage",
}
"""Settings of source that target does not get, and why."""


def wanted(settings: Mapping[str, str], replicas: int) -> dict[str, str]:
    """The settings for target. settings: source's that differ from Kafka's defaults. replicas: target's."""
    copied = {key: value for key, value in settings.items() if key not in NOT_COPIED}
    if MIN_ISR in copied:
        copied[MIN_ISR] = str(min(int(copied[MIN_ISR]), replicas))
    return copied


def deletes(settings: Mapping[str, str]) -> bool:
    """Whether Kafka takes DeleteRecords for such a topic."""
    return "delete" in settings.get(POLICY, "delete").split(",")


def differences(
    wanted: Mapping[str, str], found: Mapping[str, str]
) -> dict[str, tuple[str | None, str | None]]:
    """Settings in which target's topic differs: needed, found. None: Kafka's default."""
    keys = (wanted.keys() | found.keys()) - NOT_COPIED.keys()
    return {
        key: (wanted.get(key), found.get(key)) for key in sorted(keys) if wanted.get(key) != found.get(key)
    }


def refusal(name: str, partitions: int, found: int | None, settings: Mapping[str, str]) -> str:
    """Why a topic cannot be mirrored; empty if it can. partitions: source's. found, settings: of target's
    topic; None without one."""
    if name.startswith("__"):
        return "an internal topic of Kafka; needed: a topic of its users"
    if found is not None and found > partitions:
        return f"target's topic has {found} partitions; needed: at most source's {partitions}"
    if settings.get(TIME_TYPE) == "LogAppendTime":
        return (
            f"target's topic has {TIME_TYPE}=LogAppendTime, which replaces source's times; needed: CreateTime"
        )
    return ""
