"""``replay apply``: do it, step by step, and compare what came of it; what each verb of ``replay`` says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from zkmigrate.clients.replay import Ensemble, Pace, RefusedError, marker_of
from zkmigrate.disks.prove import NOT_HELD, difference, told
from zkmigrate.disks.replay import Condition, Looked, Looking
from zkmigrate.errors import ZkmigrateError
from zkmigrate.zkdata.proofs import Held
from zkmigrate.zkdata.replay import Again
from zkmigrate.zkdata.session import format_session
from zkmigrate.zkdata.tree import Difference
from zkmigrate.zkdata.zxid import format_zxid

_WORDS: dict[Held, str] = {True: "holds", False: "DOES NOT HOLD", None: "not known"}
_TELL_S = 3.0

Confirm = Callable[[Looked], bool]


@dataclass
class Outcome:
    """What was looked at and what came of it. done: transactions replayed in all, by this and earlier calls;
    None: nothing was begun. code: as the command ends."""

    found: Looked
    done: int | None = None
    zxid: int = 0
    same: Condition | None = None
    differences: list[Difference] = field(default_factory=list)
    count: int = 0
    seconds: float = 0.0

    @property
    def code(self) -> int:
        """As of `Looked`, then NOT_HELD where the trees differ."""
        return self.found.code or (NOT_HELD if self.same is not None and not self.same.held else 0)


def apply(
    looking: Looking,
    source: Ensemble,
    consent: str,
    pace: Pace,
    confirm: Confirm,
    say: Callable[[str], None],
) -> Outcome:
    """Look, ask, replay, compare, and remove the marker where nothing differs. Begun again it goes on.

    confirm: asked before the first transaction. Raises as `Looking.look` and `Ensemble.replay`; RefusedError
    where the marker is of another replay.
    """
    began = time.monotonic()
    mark = source.mark()
    found = looking.look(begun=mark is not None)
    outcome = Outcome(found)
    if found.code:
        return outcome
    if mark is not None and mark.plan != found.fingerprint:
        raise RefusedError(
            f"{marker_of(found.chroot)} is of another replay ({mark.version} transactions done, with the "
            f"consent of {mark.consent}): dest's disks are not those that it was begun with"
        )
    if mark is None and not confirm(found):
        return outcome
    if mark is None:
        mark = source.begin(found.fingerprint, consent)
        try:
            looking.is_of(marker_of(found.chroot), mark.created)
        except ZkmigrateError:
            source.end(mark)
            raise
    else:
        looking.is_of(marker_of(found.chroot), mark.created)
        say(f"going on behind {format_zxid(mark.done)}: {mark.version} transactions are done")
    mark = source.replay(looking.transactions(found), mark, pace, _Told(found.tally.transactions, say).at)
    outcome.done, outcome.zxid = mark.version, source.newest()
    outcome.same, outcome.differences, outcome.count = looking.compare(found, outcome.zxid)
    if outcome.same.held:
        source.end(mark)
    outcome.seconds = time.monotonic() - began
    return outcome


class _Told:
    """Says now and then how many transactions are done, and how long the rest will take."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self._total = total
        self._say = say
        self._began = self._told = time.monotonic()
        self._first: int | None = None

    def at(self, done: int) -> None:
        now = time.monotonic()
        self._first = done - 1 if self._first is None else self._first
        if now - self._told < _TELL_S:
            return
        self._told = now
        left = (self._total - done) * (now - self._began) / max(1, done - self._first)
        self._say(f"{done} of {self._total} transactions replayed, about {left:.0f} s left")


def text(outcome: Outcome, source: str) -> str:
    """For a reader."""
    found = outcome.found
    lines = [
        f"dest went on by itself behind {format_zxid(found.cut)}, up to {format_zxid(found.upto)} "
        f"({found.dest}): {found.under} transactions under {found.chroot}"
    ]
    lines += _kinds(found)
    for condition in found.conditions:
        lines.append(f"  {condition.id:18} {_WORDS[condition.held]}: {condition.claim}: {condition.seen}")
    lines += [f"  {line}" for again in found.first for line in shown(again)]
    left = found.tally.transactions - len(found.first)
    if left > 0:
        lines.append(f"  and {left} transactions more; --lines N shows more")
    if outcome.done is None:
        lines.append(_standing(found))
    elif outcome.same is not None:
        word = "the same" if outcome.same.held else "NOT the same"
        lines.append(f"{outcome.done} transactions replayed on {source}; {word}: {outcome.same.seen}")
        lines += [f"  {told(one)}" for one in outcome.differences]
        if outcome.count > len(outcome.differences):
            lines.append(f"  and {outcome.count - len(outcome.differences)} more")
    return "\n".join(lines)


def _standing(found: Looked) -> str:
    if found.code:
        return "It may not be replayed as it is: nothing was written."
    return f"It may be replayed: {found.tally.transactions} transactions. Nothing was written."


def _kinds(found: Looked) -> list[str]:
    tally = found.tally
    kinds = (
        (tally.creates, "create"),
        (tally.writes, "setData"),
        (tally.deletes, "delete"),
        (tally.acls, "setACL"),
        (tally.counts, "of an ephemeral (its parent's counter)"),
    )
    said = ", ".join(f"{count} {word}" for count, word in kinds if count) or "nothing"
    return [
        f"  to replay: {tally.transactions} of them, on {len(tally.paths)} znodes: {said}",
        f"  {found.passed} leave nothing: ephemerals that went",
    ]


def shown(again: Again) -> list[str]:
    """One transaction: a line for each request."""
    head = f"{format_zxid(again.zxid)} by {format_session(again.session)}"
    return [f"{head} {_words(request)}" for request in again.requests]


def _words(request: Any) -> str:
    version = _version(request)
    bound = "" if version is None else f" at version {version}"
    return f"{type(request).__name__} {request.path}{bound}"


def _version(request: Any) -> int | None:
    """That which the request is bound to; None for a create."""
    version: int | None = getattr(request, "version", getattr(request, "aversion", None))
    return version


def body(outcome: Outcome) -> dict[str, Any]:
    """As JSON values."""
    found = outcome.found
    tally = found.tally
    whole: dict[str, Any] = {
        "possible": None if found.code == 11 else not found.code,
        "chroot": found.chroot,
        "dest": found.dest,
        "cut": format_zxid(found.cut),
        "upto": format_zxid(found.upto),
        "under": found.under,
        "passed": found.passed,
        "fingerprint": found.fingerprint,
        "replay": {
            "transactions": tally.transactions,
            "znodes": len(tally.paths),
            "create": tally.creates,
            "setData": tally.writes,
            "delete": tally.deletes,
            "setACL": tally.acls,
            "count": tally.counts,
        },
        "conditions": [
            {"id": c.id, "claim": c.claim, "held": c.held, "seen": c.seen} for c in found.conditions
        ],
        "transactions": [_transaction(again) for again in found.first],
    }
    if outcome.done is not None and outcome.same is not None:
        whole["applied"] = {
            "transactions": outcome.done,
            "held": outcome.same.held,
            "seen": outcome.same.seen,
            "differences": [difference(one) for one in outcome.differences],
            "seconds": round(outcome.seconds, 3),
        }
    return whole


def _transaction(again: Again) -> dict[str, Any]:
    return {
        "zxid": format_zxid(again.zxid),
        "time_ms": again.time_ms,
        "session": format_session(again.session),
        "requests": [
            {
                "kind": type(r).__name__,
                "path": r.path,
                "version": getattr(r, "version", getattr(r, "aversion", None)),
            }
            for r in again.requests
        ],
    }
