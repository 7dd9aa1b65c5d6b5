"""The figures of a report as tables of words, the same for the page and for Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from zkmigrate.model.change import ClusterChange
from zkmigrate.model.finding import Finding, Held, Severity
from zkmigrate.model.report import Acks, Decision, Report, Table, Visit, Window, clock, day, length, move_of
from zkmigrate.model.series import quantiles, steps_of, when

_FOLDED_FROM = 12
"""So many different claims of one step that hold are named by their ids only."""


_NAMED = 6
"""So many targets of one finding are named."""


def figures(report: Report) -> tuple[tuple[str, str, str], ...]:
    """The handful that everybody asks for first: (what, how much, the small print)."""
    out = []
    window = move_of(report.windows)
    whole = f"from {report.shown.begins} to the open door"
    if window is None and report.shown.begins:
        begun = "not told" if report.state == "damaged" else "not begun"
        out.append(("window", begun, whole))
    elif window is not None:
        took = length(window.seconds) if window.seconds is not None else "not over"
        notes = {"opened": whole, "turned back": "turned back; until clients were in"}
        out.append(("window", took, notes.get(window.outcome, "the door was not opened")))
    out += report.shown.told.figures(report)
    for acks in report.acks:
        if acks.gaps:
            note = f"between acknowledgements, in {steps_of(acks.gaps[0])}"
            out.append((f"longest gap of the {acks.client}", length(acks.gaps[0].seconds), note))
            most = _inside(acks, window, report) if window is not None else None
            if most is not None:
                out.append(
                    (f"longest gap of the {acks.client} in the window", length(most), "at full length")
                )
    out.append(("way back", report.way_back.partition(":")[0].partition(";")[0], "see Decisions"))
    refused = sum(v.outcome == "blocked" for v in report.visits)
    alarms = sum(d.kind == "alarm" for d in report.decisions)
    troubles = "; troubles in a window" if report.shown.begins else ""
    out.append(("refusals and alarms", f"{refused} and {alarms}", f"steps that refused{troubles}"))
    return tuple(out)


def _inside(acks: Acks, window: Window, report: Report) -> float | None:
    """The longest gap that overlaps the window, at full length."""
    end = window.end if window.end is not None else report.end
    return max((b - a for a, b in pairwise(acks.times) if a < end and b > window.start), default=None)


def tables(report: Report) -> tuple[Table, ...]:
    """Every table that has something to tell, in the order of the page."""
    made = (
        windows(report), *report.shown.felt, _acks(report), *report.shown.sections, _decisions(report),
        _processes(report), _steps(report), _findings(report), _unfinished(report), _digests(report),
    )  # fmt: skip
    return tuple(table for table in made if table.rows)


def windows(report: Report) -> Table:
    """Each window with its parts side by side; one that was walked back has a second column for that."""
    columns = [(w, back) for w in report.windows for back in (False, True) if not back or _back(w)]
    steps = dict.fromkeys(p.step for w in report.windows for p in w.parts)
    rows = [(step, *(_share(w, step, back) for w, back in columns)) for step in steps]

    def whole(name: str, cell: Callable[[Window], str]) -> None:
        rows.append((name, *("" if back else cell(w) for w, back in columns)))

    whole("between the steps", lambda w: "-" if (b := _between(w)) is None else length(b))
    if any(w.held_s for w in report.windows):
        whole("held, as somebody wanted", lambda w: length(w.held_s) if w.held_s else "-")
    whole("whole", lambda w: "not over" if w.seconds is None else length(w.seconds))
    if any(w.gone_s for w in report.windows):
        whole("of it without the tool", lambda w: length(w.gone_s) if w.gone_s else "-")
    whole("outcome", lambda w: w.outcome)
    whole("began", lambda w: clock(w.start, 0.1))
    whole(
        "way back until",
        lambda w: "-" if w.deadline is None else f"{w.deadline - w.start:.1f} s after {report.shown.begins}",
    )
    whole("opened by", _openers)
    heads = [f"{w.stage} {'back' if back else clock(w.start)}" for w, back in columns]
    intro = (
        f"From the first {report.shown.begins} sent to the last host's open door (or, walked back, to "
        "clients let in again)."
    )
    return Table("windows", "Windows and their parts", ("part", *heads), tuple(rows) if heads else (), intro)


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
    return "not over" if None in seconds else length(sum(s for s in seconds if s is not None))


def _between(window: Window) -> float | None:
    parts = [p.seconds for p in window.parts if p.seconds is not None]
    return None if window.seconds is None else max(0.0, window.seconds - sum(parts) - window.held_s)


def _acks(report: Report) -> Table:
    rows = [
        (*(_client(acks) if n == 0 else ("", "", "")), length(gap.seconds), when(gap))
        for acks in report.acks
        for n, gap in enumerate(acks.gaps)
    ]
    intro = "Times between two acknowledgements of real clients, the longest first, as they recorded them."
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
    head = ("when", "what", "where", "asked or seen", "answer", "by")
    intro = (
        "Every question with who answered it and what was in doubt then, holds, hooks that could stop the "
        f"run or failed, turns, {'alarms in a window, ' * bool(report.shown.begins)}ends of calls."
    )
    return Table("decisions", "Decisions", head, tuple(rows), intro, (3,))


def _question(decision: Decision) -> str:
    """What was asked, and what stood against it then."""
    stood = [
        f"{held} {id}: " + "; ".join(part for part in (seen, claim and f"expected: {claim}") if part)
        for held, id, claim, seen in _grouped(decision.findings)
    ]
    return decision.what + (f" In doubt then: {' | '.join(stood)}" if stood else "")


def _processes(report: Report) -> Table:
    rows = []
    for p in report.processes:
        took = length(p.ended - p.start) if p.ended is not None else "-"
        how = "no end told: killed, or at work" if p.ended is None else f"exit code {p.code}: {p.message}"
        rows.append((day(p.start), p.way or "-", took, how))
    return Table("calls", "Calls of the tool", ("began", "way", "took", "ended"), tuple(rows), "", (3,))


def _steps(report: Report) -> Table:
    rows = []
    for v in report.visits:
        took = length(v.seconds) if v.seconds is not None else "-"
        tries = f", {v.tries} times" if v.tries > 1 else ""
        rows.append(
            (v.step, "back" if v.back else "forward", day(v.start), took, v.outcome + tries, _changes(v))
        )
    head = ("step", "way", "began", "took", "outcome", "changes")
    return Table("steps", "Steps", head, tuple(rows), "", (5,))


def _changes(visit: Visit) -> str:
    if not visit.ops:
        return "-"
    counts = Counter(op.status for op in visit.ops)
    of = len({op.target for op in visit.ops})
    what = "targets" if any(isinstance(op.change, ClusterChange) for op in visit.ops) else "hosts"
    told = ", ".join(f"{n} {status if status != 'open' else 'not confirmed'}" for status, n in counts.items())
    return f"{told} on {of} {what}"


def _findings(report: Report) -> Table:
    rows: list[tuple[str, ...]] = []
    for v in report.visits:
        name = f"{v.step}{' (back)' if v.back else ''} {clock(v.start)}"
        for n, row in enumerate(_grouped(v.findings)):
            rows.append((name if n == 0 else "", *row))
    head = ("step", "held", "finding", "expected", "seen")
    return Table("findings", "Findings", head, tuple(rows), "What does not hold comes first.", (2, 3, 4))


def _grouped(findings: Sequence[Finding]) -> list[tuple[str, str, str, str]]:
    """(held, id with targets, claim, seen) per claim; many that hold, and those that run later, are
    named by their ids only."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for f in sorted(findings, key=lambda f: _ORDER.index(mark(f))):
        groups.setdefault((mark(f), f.id, f.claim), []).append(f)
    folded = [("later", "run later")]
    if sum(key[0] == "ok" for key in groups) >= _FOLDED_FROM:
        folded.insert(0, ("ok", "hold"))
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
            rows.append((stands, f"{sum(n for _, n in of)} findings {words}", "", ids))
    return rows


