"""Format the report of a plan as lines for a terminal, and as one JSON object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from zkmigrate.cluster.placement.log_dirs import inside, usage
from zkmigrate.cluster.placement.plan import Notice, Offload, Plan, Reassignment
from zkmigrate.cluster.placement.statistics import Spread, Statistics
from zkmigrate.runbook.model.report import counted, size

SHOWN = 20
"""The number of moves that are shown; the files, the page and the JSON have all of them."""


def replicas(ids: Sequence[int]) -> str:
    """Format a replica list as Kafka's tools show it."""
    return f"[{','.join(map(str, ids))}]"


def summary(plan: Plan, statistics: Statistics) -> str:
    """Describe in one line what the plan does."""
    sizes = [plan.cluster.by_name[name].size or 0 for name, _ in inside(plan)]
    copied = f"{counted(len(sizes), 'replica')}, {size(sum(sizes))}"
    within = f"Between log directories of a broker: {copied}."
    if not plan.moves:
        return f"No replica list changes. {within}" if sizes else "Nothing to move."
    copied = f"{size(statistics.moved)} are copied" if statistics.moved else "no bytes are copied"
    if any(_bytes(plan, move) is None for move in plan.moves):
        copied = "the number of copied bytes is not known"
    changed = (
        "1 replica list changes" if statistics.moves == 1 else f"{statistics.moves} replica lists change"
    )
    return f"{changed}, {copied}.{f' {within}' if sizes else ''}"


def _measured(statistics: Statistics) -> bool:
    """Return whether any free bytes or sizes are known. Only a plan by count is made without them."""
    return any(one.before.free or one.after.free or one.bytes_in for one in statistics.brokers)


def figures(statistics: Statistics) -> list[tuple[str, ...]]:
    """Return rows of name, before and after for everything that is balanced and known."""
    rows: list[tuple[str, ...]] = []
    if _measured(statistics):
        rows += _storage(statistics)
    if statistics.rate_before is not None and statistics.rate_after is not None:
        rows += [
            (
                "rate per broker",
                *(_from_to(one, _rate) for one in (statistics.rate_before, statistics.rate_after)),
            )
        ]
    rows += [("leaders per broker", *(_from_to(one, str) for one in statistics.leaders))]
    rows += [("degree per broker", *(_from_to(one, str) for one in statistics.degree))]
    return rows


def _storage(statistics: Statistics) -> list[tuple[str, ...]]:
    return [
        ("lowest free", size(statistics.before.lowest), size(statistics.after.lowest)),
        ("highest free", size(statistics.before.highest), size(statistics.after.highest)),
        ("range", size(statistics.before.range), size(statistics.after.range)),
        ("range spread", _percent(statistics.before), _percent(statistics.after)),
        ("standard deviation", size(statistics.before.deviation), size(statistics.after.deviation)),
    ]


BROKER_HEAD = (
    "broker", "rack", "free before", "free after", "change", "bytes in", "bytes out", "leaders", "replicas",
    "degree",
)  # fmt: skip


def broker_rows(statistics: Statistics) -> list[tuple[str, ...]]:
    """Return a row for every registered broker, under ``BROKER_HEAD``."""
    shown: Callable[[int], str] = size if _measured(statistics) else lambda _: "-"
    return [
        (
            str(one.broker), one.rack or "-", shown(one.before.free), shown(one.after.free),
            shown(one.after.free - one.before.free), shown(one.bytes_in), shown(one.bytes_out),
            _to(one.before.leaders, one.after.leaders), _to(one.before.replicas, one.after.replicas),
            _to(one.before.degree, one.after.degree),
        )
        for one in statistics.brokers
    ]  # fmt: skip


DIR_HEAD = ("broker", "log directory", "free before", "free after", "copies in")


def dir_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return a row for every log directory whose free bytes change, the fullest first, under ``DIR_HEAD``."""
    changed = [one for one in usage(plan) if one.copies or one.before != one.after]
    return [
        (str(one.broker), one.path, size(one.before), size(one.after), str(one.copies))
        for one in sorted(changed, key=lambda one: (one.after, one.broker, one.path))
    ]


MOVE_HEAD = ("partition", "before", "after", "copied")


def move_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return a row for every move in its order, under ``MOVE_HEAD``."""
    return [
        (f"{move.topic}-{move.number}", replicas(move.before), replicas(move.after), _copied(plan, [move]))
        for move in plan.moves
    ]


def _bytes(plan: Plan, move: Reassignment) -> int | None:
    """Return the bytes that a move copies, or None if the size of its partition is unknown."""
    unknown = move.added and plan.cluster.by_name[move.name].size is None
    return None if unknown else move.bytes


