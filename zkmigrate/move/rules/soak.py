"""Measure the soak between two waves of the roll: how long all moved members have been well together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from zkmigrate.hosts.facts.status import HostStatus


def soak_progress(moved: Mapping[str, HostStatus], kept: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    """Return how many seconds all of these processes have been well, and the marks for the next look.

    A process counts from the look that first found it well, on its host's boot clock, which no one sets. A
    process that was restarted counts from zero. The result is infinity if no member has moved. kept: the
    marks of the previous look, empty if something was not well then.
    """
    marks: dict[str, Any] = {}
    for host, status in moved.items():
        process = [status.boot_id, status.unit_since]
        before = kept.get(host)
        marks[host] = before if before and before[:2] == process else [*process, status.uptime_s]
    well_s = min((moved[host].uptime_s - mark[2] for host, mark in marks.items()), default=math.inf)
    return well_s, marks
