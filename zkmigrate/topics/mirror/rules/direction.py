"""Decide which of two clusters leads a mirrored topic.

Clients write to the cluster that leads a topic, so no copier may write the topic there. Each cluster stores
its own :class:`Lead` for a topic. A switch writes this record, and a copier reads it from target. If a
cluster has no record for a topic, every copier may write the topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Copies: TypeAlias = Literal["forward", "none", "backward"]
"""The clusters on which copiers may write.

``forward`` means target only, ``backward`` means source only, and ``none`` means neither cluster.
"""


@dataclass(frozen=True)
class Lead:
    """One cluster's record of the cluster that leads a topic.

    cluster: the id of the leading cluster; empty if the record cannot be parsed. number: the fencing number
    of the run that wrote the record.
    """

    cluster: str
    number: int

    @property
    def text(self) -> str:
        """The cluster id as JSON, in the form in which it is stored."""
        return json.dumps({"leader": self.cluster})


def parse(text: str, number: int) -> Lead:
    """Parse a text that was stored as ``Lead.text``.

    number: the fencing number of the record. A text that cannot be parsed gives a Lead with an empty cluster,
    so that no copier may write.
    """
    try:
        told = json.loads(text)["leader"]
    except (ValueError, TypeError, KeyError, RecursionError):
        told = ""
    return Lead(told if isinstance(told, str) else "", number)


def barred(topic: str, lead: Lead | None, source: str, target: str) -> str:
    """Return why a copier may not write a topic on target; empty if it may.

    lead: target's record, or None if target has none. source, target: cluster ids.
    """
    if lead is None or lead.cluster == source:
        return ""
    if lead.cluster == target:
        why = f"clients of topic {topic} use target, since the run with number {lead.number} switched them"
    elif lead.cluster:
        why = f"target copies topic {topic} from the cluster {lead.cluster}, but source is {source}"
    else:
        why = f"target's recorded direction of topic {topic} cannot be read"
    return f"{why}. Nothing is copied. Needed: a target that copies from source"


@dataclass(frozen=True)
class Direction:
    """The clusters on which copiers may write, according to the records of both clusters.

    copies: empty if nothing is recorded about the topics, ``mixed`` if the clusters or topics disagree.
    number: the highest fencing number in the records. unnoted: topics without a record, if source leads all
    other topics.
    """

    copies: Copies | Literal["", "mixed"]
    number: int
    unnoted: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """A description of the direction for the operator."""
        by = f", by the run with number {self.number}"
        if self.unnoted:
            by += f"; nothing is recorded for topic {', '.join(self.unnoted)}"
        return {
            "": "copiers may write on either cluster, because no switch was recorded",
            "forward": f"copiers may write on target only: clients use source{by}",
            "none": f"copiers may write on neither cluster: a switch is in progress{by}",
            "backward": f"copiers may write on source only: clients use target{by}",
            "mixed": f"the clusters or topics have different records{by}. "
            "Next: resume that run, or roll it back",
        }[self.copies]


def direction(
    topics: Iterable[str], ids: tuple[str, str], leads: tuple[Mapping[str, Lead], Mapping[str, Lead]]
) -> Direction:
    """Return where copiers may write, from the records of both clusters for these topics.

    ids: the cluster ids of source and target. leads: the records of source and of target, by topic.
    """
    source, target = ids
    known: Mapping[tuple[str, str], Copies] = {
        (source, source): "forward",
        (source, target): "none",
        (target, target): "backward",
    }
    found, bare = set[Copies | Literal["", "mixed"]](), list[str]()
    for topic in topics:
        here, there = (side.get(topic) for side in leads)
        if here is None and there is None:
            found.add("")
            bare.append(topic)
        else:
            pair = (here.cluster if here else "", there.cluster if there else "")
            found.add(known.get(pair, "mixed"))
    numbers = [one.number for side in leads for one in side.values()]
    if found == {"", "forward"}:  # a topic was added to the set after the record was made
        return Direction("forward", max(numbers), tuple(bare))
    return Direction(found.pop() if len(found) == 1 else "mixed", max(numbers, default=0))


def leaders(copies: Copies, ids: tuple[str, str]) -> tuple[tuple[int, str], ...]:
    """Return the records to write, as pairs of a side (0 source, 1 target) and the id of the leading cluster.

    The pairs are in the order of writing: the side where copiers must stop writing comes first. ids: the
    cluster ids of source and target.
    """
    source, target = ids
    return {
        "forward": ((0, source), (1, source)),
        "none": ((1, target), (0, source)),
        "backward": ((1, target), (0, target)),
    }[copies]
