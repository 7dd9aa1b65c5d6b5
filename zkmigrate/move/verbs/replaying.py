"""Write the output of ``replay list``."""

from __future__ import annotations

from typing import Any

from zkmigrate.move.facts.replay import ReplayScope
from zkmigrate.zookeeper.data.proofs import Proved
from zkmigrate.zookeeper.data.replay import Again, Request
from zkmigrate.zookeeper.data.session import format_session
from zkmigrate.zookeeper.data.zxid import format_zxid
from zkmigrate.zookeeper.disks.prove import NOT_HELD, UNPROVED

_WORDS: dict[Proved, str] = {True: "holds", False: "DOES NOT HOLD", None: "not known"}

_OPERATIONS = {"Create": "create", "SetData": "setData", "Delete": "delete", "SetAcl": "setACL"}


def code(found: ReplayScope) -> int:
    """Return the exit code: 0 if all conditions hold, NOT_HELD if one fails, otherwise UNPROVED."""
    held = {condition.held for condition in found.conditions}
    return NOT_HELD if False in held else UNPROVED if None in held else 0


def text(found: ReplayScope) -> str:
    """Return the transactions and conditions as text for the terminal."""
    lines = [
        f"dest has transactions of its own after {format_zxid(found.cut)}, up to {format_zxid(found.upto)} "
        f"({found.dest}): {found.under} transactions under {found.chroot}"
    ]
    lines += _counts(found)
    for condition in found.conditions:
        lines.append(f"  {condition.id:18} {_WORDS[condition.held]}: {condition.claim}: {condition.seen}")
    lines += [f"  {line}" for again in found.first for line in shown(again)]
    left = found.tally.transactions - len(found.first)
    if left > 0:
        lines.append(f"  and {left} transactions more; --lines N shows more")
    if code(found):
        lines.append("The transactions cannot be replayed now. Nothing was written.")
    else:
        lines.append(f"{found.tally.transactions} transactions can be replayed. Nothing was written.")
    return "\n".join(lines)


def _counts(found: ReplayScope) -> list[str]:
    tally = found.tally
    words = {**_OPERATIONS, "Count": "of an ephemeral (its parent's counter)"}
    counts = ", ".join(f"{tally.kinds[kind]} {word}" for kind, word in words.items() if tally.kinds[kind])
    return [
        f"  to replay: {tally.transactions} transactions, on {len(tally.paths)} znodes: "
        f"{counts or 'nothing'}",
        f"  {found.passed} transactions leave nothing behind: their ephemerals were deleted",
    ]


def shown(again: Again) -> list[str]:
    """Return one transaction as lines of text, one for each request."""
    head = f"{format_zxid(again.zxid)} by {format_session(again.session)}"
    return [f"{head} {_words(request)}" for request in again.requests]


def _words(request: Request) -> str:
    version = _version(request)
    bound = "" if version is None else f" at version {version}"
    return f"{type(request).__name__} {request.path}{bound}"


def _version(request: Request) -> int | None:
    """Return the version that the request expects, or None for a create."""
    version: int | None = getattr(request, "version", getattr(request, "aversion", None))
    return version


def body(found: ReplayScope) -> dict[str, Any]:
    """Return the transactions and conditions as JSON values."""
    tally, held = found.tally, code(found)
    return {
        "possible": None if held == UNPROVED else not held,
        **found.chroot.body(),
        "dest": found.dest,
        "cut": format_zxid(found.cut),
        "upto": format_zxid(found.upto),
        "under": found.under,
        "passed": found.passed,
        "fingerprint": found.batches[-1].fingerprint if found.batches else "",
        "replay": {
            "transactions": tally.transactions,
            "znodes": len(tally.paths),
            **{word: tally.kinds[kind] for kind, word in _OPERATIONS.items()},
            "count": tally.kinds["Count"],
        },
        "conditions": [
            {"id": c.id, "claim": c.claim, "held": c.held, "seen": c.seen} for c in found.conditions
        ],
        "transactions": [_transaction(again) for again in found.first],
    }


def _transaction(again: Again) -> dict[str, Any]:
    return {
        "zxid": format_zxid(again.zxid),
        "time_ms": again.time_ms,
        "session": format_session(again.session),
        "requests": [
            {"kind": type(r).__name__, "path": r.path, "version": _version(r)} for r in again.requests
        ],
    }
