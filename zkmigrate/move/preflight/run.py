"""Checks of the run itself: the time of day, and the measurements of the run's own rehearsal."""

from __future__ import annotations

from collections.abc import Iterator

from zkmigrate.inventory.hours import closed, now_in
from zkmigrate.move.facts.records import seconds
from zkmigrate.move.preflight.check import JOINED, Gate, Judged, Scope, check, unseen
from zkmigrate.move.preflight.evidence import Evidence
from zkmigrate.move.rules.window_estimate import rehearsed_to_check_s
from zkmigrate.move.rules.window_rules import STEPS
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.finding import Severity
from zkmigrate.runbook.model.step import Context

WINDOW_FACTOR = 3
"""The time that the maintenance window must still last, as a multiple of the rehearsed cut-over's duration.
"""

FORWARD = STEPS.between(STEPS.serves, STEPS.opens)
"""The steps from the election of dest's leader until clients are let in."""


@check("run.hour", "the maintenance window is open, and enough of it remains", Scope.CLUSTER, JOINED)
def in_hour(c: Context, e: Evidence) -> Iterator[Judged]:
    """P38. This check applies only if policy.window gives a time. The roll and the cut-over must be inside
    that time; looking, joining and rehearsing need not. Before the cut-over three times the rehearsed
    duration must remain.

    To do: Wait for the window, or correct policy.window in migration.yml.
    """
    window, length_s = c.inventory.policy.window, WINDOW_FACTOR * (rehearsed_to_check_s(c) or 0.0)
    if window is None:
        yield Judged(True, "policy.window is not set", "no maintenance window, or the current time inside it")
        return
    shut = closed(None, window, e.at) or closed(None, window, e.at + length_s)
    needed = window.words + (f", with {length_s:.0f} s remaining" if length_s else "")
    moves = ("wait for the window", "correct policy.window in migration.yml")
    yield Judged(shut is None, now_in(window, e.at), needed, moves=moves)


@check("run.forward", "as rehearsed, dest lets clients in before it ends a session", Scope.CLUSTER,
       (Gate.CUTOVER,), Severity.WARN)  # fmt: skip
def forward(c: Context, e: Evidence) -> Iterator[Judged]:
    """P33. Until dest has a leader no session ends. From then on every client has the time of its own timeout
    to reconnect. The check compares the rehearsed time of serve and check with T, the smallest session
    timeout.

    To do: Rehearse first. If the time is too long, raise the session timeout of the {many} and roll them.
    """
    rehearsed = seconds(c, "rehearse")
    took = sum(rehearsed.get(step, 0.0) for step in FORWARD)
    needed = "less than the smallest session timeout"
    if not took:
        yield Judged(None, "not rehearsed in this run", needed, moves=("rehearse first",))
    elif not isinstance(e.sessions, Seen):
        yield unseen(e.sessions, needed)
    elif (smallest := e.sessions.value.smallest_timeout_ms) is None:
        yield Judged(None, f"{took:.1f} s; no server reports every owner's timeout", needed)
    else:
        words = e.dependent.words
        moves = (f"raise {words.session_key} on the {words.many} and roll them",)
        yield Judged(took < smallest / 1000, f"{took:.1f} s, T = {smallest / 1000:g} s", needed, moves=moves)


CHECKS = (in_hour, forward)
