"""Which of two clusters leads a mirrored topic. Clients write on the leader, so no copier may.

Each cluster keeps its own :class:`Lead` of a topic. A switch writes them, and a copier asks its target. A
cluster without one lets every copier write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Copies: TypeAlias = Literal["forward", "none", "backward"]
"""Where copiers may write: on target, on neither cluster, on source."""


@dataclass(frozen=True)
class Lead:
    """What a cluster keeps of a topic. cluster: the id of the one that leads; empty: not understood. number:
    the fencing number of the run that wrote it."""

    cluster: str
    number: int

    @property
    def text(self) -> str:
        """As it is kept."""
        return json.dumps({"leader": self.cluster})


def parse(text: str, number: int) -> Lead:
    """What is kept as ``Lead.text``. A text of somebody else names no cluster, so nobody may copy."""
    try:
        told = json.loads(text)["leader"]
    except (ValueError, TypeError, KeyError, RecursionError):
        told = ""
    return Lead(told if isinstance(told, str) else "", number)


def barred(topic: str, lead: Lead | None, source: str, target: str) -> str:
    """Why a copier may not write a topic on target; empty if it may. lead: target's. source, target: ids."""
    if lead is None or lead.cluster == source:
        return ""
    if lead.cluster == target:
        why = f"target leads topic {topic}: clients were switched to it by the run with number {lead.number}"
    elif lead.cluster:
        why = f"target copies topic {topic} from the cluster {lead.cluster}, and source is {source}"
    else:
        why = f"target keeps something else where it should name the leader of topic {topic}"
    return f"{why}. Needed: a target that follows source, so nothing is copied"


@dataclass(frozen=True)
class Direction:
    """How both clusters stand. copies: empty while neither keeps anything of the topics, ``mixed`` where they
    do not agree. number: the highest that they keep. unnoted: topics of which they keep nothing, where source
    leads the others."""

    copies: Copies | Literal["", "mixed"]
    number: int
    unnoted: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """For people."""
        by = f", by the run with number {self.number}"
        if self.unnoted:
            by += f"; nothing is noted of topic {', '.join(self.unnoted)}"
        return {
            "": "copiers may write on either cluster, for no switch was noted",
            "forward": f"copiers may write on target only: source leads{by}",
            "none": f"copiers may write on neither cluster: a switch is under way{by}",
            "backward": f"copiers may write on source only: target leads{by}",
            "mixed": f"the clusters or the topics differ{by}. Next: resume that run, or roll it back",
        }[self.copies]


def direction(
    topics: Iterable[str],
    ids: tuple[str, str],
    leads: tuple[Mapping[str, Lead], Mapping[str, Lead]],
) -> Direction:
    """What the clusters keep of these topics. ids, leads: of source and of target."""
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
    if found == {"", "forward"}:  # a topic that was added to the set since
        return Direction("forward", max(numbers), tuple(bare))
    return Direction(found.pop() if len(found) == 1 else "mixed", max(numbers, default=0))


def leaders(copies: Copies, ids: tuple[str, str]) -> tuple[tuple[int, str], ...]:
    """The side, 0 for source and 1 for target, and the id of the leader that it has to keep, in this order:
    first the side on which nobody may write any more. ids: of source and of target."""
    source, target = ids
    return {
        "forward": ((0, source), (1, source)),
        "none": ((1, target), (0, source)),
        "backward": ((1, target), (0, target)),
    }[copies]
