"""Show the state of a run from its journal, its newest events and its hosts: the verb ``status``.

It changes nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from zkmigrate.errors import JournalError, LostJournalError
from zkmigrate.hosts.facts.lock import Lock, host_lock
from zkmigrate.hosts.facts.status import HostStatus, host_status, unit_status
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.runbook.engine import events, evidence, hold_file, journal, pause, process, runs, step_names
from zkmigrate.runbook.engine.clock import RealClock
from zkmigrate.runbook.engine.codec import decode_finding, encode_finding
from zkmigrate.runbook.engine.history import History, NotUndone
from zkmigrate.runbook.model.fact import Absent, NotHeard, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.sampling import View
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.runs import left_window
from zkmigrate.runbook.runs.verb_context import (
    VerbContext,
    existing_run_dir,
    heading,
    inventory_options,
    load,
    next_command,
    open_site,
    print_result,
    remark,
)
from zkmigrate.runbook.ui import finding_lines, recent_events, sentences
from zkmigrate.runbook.ui.board import Board
from zkmigrate.runbook.ui.sentences import local_time

END = "end"
"""The value of ``status --wait`` that waits for the end of the process that works on the run."""

NOT_REACHED = 1
GONE = 8
_WAIT_S = 0.5


def status(
    context: VerbContext,
    run_id: str,
    *,
    offline: bool,
    wait: str = "",
    timeout_s: float | None = None,
    findings: str = "",
) -> int:
    """Print the state of a run; writes nothing.

    wait: a stage or step; first wait until it is done or the process has ended (``END``). timeout_s: the most
    seconds to wait; None for no limit. findings: print all findings of this stage or step in full.

    The exit code says how the wait ended (``waited``). Otherwise it is ``left_window.SHUT_OUT`` if a window
    that no process works on shuts clients out. If the journal cannot be read, only the hosts' state is
    printed.
    """
    inventory, playbook = load(context)
    if wait != END:
        step_names.known(playbook, wait)
    if findings != "all":
        step_names.known(playbook, findings)
    run_dir = existing_run_dir(context, run_id, inventory, playbook)
    code = _wait(context, run_dir, wait, timeout_s) if wait else 0
    goes_on = partial(next_command, context, playbook=playbook)
    try:
        working, history = known = read(run_dir)
    except JournalError as lost:
        if offline:
            raise
        return _by_hosts(context, inventory, playbook, run_dir, lost)
    body = of_run(run_dir, playbook, playbook.changed(inventory), time.time, goes_on, known)
    body["accepted"] = [x.line for x in inventory.accept]
    stands = None
    if wait:
        body["waited"] = {"for": wait, "code": code}
    if findings:
        body["findings"] = last_findings(run_dir, findings)
    if not offline:
        with open_site(context, inventory, run_dir.name) as site:
            body |= _asked(site.look, playbook, inventory)
            if working is None:
                stands = left_window.asked(history, playbook, inventory, site.look)
    left = None
    if working is None:
        left = left_window.judged(history, playbook, inventory, stands, time.time())
    body["left"] = None if left is None else left.body(goes_on(history))
    print_result(context, body, lines(body, playbook.views()))
    return code or (0 if left is None else left.code)


def _asked(look: Look, playbook: Playbook, inventory: Inventory) -> dict[str, Any]:
    """Query the hosts, and return their answers as JSON."""
    hosts = of_hosts(look, playbook, inventory)
    return {
        "hosts": hosts,
        "told": told_by(look, playbook, inventory),
        "operator": wrong_machine(look, playbook, inventory, hosts),
    }


def _by_hosts(
    context: VerbContext, inventory: Inventory, playbook: Playbook, run_dir: Path, lost: JournalError
) -> int:
    """Print the hosts' state for a run without a readable journal, and why it cannot be read."""
    working, history, left = process.at_work(run_dir), History(), None
    with contextlib.suppress(JournalError):
        history = journal.folded(journal.kept_lines(run_dir))
    why = str(lost)
    if isinstance(lost, LostJournalError):
        why = lost.told(inventory_options(context))
    with open_site(context, inventory, run_dir.name) as site:
        asked = _asked(site.look, playbook, inventory)
        if working is None:
            left = left_window.by_hosts(history, playbook, inventory, site.look, time.time())
    body = {
        "run": run_dir.name,
        "state": "unknown",
        "process": None if working is None else working.body(),
        "left": None if left is None else left.body(""),
        "error": why,
        "code": lost.exit_code if left is None else left.code,
        **asked,
    }
    by = "" if working is None else f"; process {working.pid} works on it"
    first = [] if left is None else left.lines()
    unknown = f"run {run_dir.name}: its position is unknown{by}"
    print_result(context, body, [*first, unknown, *why.splitlines(), *_host_lines(body)])
    return int(body["code"])


