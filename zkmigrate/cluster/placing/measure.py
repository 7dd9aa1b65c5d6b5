"""Measure sizes and write rates of a live cluster by reading its log directories twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from zkmigrate.cluster import placed
from zkmigrate.cluster.placement import cluster_file
from zkmigrate.cluster.placement.cluster import Cluster, Partition
from zkmigrate.cluster.placement.plan import Refused
from zkmigrate.errors import UsageError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.json_stamp import stamped
from zkmigrate.runbook.engine.files import refuse_taken, write_all
from zkmigrate.runbook.model.finding import few
from zkmigrate.runbook.model.report import counted


@dataclass(frozen=True)
class Clock:
    """The clock of a measurement. now: returns seconds. pause: waits for a number of seconds."""

    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


@dataclass(frozen=True)
class Measured:
    """A measured cluster.

    cluster: the cluster at the second reading, with rates. seconds: the time between both readings.
    """

    cluster: Cluster
    seconds: float

    @property
    def without_rate(self) -> list[str]:
        """The names of partitions whose rate is not known."""
        return [f"{one.topic}-{one.number}" for one in self.cluster.partitions if one.rate is None]


def measure(
    inventory: Inventory, look: placed.Sight, apart_s: float, tell: Callable[[str], None], clock: Clock
) -> Measured | Refused:
    """Measure the cluster by two readings, ``apart_s`` seconds apart.

    A partition's rate is the growth of its largest replica. It is unknown if the partition shrank, or was not
    there in the first reading. Raises HostError if no broker answers.
    """
    began = clock.now()
    first = placed.read(inventory, look, tell, clock.pause)
    if isinstance(first, Refused):
        return first
    at = (began + clock.now()) / 2
    tell(f"the second measurement begins in {apart_s:,.0f} s")
    clock.pause(apart_s)
    began = clock.now()
    second = placed.read(inventory, look, tell, clock.pause)
    if isinstance(second, Refused):
        return second
    seconds = (began + clock.now()) / 2 - at
    partitions = (
        replace(one, rate=_rate(first.by_name.get(one.name), one, seconds)) for one in second.partitions
    )
    return Measured(Cluster.of(second.brokers.values(), partitions), seconds)


def _rate(before: Partition | None, now: Partition, seconds: float) -> float | None:
    if before is None or before.size is None or now.size is None or now.size < before.size or seconds <= 0:
        return None
    return round((now.size - before.size) / seconds, 1)


def refuse_bad_out(out: Path, *, force: bool) -> None:
    """Raise UsageError if the file cannot be written, before any broker is queried."""
    if out == Path("-"):
        raise UsageError("--out -; needed: the name of a file, because the report goes to standard output")
    refuse_taken(out, force=force)


def answer(found: Measured, out: Path, echo: Callable[[str], None], *, force: bool, as_json: bool) -> int:
    """Write the cluster file, print the report, and return the exit code."""
    write_all({out: cluster_file.text(found.cluster)}, force=force)
    partitions, unknown = found.cluster.partitions, found.without_rate
    size, rate = (sum(getattr(one, name) or 0 for one in partitions) for name in ("size", "rate"))
    if as_json:
        body = {"code": 0, "files": [str(out)], "seconds": round(found.seconds, 1), "without_rate": unknown}
        body |= {"brokers": len(found.cluster.brokers), "partitions": len(partitions)}
        echo(json.dumps(stamped({**body, "bytes": size, "bytes_per_second": round(rate, 1)})))
        return 0
    many = f"{counted(len(partitions), 'partition')} on {counted(len(found.cluster.brokers), 'broker')}"
    grew = f"in {found.seconds:,.0f} s they grew by {rate:,.0f} bytes/s"
    echo(f"{many}, {size:,} bytes of one replica each; {grew}.")
    if unknown:
        told = f"{counted(len(unknown), 'partition')} without a rate, because they shrank or are new"
        echo(f"{told}: {few(unknown)}. Next: measure again, for longer, if the plan balances rates")
    echo(f"Written: {out}")
    return 0
