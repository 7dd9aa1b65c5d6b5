"""Confirm in ZooKeeper the moves that brokers report as complete, because brokers may report an old state.

This applies only if the inventory names ZooKeeper. Kafka keeps a topic's replica lists at
``/brokers/topics/T``, with ``adding_replicas`` and ``removing_replicas`` while a reassignment is in flight,
and a partition's ISR at ``/brokers/topics/T/partitions/N/state``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from zkmigrate import json_text
from zkmigrate.cluster.placement.cluster import Name
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.questions import ReadZnode

Ends = Mapping[Name, tuple[tuple[int, ...], Collection[int]]]
"""The final replica lists by topic and partition, each with the brokers that must be in sync."""


def disputes(look: Look, hosts: Sequence[str], chroot: str, ends: Ends) -> Mapping[Name, str]:
    """Return the moves that ZooKeeper does not show as done, with the reason.

    hosts: the servers, queried one after the other until one answers. chroot: Kafka's chroot, empty for none.
    """
    if not hosts or not ends:
        return {}
    topics = tuple(dict.fromkeys(topic for topic, _ in ends))
    paths = {f"{chroot}/brokers/topics/{topic}" for topic in topics}
    paths |= {_state(chroot, name) for name in ends}
    read = look.each(sorted(paths), lambda path: _read(look, hosts, path))
    found = {name: _dispute(read, chroot, name, *end) for name, end in ends.items()}
    return {name: why for name, why in found.items() if why}


def _state(chroot: str, name: Name) -> str:
    return f"{chroot}/brokers/topics/{name[0]}/partitions/{name[1]}/state"


def _read(look: Look, hosts: Sequence[str], path: str) -> Reading[Any]:
    """Return a znode's JSON from the first host that answers."""
    answer: Reading[Any] = Unknown("timeout", path)
    for host in hosts:
        node = look.ask(ReadZnode(host, path))
        if isinstance(node, Seen):
            try:
                return Seen(json_text.loads(node.value.data))
            except ValueError as error:
                return Unknown("garbled", f"{path}: {error}")
        answer = node
        if not isinstance(node, Unknown):
            break
    return answer


def _dispute(
    read: Mapping[str, Reading[Any]],
    chroot: str,
    name: Name,
    replicas: tuple[int, ...],
    sync: Collection[int],
) -> str:
    """Return why a move is not done, or an empty string if it is."""
    number = str(name[1])
    topic, state = read[f"{chroot}/brokers/topics/{name[0]}"], read[_state(chroot, name)]
    if not (isinstance(topic, Seen) and isinstance(state, Seen)):
        return f"ZooKeeper reports nothing: {state if isinstance(topic, Seen) else topic}"
    try:
        adding, removing = (
            topic.value.get(f"{act}_replicas", {}).get(number) for act in ("adding", "removing")
        )
        there, isr = _ids(topic.value["partitions"][number]), _ids(state.value["isr"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return f"ZooKeeper reports nothing: unexpected content of {name[0]}: {type(error).__name__}: {error}"
    if adding or removing:
        return f"ZooKeeper still adds {adding or []} and removes {removing or []}"
    if there != replicas:
        return f"its replicas according to ZooKeeper are {list(there)}"
    behind = sorted(set(sync) - set(isr))
    return f"not in sync according to ZooKeeper: {behind}" if behind else ""


def _ids(told: object) -> tuple[int, ...]:
    """Parse a list of broker ids. Raises ValueError for anything else."""
    if not isinstance(told, list) or not all(type(one) is int for one in told):
        raise ValueError(f"{str(told)[:80]} is not a list of broker ids")
    return tuple(told)
