"""Read the times of a run's steps from its journal, and which program opened each dest host to clients."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_NS = 1_000_000_000
OPENED_BY_OPERATOR, OPENED_BY_FINISHER = "operator", "finisher"


def step_spans(run_directory: Path) -> list[dict[str, Any]]:
    """Return every completed visit to a step, in order, with start and end in ns of CLOCK_MONOTONIC.

    The name of a visit is ``stage.step``, or ``stage.step:back`` on the way back.
    """
    spans: list[dict[str, Any]] = []
    begun: dict[tuple[str, str], float] = {}
    for line in (run_directory / "journal.jsonl").read_text().splitlines():
        entry = json.loads(line)
        body = entry["body"]
        if entry["kind"] != "step":
            continue
        key = (f"{body['stage']}.{body['step']}", body["way"])
        if body["event"] == "begin":
            begun[key] = body["mono"]
        elif body["event"] == "done" and key in begun:
            name = key[0] if key[1] == "forward" else f"{key[0]}:back"
            start, end = round(begun.pop(key) * _NS), round(body["mono"] * _NS)
            spans.append({"name": name, "start_mono_ns": start, "end_mono_ns": end})
    return spans


def opened_by(run_directory: Path, hosts: Iterable[str]) -> dict[str, str]:
    """Return for each host which program opened it to clients: ``operator`` or ``finisher``.

    The result is ``operator`` if the journal has the tool's own ``open`` with its outcome. Otherwise the
    host's finisher opened the host at its own limit: OPEN then finds the host open and sends nothing.
    """
    sent: dict[str, str] = {}
    opened: set[str] = set()
    for line in (run_directory / "journal.jsonl").read_text().splitlines():
        entry = json.loads(line)
        body = entry["body"]
        if entry["kind"] == "intent" and body["change"].get("verb") == "open" and body["way"] == "forward":
            sent[body["operation"]] = body["target"]
        elif entry["kind"] == "outcome" and body["status"] == "done" and body["operation"] in sent:
            opened.add(sent[body["operation"]])
    return {host: OPENED_BY_OPERATOR if host in opened else OPENED_BY_FINISHER for host in hosts}
