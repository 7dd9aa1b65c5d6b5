"""Select the topics and brokers that a plan covers, and check them before any plan is made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from zkmigrate.cluster.placement.cluster import Cluster, Partition
from zkmigrate.cluster.placement.plan import Notice, Refused
from zkmigrate.cluster.placement.request import MAPPED, REGISTERED, Choice, matcher

SHOWN = 10
"""The number of names that a notice lists."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The partitions and brokers that a ``Choice`` selects in a cluster. Every tuple of brokers is ascending.

    brokers: registered brokers that may hold replicas afterwards.
    missing: brokers in a replica list that are not registered.
    replaced: brokers in a replica list that are registered, but left out of ``--brokers``.
    unregistered: brokers given in ``--brokers`` that are not registered.
    new: brokers that are given, registered and in none of the chosen replica lists.
    """

    partitions: tuple[Partition, ...]
    brokers: tuple[int, ...]
    notices: tuple[Notice, ...] = ()
    missing: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()
    unregistered: tuple[int, ...] = ()
    new: tuple[int, ...] = ()


def chosen(cluster: Cluster, choice: Choice) -> Chosen | Refused:
    """Return the partitions and brokers that a choice selects, or why it selects none.

    A topic is chosen by its name or by a regular expression that matches anywhere in it. An excluded topic is
    never chosen.
    """
    known = [one for one in cluster.partitions if not choice.partitions or one.name in choice.partitions]
    topics = list(dict.fromkeys(partition.topic for partition in known))
    wanted = _matched(topics, choice.topics)
    unwanted = _matched(topics, choice.exclude)
    if isinstance(wanted, Refused):
        return wanted
    if isinstance(unwanted, Refused):
        return unwanted
    names = {topic for found in wanted.values() for topic in found}
    names -= {topic for found in unwanted.values() for topic in found}
    partitions = tuple(partition for partition in known if partition.topic in names)
    if not partitions:
        text = (
            f"topics {_names(choice.topics)} without {_names(choice.exclude)} match none of the "
            f"{len(topics)} topics. Next: choose topics that exist."
        )
        return Refused((Notice("placement.no-topic", text),))
    if faults := _faulty_sets(partitions):
        return Refused(faults)

    mapped = {broker for partition in partitions for broker in partition.replicas}
    given = {broker for broker in choice.brokers if broker not in (MAPPED, REGISTERED)}
    if negative := sorted(broker for broker in given if broker < 0):
        text = (
            f"--brokers holds {_ids(negative)}; needed: ids of brokers, {MAPPED} for every broker that a "
            f"chosen partition names, or {REGISTERED} for every registered one"
        )
        return Refused((Notice("placement.broker-id", text),), options=True)
    may = given | (mapped if MAPPED in choice.brokers else set())
    may |= set(cluster.brokers) if REGISTERED in choice.brokers else set()
    targets = tuple(broker for broker in cluster.brokers if broker in may)
    if not targets:
        text = (
            f"--brokers {_ids(choice.brokers)} names none of the {len(cluster.brokers)} registered brokers. "
            "Next: choose brokers that are registered."
        )
        return Refused((Notice("placement.no-broker", text),))
    missing = tuple(sorted(mapped - set(cluster.brokers)))
    replaced = tuple(sorted((mapped & set(cluster.brokers)) - set(targets)))
    unregistered = tuple(sorted(given - set(cluster.brokers)))
    new = tuple(broker for broker in targets if broker not in mapped)
    notices = (
        *(
            Notice("placement.topic-unmatched", f"--topics {pattern} matches no topic", refuses=True)
            for pattern, found in wanted.items()
            if not found
        ),
        *(
            Notice("placement.exclude-unmatched", f"--topics-exclude {pattern} matches no topic")
            for pattern, found in unwanted.items()
            if not found
        ),
        *_broker_checks(missing, replaced, unregistered, new),
        *_failure_domains(cluster, targets),
    )
    return Chosen(partitions, targets, notices, missing, replaced, unregistered, new)


def additions_only(found: Chosen) -> tuple[Notice, ...]:
    """Return notices that refuse to leave out brokers with replicas in ``rebalance`` and ``scale``.

    These two verbs never remove a broker.
    """
    return tuple(
        Notice(
            id,
            f"{_brokers(ids)}: {seen}; rebalance and scale only add brokers. Next: {to_do}, or run rebuild.",
        )
        for id, ids, seen, to_do in (
            (
                "placement.broker-gone",
                found.missing,
                "with replicas, but no longer in the cluster",
                "start the broker again",
            ),
            (
                "placement.broker-left-out",
                found.replaced,
                "with replicas, but missing in --brokers",
                "add it to --brokers",
            ),
            (
                "placement.broker-unregistered",
                found.unregistered,
                "not registered",
                "remove it from --brokers",
            ),
        )
        if ids
    )


def sizes_missing(partitions: Iterable[Partition]) -> Refused | None:
    """Return a refusal if the size of one of these partitions is unknown, else None."""
    unknown = [partition for partition in partitions if partition.size is None]
    if not unknown:
        return None
    text = (
        f"the size of {len(unknown)} partition{'s' * (len(unknown) > 1)} is not known: "
        f"{partition_names(unknown)}; needed: the size of each chosen partition. Next: add the sizes, or "
        "leave these topics out."
    )
    return Refused((Notice("placement.size-missing", text),))


def partition_names(partitions: Sequence[Partition]) -> str:
    """Return the names of the first partitions, for a notice."""
    shown = ", ".join(f"{one.topic}-{one.number}" for one in partitions[:SHOWN])
    return shown + (f" and {len(partitions) - SHOWN} more" if len(partitions) > SHOWN else "")


def _matched(topics: Sequence[str], patterns: Sequence[str]) -> dict[str, list[str]] | Refused:
    """Return the topics that each pattern chooses."""
    found: dict[str, list[str]] = {}
    known = set(topics)
    for pattern in patterns:
        if pattern in known:
            found[pattern] = [pattern]
            continue
        try:
            matches = matcher(pattern)
        except re.error as err:
            text = f"topic {pattern!r} is neither a topic nor a regular expression: {err}"
            return Refused((Notice("placement.topic-pattern", text),), options=True)
        found[pattern] = [topic for topic in topics if matches(topic)]
    return found


def _faulty_sets(partitions: Sequence[Partition]) -> tuple[Notice, ...]:
    twice = [one for one in partitions if len(set(one.replicas)) != len(one.replicas)]
    empty = [one for one in partitions if not one.replicas]
    return tuple(
        Notice(id, f"{seen}: {partition_names(found)}")
        for id, seen, found in (
            ("placement.set-twice", "a replica list names a broker twice", twice),
            ("placement.set-empty", "a replica list names no broker", empty),
        )
        if found
    )


def _broker_checks(
    missing: Sequence[int], replaced: Sequence[int], unregistered: Sequence[int], new: Sequence[int]
) -> tuple[Notice, ...]:
    return tuple(
        Notice(f"placement.broker-{id}", f"{_brokers(ids)}: {seen}", refuses=id == "unregistered")
        for id, ids, seen in (
            ("gone", missing, "in a chosen replica list, but not registered"),
            ("left-out", replaced, "in a chosen replica list, but missing in --brokers"),
            ("unregistered", unregistered, "in --brokers, but not registered"),
            ("new", new, "in --brokers, but in no chosen replica list yet"),
        )
        if ids
    )


def _failure_domains(cluster: Cluster, targets: Sequence[int]) -> tuple[Notice, ...]:
    """Return notices about brokers without a rack, brokers on one address, and brokers all in one rack."""
    notices = []
    without = [broker for broker in targets if not cluster.brokers[broker].rack]
    if without:
        text = f"{_brokers(without)}: without a rack id; each counts as a separate rack"
        notices.append(Notice("placement.no-rack", text))
    by_host: dict[str, list[int]] = {}
    for broker in targets:
        if host := cluster.brokers[broker].host:
            by_host.setdefault(host, []).append(broker)
    for host, brokers in sorted(by_host.items()):
        if len(brokers) > 1:
            text = f"{_brokers(brokers)} have the same address {host} and fail together: one failure domain"
            notices.append(Notice("placement.one-host", text))
    racks = {cluster.brokers[broker].rack for broker in targets}
    if len(racks) == 1 and len(targets) > 1 and not without:
        text = f"{_brokers(targets)} are all in rack {racks.pop()} and fail together: one failure domain"
        notices.append(Notice("placement.one-rack", text))
    return tuple(notices)


def _brokers(ids: Sequence[int]) -> str:
    return f"{len(ids)} broker{'' if len(ids) == 1 else 's'} ({_ids(ids)})"


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


def _names(patterns: Sequence[str]) -> str:
    return ", ".join(patterns) or "an exclusion"
