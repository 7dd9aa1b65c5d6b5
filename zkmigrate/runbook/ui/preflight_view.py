"""Show the result of ``zkmigrate preflight``: for each check what was seen, what is needed, what to do.

The sections are: blocks, unknown, warns, later, holds. On a terminal the text is coloured and wrapped to the
width; elsewhere it is plain, one line for each text. ``--json`` has every finding in full.
"""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from zkmigrate.clean import indented
from zkmigrate.locations import Locations
from zkmigrate.runbook.model.finding import AGAIN, Finding, Held, Severity
from zkmigrate.runbook.ui import finding_lines

_WIDEST = 120
"""The most characters in a line. Longer lines are hard to read, even on a wider terminal."""

_LISTED = 8
"""The most targets of one check that are listed; the others are counted."""

StyledLine = tuple[str, str]
"""A line and its rich style; empty for none."""


@dataclass
class Item:
    """One check that did not hold, or one host that does not answer. rows: (label, text), in order."""

    title: str
    rows: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Section:
    """The items of one severity. count: the number of their findings."""

    name: str
    style: str
    note: str
    count: int
    items: tuple[Item, ...]


def tally(findings: Sequence[Finding]) -> dict[str, int]:
    """Count the findings in each section."""
    counts = dict.fromkeys(("blocks", "unknown", "warns", "later", "holds"), 0)
    for f in findings:
        counts[_section(f)] += 1
    return counts


def _section(f: Finding) -> str:
    if f.held is Held.YES:
        return "holds"
    if f.held is Held.UNKNOWN:
        return "later" if f.severity is Severity.INFO else "unknown"
    return "blocks" if f.blocks else "warns"


def sections(findings: Sequence[Finding], locations: Locations) -> tuple[Section, ...]:
    """Return the sections that are not empty, in the order of the screen."""
    of = {name: [f for f in findings if _section(f) == name] for name in tally(findings)}
    blocking = sum(f.blocks for f in of["unknown"])
    unknown = "could not be checked: " + (
        "they block" if blocking == len(of["unknown"])
        else f"{blocking} block, the others warn" if blocking
        else "they warn, and none blocks"
    )  # fmt: skip
    made = (
        Section("blocks", "bold red", "fix these first", len(of["blocks"]),
                _items(of["blocks"], locations)),
        Section("unknown", "bold magenta", unknown, len(of["unknown"]),
                _unknown(of["unknown"], locations, alone=finding_lines.no_host_accessible(findings))),
        Section("warns", "bold yellow", "these do not stop a run: decide whether to accept them",
                len(of["warns"]), _items(of["warns"], locations)),
        Section("later", "bold", "cannot be checked yet; a later gate checks it", len(of["later"]),
                _later(of["later"])),
        Section("holds", "bold green", "checked, with the expected result", len(of["holds"]),
                _holding(of["holds"])),
    )  # fmt: skip
    return tuple(section for section in made if section.count)


def _items(findings: Sequence[Finding], locations: Locations) -> tuple[Item, ...]:
    """Return one item for each check. Targets with the same text are listed together."""
    checks: dict[str, list[Finding]] = {}
    for f in findings:
        checks.setdefault(f.id, []).append(f)
    return tuple(_item(same, locations) for same in checks.values())


def _item(same: Sequence[Finding], locations: Locations) -> Item:
    seen: dict[str, list[Finding]] = {}
    for f in same:
        seen.setdefault(f.seen, []).append(f)
    whole = len(same) == 1 and not same[0].target
    item = Item(f"{same[0].id}: {same[0].verdict if whole else same[0].word}")
    if whole:
        seen = {}
    for text, of in list(seen.items())[:_LISTED]:
        for f in of[:_LISTED]:
            at = locations.host(f.target)
            item.rows.append(
                (f.target or "seen", text + (f" ({at})" if at else ""))
                if f is of[0]
                else (f.target, "the same")
            )
        if len(of) > _LISTED:
            item.rows.append(("", f"and {len(of) - _LISTED} more like this"))
    if len(seen) > _LISTED:
        rest = sum(len(of) for of in list(seen.values())[_LISTED:])
        item.rows.append(("", f"and {rest} more; --json has all of them"))
    item.rows += [("expected", same[0].claim)] if not whole or same[0].seen else []
    needed = list(dict.fromkeys(f.needed for f in same if f.needed))
    item.rows += [("needed", needed[0] if len(needed) == 1 else "; ".join(needed[:3]))] if needed else []
    item.rows += [("but", text) for text in dict.fromkeys(f.accepted for f in same if f.accepted)]
    item.rows += _moves(same, locations)
    return item