def _copied(plan: Plan, moves: Iterable[Reassignment]) -> str:
    found = [_bytes(plan, move) for move in moves]
    known = [one for one in found if one is not None]
    return size(sum(known)) if len(known) == len(found) else "unknown"


PHASE_HEAD = ("phase", "partitions", "copied")


def phase_rows(plan: Plan) -> list[tuple[str, str, str]]:
    """Return a row for every phase, under ``PHASE_HEAD``."""
    return [(str(number), str(len(phase)), _copied(plan, phase)) for number, phase in enumerate(plan.phases)]


def remarks(plan: Plan, statistics: Statistics) -> list[str]:
    """Return lines about how good the plan is, and what limited it."""
    lines = [] if plan.offload is None else _offload(plan.offload)
    if statistics.eta is not None:
        lines.append(
            f"Lower bound for this range: {size(statistics.lower_bound)}, "
            f"which is {statistics.eta:.2f} of the copied bytes (1.00 is optimal)."
        )
    if plan.limited:
        lines.append(f"Limited by: {plan.limited}.")
    return lines


def _offload(of: Offload) -> list[str]:
    """Return lines about the brokers that give, with the means and limits that topicmappr prints too."""
    lines = [f"Sources ({of.rule}): {', '.join(map(str, of.sources)) or 'none'}."]
    if of.mean is not None and of.harmonic_mean is not None:
        lines.append(f"Free bytes: mean {size(of.mean)}, harmonic mean {size(of.harmonic_mean)}.")
    if of.tolerance is not None and of.highest is not None and of.lowest is not None:
        lines.append(
            f"Tolerance {of.tolerance:g}: a source ends with at most {size(of.highest)} free, "
            f"a receiving broker with at least {size(of.lowest)}."
        )
    return lines


def notice_lines(notices: Iterable[Notice]) -> list[str]:
    """Return a line for each notice, with its id."""
    return [f"{'refuses' if one.refuses else 'notice'} {one.id}: {one.text}" for one in notices]


def lines(plan: Plan, statistics: Statistics, notices: Sequence[Notice]) -> list[str]:
    """Return the whole report, except for the list of files."""
    out = [summary(plan, statistics), *remarks(plan, statistics), ""]
    out += table([("", "before", "after"), *figures(statistics)])
    out += ["", *table([BROKER_HEAD, *broker_rows(statistics)])]
    if plan.moves:
        rows = move_rows(plan)
        out += ["", *table([MOVE_HEAD, *rows[:SHOWN]])]
        if len(rows) > SHOWN:
            out.append(f"and {len(rows) - SHOWN} more")
    if rows := dir_rows(plan):
        out += ["", *table([DIR_HEAD, *rows[:SHOWN]])]
        if len(rows) > SHOWN:
            out.append(f"and {len(rows) - SHOWN} more")
    if plan.phases:
        out += ["", f"{counted(len(plan.phases), 'phase')}, one after the other:"]
        out += [
            f"  phase {number}: {counted(int(sets), 'partition')}, {copied}"
            for number, sets, copied in phase_rows(plan)
        ]
    return [*out, "", *notice_lines(notices)] if notices else out


def body(plan: Plan, statistics: Statistics, notices: Sequence[Notice]) -> dict[str, Any]:
    """Return the report as JSON. Sizes are bytes."""
    return {
        "offload": None if plan.offload is None else asdict(plan.offload),
        "moves": [_move(plan, move) for move in plan.moves],
        "phases": [[_move(plan, move) for move in phase] for phase in plan.phases],
        "log_dirs": [asdict(one) for one in usage(plan)],
        "limited": plan.limited,
        "notices": [asdict(notice) for notice in notices],
        "statistics": {
            **asdict(statistics),
            "range_before": statistics.before.range,
            "range_after": statistics.after.range,
            "range_spread_before": statistics.before.percent,
            "range_spread_after": statistics.after.percent,
            "eta": statistics.eta,
        },
    }


def _move(plan: Plan, move: Reassignment) -> dict[str, Any]:
    return {
        "topic": move.topic, "partition": move.number, "before": list(move.before),
        "after": list(move.after), "size": plan.cluster.by_name[move.name].size, "bytes": _bytes(plan, move),
    }  # fmt: skip


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with columns of equal width, the headings first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _percent(spread: Spread) -> str:
    return "-" if spread.percent is None else f"{spread.percent:.1f} %"


def _from_to(spread: Spread, shown: Callable[[int], str]) -> str:
    return f"{shown(spread.lowest)} to {shown(spread.highest)}"


def _rate(count: int) -> str:
    return f"{size(count)}/s"


def _to(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} -> {after}"