def _wait(context: VerbContext, run_dir: Path, wait: str, timeout_s: float | None) -> int:
    """Poll the files of the run until the wait is over. Return the exit code, 130 when interrupted."""
    clock = RealClock(context.interrupt)
    end = None if timeout_s is None else clock.now() + timeout_s
    with context.interrupt.listening():
        while (code := waited(run_dir, wait)) is None:
            if context.interrupt.wanted:
                return 130
            left = _WAIT_S if end is None else min(_WAIT_S, end - clock.now())
            if left <= 0:
                return NOT_REACHED
            clock.pause(left)
    return code


def read(run_dir: Path) -> tuple[process.Process | None, History]:
    """Return the process that works on a run, and the history in its journal.

    The process is read first, so that the journal has what that process wrote last.
    """
    return process.at_work(run_dir), journal.read(run_dir)


def of_run(
    run_dir: Path,
    playbook: Playbook,
    hosts: tuple[str, ...],
    wall: Callable[[], float],
    goes_on: Callable[[History], str] = lambda _history: "",
    known: tuple[process.Process | None, History] | None = None,
) -> dict[str, Any]:
    """Return what this machine knows of the run, as JSON.

    hosts: the hosts that the run may change. wall: returns the time in seconds since the epoch. goes_on:
    returns the command that continues an open run that no process works on. known: the result of
    :func:`read`, if available.
    """
    working, history = known or read(run_dir)
    hosts = tuple(host for host in hosts if host not in history.retired)
    run_state = runs.state_of(history, playbook)
    wanted = hold_file.HoldFile(run_dir).wanted()
    left = run_state.state == "open" and working is None
    not_undone = history.not_undone() if left else []
    return {
        "run": run_dir.name,
        "playbook": history.playbook,
        "state": run_state.state,
        "where": run_state.where,
        "way": history.way.value,
        "process": None if working is None else working.body(),
        "now": None if working is None else _now(run_dir, history, hosts, wall()),
        "hold": None if wanted is None else {**wanted.body(), "where": pause.where_wanted(playbook, wanted)},
        "held": None if working is None or history.held is None else _held(history.held),
        "ended": None if history.ended is None else {"code": history.ended[0], "message": history.ended[1]},
        "turn": None if history.turn is None else {"to": history.turn.to, "why": history.turn.why},
        "done": [step for step in playbook.step_ids() if step in history.done],
        "skipped": [s.id for s in playbook.stages if s.id in history.stages_skipped],
        "begun": [step for step in playbook.step_ids() if step in history.begun - history.done],
        "seconds": {step: history.seconds[step] for step in playbook.step_ids() if step in history.seconds},
        "consents": dict(history.consents),
        "not_confirmed": [applied.operation for applied in history.unconfirmed()],
        "stands": [change._asdict() for change in not_undone],
        "retired": [retired.words for retired in history.retired.values()],
        "next": goes_on(history) if left else "",
        "heading": heading(history, playbook) if left else "",
    }


def waited(run_dir: Path, name: str) -> int | None:
    """Return the exit code of a wait for a stage, a step or ``END``; None while the wait goes on.

    It is 0 if the place was reached. If the process ended before that, it is the exit code of the process,
    ``NOT_REACHED`` if that is 0, or ``GONE`` if the process recorded no end.
    """
    working = process.at_work(run_dir)  # read before the journal, which then has what the process wrote last
    history = journal.read(run_dir)
    if name in history.done | history.stages_done:
        return 0
    if working is not None:
        return None
    if history.ended is None:
        return GONE
    code = history.ended[0]
    return NOT_REACHED if name != END and code == 0 else code


def of_hosts(look: Look, playbook: Playbook, inventory: Inventory) -> dict[str, Any]:
    """Return the phase, block and lock of every witness as JSON, or why they are unknown."""

    def ask(host: str) -> tuple[Reading[HostStatus], Reading[Lock]]:
        unit, commands = playbook.service(inventory, host)
        status = unit_status(look, host, unit, commands) if unit else host_status(look, host)
        return status, host_lock(look, host)

    answers = look.each(playbook.witnesses(inventory), ask)
    return {host: _host(*readings) for host, readings in answers.items()}


def told_by(look: Look, playbook: Playbook, inventory: Inventory) -> dict[str, str]:
    """Return what hosts that are no witnesses, such as gateways, report about themselves, by host."""
    asked = {
        host: partial(role.told, inventory, look, host)
        for role in playbook.roles
        if role.told is not None
        for host in inventory.hosts.get(role.part, ())
    }
    return look.each(asked, lambda host: asked[host]())


