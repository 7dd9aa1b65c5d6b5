"""The verb ``placement``: it turns a cluster and a request into files, a page and a report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from zkmigrate.cluster.placement.cluster import Cluster
from zkmigrate.cluster.placement.maps import beside_plan, files, no_way_back
from zkmigrate.cluster.placement.plan import Notice, Plan, Refused
from zkmigrate.cluster.placement.planner import broken, planned
from zkmigrate.cluster.placement.request import FixRacks, Rebuild, Request
from zkmigrate.cluster.placement.statistics import statistics
from zkmigrate.cluster.placement.validation import SHOWN, Chosen, chosen
from zkmigrate.cluster.placing import text
from zkmigrate.cluster.placing.page import page
from zkmigrate.errors import UsageError, ZkmigrateError
from zkmigrate.json_stamp import stamped
from zkmigrate.runbook.engine.files import refuse_all_taken, write_all

Planner: TypeAlias = Callable[[Cluster, Request], Plan | Refused]


class NoPlanError(ZkmigrateError):
    """There is no plan; each line of the message is a reason with its id."""

    exit_code = 3


class BrokenPlanError(ZkmigrateError):
    """The finished reassignments break a rule, so the planner has a defect."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The arguments of one call.

    out: the file of the plan; None for the report alone.
    page: the file of the HTML page; None for none.
    read: the files that the request comes from.
    ignore_warnings: whether to write the plan in spite of notices that refuse it.
    notices: notices about the source of the cluster.
    """

    cluster: Cluster
    request: Request
    out: Path | None = None
    page: Path | None = None
    read: tuple[Path, ...] = ()
    force: bool = False
    ignore_warnings: bool = False
    as_json: bool = False
    notices: tuple[Notice, ...] = ()


def refusal(found: Refused) -> UsageError | NoPlanError:
    """Return the error to raise: UsageError if the options contradict each other, else NoPlanError."""
    return (UsageError if found.options else NoPlanError)(_explain_refusal(found.reasons))


def place(asked: Asked, echo: Callable[[str], None], planner: Planner = planned) -> int:
    """Plan, write the files, print the report, and return the exit code.

    Raises UsageError if options contradict each other or a file exists already, NoPlanError if there is no
    plan, and BrokenPlanError if the plan breaks a rule.
    """
    _refuse_one_file_for_two(asked)
    stale = _earlier(asked.out)
    refuse_all_taken(filter(None, (asked.out, asked.page)), stale, force=asked.force)
    plan = planner(asked.cluster, asked.request)
    if isinstance(plan, Refused):
        raise refusal(plan)
    found = chosen(asked.cluster, asked.request.choice)
    told = statistics(plan.cluster, plan.moves, found.brokers if isinstance(found, Chosen) else None)
    notices = (*asked.notices, *plan.notices, *no_way_back(plan))
    refusing = [] if asked.ignore_warnings else [one for one in notices if one.refuses]
    made = files(plan, asked.out.name if asked.out else "plan.json")
    if wrong := broken(plan, asked.request, made):
        raise BrokenPlanError(
            f"the finished plan breaks a rule, and nothing is written: {wrong[0]}. Next: report this defect"
        )
    written: dict[Path, str] = {}
    if asked.out is not None and not refusing:
        written = {asked.out.parent / name: content for name, content in made.items()}
    if asked.page is not None and not refusing:
        written[asked.page] = page(_title(asked), plan, told, notices)
    removed = [path for path in stale if path not in written] if written else []
    write_all(written, removed, force=asked.force)
    if asked.as_json:
        code = NoPlanError.exit_code if refusing else 0
        ended = {"code": code, **({"error": _explain_refusal(refusing)} if refusing else {})}
        paths = {"files": [*map(str, written)], "removed": [*map(str, removed)]}
        body = {**ended, **text.body(plan, told, notices), **paths}
        echo(json.dumps(stamped(body), ensure_ascii=False))
        return code
    for line in text.lines(plan, told, notices):
        echo(line)
    if refusing:
        raise NoPlanError(f"{_explain_refusal(refusing)}\nNext: change the request, or add --ignore-warnings")
    if written:
        echo(f"\nWritten: {', '.join(map(str, written))}")
    if removed:
        echo(f"Removed files of an earlier plan: {', '.join(map(str, removed))}")
    return 0


def _refuse_one_file_for_two(asked: Asked) -> None:
    """Raise UsageError if two files that this call reads or writes are the same file, under any name."""
    for option, path in (("--out", asked.out), ("--page", asked.page)):
        if path == Path("-"):
            raise UsageError(
                f"{option} -; needed: the name of a file, because the report goes to standard output"
            )
    out, page = asked.out, asked.page
    if out and page and _of_plan(out, page):
        raise UsageError(
            f"--page {page} is a file of the plan {out}. Next: choose another name, such as page.html"
        )
    for path in asked.read:
        if page and page.resolve() == path.resolve():
            raise UsageError(f"--page {page} is the input file {path}. Next: choose another FILE")
        if out and _of_plan(out, path):
            raise UsageError(f"the plan {out} would replace the input file {path}. Next: choose another FILE")


def _of_plan(out: Path, path: Path) -> bool:
    """Return whether a file is one of a plan's files, by its own name or through a link."""
    folder, own = out.parent.resolve(), (out.name, beside_plan(out, "back"))
    return path.resolve() == out.resolve() or any(
        found.parent == folder and (found.name in own or _is_phase(out, found))
        for found in (path.resolve(), path.parent.resolve() / path.name)
    )


def _is_phase(out: Path, path: Path) -> bool:
    return bool(re.fullmatch(rf"{re.escape(out.stem)}-phase\d+{re.escape(out.suffix)}", path.name))


def _earlier(out: Path | None) -> list[Path]:
    """Return the existing phase files beside ``out``, also those of another plan with the same file name."""
    if out is None or not out.parent.is_dir():
        return []
    return sorted(path for path in out.parent.iterdir() if _is_phase(out, path))


def _explain_refusal(reasons: Sequence[Notice]) -> str:
    texts: dict[str, list[str]] = {}
    for one in reasons:
        texts.setdefault(one.id, []).append(one.text)
    lines = ["no plan is written"]
    for id, told in texts.items():
        lines += [f"{id}: {text}" for text in told[:SHOWN]]
        if len(told) > SHOWN:
            lines.append(f"{id}: and {len(told) - SHOWN} more")
    return "\n".join(lines)


def _title(asked: Asked) -> str:
    if isinstance(asked.request, Rebuild):
        return "Placement: rebuild"
    if isinstance(asked.request, FixRacks):
        return "Placement: racks"
    return "Placement: scale" if asked.request.scale else "Placement: rebalance"
