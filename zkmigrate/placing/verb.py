"""The verb ``placement``: from a cluster and a request to files, a page and a report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from zkmigrate.errors import ZkmigrateError
from zkmigrate.placement.cluster import Cluster
from zkmigrate.placement.maps import files, no_way_back
from zkmigrate.placement.plan import Notice, Plan, Refused
from zkmigrate.placement.planner import broken, planned
from zkmigrate.placement.request import Rebalance, Rebuild
from zkmigrate.placement.statistics import statistics
from zkmigrate.placement.validation import Chosen, chosen
from zkmigrate.placing import text
from zkmigrate.placing.files import refuse_all_taken, write_all
from zkmigrate.placing.page import page

Planner: TypeAlias = Callable[[Cluster, Rebalance | Rebuild], Plan | Refused]


class NoPlanError(ZkmigrateError):
    """There is no plan: each line is a reason by its id."""

    exit_code = 3


class BrokenPlanError(ZkmigrateError):
    """The finished maps break a rule: the planner is wrong."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the call asks for. out: of the plan, None for the report alone. page: as HTML, None for none.
    ignore_warnings: write the plan in spite of notices that refuse. notices: of the cluster's source."""

    cluster: Cluster
    request: Rebalance | Rebuild
    out: Path | None = None
    page: Path | None = None
    force: bool = False
    ignore_warnings: bool = False
    as_json: bool = False
    notices: tuple[Notice, ...] = ()


def refusal(reasons: Sequence[Notice]) -> NoPlanError:
    """The error that ends the verb for these reasons."""
    return NoPlanError(_why(reasons))


def place(asked: Asked, echo: Callable[[str], None], planner: Planner = planned) -> int:
    """Plan, write, and print the report; the exit code. Raises UsageError when a file is in the way,
    NoPlanError, and BrokenPlanError."""
    refuse_all_taken(filter(None, (asked.out, asked.page)), _earlier(asked.out), force=asked.force)
    plan = planner(asked.cluster, asked.request)
    if isinstance(plan, Refused):
        raise refusal(plan.reasons)
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
    write_all(written, _earlier(asked.out) if written else (), force=asked.force)
    if asked.as_json:
        code = NoPlanError.exit_code if refusing else 0
        ended = {"code": code, **({"error": _why(refusing)} if refusing else {})}
        names = [str(path) for path in written]
        echo(json.dumps({**ended, **text.body(plan, told, notices), "files": names}, ensure_ascii=False))
        return code
    for line in text.lines(plan, told, notices):
        echo(line)
    if refusing:
        raise NoPlanError(f"{_why(refusing)}\nNext: change the request, or add --ignore-warnings")
    if written:
        echo(f"\nWritten: {', '.join(str(path) for path in written)}")
    return 0


def _earlier(out: Path | None) -> list[Path]:
    """Phases beside ``out``, of whatever plan."""
    if out is None or not out.parent.is_dir():
        return []
    shape = re.compile(rf"{re.escape(out.stem)}-phase\d+{re.escape(out.suffix)}")
    return sorted(path for path in out.parent.iterdir() if shape.fullmatch(path.name))


def _why(reasons: Sequence[Notice]) -> str:
    return "\n".join(["no plan is written", *(f"{one.id}: {one.text}" for one in reasons)])


def _title(asked: Asked) -> str:
    if isinstance(asked.request, Rebuild):
        return "Placement: rebuild"
    return "Placement: scale" if asked.request.scale else "Placement: rebalance"
