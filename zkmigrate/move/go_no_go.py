"""The go/no-go page of the move: the conditions, the rehearsal's results, and the points of no return."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zkmigrate.clean import inline
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.facts.sessions import owning_sessions
from zkmigrate.move.rules.window_estimate import rehearsed
from zkmigrate.move.rules.window_rules import FIND_DOOR_S, deadlines, expected_way_back_s
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context

MUST = (
    ("no preflight check blocks, those of the gate `cutover` included", "operator"),
    ("the cut-over was rehearsed on these hosts with this inventory; figures below", "operator"),
    ("every broker uses dest, and source's client lists name no broker", "operator"),
    ("no partition is under-replicated, no reassignment runs", "Kafka owner"),
    (
        "Kafka's graphs show no ISR change for 10 minutes; after the roll no check reads this",
        "Kafka owner",
    ),
    ("topics, partitions, ACLs and brokers are not changed tonight", "Kafka owner"),
    ("nobody else works on ZooKeeper, purges its logs or deploys to these hosts", "source owner"),
    ("producers and consumers are watched, from before FENCE to after VERIFY", "Kafka owner"),
    ("the operator's machine is near the hosts and idle; a second machine is ready", "operator"),
    ("the runbook (`zkmigrate runbook`) is written, printed, and has been read", "second operator"),
    ("the people who decide *back* and *open* are present", "everybody"),
)


_PEOPLE = (
    ("operator", "source owner"),
    ("second operator", "Kafka owner"),
    ("network / firewall", "hosts / on call"),
)
_SIGNED = ("Operator", "Kafka owner", "source owner")
LINES_OF_A_PAGE = 60
_BLANK = "________"


def _title(inventory: Inventory) -> str:
    return f"{inventory.name}, {len(inventory.kafka.brokers)} brokers to {', '.join(inventory.dest_names)}"


def _no_return(inventory: Inventory) -> tuple[tuple[str, str], ...]:
    limit = inventory.policy.open_limit_s
    return (
        ("SEAL done on all hosts", "no host goes back by itself any more; a way back still costs only time"),
        ("first GO sent", "the hosts finish by themselves; a way back needs an answer of **every** host"),
        (f"OPEN, or {limit:g} s after dest serves (policy.open_limit_s)", "**no way back**: repair forward"),
        ("finalize", "the images are deleted"),
    )


def _figures(c: Context, look: Look) -> Iterator[tuple[str, str]]:
    steps = rehearsed(c)
    if steps:
        phases = ", ".join(f"{step} {took:.1f}" for step, took in steps.items())
        yield "FENCE to CHECK, as rehearsed", f"**{sum(steps.values()):.1f}** ({phases})"
    else:
        yield "FENCE to CHECK", "**not rehearsed: NO-GO**. Rehearse, then print again with `--run-id`"
    way_back = expected_way_back_s(c)
    source = "the rehearsal's, or the policy's if longer" if steps else "policy.way_back_s"
    yield f"way back before SEAL ({source})", f"{way_back:.1f}"
    hosts = (*c.inventory.source_names, *c.inventory.dest_names)
    sessions = owning_sessions(look, hosts, c.inventory.kafka.subtree)
    timeout_ms = sessions.value.smallest_timeout_ms if isinstance(sessions, Seen) else None
    if timeout_ms is None:
        seen = "no session owns an ephemeral there, or a timeout is not known"
        why = seen if isinstance(sessions, Seen) else sessions
        yield "T, smallest session timeout", f"**not known: NO-GO** ({why})"
        return
    limits = deadlines(timeout_ms / 1000, way_back)
    never = " **NO-GO**" if limits.start_back <= 0 else ""
    chroot = c.inventory.kafka.chroot
    yield f"T, smallest session timeout under {chroot} now; SURVEY reads it again", f"{timeout_ms / 1000:g}"
    latest = f"**turn back at the latest**, after FENCE: T - T/3 - {way_back:.1f} - {FIND_DOOR_S:g}"
    yield f"{latest} (clients reconnect)", f"**{limits.start_back:.1f}**{never}"
    yield "clients connected again, after FENCE: T - T/3", f"{limits.clients_back:.1f}"
    yield "forward: clients let in, after dest has a leader", f"{limits.forward:g}"


def page(c: Context, look: Look, plan_digest: str, rehearsed_run: str, remarks: Sequence[str] = ()) -> str:
    """Return the page as Markdown, to print and sign.

    The parameters are those of ``runbook.model.playbook.GoNoGo``.
    """
    inventory = c.inventory
    plan = f"Plan of the remaining steps `{plan_digest[:16]}`, run `{rehearsed_run or 'none yet'}`."
    lines = [
        f"# Go / no-go: {_title(inventory)}",
        "",
        f"{plan} Date {_BLANK} window from {_BLANK} to {_BLANK}",
        "",
        *_table(("must be true before FENCE", "says", "yes"), [(*row, "[ ]") for row in MUST]),
        "",
        *(f"Accepted: {x.line}." for x in inventory.accept),
        *([""] if inventory.accept else []),
        *(f"{inline(text.strip())}." for text in remarks),
        *([""] if remarks else []),
        *_table(("measured and calculated", "seconds"), tuple(_figures(c, look))),
        "",
        *_table(("no return", "from then on"), _no_return(inventory)),
        "",
        *_table(
            ("role", "name", "phone", "", "role", "name", "phone"),
            [(one, _BLANK, _BLANK, "", other, _BLANK, _BLANK) for one, other in _PEOPLE],
        ),
        "",
        f"**GO / NO-GO** at {_BLANK}. {' '.join(f'{who} {_BLANK}' for who in _SIGNED)}",
    ]
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_row(head), f"|{'---|' * len(head)}", *(_row([_cell(text) for text in row]) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {text} |" if text else " |" for text in cells)


def _cell(text: str) -> str:
    return inline(text).replace("|", "\\|")
