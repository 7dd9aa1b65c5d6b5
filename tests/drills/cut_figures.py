"""The figures of repeated cut-overs, computed from recordings and judged disks. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from tests.drills.acknowledged import Missing, Promised
from zkmigrate.lab.load.json_lines import Event, Recording

_NS = 1_000_000_000
_SHOWN = 5
_SETTLED_NS = 5 * _NS
"""The time that clients need after the door has opened again; rates of the load leave it out."""
WAY_BACK_CLOSED = 6
"""The tool's exit code when a step cannot be taken back any more."""


@dataclass(frozen=True)
class CutOver:
    """One cut-over and its way back. All JSON values, so that it can be judged later.

    asked_ns: when the tool was started. promised_ns: the copied disks must hold everything acknowledged by
    then. Both are CLOCK_MONOTONIC. held: whether the tool held at CHECK. code: its exit code. cause: why it
    did not reach CHECK, or did not go back normally. late_ms, fsync_ms: the delays, by host. baseline: what
    ``lab.baseline`` returned before. sessions_lost: what differs from it afterwards. spans: visits to steps
    (``lab.timeline``).
    """

    number: int
    asked_ns: int
    promised_ns: int
    held: bool
    code: int
    cause: str
    late_ms: Mapping[str, int]
    fsync_ms: Mapping[str, int]
    baseline: Mapping[str, Any]
    sessions_lost: Sequence[str]
    spans: Sequence[Mapping[str, Any]]

    def span(self, name: str) -> Mapping[str, Any] | None:
        """Return the last visit to a step."""
        return next((span for span in reversed(self.spans) if span["name"] == name), None)

    @property
    def window_ns(self) -> tuple[int, int] | None:
        """From the beginning of FENCE until the door is open again; None if it was never shut."""
        fence, back = self.span("cutover.fence"), self.span("cutover.fence:back")
        return None if fence is None or back is None else (fence["start_mono_ns"], back["end_mono_ns"])

    def seconds(self, name: str) -> float | None:
        """Return the seconds from the beginning of FENCE to the end of a step."""
        fence, end = self.span("cutover.fence"), self.span(name)
        if fence is None or end is None:
            return None
        return round(float(end["end_mono_ns"] - fence["start_mono_ns"]) / _NS, 2)

    @property
    def opened_alone(self) -> bool:
        """Whether the hosts had opened by themselves before `back` was typed.

        Then `back` was refused and the run goes forward. The copied disks prove nothing, because clients
        wrote to them meanwhile.
        """
        return self.held and self.code == WAY_BACK_CLOSED

    def line(self) -> str:
        """Return one line of progress."""
        what = "held at CHECK" if self.held else f"turned back ({self.code}): {self.cause}"
        lost = f", sessions lost: {'; '.join(self.sessions_lost)[:300]}" if self.sessions_lost else ""
        return f"cut-over {self.number}: {what}; window {self.seconds('cutover.fence:back')} s{lost}"


def longest_gap_s(acks: Iterable[Event], window: tuple[int, int]) -> float | None:
    """Return the longest time without an acknowledgement of a raw client that overlaps the window.

    It is in seconds, over all hosts.
    """
    times: dict[str, list[int]] = {}
    for event in acks:
        times.setdefault(event["host"], []).append(event["mono_ns"])
    gaps = [
        later - earlier
        for found in times.values()
        for earlier, later in pairwise(sorted(found))
        if earlier < window[1] and later > window[0]
    ]
    return round(max(gaps) / _NS, 2) if gaps else None


def _times(recordings: Mapping[str, Recording]) -> dict[str, list[int]]:
    """Return the times of acknowledgement of each kind, sorted; each raw client is a kind, ``raw HOST``."""
    named = {"metadata": "op", "tenant": "ack"}
    times = {
        kind: sorted(e["mono_ns"] for e in recordings[kind].of(name) if e.get("outcome", "ok") == "ok")
        for kind, name in named.items()
    }
    for event in recordings["raw"].of("ack"):
        times.setdefault(f"raw {event['host']}", []).append(event["mono_ns"])
    return {kind: sorted(found) for kind, found in times.items()}


def _within(times: Sequence[int], start: int, end: int) -> int:
    return bisect_left(times, end) - bisect_left(times, start)


def rates_of(times: Mapping[str, Sequence[int]], cuts: list[CutOver]) -> dict[str, float]:
    """Return acknowledged operations per second between the first and the last cut-over, by kind.

    The windows are left out, except for the tenant, which has none.
    """
    if len(cuts) < 2:
        return {}
    shut = [cut.window_ns for cut in cuts if cut.window_ns is not None]
    start, end = cuts[0].asked_ns, cuts[-1].asked_ns
    inside = [(a, min(b + _SETTLED_NS, end)) for a, b in shut if a < end]
    open_s = (end - start - sum(b - a for a, b in inside)) / _NS
    rates = {}
    for kind, found in times.items():
        if kind == "tenant":
            rates[kind] = round(_within(found, start, end) * _NS / (end - start), 1)
        else:
            flowing = _within(found, start, end) - sum(_within(found, a, b) for a, b in inside)
            rates[kind] = round(flowing / open_s, 1)
    return rates


