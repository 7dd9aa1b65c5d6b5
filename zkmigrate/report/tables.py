"""Write the figures of a report as tables of words, the same for the page and for Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from zkmigrate.runbook.model.change import ClusterChange
from zkmigrate.runbook.model.finding import Finding, Held, Severity
from zkmigrate.runbook.model.report import (
    Acks,
    Decision,
    Report,
    Table,
    Visit,
    Window,
    clock,
    counted,
    day,
    length,
    move_of,
)
from zkmigrate.runbook.model.series import quantiles, steps_of, when

_FOLDED_FROM = 12
"""If a step has at least this many passed claims, only their ids are named."""


_NAMED = 6
"""The most targets of a finding that are named."""


def figures(report: Report) -> tuple[tuple[str, str, str], ...]:
    """Return the figures that every reader wants first: (what, how much, note)."""
    out = []
    window = move_of(report.windows)
    whole = f"from {report.shown.begins} to {report.shown.opens}"
    if window is None and report.shown.begins:
        begun = "not known" if report.state == "damaged" else "not started"
        out.append(("window", begun, whole))
    elif window is not None:
        took = length(window.seconds, "not finished")
        notes = {"opened": whole, "turned back": "turned back; until clients could connect again"}
        out.append(("window", took, notes.get(window.outcome, f"without {report.shown.opens}")))
    out += report.shown.samples.figures(report)
    for acks in report.acks:
        if acks.gaps:
            note = f"between acknowledgements, in {steps_of(acks.gaps[0])}"
            out.append((f"longest gap of the {acks.client}", length(acks.gaps[0].seconds), note))
            most = _inside(acks, window, report) if window is not None else None
            if most is not None:
                what = f"longest gap of the {acks.client} in the window"
                out.append((what, length(most), "including its time outside the window"))
    out.append(("way back", report.way_back.partition(":")[0].partition(";")[0], "see Decisions"))
    refused = sum(v.outcome == "blocked" for v in report.visits)
    alarms = sum(d.kind == "alarm" for d in report.decisions)
    alarmed = ", alarms in a window" if report.shown.begins else ""
    out.append(("refusals and alarms", f"{refused} and {alarms}", f"refused steps{alarmed}"))
    return tuple(out)


def _inside(acks: Acks, window: Window, report: Report) -> float | None:
    """Return the full length in seconds of the longest gap that overlaps the window.

    Return None if no gap does.
    """
    end = window.end if window.end is not None else report.end
    return max((b - a for a, b in pairwise(acks.times) if a < end and b > window.start), default=None)


def tables(report: Report) -> tuple[Table, ...]:
    """Return every table that has rows, in the order of the page."""
    made = (
        windows(report), *report.shown.felt, _acks(report), *report.shown.sections, _decisions(report),
        _processes(report), _steps(report), _findings(report), _unfinished(report), _digests(report),
    )  # fmt: skip
    return tuple(table for table in made if table.rows)


def windows(report: Report) -> Table:
    """Return a table of the windows side by side, with their steps. A way back has its own column."""
    columns = [(w, back) for w in report.windows for back in (False, True) if not back or _back(w)]
    steps = dict.fromkeys(p.step for w in report.windows for p in w.parts)
    rows = [(step, *(_share(w, step, back) for w, back in columns)) for step in steps]

    def whole(name: str, cell: Callable[[Window], str]) -> None:
        rows.append((name, *("" if back else cell(w) for w, back in columns)))

    whole("between the steps", lambda w: length(_between(w)))
    if any(w.held_s for w in report.windows):
        whole("held on request", lambda w: length(w.held_s or None))
    whole("total", lambda w: length(w.seconds, "not finished"))
    if any(w.gone_s for w in report.windows):
        whole("total without a running process", lambda w: length(w.gone_s or None))
    whole("outcome", lambda w: w.outcome)
    whole("start", lambda w: clock(w.start, 0.1))
    whole(
        "last time to turn back",
        lambda w: "-" if w.deadline is None else f"{w.deadline - w.start:.1f} s after {report.shown.begins}",
    )
    whole("opened by", _openers)
    heads = [f"{w.stage} {'back' if back else clock(w.start)}" for w, back in columns]
    intro = (
        f"{report.shown.begins} blocks clients, {report.shown.opens} lets them in again. A window lasts "
        f"from the first {report.shown.begins} that is sent until the last host is open. If the run turns "
        "back, it lasts until clients can connect again."
    )
    return Table("windows", "Windows and their steps", ("step", *heads), tuple(rows) if heads else (), intro)


def _back(window: Window) -> bool:
    return any(p.back for p in window.parts)


def _openers(window: Window) -> str:
    kinds: dict[str, list[str]] = {}
    for host, by in window.opened_by.items():
        kinds.setdefault(by, []).append(host)
    if len(kinds) == 1:
        return next(iter(kinds))
    return ", ".join(f"{', '.join(hosts)} {by}" for by, hosts in kinds.items()) or "-"


def _share(window: Window, step: str, back: bool) -> str:
    seconds = [p.seconds for p in window.parts if (p.step, p.back) == (step, back)]
    if not seconds:
        return "-"
    return "not finished" if None in seconds else length(sum(s for s in seconds if s is not None))


def _between(window: Window) -> float | None:
    parts = [p.seconds for p in window.parts if p.seconds is not None]
    return None if window.seconds is None else max(0.0, window.seconds - sum(parts) - window.held_s)


def _acks(report: Report) -> Table:
    rows = [
        (*(_client(acks) if n == 0 else ("", "", "")), length(gap.seconds), when(gap))
        for acks in report.acks
        for n, gap in enumerate(acks.gaps)
    ]
    intro = "The longest times between two acknowledgements, as each client recorded them."
    head = ("client", "acks", "latency p50, p99, slowest", "gap", "when")
    return Table("acks", "Gaps of real clients", head, tuple(rows), intro, (4,))


def _client(acks: Acks) -> tuple[str, str, str]:
    return acks.client, str(acks.count), quantiles(acks.took)


def _decisions(report: Report) -> Table:
    kinds = {"rehearsed": "rehearsal", "lost": "journal"}
    rows = [
        (day(d.at), kinds.get(d.kind, d.kind), d.where, _question(d), d.answer, d.by)
        for d in report.decisions
    ]
    head = ("when", "kind", "where", "question or event", "answer", "by")
    intro = (
        "Questions with their answers and the findings in doubt; holds; turns; hooks that failed or could "
        f"stop the run; {'alarms in a window; ' * bool(report.shown.begins)}and the end of each call."
    )
    return Table("decisions", "Decisions", head, tuple(rows), intro, (3,))


def _question(decision: Decision) -> str:
    """Return a decision's question and the findings in doubt, as text."""
    stood = [
        f"{held} {id}: " + "; ".join(part for part in (seen, claim and f"expected: {claim}") if part)
        for held, id, claim, seen in _grouped(decision.findings)
    ]
    return decision.what + (f" In doubt: {' | '.join(stood)}" if stood else "")