def wrong_machine(look: Look, playbook: Playbook, inventory: Inventory, hosts: Mapping[str, Any]) -> str:
    """Return a warning if no witness answers and this machine has none of the operator's addresses; else "".

    hosts: the result of :func:`of_hosts`.
    """
    unheard = tuple(f"unknown ({cause})" for cause in get_args(NotHeard))
    silent = hosts and all(state.get("unknown", "").startswith(unheard) for state in hosts.values())
    here = look.here() if silent else None
    known = inventory.operator if silent and inventory.has("operator") else ()
    if not isinstance(here, Seen) or not known or set(here.value) & set(known):
        return ""
    given = " or ".join(known)
    towards = ", ".join(here.value) or "no address at all"
    one = playbook.many_witnesses.removesuffix("s")
    return (
        f"no {one} answers, and this machine sends from {towards}: check that it is the machine with {given}"
    )


def last_findings(run_dir: Path, name: str) -> dict[str, list[dict[str, Any]]]:
    """Return the newest findings of each chosen step, as JSON by step.

    name: a stage, a step, or ``all``.
    """
    chosen = evidence.chosen(evidence.of(journal.kept_lines(run_dir)), name)
    return {step: [encode_finding(f) for f in found] for step, found in chosen.items()}


def lines(body: Mapping[str, Any], views: Sequence[View] = ()) -> list[str]:
    """Return the state as lines of text. views: how the playbook shows its samples."""
    left = (body.get("left") or {}).get("lines", ())
    out = [*left, f"run {body['run']} of {body['playbook']}: {body['state']}, {body['where']}"]
    if body["process"]:
        out += [f"  {line}" for line in _under_way(body, views)]
    elif body["ended"]:
        out.append(f"  last: {body['ended']['message']} (exit code {body['ended']['code']})")
    elif body["state"] == "open" and not left:
        out.append(
            "  no process on this machine works on it; the last process exited without recording a result"
        )
    if (command := body.get("next")) and not left:
        out.append(f"  go on {body['heading']}: {command}")
        out += [f"  {said}" for said in [remark(body["heading"], command)] if said]
    if (wanted := body["hold"]) and not body["held"]:
        out.append(
            f"  a hold is requested, {wanted['where']} ({_who(wanted)}, {local_time(wanted['since'])})"
        )
    for step in body["done"]:
        took = body["seconds"].get(step, {}).get("forward")
        out.append(f"  done  {step}" + (f" ({took:.2f} s)" if took is not None else ""))
    out += [_walked_back(step, body["seconds"][step]) for step in body["seconds"] if step not in body["done"]]
    out += [f"  skipped {stage}" for stage in body["skipped"]]
    out += [f"  begun {step}" for step in body["begun"]]
    out += [f"  {words}" for words in body.get("retired", ())]
    out += [f"  accepted: {line}" for line in body.get("accepted", ())]
    out += [f"  not confirmed: {operation}" for operation in body["not_confirmed"]]
    out += [
        f"  not undone: {line}"
        for line in runs.not_undone_lines(NotUndone(**s) for s in body.get("stands", ()))
    ]
    for step, found in body.get("findings", {}).items():
        out.append(f"  findings of {step}:")
        out += [f"    {line}" for line in finding_lines.whole([decode_finding(f) for f in found])]
    return [*out, *_host_lines(body)]


def _host_lines(body: Mapping[str, Any]) -> list[str]:
    """Return the hosts' answers as lines of text."""
    out = [f"  {warning}"] if (warning := body.get("operator")) else []
    for host, state in body.get("hosts", {}).items():
        shown = {**state, "lapsed": {True: "yes", False: "no"}.get(state.get("lapsed"), "not known")}
        text = state.get("unknown") or ", ".join(f"{key} {value}" for key, value in shown.items())
        out.append(f"  {host}: {text}")
    return [*out, *(f"  {host}: {text}" for host, text in body.get("told", {}).items())]


def _walked_back(step: str, seconds: Mapping[str, float]) -> str:
    """Return a line that says how long each direction took, for a step that is not done now."""
    ways = {"forward": "", "back": "back "}
    took = ", ".join(f"{prefix}{seconds[way]:.2f} s" for way, prefix in ways.items() if way in seconds)
    return f"  took  {step} ({took})"


# --- the process that works on the run -----------------------------------------------------------------


