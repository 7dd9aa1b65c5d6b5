"""``status``: where a run stands, from its journal and from what the hosts say. Read-only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zkmigrate.engine import journal, runs
from zkmigrate.engine.history import History
from zkmigrate.facts.host import HostStatus, host_status
from zkmigrate.inventory import Inventory
from zkmigrate.model.fact import Reading, Seen
from zkmigrate.model.look import Look
from zkmigrate.model.playbook import Playbook


def of_run(run_dir: Path, playbook: Playbook) -> dict[str, Any]:
    """The journal's side, as a JSON object."""
    history = journal.read(run_dir)
    standing = runs.stand(history, playbook)
    return {
        "run": run_dir.name,
        "playbook": history.playbook,
        "state": standing.state,
        "where": standing.where,
        "way": history.way.value,
        "ended": None if history.ended is None else {"code": history.ended[0], "message": history.ended[1]},
        "turn": None if history.turn is None else {"to": history.turn.to, "why": history.turn.why},
        "done": [step for step in playbook.step_ids() if step in history.done],
        "begun": [step for step in playbook.step_ids() if step in history.begun - history.done],
        "seconds": {step: history.seconds[step] for step in playbook.step_ids() if step in history.seconds},
        "consents": dict(history.consents),
        "not_confirmed": _not_confirmed(history),
    }


def of_hosts(look: Look, inventory: Inventory) -> dict[str, Any]:
    """The hosts' side: phase and block of every dest host, as far as it answers."""
    asked = look.each(inventory.dest_names, lambda host: host_status(look, host))
    return {host: _host(reading) for host, reading in asked.items()}


def lines(body: Mapping[str, Any]) -> list[str]:
    """Both sides as text."""
    out = [f"run {body['run']} of {body['playbook']}: {body['state']}, {body['where']}"]
    if body["ended"]:
        out.append(f"  last: {body['ended']['message']} (exit code {body['ended']['code']})")
    for step in body["done"]:
        took = body["seconds"].get(step, {}).get("forward")
        out.append(f"  done  {step}" + (f" ({took:.2f} s)" if took is not None else ""))
    out += [f"  begun {step}" for step in body["begun"]]
    out += [f"  not confirmed: {operation}" for operation in body["not_confirmed"]]
    for host, said in body.get("hosts", {}).items():
        text = said.get("unknown") or ", ".join(f"{key} {value}" for key, value in said.items())
        out.append(f"  {host}: {text}")
    return out


def _not_confirmed(history: History) -> list[str]:
    return [applied.operation for applied in history.unconfirmed()]


def _host(reading: Reading[HostStatus]) -> dict[str, Any]:
    if not isinstance(reading, Seen):
        return {"unknown": str(reading)}
    status = reading.value
    return {
        "phase": status.phase,
        "unit": status.unit_state,
        "fencing": status.fencing,
        "lapsed": status.lapsed,
        "fence": _entries(status.fence_entries, status.fence_permanent, status.fence_timeout_s),
        "cut": _entries(status.cut_entries, status.cut_permanent, status.cut_timeout_s),
    }


def _entries(count: int, permanent: bool, timeout_s: float | None) -> str:
    if not count:
        return "open"
    return "shut for good" if permanent else f"shut, {timeout_s or 0:.0f} s left"
