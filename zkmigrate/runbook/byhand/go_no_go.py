"""The go/no-go page: one sheet to print and sign, with blanks for names and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from zkmigrate.clean import inline
from zkmigrate.runbook.model.by_hand import GoNoGo
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context

LINES_OF_A_PAGE = 60
_BLANK = "________"


def page(
    content: GoNoGo, c: Context, look: Look, plan_digest: str, rehearsed: str, remarks: Sequence[str] = ()
) -> str:
    """The page as Markdown. rehearsed: the run whose records c holds, empty without one. remarks: the plan's
    other lines, such as retired brokers."""
    inventory = c.inventory
    plan = f"Plan of what is left now `{plan_digest[:16]}`, run `{rehearsed or 'none yet'}`."
    lines = [
        f"# Go / no-go: {content.title(inventory)}",
        "",
        f"{plan} Date {_BLANK} window from {_BLANK} to {_BLANK}",
        "",
        *_table(
            (f"must be true before {content.before}", "says", "yes"), [(*row, "[ ]") for row in content.must]
        ),
        "",
        *(f"Accepted: {x.line}." for x in inventory.accept),
        *([""] if inventory.accept else []),
        *(f"{inline(text.strip())}." for text in remarks),
        *([""] if remarks else []),
        *_table(("measured and reckoned", "seconds"), content.figures(c, look)),
        "",
        *_table(("no return", "from then on"), content.no_return(inventory)),
        "",
        *_table(
            ("role", "name", "phone", "", "role", "name", "phone"),
            [(one, _BLANK, _BLANK, "", other, _BLANK, _BLANK) for one, other in content.people],
        ),
        "",
        f"**GO / NO-GO** at {_BLANK}. {' '.join(f'{who} {_BLANK}' for who in content.signed)}",
    ]
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_row(head), f"|{'---|' * len(head)}", *(_row([_cell(text) for text in row]) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {text} |" if text else " |" for text in cells)


def _cell(text: str) -> str:
    return inline(text).replace("|", "\\|")