def rates_at(times: Mapping[str, Sequence[int]], cut: CutOver) -> dict[str, float]:
    """Return acknowledged operations per second from the tool's start until FENCE, by kind.

    The dict is empty if the cut-over never reached FENCE.
    """
    if cut.window_ns is None:
        return {}
    start, end = cut.asked_ns, cut.window_ns[0]
    return {kind: round(_within(found, start, end) * _NS / (end - start), 1) for kind, found in times.items()}


def figures_of(
    cuts: list[CutOver],
    judged: Mapping[int, tuple[Promised, Mapping[str, Missing]]],
    recordings: Mapping[str, Recording],
    end: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the figures; ``held`` only if nothing is missing on any disk and no session was lost."""
    acks, times, before = recordings["raw"].of("ack"), _times(recordings), 0
    rows: list[dict[str, Any]] = []
    for cut in cuts:
        promise, found = judged[cut.number]
        found = {} if cut.opened_alone else found
        rows.append(
            {
                "number": cut.number,
                "held_at_check": cut.held,
                "exit_code": cut.code,
                "cause": cut.cause,
                "late_ms": dict(cut.late_ms),
                "fsync_ms": dict(cut.fsync_ms),
                "to_check_s": cut.seconds("cutover.check"),
                "window_s": cut.seconds("cutover.fence:back"),
                "longest_gap_s": longest_gap_s(acks, cut.window_ns) if cut.window_ns else None,
                "acknowledged": promise.count,
                "new": promise.count - before,
                "creates": len(promise.creates),
                "metadata": len(promise.topics) + sum(promise.turns.values()),
                "sessions": len(promise.sessions),
                "rates_before_fence": rates_at(times, cut),
                "missing": {where: lost.count for where, lost in found.items()},
                "first_missing": {
                    where: [*lost.creates[:_SHOWN], *lost.metadata[:_SHOWN], *lost.sessions[:_SHOWN]]
                    for where, lost in found.items()
                    if lost.count
                },
                "sessions_lost": list(cut.sessions_lost),
                "opened_alone": cut.opened_alone,
            }
        )
        before = promise.count
    total = sum(sum(row["missing"].values()) for row in rows)
    complete = all(
        found and any(name.startswith("back/") for name in found)
        and (not cut.held or any(name.startswith("check/") for name in found))
        for cut in cuts
        if not cut.opened_alone
        for _, found in [judged[cut.number]]
    )  # fmt: skip
    lost = sum(len(cut.sessions_lost) for cut in cuts) + len(end["sessions_lost"])
    held = [cut for cut in cuts if cut.held]
    claims_held = all(claim[1] == "yes" for claim in end["claims"].values())
    return {
        "held": bool(held) and complete and total == 0 and lost == 0 and claims_held,
        "tries": len(cuts),
        "windows": sum(cut.span("cutover.fence") is not None for cut in cuts),
        "held_at_check": len(held),
        "missing": total,
        "sessions_lost": lost,
        "rates": rates_of(times, cuts),
        "rates_before_fence": {
            kind: _spread(row["rates_before_fence"].get(kind) for row in rows) for kind in times
        },
        "window_s": _spread(row["window_s"] for row in rows if row["held_at_check"]),
        "to_check_s": _spread(row["to_check_s"] for row in rows),
        "longest_gap_s": _spread(row["longest_gap_s"] for row in rows),
        "end": end,
        "runs": rows,
    }


def _spread(values: Iterable[float | None]) -> dict[str, float]:
    known = sorted(value for value in values if value is not None)
    return {"min": known[0], "median": round(median(known), 2), "max": known[-1]} if known else {}


def summary(result: Mapping[str, Any]) -> str:
    """Return the table that ends the drill."""
    lines = [
        "",
        "  #  at CHECK  to CHECK  window  gap     promised   missing  sessions lost  late ms / fsync ms",
    ]
    for row in result["runs"]:
        lines.append(
            f"{row['number']:>3}  {'yes' if row['held_at_check'] else 'NO':<8}  {row['to_check_s']!s:<8}  "
            f"{row['window_s']!s:<6}  {row['longest_gap_s']!s:<6}  {row['acknowledged']:<9}  "
            f"{sum(row['missing'].values()):<7}  {len(row['sessions_lost']):<13}  "
            f"{'/'.join(map(str, row['late_ms'].values()))} {'/'.join(map(str, row['fsync_ms'].values()))}"
        )
        lines += [f"     {row['cause'][:300]}"] if row["cause"] else []
    for kind, rate in result["rates"].items():
        at = result["rates_before_fence"][kind]
        lines.append(f"{kind}: {rate}/s; before FENCE " + ", ".join(f"{k} {v}" for k, v in at.items()))
    lines += [f"{name}: {value} ({held})" for name, (value, held) in result["end"]["claims"].items()]
    lines += [f"{name}: {detail}" for name, detail in result["end"]["details"].items()]
    lines.append("nothing was lost" if result["held"] else "NOT everything held: see result.json")
    return "\n".join(lines)
