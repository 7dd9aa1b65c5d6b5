"""What the steps of a switch see where all is well, for tests that make one fact wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.unit.move.steps.facts import ARMED
from tests.world.switch.operator import inventory
from tests.world.switch.site import Shape, World
from zkmigrate.runbook.model.change import Changes
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Severity, blocking, claim
from zkmigrate.runbook.model.step import Blocked, Context, Done, Verdict
from zkmigrate.topics.mirror.questions import BothEnds, GroupPair, RangeCompared
from zkmigrate.topics.mirror.rules.direction import Direction
from zkmigrate.topics.topic_move.facts import Copiers, Drained, Ends, Gateways, Part, every_app, offsets

P, Q = ("orders", 0), ("orders", 1)
C = Context("r-1", inventory(World(1, Shape())))
SILENT = Unknown("timeout", "no answer")
SAME = Seen(RangeCompared("", 4))
"""Records that do not differ."""
OTHER = Seen(RangeCompared("offset 3", 3))
"""Records that differ."""
EQUAL = {P: BothEnds(9, 9, 9), Q: BothEnds(4, 4, 4)}
DRAINED = replace(C, records={Drained.step: Drained(offsets(EQUAL)).encode()})
"""A run that has drained the mirror."""

UNHEARD = Gateways({}, (claim("switch.gateway", "it answers", None, target="gw2"),))
BOTH = "switch.clusters"


def app(gate: str, /, *, target: bool = False, **odd: Any) -> Gateways:
    """The application stands so at both gateways. target: it is led there. odd: how gw2 differs."""
    found = every_app(C, gate, switched_over=target)
    [(_, one), (last, other)] = found.at.items()
    assert last == ("gw2", "orders")
    return replace(found, at={("gw1", "orders"): one, last: replace(other, **odd)})


def ends(source: int | None = 4, stable: int | None = 4, target: int | None = 4) -> Seen[Ends]:
    """Equal ends but for the last partition."""
    return Seen({**EQUAL, Q: BothEnds(source, stable, target)})


SHORT = "in sync: 1 of replicas 1, 2, min.insync.replicas: 2"
"""Why too few replicas of a partition are in sync."""


def short(source: int = 4, *, target: bool = False) -> Seen[Ends]:
    """Too few replicas of the last partition are in sync. source: where its log ends there. target: they are
    target's."""
    last = BothEnds(source, 4, 4, "", "", SHORT) if target else BothEnds(source, 4, 4, SHORT, SHORT)
    return Seen({**EQUAL, Q: last})


def compared(told: Reading[RangeCompared] = SAME) -> Seen[Mapping[Part, Reading[RangeCompared]]]:
    """The records of both partitions, the last one as told."""
    return Seen({P: SAME, Q: told})


def groups(state: str = "equal") -> Seen[Mapping[str, GroupPair]]:
    """Two groups, the last one in this state."""
    return Seen({"mail": GroupPair("equal", 0, ""), "billing": GroupPair(state, 3, f"is {state}")})


def way(copies: Any) -> Seen[Direction]:
    """What both clusters keep."""
    return Seen(Direction(copies, 3))


def copiers(
    state: str = "inactive", other: str = "inactive", file: str = "disabled", unit: str = "unit"
) -> Copiers:
    """The unit on both mirror hosts. state, file: of the last one; state empty: it does not answer."""
    told = replace(ARMED, unit_state=state, unit_file=file)
    first = Seen(replace(ARMED, unit_state=other, unit_file="disabled"))
    return Copiers(unit, {"m1": first, "m2": Seen(told) if state else SILENT})


def sent(changes: Changes) -> list[str]:
    """What is done, in order."""
    return [one.describe() for one in changes]


def why(verdict: Verdict) -> list[tuple[str, str]]:
    """The findings that block, each with its target."""
    assert isinstance(verdict, Blocked), verdict
    found = blocking(verdict.findings)
    assert found
    return [(one.id, one.target) for one in found]


def warned(verdict: Verdict, id: str) -> Finding:
    """The finding of this id, which does not block a step that is done."""
    assert isinstance(verdict, Done), verdict
    [found] = [one for one in verdict.findings if one.id == id]
    assert found.severity is not Severity.BLOCK
    return found
