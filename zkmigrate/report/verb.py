"""Make a page, Markdown or JSON of a run's directory: the verb ``report``.

It needs no host and takes no lock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from zkmigrate.clean import clean
from zkmigrate.errors import UsageError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.json_stamp import stamped
from zkmigrate.report import sources
from zkmigrate.report.build import build
from zkmigrate.report.data import data
from zkmigrate.report.markdown import markdown
from zkmigrate.report.page import page
from zkmigrate.runbook.engine import runs
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.report import Report
from zkmigrate.runbook.runs import playbook_files

PAGE = "report.html"


def _json(report: Report) -> str:
    return clean(json.dumps(stamped(data(report)), ensure_ascii=False, sort_keys=True)) + "\n"


FORMATS: Mapping[str, Callable[[Report], str]] = {"html": page, "md": markdown, "json": _json}


@dataclass(frozen=True)
class ReportRequest:
    """The options of one call of ``report``.

    inventory: read only if run_id is empty. playbook: empty for the run's own. out: the file; ``-`` is
    standard output. None means ``report.html`` in the run's directory, or standard output with another
    format. load: a directory with recordings of real clients.
    """

    inventory: Path
    playbook: str
    runs: Path
    run_id: str
    format: str
    out: Path | None
    load: Path | None


def report(request: ReportRequest, stdout: TextIO) -> int:
    """Make and write the report. Return 0.

    Raises UsageError if there is no such run, and JournalError for a journal of another version.
    """
    run_dir = _run_dir(request)
    read = sources.read(run_dir, request.load)
    text = FORMATS[request.format](build(read, _playbook(request, read)))
    target = request.out or (run_dir / PAGE if request.format == "html" else Path("-"))
    if str(target) == "-":
        stdout.write(text)
        return 0
    _write(target, text, run_dir)
    stdout.write(f"{target}\n")
    return 0


def _run_dir(request: ReportRequest) -> Path:
    if request.run_id:
        return runs.directory(request.runs, request.run_id)
    playbook = playbook_files.load(request.playbook or playbook_files.DEFAULT)
    inventory = inventories.load(request.inventory, playbook.inventory, playbook.sections)
    return request.runs / runs.latest(request.runs, inventory, playbook)


def _playbook(request: ReportRequest, read: sources.Sources) -> Playbook | None:
    """Return the playbook that was named, else the run's own, or None if that is not installed."""
    if request.playbook:
        return playbook_files.load(request.playbook)
    try:
        return playbook_files.load(str(read.entries[0].body.get("playbook", "")))
    except UsageError:
        return None


def _write(target: Path, text: str, run_dir: Path) -> None:
    """Replace the file atomically.

    Raises UsageError for one of the run's own files and for a missing directory.
    """
    own = target.parent.resolve() == run_dir.resolve() and target.stem != "report"
    if own and target.exists():
        raise UsageError(f"{target} belongs to the run. Nothing was written. Next: pass another --out")
    if not target.parent.is_dir() or target.is_dir():
        raise UsageError(f"{target} cannot be written. Next: pass --out with a file in an existing directory")
    part = target.with_name(f".{target.name}.part")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
    part.replace(target)
