"""Estimates of the window before it begins: its length, lease and deadline, and how they are calculated."""

from __future__ import annotations

from zkmigrate.move.dependent import AnyDependent
from zkmigrate.move.facts.records import TimeoutAndLease, seconds
from zkmigrate.move.facts.sessions import Sessions
from zkmigrate.move.rules.window_rules import (
    FIND_DOOR_S,
    STEPS,
    TO_SEAL,
    deadlines,
    expected_way_back_s,
    to_seal_s,
    way_back_from_s,
)
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.model.step_record import known

CHECK = "check"
_REHEARSED = "as rehearsed, or the policy's if longer"


def plan_lines(dependent: AnyDependent, c: Context, sessions: Reading[Sessions]) -> tuple[str, ...]:
    """Return the lines about the window for ``plan``.

    c: also contains the records of the rehearsal, if the user names a rehearsed run. sessions: the sessions
    that own ephemerals under the chroot now.
    """
    policy, lease, words = c.inventory.policy, c.inventory.policy.lease, dependent.words
    measured = _measured(c)
    length = (
        (f"  length: {measured}",)
        if measured
        else (
            "  length: not known before the rehearsal, which measures every phase on these hosts; then it is",
            "    shown at the prompt before the cut-over, and by plan --run-id",
        )
    )
    return (
        f"window: from FENCE to the first write that dest serves; no {words.one} {words.again}s in it",
        *length,
        f"  lease: fence {lease.fence_ttl_ms} ms, cut {lease.cut_ttl_ms} ms, renewed every "
        f"{lease.renew_every_ms} ms; until SEAL dest goes",
        "    back by itself if the lease is not renewed; SURVEY makes it longer if the hosts answer slowly",
        f"  cut: {_REFUSED[policy.cut]} refused between dest's and source's addresses, from CUT until",
        f"    finalize (policy.cut: {policy.cut})",
        *_deadline(dependent, c, sessions),
        *(f"  accepted: {x.line}" for x in c.inventory.accept),
        f"  open: the hosts wait {policy.open_limit_s:g} s for OPEN, then check and open by themselves",
        "  clients may notice: clients of dest reconnect and metadata changes wait; the outcome of",
        "    requests not acknowledged at FENCE is unknown to them, as in any disconnect",
    )


_REFUSED = {"zookeeper": "ZooKeeper's ports are", "all": "all TCP but ssh is"}


def cutover_lines(c: Context) -> tuple[str, ...]:
    """Return the lines that are shown with the question before the cut-over.

    The lines contain the rehearsal's measurements, the resulting deadline, and how long the hosts wait for
    OPEN.
    """
    limit = c.inventory.policy.open_limit_s
    alone: tuple[str, ...] = (
        f"once dest serves, the hosts wait {limit:g} s for OPEN (policy.open_limit_s), then check and open",
        "  by themselves: a hold there lasts no longer",
        *(retired.words for retired in c.retired),
        *(f"accepted: {x.line}" for x in c.inventory.accept),
    )
    measured = _measured(c)
    if not measured:
        way_back = f"{expected_way_back_s(c):g} s (policy.way_back_s)"
        return (
            f"not rehearsed: the window's length is not known; the way back is assumed to take {way_back}",
            f"  and FENCE to SEAL {to_seal_s(c):.1f} s or more; SURVEY fails if that does not fit",
            *alone,
        )
    out = [measured]
    terms = known(TimeoutAndLease, c)
    if terms is not None and terms.smallest_timeout_ms is not None:
        out += _arithmetic(terms.smallest_timeout_ms / 1000, expected_way_back_s(c), _REHEARSED)
        if rehearsed(c).keys() >= set(TO_SEAL):
            margin = f"{c.inventory.policy.window_margin:g} (policy.window_margin)"
            out.append(f"FENCE to SEAL is assumed to take {to_seal_s(c):.1f} s: as rehearsed, times {margin}")
        out += _from_check(c, terms.smallest_timeout_ms / 1000)
    return (*out, *alone)


