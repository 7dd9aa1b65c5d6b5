"""Read and check the files of a run, without a lock.

The journal is read as far as its chain is intact. Events, samples and plan may be missing or torn: lines
that cannot be read are counted and ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zkmigrate.errors import LostJournalError, UsageError
from zkmigrate.runbook.engine import chain, journal, process, samples
from zkmigrate.runbook.model.entry import Entry
from zkmigrate.runbook.model.report import Chain, counted
from zkmigrate.runbook.ui.run_files import EVENTS, PLAN

Row = dict[str, Any]


@dataclass(frozen=True)
class Sources:
    """The content of a run's files.

    entries: the intact lines of the journal. remarks: sentences about data that cannot be read.
    load: the recordings of real clients, by client.
    at_work: the verb and user that work on the run on this machine; empty if none does.
    """

    run: str
    entries: tuple[Entry, ...]
    chain: Chain
    events: tuple[Row, ...]
    samples: tuple[Row, ...]
    plan: Row | None
    load: tuple[tuple[str, tuple[Row, ...]], ...]
    remarks: tuple[str, ...]
    at_work: str = ""


def read(run_dir: Path, load: Path | None = None) -> Sources:
    """Read the files of ``run_dir``. Raises UsageError if it is not a run's directory.

    load: a directory with recordings of real clients (``producer.jsonl``, ``tenant.jsonl``). Raises
    LostJournalError if the journal does not begin a run.
    """
    if not run_dir.is_dir():
        raise UsageError(f"no directory {run_dir}. Next: pass the --run-id of a run, or set ZKMIGRATE_RUNS")
    content = _content(run_dir / journal.NAME)
    others = sorted(path.name for path in run_dir.glob("journal.damaged-*.jsonl"))
    if content is None:
        raise UsageError(
            f"{run_dir} has no {journal.NAME}: it is not a run's directory, or its journal is lost. "
            f"{f'Damaged journals there: {chr(44).join(others)}. ' if others else ''}Next: pass the "
            "--run-id of a run, or restore a copy from a host that has the lock"
        )
    parsed = chain.parse(content)
    parsed.refuse_earlier(run_dir.name)
    if (
        not parsed.entries
        or parsed.entries[0].kind != "begin"
        or not isinstance(parsed.entries[0].body, dict)
    ):
        empty = "it is empty" if not content.strip(b"\0") else "its first line does not begin a run"
        why = f"line 1 {parsed.damage}" if parsed.damage else empty
        file = run_dir / journal.NAME
        raise LostJournalError(f"{file} is not a run's journal: {why}", run_dir.name, str(file))
    remarks = [f"{name} exists next to the journal, which was recovered once" for name in others]
    rows: dict[str, tuple[Row, ...]] = {}
    for name in (EVENTS, samples.NAME):
        rows[name], remark = _rows(run_dir / name)
        remarks += [remark] * bool(remark)
    plan, remark = _plan(run_dir / PLAN)
    remarks += [remark] * bool(remark)
    clients, more = _load(load)
    return Sources(
        run=run_dir.name,
        entries=parsed.entries,
        chain=_chain(parsed, content),
        events=rows[EVENTS],
        samples=rows[samples.NAME],
        plan=plan,
        load=clients,
        remarks=(*remarks, *more),
        at_work=_at_work(run_dir),
    )


def _at_work(run_dir: Path) -> str:
    working = process.at_work(run_dir)
    return "" if working is None else f"zkmigrate {working.verb} by {working.by}"


def _chain(parsed: chain.Parsed, content: bytes) -> Chain:
    lines, file = len(parsed.entries), hashlib.sha256(content).hexdigest()
    if parsed.damage:
        why = f"line {lines + 1} {parsed.damage}; this report ignores what follows"
        return Chain("damaged", lines, parsed.last, file, why)
    if parsed.torn:
        return Chain(
            "torn", lines, parsed.last, file, f"the last line is cut off after {len(parsed.torn)} bytes"
        )
    return Chain("intact", lines, parsed.last, file)


def _content(path: Path) -> bytes | None:
    """Return the bytes of a plain file, or None if it is missing. Links are not followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}). Needed: a plain file") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UsageError(f"{path} is not a plain file")
    with open(fd, "rb") as file:
        return file.read()


def _rows(path: Path) -> tuple[tuple[Row, ...], str]:
    """Return the objects of a file of JSON lines, and a remark if lines or the file cannot be read."""
    try:
        content = _content(path)
    except UsageError as error:
        return (), str(error)
    if content is None:
        return (), f"{path.name} is missing, so this report lacks its content"
    rows, bad = [], 0
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            bad += 1
    return tuple(rows), f"{counted(bad, 'line')} of {path.name} cannot be read, ignored" if bad else ""


def _plan(path: Path) -> tuple[Row | None, str]:
    try:
        content = _content(path)
        plan = None if content is None else json.loads(content)
    except (UsageError, ValueError, RecursionError) as error:
        return None, f"{path.name} cannot be read: {error}"
    if isinstance(plan, dict):
        return plan, ""
    return None, f"{path.name} is missing" if plan is None else f"{path.name} is not a plan"


def _load(directory: Path | None) -> tuple[tuple[tuple[str, tuple[Row, ...]], ...], tuple[str, ...]]:
    if directory is None:
        return (), ()
    if not directory.is_dir():
        raise UsageError(
            f"no directory {directory}. Next: pass a directory of recordings with --load, or leave it out"
        )
    return _clients(directory)


def _clients(directory: Path) -> tuple[tuple[tuple[str, tuple[Row, ...]], ...], tuple[str, ...]]:
    found, remarks = [], []
    for name in ("producer", "tenant"):
        rows, remark = _rows(directory / f"{name}.jsonl")
        found.append((name, rows))
        remarks += [remark] * bool(remark)
    return tuple(found), tuple(remarks)
