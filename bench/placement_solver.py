"""Exact answers to compare a placement with: integer programs for HiGHS.

A variable says that one replica goes to one broker. Each set keeps its length and names no broker and no rack
twice. So it is used only for clusters whose sets span as many racks as they have replicas.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import highspy

from zkmigrate.cluster.placement.cluster import Cluster

UNIT = 10**9
"""Bytes of one unit in the program: numbers near 1 keep its tolerances meaningful."""

GAP = 1e-3
"""An answer this close to its bound is taken as exact."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the solver, in bytes of moves or of a range.

    value: the best answer found. bound: no answer is below it.
    """

    value: float
    bound: float


@dataclass
class _Program:
    """A program's columns and rows in the form that HiGHS takes."""

    highs: highspy.Highs = field(default_factory=highspy.Highs)
    columns: int = 0

    def column(self, cost: float, upper: float, *, integer: bool, lower: float = 0.0) -> int:
        self.highs.addCol(cost, lower, upper, 0, [], [])
        if integer:
            self.highs.changeColIntegrality(self.columns, highspy.HighsVarType.kInteger)
        self.columns += 1
        return self.columns - 1

    def row(self, lower: float, upper: float, entries: Collection[tuple[int, float]]) -> None:
        columns, values = zip(*entries, strict=True)
        self.highs.addRow(lower, upper, len(columns), list(columns), list(values))


def solve(
    cluster: Cluster,
    givers: Collection[int],
    takers: Collection[int],
    *,
    least: int = 0,
    local: bool = False,
    width: int | None = None,
    moved: int | None = None,
    limit_s: float = 60.0,
) -> Answer | None:
    """Return the fewest bytes that reach a range of ``width``, or the least range that ``moved`` bytes reach.

    Replicas of at least ``least`` bytes go from givers to takers; local: inside their racks. Returns None if
    there is no answer within ``limit_s`` seconds.
    """
    program = _Program()
    program.highs.setOptionValue("output_flag", False)
    program.highs.setOptionValue("threads", 1)
    program.highs.setOptionValue("time_limit", limit_s)
    program.highs.setOptionValue("mip_rel_gap", GAP)
    infinity = highspy.kHighsInf
    low = program.column(0.0 if width is not None else -1.0, infinity, integer=False)
    high = program.column(0.0 if width is not None else 1.0, infinity, integer=False)
    level: dict[int, list[tuple[int, float]]] = {broker: [] for broker in cluster.brokers}
    cost: list[tuple[int, float]] = []
    for one in cluster.partitions:
        size = (one.size or 0) / UNIT
        if (one.size or 0) < least:
            continue
        holds: dict[int, list[tuple[int, float]]] = {}
        spans: dict[str, list[tuple[int, float]]] = {}
        for home in one.replicas:
            if home not in givers:
                continue
            goes = []
            for broker in takers:
                rack, old = cluster.rack(broker), cluster.rack(home)
                if broker == home or (local and rack != old):
                    continue
                if (
                    rack != old
                    and broker not in givers
                    and rack in {cluster.rack(other) for other in one.replicas if other not in givers}
                ):
                    continue  # a replica that stays is in that rack
                variable = program.column(size if width is not None else 0.0, 1.0, integer=True)
                goes.append((variable, 1.0))
                holds.setdefault(broker, []).append((variable, 1.0))
                holds.setdefault(home, []).append((variable, -1.0))
                if rack != old:
                    spans.setdefault(rack, []).append((variable, 1.0))
                    spans.setdefault(old, []).append((variable, -1.0))
                level[broker].append((variable, -size))
                level[home].append((variable, size))
                cost.append((variable, size))
            if goes:
                program.row(0.0, 1.0, goes)
        for broker, entries in holds.items():
            program.row(-infinity, 1.0 - (broker in one.replicas), entries)
        racks = [cluster.rack(broker) for broker in one.replicas]
        for rack, entries in spans.items():
            program.row(-infinity, 1.0 - racks.count(rack), entries)
    for broker, entries in level.items():
        free = cluster.brokers[broker].free / UNIT
        program.row(-free, infinity, [*entries, (low, -1.0)])
        program.row(-infinity, -free, [*entries, (high, -1.0)])
    if width is not None:
        program.row(-infinity, width / UNIT, [(high, 1.0), (low, -1.0)])
    if moved is not None and cost:
        program.row(-infinity, moved / UNIT, cost)
    program.highs.run()
    info = program.highs.getInfo()
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    return Answer(info.objective_function_value * UNIT, info.mip_dual_bound * UNIT)
