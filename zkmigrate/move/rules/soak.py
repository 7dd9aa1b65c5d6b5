"""Measure the soak between two waves of the roll: how long all moved members have been healthy together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from zkmigrate.hosts.facts.status import HostStatus


def soak_progress(moved: Mapping[str, HostStatus], kept: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    """Return how many seconds all of these processes have been healthy, and the marks for the next look.

    moved: member → the status of its host. The time of a process counts from the look that first showed it as
    healthy, on its host's boot clock, which no one sets. It starts again at zero after a restart. The result
    is infinity if no member has moved. kept: the marks of the previous look, empty if a member was not
    healthy then.
    """
    marks: dict[str, Any] = {}
    for host, status in moved.items():
        process = [status.boot_id, status.unit_since]
        before = kept.get(host)
        marks[host] = before if before and before[:2] == process else [*process, status.uptime_s]
    well_s = min((moved[host].uptime_s - mark[2] for host, mark in marks.items()), default=math.inf)
    return well_s, marks
