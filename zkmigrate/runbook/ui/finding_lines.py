"""Write findings as lines: blocking ones first, those with one cause in one line, those that hold in short.

The journal and ``--json`` have every finding in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from zkmigrate.runbook.engine.evidence import Evidence, chosen
from zkmigrate.runbook.model.fact import NotHeard
from zkmigrate.runbook.model.finding import ACCESS, LOGIN, OPERATOR, Finding, Held, Severity

_HELD = {Held.YES: "ok", Held.NO: "NO", Held.UNKNOWN: "??"}
_COUNTED_FROM = 4
"""If at least this many claims hold, they are counted instead of listed."""

_SHUT_OUT = (*get_args(NotHeard), "denied")
"""The causes for which no look by ssh reaches a host."""

_NAMED = 3
"""The most finding ids listed beside a remedy. The rest are shown as a number."""


def finding(found: Finding) -> str:
    """Return a finding as one line: whether it held, its id, its target, what was seen and needed."""
    return _together([found])


def findings(found: Sequence[Finding]) -> list[str]:
    """Return findings as lines for the screen.

    The order is: a machine that may be the wrong one; hosts that do not answer, one line each; blocking
    findings; warnings; those that hold, in short.

    These share one line: the same claim about several targets, claims that are unknown for the same reason,
    and all that is unknown because no host lets this machine in.
    """
    rest = [f for f in found if f.held is not Held.YES and not _later(f)]
    out = [finding(f) for f in rest if f.id == OPERATOR and f.blocks]
    rest = [f for f in rest if not (f.id == OPERATOR and f.blocks)]
    for of_host in by_silent_host(rest):
        out.append(_host(of_host))
        rest = [f for f in rest if f not in of_host]
    if no_host_accessible(found) and (following := [f for f in rest if f.held is Held.UNKNOWN]):
        out.append(f"[{_HELD[Held.UNKNOWN]}] {no_access_line(following)}")
        rest = [f for f in rest if f not in following]
    out += [_together(same) for same in _grouped(sorted(rest, key=_severity_order))]
    held: dict[str, list[Finding]] = {}
    for f in found:
        if f.held is Held.YES:
            held.setdefault(f.id, []).append(f)
    later = sum(_later(f) for f in found)
    if len(held) >= _COUNTED_FROM:
        count = sum(len(same) for same in held.values())
        return [*out, f"{count} findings hold" + (f"; {_run_later(later)}" if later else "")]
    for same in held.values():
        out.append(_together(same) if len(same) == 1 else _held(same))
    return [*out, _run_later(later)] if later else out


def whole(found: Sequence[Finding]) -> list[str]:
    """Return each finding in full, blocking ones last, where a terminal still shows them."""
    out: list[str] = []
    for f in sorted(found, key=lambda f: (f.held is Held.YES, *_severity_order(f)), reverse=True):
        where = f" {f.target}" if f.target else ""
        out.append(f"[{_mark(f)}] {f.id}{where}: {f.verdict}")
        parts = [("expected", f.claim if f.seen else "")] if f.held is not Held.YES else [("seen", f.seen)]
        parts += [("needed", f.needed), ("cause", f.cause), ("but", f.accepted)]
        parts += [("next", move) for move in f.moves if f.held is not Held.YES]
        out += [f"     {word}: {text}" for word, text in parts if text]
    return out


def grouped(found: Sequence[Finding]) -> list[str]:
    """Return every finding in short, for an open question.

    The ids of those that hold come first, then the others with their remedies, blocking ones last.
    """
    held, later = [f for f in found if f.held is Held.YES], [f for f in found if _later(f)]
    out = [f"{len(held)} hold:", *(f"  {line}" for line in by_area(held))] if held else []
    if later:
        out += [f"{_run_later(len(later))}:", *(f"  {line}" for line in by_area(later))]
    rest = [f for f in found if f not in held and f not in later]
    hosts = by_silent_host(rest)
    shown = [(_host(of_host), of_host[:1]) for of_host in hosts]
    rest = [f for f in rest if all(f not in of_host for of_host in hosts)]
    shown += [(_together(same), same) for same in _grouped(sorted(rest, key=_severity_order))]
    for line, same in reversed(shown):
        out += [line, *(f"     next: {move}" for move in dict.fromkeys(m for f in same for m in f.moves))]
    return out


def by_area(found: Iterable[Finding]) -> list[str]:
    """Return the ids of findings, one line for each area such as source or dest.

    A number after an id is the number of its targets.
    """
    areas: dict[str, dict[str, int]] = {}
    for f in found:
        of_area = areas.setdefault(f.id.partition(".")[0], {})
        of_area[f.id] = of_area.get(f.id, 0) + 1
    return [", ".join(id if n == 1 else f"{id} ({n})" for id, n in ids.items()) for ids in areas.values()]


def evidence_lines(evidence: Evidence, name: str) -> list[str]:
    """Return the findings of a stage, a step, or ``all`` in full.

    Without a name, those of the newest step are returned in short. The names of other steps with findings
    come first, so that the findings stay on the screen.
    """
    steps = chosen(evidence, name)
    others = [f"{step} ({len(found)})" for step, found in evidence.items() if step not in steps]
    out = [] if name else [f"shortened; in full: f {step}, or f all" for step in steps]
    out += [f"other steps with findings: {', '.join(others)}"] if others else []
    out += [] if steps or not name else [f"no findings of {name}"]
    for step, found in steps.items():
        out += [f"{step}:", *(f"  {line}" for line in (whole(found) if name else grouped(found)))]
    return out or ["no findings yet"]


def moves(found: Iterable[Finding]) -> list[str]:
    """Return the remedies of the blocking findings, each once, with the ids of its findings.

    Remedies that all of them share come last, without ids.
    """
    refusing = [f for f in found if f.blocks]
    ids: dict[str, list[str]] = {}
    for f in refusing:
        for move in f.moves:
            if f.id not in ids.setdefault(move, []):
                ids[move].append(f.id)
    every = {f.id for f in refusing}
    common = [move for move, of in ids.items() if set(of) == every and len(ids) > 1]
    return [f"{move} ({_few(of)})" for move, of in ids.items() if move not in common] + common


def by_silent_host(found: Sequence[Finding]) -> list[list[Finding]]:
    """Return the findings that are unknown because a host does not answer, one list for each host."""
    causes = {f.target: f.cause for f in found if f.id == LOGIN and f.cause in _SHUT_OUT}
    causes |= {f.target: f.cause for f in found if f.id == ACCESS and f.cause}
    hosts: dict[str, list[Finding]] = {}
    for f in found:
        if f.target and f.cause and f.cause in (causes.get(f.target), *get_args(NotHeard)):
            hosts.setdefault(f.target, []).append(f)
    return [unknown for unknown in hosts.values() if len(unknown) > 1]


def no_host_accessible(found: Iterable[Finding]) -> bool:
    """Return whether no host lets this machine in, so that every other unknown finding follows from that."""
    logins = [f for f in found if f.id == LOGIN]
    return bool(logins) and all(f.cause in _SHUT_OUT for f in logins)


def no_access_line(unknown: Iterable[Finding]) -> str:
    """Return one line about the claims that are unknown because no host lets this machine in."""
    ids = dict.fromkeys(f.id for f in unknown)
    return f"{len(ids)} more checks are unknown, because no host lets this machine in: {', '.join(ids)}"


def best_explanation(of_host: Sequence[Finding]) -> Finding:
    """Return the finding that explains best why its host does not answer."""
    return next((f for id in (ACCESS, LOGIN) for f in of_host if f.id == id), of_host[0])


def why_silent(of_host: Sequence[Finding]) -> tuple[str, str]:
    """Return why a host does not answer: the cause and its text."""
    best = best_explanation(of_host)
    return best.cause, best.seen.removeprefix(f"unknown ({best.cause}): ").removeprefix(f"{best.target}: ")


def _host(of_host: Sequence[Finding]) -> str:
    cause, why = why_silent(of_host)
    return f"[{_HELD[Held.UNKNOWN]}] {of_host[0].target}: {cause}: {why}; {len(of_host)} checks unknown"


def _grouped(found: Iterable[Finding]) -> list[list[Finding]]:
    """Group findings with the same claim and text, or with the same reason to be unknown, in order."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for f in found:
        one = ("", f.seen) if f.cause else (f.id, f.seen, f.needed, f.accepted)
        groups.setdefault((f.held.value, _mark(f), *one), []).append(f)
    return list(groups.values())