def _moves(findings: Sequence[Finding], locations: Locations) -> list[tuple[str, str]]:
    moves = dict.fromkeys(move for f in findings for move in f.moves if move != AGAIN)
    return [("do" if at == 0 else "or", locations.located(move)) for at, move in enumerate(moves)]


def _unknown(findings: Sequence[Finding], locations: Locations, *, alone: bool) -> tuple[Item, ...]:
    """Return the items of the section "unknown".

    First come hosts that do not answer, by reason; then checks that one failed look leaves unknown; then the
    others. alone: whether no host lets this machine in.
    """
    reasons: dict[tuple[str, str], list[list[Finding]]] = {}
    silent = finding_lines.by_silent_host(findings)
    if alone:
        return _no_host(findings, silent, locations)
    for of_host in silent:
        reasons.setdefault(finding_lines.why_silent(of_host), []).append(of_host)
    items = [_silent(cause, why, hosts, locations) for (cause, why), hosts in reasons.items()]
    rest = [f for f in findings if all(f not in of_host for of_host in silent)]
    alike: dict[tuple[str, str], list[Finding]] = {}
    for f in sorted(rest, key=lambda f: not f.blocks):
        alike.setdefault(("", f.seen) if f.cause else (f.id, ""), []).append(f)
    for same in alike.values():
        item = _item(same, locations)
        ids = list(dict.fromkeys(f.id for f in same))
        if len(ids) > 1:
            targets = dict.fromkeys(f.target for f in same if f.target)
            rows = [(", ".join(targets) or "seen", same[0].seen), *_moves(same, locations)]
            item = Item(f"{len(ids)} checks: {', '.join(ids)}", rows)
        if not any(f.blocks for f in same):
            item.rows.append(("so", "a warning: it does not block"))
        items.append(item)
    return tuple(items)


def _silent(cause: str, why: str, hosts: Sequence[Sequence[Finding]], locations: Locations) -> Item:
    names = [of_host[0].target for of_host in hosts]
    lines = sorted({int(at.rpartition(":")[2]) for name in names if (at := locations.host(name))})
    where = f" ({locations.file}:{','.join(map(str, lines))})" if lines else ""
    item = Item(f"{', '.join(names)}: no answer ({cause})")
    item.rows.append(("seen", why + where))
    item.rows.append(("so", f"{sum(map(len, hosts))} checks are unknown"))
    item.rows += _moves([finding_lines.best_explanation(of_host) for of_host in hosts], locations)
    return item


def _no_host(
    findings: Sequence[Finding], silent: Sequence[Sequence[Finding]], locations: Locations
) -> tuple[Item, ...]:
    """Return the items for the case that no host lets this machine in.

    The first names the reason for each host and the remedies; the second, if any, the checks that are unknown
    because of it.
    """
    item = Item("no host lets this machine in")
    for of_host in silent:
        (cause, why), name = finding_lines.why_silent(of_host), of_host[0].target
        at = locations.host(name)
        item.rows.append((name, f"{cause}: {why}" + (f" ({at})" if at else "")))
    item.rows.append(("so", f"{sum(map(len, silent))} checks are unknown"))
    item.rows += _moves([finding_lines.best_explanation(of_host) for of_host in silent], locations)
    rest = [f for f in findings if all(f not in of_host for of_host in silent)]
    return (item, Item(finding_lines.no_access_line(rest))) if rest else (item,)