def _targets(same: Sequence[Finding]) -> str:
    names = list(dict.fromkeys(f.target for f in same if f.target))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def mark(f: Finding) -> str:
    """One word for how a finding stands: ``ok``, ``NO``, ``unknown``, ``warn``, ``note``, ``later``."""
    if f.held is Held.YES:
        return "ok"
    if f.blocks:
        return "NO" if f.held is Held.NO else "unknown"
    if f.held is Held.UNKNOWN and f.severity is Severity.INFO:
        return "later"
    return {Severity.WARN: "warn", Severity.INFO: "note"}.get(f.severity, "NO")


_ORDER = ("NO", "unknown", "warn", "note", "ok", "later")


def _unfinished(report: Report) -> Table:
    """Changes that were not simply done."""
    rows = [
        (clock(op.sent, 0.1), op.target, op.id, "not confirmed" if op.status == "open" else op.status,
         op.change.describe(), op.output.strip()[:300])
        for v in report.visits
        for op in v.ops
        if op.status != "done"
    ]  # fmt: skip
    head = ("sent", "host", "operation", "outcome", "change", "said")
    return Table("changes", "Changes that were not simply done", head, tuple(rows), "", (4, 5))


def _digests(report: Report) -> Table:
    chain = report.chain
    state = f"{chain.state}, {chain.lines} lines" + (f": {chain.why}" if chain.why else "")
    rows = [
        ("journal's hash chain, checked line by line", state),
        ("head of the chain (SHA-256 of the last line)", chain.head or "-"),
        ("SHA-256 of journal.jsonl", chain.file),
        ("plan", report.plan_digest or "-"),
        ("", report.plan_matches),
        ("inventory", report.inventory_digest or "-"),
    ]
    return Table("digests", "Digests", ("of", "is"), tuple(rows), "", (1,))


def lists(report: Report) -> Iterable[tuple[str, str, tuple[str, ...]]]:
    """(id, title, lines): what is left to do, and what the reader must know of the material."""
    yield "left", "Left to do", report.left
    if report.remarks:
        yield "remarks", "About the material", report.remarks