def _processes(report: Report) -> Table:
    rows = []
    for p in report.processes:
        took = length(p.ended - p.start) if p.ended is not None else "-"
        how = f"exit code {p.code}: {p.message}"
        if p.ended is None:
            how = "no end recorded; it was killed, or is still running"
        rows.append((day(p.start), p.way or "-", took, how))
    return Table("calls", "Calls of the tool", ("start", "direction", "took", "end"), tuple(rows), "", (3,))


def _steps(report: Report) -> Table:
    rows = []
    for v in report.visits:
        way = "back" if v.back else "forward"
        outcome = {"blocked": "refused", "left": "interrupted"}.get(v.outcome, v.outcome)
        outcome += f" {v.tries} times" if v.tries > 1 else ""
        rows.append((v.step, way, day(v.start), length(v.seconds), outcome, _changes(v)))
    head = ("step", "direction", "start", "took", "outcome", "changes")
    return Table("steps", "Steps", head, tuple(rows), "", (5,))


def _changes(visit: Visit) -> str:
    if not visit.ops:
        return "-"
    counts = Counter(op.status for op in visit.ops)
    of = len({op.target for op in visit.ops})
    what = "target" if any(isinstance(op.change, ClusterChange) for op in visit.ops) else "host"
    told = ", ".join(f"{n} {status if status != 'open' else 'not confirmed'}" for status, n in counts.items())
    return f"{told} on {counted(of, what)}"