def _later(findings: Sequence[Finding]) -> tuple[Item, ...]:
    when: dict[str, list[str]] = {}
    for f in findings:
        when.setdefault(f.seen.removeprefix("later: "), []).append(f.id)
    return tuple(Item(f"{text}: {', '.join(dict.fromkeys(ids))}") for text, ids in when.items())


def _holding(findings: Sequence[Finding]) -> tuple[Item, ...]:
    """Return one item for each area such as source or dest, with the number of targets of each check."""
    return tuple(Item(line) for line in finding_lines.by_area(findings))


def lines(findings: Sequence[Finding], locations: Locations, width: int | None) -> list[StyledLine]:
    """Return the whole screen. width: of the terminal, in characters; None: do not break lines."""
    wide = None if width is None else max(40, min(width, _WIDEST))
    out: list[StyledLine] = []
    for section in sections(findings, locations):
        out += _wrapped(f"{section.name.upper()} ({section.count}): {section.note}", "", wide, section.style)
        for item in section.items:
            out += _wrapped(item.title, "  ", wide, "bold" if item.rows else "")
            column = max((len(label) for label, _ in item.rows), default=0)
            for label, text in item.rows:
                out += _wrapped(
                    text, f"    {label:<{column}}  ", wide, "cyan" if label in ("do", "or") else ""
                )
        out.append(("", ""))
    return out


def show(
    out: TextIO,
    findings: Sequence[Finding],
    locations: Locations,
    playbook_words: str,
    onward: str = "",
    stage: str = "",
) -> None:
    """Write the result, in the terminal's width and in colour.

    Without a terminal, or with TERM unset or ``dumb``, plain lines are written. NO_COLOR turns colours off.

    playbook_words, onward, stage: see :func:`ending`.
    """
    terminal = out.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    screen = lines(findings, locations, width)
    for line in ending(findings, playbook_words, onward, stage):
        # Do not break a command: it is copied whole.
        screen += [(line, "bold")] if "zkmigrate " in line else _wrapped(line, "", width, "bold")
    if not terminal or os.environ.get("TERM", "dumb") == "dumb":
        out.write("".join(f"{line}\n" for line, _ in screen))
        return
    from rich.text import Text

    from zkmigrate.runbook.ui.styled import Styled

    console = Styled(out, width)
    for line, style in screen:
        console.print(Text(line, style=style), soft_wrap=True)


def _wrapped(text: str, head: str, width: int | None, style: str) -> list[StyledLine]:
    if width is None:
        return [(indented(head + text), style)]
    broken = textwrap.wrap(
        text, width, initial_indent=head, subsequent_indent=" " * (len(head) or 2),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [(line, style) for line in broken]


def ending(findings: Sequence[Finding], playbook_words: str, onward: str = "", stage: str = "") -> list[str]:
    """Return the result in one line, and the next command if there is one.

    playbook_words: the options that name this inventory. onward: the direction and command that continue the
    open run; empty without one. stage: the value of ``--stage``, after which no command follows; empty at a
    gate.
    """
    counts, blocking = tally(findings), sum(f.blocks for f in findings)
    besides = sum(not f.blocks for f in findings if _section(f) == "unknown")
    more = "more is unknown" if besides == 1 else "more are unknown"
    rest = {more: besides, "warn": counts["warns"], "run later": counts["later"]}
    said = [f"{count} {what}" for what, count in (*rest.items(), ("hold", counts["holds"])) if count]
    head = f"{blocking or 'none'} of {len(findings)} findings block; {', '.join(said) or 'nothing else'}"
    again = f"--stage {stage} {playbook_words}" if stage else playbook_words
    if blocking:
        return [head, f"fix the blocking findings, then check again: zkmigrate preflight {again}"]
    if stage:
        return [head]
    if onward:
        return [head, f"the run can go on {onward}"]
    return [
        head,
        f"see the changes that a run would make, without making them: zkmigrate plan {playbook_words}",
    ]
