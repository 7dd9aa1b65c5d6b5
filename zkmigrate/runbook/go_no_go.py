"""The go/no-go page: one sheet to print, sign and keep beside the keyboard.

What must be true, who says so, what the rehearsal measured, the points of no return, the deadlines, and
blanks for names and numbers. It makes no difference whether the tool or a hand then does the move.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zkmigrate.facts.sessions import Sessions
from zkmigrate.inventory import Inventory
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.step import Context, Records
from zkmigrate.rules.expected import rehearsed
from zkmigrate.rules.window import FIND_DOOR_S, deadlines, expected_way_back_s
from zkmigrate.ui.clean import inline

LINES_OF_A_PAGE = 60
MUST = (
    ("preflight blocks nothing, the gate `cutover` included", "operator"),
    ("rehearsed on these very hosts with this inventory; figures below", "operator"),
    ("every broker lives on dest, source's client lists name none of them", "operator"),
    ("no partition is under-replicated, no reassignment runs", "Kafka owner"),
    (
        "ISRs were quiet for 10 minutes, on Kafka's graphs: after the roll no check looks",
        "Kafka owner",
    ),
    ("topics, partitions, ACLs and brokers are not changed tonight", "Kafka owner"),
    ("nobody else works on ZooKeeper, no purge of its logs, no deploy on these hosts", "source owner"),
    ("producers and consumers are watched, from before FENCE to after VERIFY", "Kafka owner"),
    ("link and machine of the operator are near the hosts and quiet; a second one stands by", "operator"),
    ("the page by hand (`zkmigrate runbook`) is exported, printed, and has been read", "second operator"),
    ("who may say *back* and who may say *open* is in the room", "everybody"),
)
_BLANK = "________"


def page(
    inventory: Inventory,
    plan_digest: str,
    run: str,
    records: Records,
    sessions: Reading[Sessions],
    remarks: Sequence[str] = (),
) -> str:
    """The sheet as Markdown. run: the one that was rehearsed, empty if none. sessions: those that own parts
    of the chroot now, with their timeouts. remarks: what else the plan says, such as who is retired."""
    brokers, limit = len(inventory.kafka.brokers), inventory.policy.open_limit_s
    plan = f"Plan of what is left now `{plan_digest[:16]}`, run `{run or 'none yet'}`."
    lines = [
        f"# Go / no-go: {inventory.name}, {brokers} brokers to {', '.join(inventory.dest_names)}",
        "",
        f"{plan} Date {_BLANK} window from {_BLANK} to {_BLANK}",
        "",
        "| must be true before FENCE | says | yes |",
        "|---|---|---|",
        *(f"| {text} | {who} | [ ] |" for text, who in MUST),
        "",
        *(f"Accepted: {x.line}." for x in inventory.accept),
        *([""] if inventory.accept else []),
        *(f"{inline(text.strip())}." for text in remarks),
        *([""] if remarks else []),
        *_figures(Context(run or "plan", inventory, records=records), sessions),
        "",
        "| no return | from then on |",
        "|---|---|",
        "| SEAL done on all | the hosts no longer go back alone; a way back still costs nothing but time |",
        "| first GO sent | the hosts finish without their operator; back only if **every** host answers |",
        f"| OPEN, or {limit:g} s after dest serves (policy.open_limit_s) | **no way back**: repair forward |",
        "| finalize | images are gone |",
        "",
        "| role | name | phone | | role | name | phone |",
        "|---|---|---|---|---|---|---|",
        f"| operator | {_BLANK} | {_BLANK} | | source owner | {_BLANK} | {_BLANK} |",
        f"| second operator | {_BLANK} | {_BLANK} | | Kafka owner | {_BLANK} | {_BLANK} |",
        f"| network / firewall | {_BLANK} | {_BLANK} | | hosts / on call | {_BLANK} | {_BLANK} |",
        "",
        f"**GO / NO-GO** at {_BLANK}. Operator {_BLANK} Kafka owner {_BLANK} source owner {_BLANK}",
    ]
    return "\n".join(lines) + "\n"


def _figures(c: Context, sessions: Reading[Sessions]) -> Iterator[str]:
    there = rehearsed(c)
    yield "| measured and reckoned | seconds |"
    yield "|---|---|"
    if there:
        phases = ", ".join(f"{step} {took:.1f}" for step, took in there.items())
        yield f"| FENCE to CHECK, as rehearsed | **{sum(there.values()):.1f}** ({phases}) |"
    else:
        yield "| FENCE to CHECK | **not rehearsed: NO-GO**. Rehearse, then print again with `--run-id` |"
    way_back = expected_way_back_s(c)
    source = "the rehearsal's, or the policy's if longer" if there else "policy.way_back_s"
    yield f"| way back before SEAL ({source}) | {way_back:.1f} |"
    timeout_ms = sessions.value.smallest_timeout_ms if isinstance(sessions, Seen) else None
    if timeout_ms is None:
        seen = "no session owns a part of it, or a timeout is not told"
        why = seen if isinstance(sessions, Seen) else inline(sessions).replace("|", "\\|")
        yield f"| T, smallest session timeout | **not known: NO-GO** ({why}) |"
        return
    limits = deadlines(timeout_ms / 1000, way_back)
    never = " **NO-GO**" if limits.start_back <= 0 else ""
    chroot = c.inventory.kafka.chroot
    yield f"| T, smallest session timeout under {chroot} now; SURVEY reads it again | {timeout_ms / 1000:g} |"
    yield (
        f"| **turn back at the latest**, after FENCE: T - T/3 - {way_back:.1f} - {FIND_DOOR_S:g} "
        f"(clients find the door) | **{limits.start_back:.1f}**{never} |"
    )
    yield f"| clients connected again, after FENCE: T - T/3 | {limits.clients_back:.1f} |"
    yield f"| forward: door open, after dest has a leader | {limits.forward:g} |"