def _now(run_dir: Path, history: History, hosts: tuple[str, ...], now: float) -> dict[str, Any]:
    """Return the newest events and samples of the process, as JSON.

    now: seconds since the epoch. The remaining times (``left_s``, ``turn_back_s``) are counted down until
    then.
    """
    recent = recent_events.read(run_dir)
    waits = recent.waits
    if waits is not None:
        left = None if waits["left_s"] is None else waits["left_s"] - (now - waits["at"])
        waits = {**waits, "left_s": None if left is None else round(max(0.0, left), 1)}
    wave = recent.wave
    if wave is not None and wave["left_s"] is not None:
        wave = {**wave, "left_s": round(max(0.0, wave["left_s"] - (now - wave["at"])), 1)}
    left_s = None if recent.left_s is None else round(recent.left_s - (now - recent.left_at), 1)
    return {
        "at": now,
        "step": recent.step,
        "way": recent.way,
        "since": history.begun_at.get(recent.step, recent.since),
        "waits": waits,
        "wave": wave,
        "asks": recent.asks,
        "in_flight": list(recent.sent.values()),
        "turn_back_s": left_s,
        "hosts": list(hosts),
        "samples": recent_events.newest_samples(run_dir),
    }


def _held(held: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("stage", "step", "way", "at", "hold")
    return {**{key: held.get(key) for key in keys}, "where": hold_file.where_held(held),
            "progress": held.get("progress", "")}  # fmt: skip


def _under_way(body: Mapping[str, Any], views: Sequence[View]) -> list[str]:
    working, now = body["process"], body["now"]
    who = f"process {working['pid']}" + (f" ({working['verb']})" if working["verb"] else "")
    by = " ".join(part for part in (working["by"], working["place"]) if part)
    out = [f"under way: {who} by {by or 'somebody'} since {local_time(working['since'])}"]
    if (held := body["held"]) is not None:
        progress = f": {held['progress']}" if held["progress"] else ""
        out.append(f"holding {held['where']} since {local_time(held['at'])} ({_who(held['hold'])}){progress}")
    elif now["asks"]:
        out.append(f"its terminal asks: {now['asks']}")
    elif now["step"]:
        back = "back " if now["way"] == "back" else ""
        out.append(f"now: {back}{now['step']} since {local_time(now['since'])}")
    if (wave := now["wave"]) and held is None:  # a hold shows the progress itself
        far = (wave["done"], wave["of"], wave["many"], wave["left_s"], wave.get("bytes_left"))
        out.append(sentences.progress(*far))
    if waits := now["waits"]:
        left = "" if waits["left_s"] is None else f" ({waits['left_s']:.0f} s left)"
        verb = sentences.waits_for(waits["what"], waits["left_s"])
        out.append(f"{verb}, since {local_time(waits['since'])}: {waits['progress']}{left}")
    out += [f"in flight: {sent['host']}: {sent['text']}" for sent in now["in_flight"]]
    if now["turn_back_s"] is not None:
        out.append(f"{max(0.0, now['turn_back_s']):.0f} s left to turn back")
    return [*out, *_seen(now, views)]


def _seen(now: Mapping[str, Any], views: Sequence[View]) -> list[str]:
    """Return lines about the hosts as the process saw them last; none for samples of an unknown form."""
    board = Board(lambda: float(now["at"]), views=views)
    board.take(events.RunBegun("", "", Way.FORWARD, False, tuple(now["hosts"]), ()))
    try:
        for kind, sample in now["samples"].items():
            board.sample(float(sample["at"]), kind, sample)
        return [line.strip() for line in board.hosts()] if now["samples"] else []
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return []


def _who(wanted: Mapping[str, Any]) -> str:
    known = {key: wanted[key] for key in ("why", "by", "wrong") if key in wanted}
    return hold_file.Hold(**known).words()


# --- hosts -----------------------------------------------------------------------------------------------


def _host(reading: Reading[HostStatus], lock: Reading[Lock]) -> dict[str, Any]:
    if not isinstance(reading, Seen):
        return {"unknown": str(reading)}
    status = reading.value
    return {
        "phase": status.phase,
        "unit": status.unit_state,
        "fencing": status.fencing,
        "lock": _lock(lock, status),
        "lapsed": status.lapsed,
        "fence": _entries(status.fence_entries, status.fence_permanent, status.fence_timeout_s),
        "cut": _entries(status.cut_entries, status.cut_permanent, status.cut_timeout_s),
    }


def _lock(lock: Reading[Lock], status: HostStatus) -> str:
    if isinstance(lock, Unknown):
        return f"unknown: {lock}"
    if isinstance(lock, Absent) or not lock.value.owner:
        return "free"
    held = lock.value
    same = held.boot == status.boot_id
    beat = (
        f"heartbeat {max(0.0, status.uptime_s - held.beat_s):.0f} s ago" if same else "before its last boot"
    )
    return f"{held.owner} for run {held.run} ({beat})"


def _entries(count: int, permanent: bool, timeout_s: float | None) -> str:
    if not count:
        return "open"
    return "blocked (permanent)" if permanent else f"blocked, {timeout_s or 0:.0f} s left"
