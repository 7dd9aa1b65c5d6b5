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
from zkmigrate.placement.request import Rebalance, Rebuild
from zkmigrate.placement.statistics import statistics
from zkmigrate.placement.validation import Chosen, chosen
from zkmigrate.placing import text
from zkmigrate.placing.files import refuse_all_taken, write_all
from zkmigrate.placing.page import page

Planner: TypeAlias = Callable[[Cluster, Rebalance | Rebuild], Plan | Refused]
Checker: TypeAlias = Callable[[Cluster, Sequence[bytes]], Sequence[str]]
"""What is wrong with the maps as written, in their order; nothing for a plan that may be carried out."""

REFUSED = 3
"""The exit code when there is no plan."""


class BrokenPlanError(ZkmigrateError):
    """The finished maps break a rule: the planner is wrong."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the call asks for. out: of the plan, None for the report alone. page: as HTML, None for none.
    ignore_warnings: write the plan in spite of notices that refuse."""

    cluster: Cluster
    request: Rebalance | Rebuild
    out: Path | None = None
    page: Path | None = None
    force: bool = False
    ignore_warnings: bool = False
    as_json: bool = False


def place(asked: Asked, planner: Planner, checker: Checker, echo: Callable[[str], None]) -> int:
    """Plan, write, and print the report; the exit code. Raises UsageError when a file is in the way, and
    BrokenPlanError."""
    if asked.out is not None:
        refuse_all_taken([asked.out], (), force=asked.force)
    if asked.page is not None:
        refuse_all_taken([asked.page], (), force=asked.force)
    plan = planner(asked.cluster, asked.request)
    if isinstance(plan, Refused):
        return _refused(plan.reasons, asked, echo)
    found = chosen(asked.cluster, asked.request.choice)
    told = statistics(plan.cluster, plan.moves, found.brokers if isinstance(found, Chosen) else None)
    notices = (*plan.notices, *no_way_back(plan))
    refusing = [one for one in notices if one.refuses]
    stopped = bool(refusing) and not asked.ignore_warnings
    written = {} if stopped else _contents(asked, plan)
    maps = [content for path, content in written.items() if path != asked.page and "-back" not in path.stem]
    if wrong := checker(plan.cluster, [content.encode() for content in maps]):
        raise BrokenPlanError(f"the finished plan breaks a rule, and nothing is written: {wrong[0]}")
    if not stopped and asked.page is not None:
        written[asked.page] = page(_title(asked), plan, told, notices)
    if written:
        write_all(written, _earlier(asked.out), force=asked.force)
    code = REFUSED if stopped else 0
    if asked.as_json:
        ended = {"code": code, **({"error": _why(refusing)} if stopped else {})}
        names = [str(path) for path in written]
        echo(json.dumps({**ended, **text.body(plan, told, notices), "files": names}, ensure_ascii=False))
        return code
    for line in text.lines(plan, told, notices):
        echo(line)
    if stopped:
        echo(f"\nNo plan is written: {_why(refusing)}. Next: change the request, or add --ignore-warnings.")
    elif asked.out is not None:
        echo(f"\nWritten: {', '.join(str(path) for path in written)}")
    return code


def _contents(asked: Asked, plan: Plan) -> dict[Path, str]:
    if asked.out is None:
        return {}
    return {asked.out.parent / name: content for name, content in files(plan, asked.out.name).items()}


def _earlier(out: Path | None) -> list[Path]:
    """Phases beside ``out``, of whatever plan."""
    if out is None:
        return []
    shape = re.compile(rf"{re.escape(out.stem)}-phase\d+{re.escape(out.suffix)}")
    return sorted(path for path in out.parent.iterdir() if shape.fullmatch(path.name))


def _refused(reasons: Sequence[Notice], asked: Asked, echo: Callable[[str], None]) -> int:
    if asked.as_json:
        body = {"code": REFUSED, "error": _why(reasons), "notices": [_notice(one) for one in reasons]}
        echo(json.dumps(body, ensure_ascii=False))
        return REFUSED
    echo("No plan:")
    for line in text.notice_lines(reasons):
        echo(line)
    return REFUSED


def _notice(one: Notice) -> dict[str, object]:
    return {"id": one.id, "text": one.text, "refuses": one.refuses}


def _why(refusing: Sequence[Notice]) -> str:
    return "; ".join(one.text for one in refusing)


def _title(asked: Asked) -> str:
    if isinstance(asked.request, Rebuild):
        return "Placement: rebuild"
    return "Placement: scale" if asked.request.scale else "Placement: rebalance"
