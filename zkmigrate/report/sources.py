"""The files of a run as the report reads them: nothing is written, locked or believed.

The journal is read as far as its chain is intact; what else is there (events, samples, plan) may be missing
or torn: lines that do not read are counted and left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zkmigrate.engine import chain, journal, process, samples
from zkmigrate.errors import UsageError
from zkmigrate.model.entry import Entry
from zkmigrate.model.report import Chain
from zkmigrate.ui.run_files import EVENTS, PLAN

Row = dict[str, Any]


@dataclass(frozen=True)
class Sources:
    """entries: the intact lines. remarks: what could not be read, in sentences. load: rows of real clients'
    recordings, by client. at_work: who works on the run now, empty when nobody does on this machine."""

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
    """The files of ``run_dir``; UsageError when it is no run's directory.

    load: a directory with recordings of real clients (``producer.jsonl``, ``tenant.jsonl``).
    """
    if not run_dir.is_dir():
        raise UsageError(f"no directory {run_dir}. Next: --run-id of a run, or ZKMIGRATE_RUNS")
    content = _content(run_dir / journal.NAME)
    others = sorted(path.name for path in run_dir.glob("journal.damaged-*.jsonl"))
    if content is None:
        raise UsageError(
            f"{run_dir} holds no {journal.NAME}: it is no run's directory, or its journal is lost (hosts "
            f"of the lock keep a copy). {f'Set aside there: {chr(44).join(others)}. ' if others else ''}"
            "Next: --run-id of a run; or put a copy there"
        )
    parsed = chain.parse(content)
    if (
        not parsed.entries
        or parsed.entries[0].kind != "begin"
        or not isinstance(parsed.entries[0].body, dict)
    ):
        why = parsed.damage or ("it is empty" if not content.strip(b"\0") else "its first line begins no run")
        raise UsageError(
            f"{run_dir / journal.NAME} tells of no run: line 1 {why}. Next: put an intact copy "
            "there (the hosts that keep the lock keep one)"
        )
    remarks = [f"{name} lies beside the journal: it was recovered once" for name in others]
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
        why = f"line {lines + 1} {parsed.damage}; what follows is not told here"
        return Chain("damaged", lines, parsed.last, file, why)
    if parsed.torn:
        return Chain("torn", lines, parsed.last, file, f"{len(parsed.torn)} bytes of a line were cut off")
    return Chain("intact", lines, parsed.last, file)


def _content(path: Path) -> bytes | None:
    """A plain file's bytes; None when it is not there. A link is not followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); needed: a plain file") from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UsageError(f"{path} is not a plain file; needed: one")
    with open(fd, "rb") as file:
        return file.read()


def _rows(path: Path) -> tuple[tuple[Row, ...], str]:
    """The objects of a file of JSON lines, and what to say of it."""
    try:
        content = _content(path)
    except UsageError as error:
        return (), str(error)
    if content is None:
        return (), f"{path.name} is missing: what it would tell is left out"
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
    return tuple(rows), f"{bad} lines of {path.name} do not read and are left out" if bad else ""


def _plan(path: Path) -> tuple[Row | None, str]:
    try:
        content = _content(path)
        plan = None if content is None else json.loads(content)
    except (UsageError, ValueError, RecursionError) as error:
        return None, f"{path.name} does not read: {error}"
    if isinstance(plan, dict):
        return plan, ""
    return None, f"{path.name} is missing" if plan is None else f"{path.name} is no plan"


def _load(directory: Path | None) -> tuple[tuple[tuple[str, tuple[Row, ...]], ...], tuple[str, ...]]:
    if directory is None:
        return (), ()
    if not directory.is_dir():
        raise UsageError(f"no directory {directory} with recordings of clients; leave --load out")
    return _clients(directory)


def _clients(directory: Path) -> tuple[tuple[tuple[str, tuple[Row, ...]], ...], tuple[str, ...]]:
    found, remarks = [], []
    for name in ("producer", "tenant"):
        rows, remark = _rows(directory / f"{name}.jsonl")
        found.append((name, rows))
        remarks += [remark] * bool(remark)
    return tuple(found), tuple(remarks)
