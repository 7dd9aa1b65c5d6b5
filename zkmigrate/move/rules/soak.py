"""How long the members that have moved have been well together: the soak between two waves of the roll."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from zkmigrate.hosts.facts.status import HostStatus


def soaked(moved: Mapping[str, HostStatus], kept: Mapping[str, Any]) -> tuple[float, dict[str, Any]]:
    """Seconds for which all of these processes have been seen well, and the marks for the next look.

    A process counts from the look that first found it well, on its host's boot clock, which nobody sets; a
    restarted one counts anew. Infinity where no member has moved. kept: the marks of the look before, empty
    where something was not well.
    """
    marks: dict[str, Any] = {}
    for host, status in moved.items():
        process = [status.boot_id, status.unit_since]
        before = kept.get(host)
        marks[host] = before if before and before[:2] == process else [*process, status.uptime_s]
    well_s = min((moved[host].uptime_s - mark[2] for host, mark in marks.items()), default=math.inf)
    return well_s, marks