def _findings(report: Report) -> Table:
    rows: list[tuple[str, ...]] = []
    for v in report.visits:
        name = f"{v.step}{' (back)' if v.back else ''} {clock(v.start)}"
        for n, row in enumerate(_grouped(v.findings)):
            rows.append((name if n == 0 else "", *row))
    head = ("step", "result", "finding", "expected", "seen")
    intro = "A finding is the result of one check. Failed checks come first."
    return Table("findings", "Findings", head, tuple(rows), intro, (2, 3, 4))


def _grouped(findings: Sequence[Finding]) -> list[tuple[str, str, str, str]]:
    """Return a row (result, id with targets, claim, seen) for each claim.

    Many passed claims share one row, and so do those that are checked later.
    """
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for f in sorted(findings, key=lambda f: _ORDER.index(mark(f))):
        groups.setdefault((mark(f), f.id, f.claim), []).append(f)
    folded = [("later", "remaining")]
    if sum(key[0] == "ok" for key in groups) >= _FOLDED_FROM:
        folded.insert(0, ("ok", "passed"))
    rows = []
    for (stands, id, sentence), same in groups.items():
        if stands not in dict(folded):
            needed = f" (needed: {same[0].needed})" if stands != "ok" and same[0].needed else ""
            told = ("; ".join(part for part in (f.seen, f.accepted) if part) for f in same)
            seen = "; ".join(dict.fromkeys(text for text in told if text))
            rows.append((stands, f"{id} {_targets(same)}".strip(), sentence, seen + needed))
    for stands, words in folded:
        of = [(key[1], len(same)) for key, same in groups.items() if key[0] == stands]
        if of:
            ids = ", ".join(dict.fromkeys(id for id, _ in of))
            rows.append((stands, f"{counted(sum(n for _, n in of), 'finding')} {words}", "", ids))
    return rows


def _targets(same: Sequence[Finding]) -> str:
    names = list(dict.fromkeys(f.target for f in same if f.target))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def mark(f: Finding) -> str:
    """Return the result of a finding: ``ok``, ``NO``, ``unknown``, ``warn``, ``note`` or ``later``."""
    if f.held is Held.YES:
        return "ok"
    if f.blocks:
        return "NO" if f.held is Held.NO else "unknown"
    if f.held is Held.UNKNOWN and f.severity is Severity.INFO:
        return "later"
    return {Severity.WARN: "warn", Severity.INFO: "note"}.get(f.severity, "NO")


_ORDER = ("NO", "unknown", "warn", "note", "ok", "later")


def _unfinished(report: Report) -> Table:
    """Return a table of the changes that failed, or have no known outcome."""
    rows = [
        (clock(op.sent, 0.1), op.target, op.id, "not confirmed" if op.status == "open" else op.status,
         op.change.describe(), op.output.strip()[:300])
        for v in report.visits
        for op in v.ops
        if op.status != "done"
    ]  # fmt: skip
    head = ("sent", "host", "operation", "outcome", "change", "answer")
    return Table("changes", "Changes without success", head, tuple(rows), "", (4, 5))


def _digests(report: Report) -> Table:
    chain = report.chain
    state = f"{chain.state}, {counted(chain.lines, 'line')}" + (f": {chain.why}" if chain.why else "")
    rows = [
        ("hash chain of the journal, each line checked", state),
        ("head of the chain (sum of the last line)", chain.head or "-"),
        ("SHA-256 of journal.jsonl", chain.file),
        ("plan", report.plan_digest or "-"),
        ("plan.json", report.plan_matches),
        ("inventory", report.inventory_digest or "-"),
    ]
    return Table("digests", "Digests", ("what", "value"), tuple(rows), "", (1,))


def lists(report: Report) -> Iterable[tuple[str, str, tuple[str, ...]]]:
    """Yield (id, title, lines) of each list: what is left to do, and notes on the data."""
    yield "left", "To do", report.left
    if report.remarks:
        yield "remarks", "Notes on the data", report.remarks