def rehearsed_to_check_s(c: Context) -> float | None:
    """Return the seconds from FENCE to the end of CHECK, as this run's rehearsal measured them.

    Returns None if this run has not rehearsed.
    """
    there = rehearsed(c)
    return sum(there.values()) if there else None


def rehearsed(c: Context) -> dict[str, float]:
    """Return how many seconds each step from FENCE to CHECK took in this run's rehearsal, by step.

    Only steps that the rehearsal completed are included.
    """
    took = seconds(c, "rehearse")
    return {step: took[step] for step in STEPS.shut if step in took}


def _measured(c: Context) -> str:
    """Return the measurements of this run's rehearsal as text, or an empty string if it has not rehearsed."""
    steps = rehearsed(c)
    if not steps:
        return ""
    phases = ", ".join(f"{step} {took:.1f}" for step, took in steps.items())
    return f"as rehearsed: {sum(steps.values()):.1f} s from FENCE to a checked dest ({phases})"


def _deadline(dependent: AnyDependent, c: Context, sessions: Reading[Sessions]) -> tuple[str, ...]:
    chroot, way_back = dependent.chroot(c.inventory), expected_way_back_s(c)
    words = dependent.words
    source = _REHEARSED if _measured(c) else "policy.way_back_s"
    if not isinstance(sessions, Seen):
        known = f"not known now: {sessions}"
    elif not sessions.value.owners:
        known = "not known now: no session owns an ephemeral there"
    elif not (kept := sessions.value.kept(dependent.keeps)).owners:
        return (f"  deadline: none, the {words.many} keep no session through the window",)
    elif (timeout_ms := kept.smallest_timeout_ms) is None:
        known = "not known now: no server shows the timeout of every such session"
    else:
        return (
            f"  deadline: T = {timeout_ms / 1000:g} s, the smallest timeout of the "
            f"{len(kept.owners)} sessions with ephemerals",
            f"    under {chroot}; read again at SURVEY",
            *(f"    {line}" for line in _arithmetic(timeout_ms / 1000, way_back, source)),
            *(f"    {line}" for line in _from_check(c, timeout_ms / 1000)),
        )
    return (
        f"  deadline: T, the smallest timeout of the sessions with ephemerals under {chroot}, is",
        f"    {known}; SURVEY needs it.",
        f"    the way back starts by T - T/3 - {way_back:g} ({source}) - {FIND_DOOR_S:g} s",
    )


def _from_check(c: Context, timeout_s: float) -> tuple[str, ...]:
    """Return a line on the cost of a way back that starts from a hold after CHECK, as rehearsed.

    Returns no line if this run has not rehearsed. timeout_s: T, in seconds.
    """
    there, back = rehearsed_to_check_s(c), way_back_from_s(c, CHECK)
    if there is None:
        return ()
    left = deadlines(timeout_s, back).start_back - there
    cost = f"keeps the sessions only within {left:.1f} s" if left > 0 else "costs the sessions"
    return (
        f"back (b) at a hold after CHECK {cost}: CHECK is done {there:.1f} s after FENCE, and the way back",
        f"  from there takes {back:.1f} s and {FIND_DOOR_S:g} s (clients reconnect)",
    )


def _arithmetic(timeout_s: float, way_back_s: float, source: str) -> tuple[str, ...]:
    limits = deadlines(timeout_s, way_back_s)
    return (
        f"clients connected again by T - T/3 = {timeout_s:g} - {timeout_s / 3:.1f} = "
        f"{limits.clients_back:.1f} s after FENCE",
        f"the way back starts by {limits.clients_back:.1f} - {way_back_s:.1f} (way back: {source}) - "
        f"{FIND_DOOR_S:g} (clients reconnect) = {limits.start_back:.1f} s",
        f"forward: clients are let in within T = {limits.forward:g} s of dest's leader",
    )