def _together(same: Sequence[Finding]) -> str:
    """Return one line about findings with the same text."""
    first, ids = same[0], dict.fromkeys(f.id for f in same)
    if len(ids) > 1:
        return f"[{_mark(first)}] {', '.join(ids)}: {first.seen}"
    where = f" {', '.join(f.target for f in same)}" if first.target else ""
    needed = f" (needed: {first.needed})" if first.needed and first.held is not Held.YES else ""
    but = f"; {first.accepted}" if first.accepted else ""
    seen = first.seen or "as claimed" if first.held is Held.YES else f"expected: {first.claim}"
    result = first.verdict if first.verdict.endswith(seen) else f"{first.verdict}; {seen}"
    return f"[{_mark(first)}] {first.id}{where}: {result}{needed}{but}"


def _held(same: Sequence[Finding]) -> str:
    return f"[{_HELD[Held.YES]}] {same[0].id} {', '.join(f.target for f in same)}: {same[0].verdict}"


def _mark(found: Finding) -> str:
    """Return the mark of a finding: upper case if it blocks, lower case for a warning or a remark."""
    if found.held is Held.NO and not found.blocks:
        return {Severity.WARN: "warn", Severity.INFO: "note"}.get(found.severity, _HELD[found.held])
    return _HELD[found.held]


def _severity_order(found: Finding) -> tuple[bool, bool]:
    """Return a sort key that puts blocking findings before others, and false ones before unknown ones."""
    return not found.blocks, found.held is not Held.NO


def _later(found: Finding) -> bool:
    """Return whether the check runs only at a later gate: its finding is unknown and for information."""
    return found.held is Held.UNKNOWN and found.severity is Severity.INFO


def _run_later(count: int) -> str:
    return f"{count} check{'s' * (count != 1)} run{'s' * (count == 1)} later"


def _few(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return ", ".join(ids[:_NAMED]) + more
