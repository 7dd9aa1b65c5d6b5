"""Parse the arguments, keep the pace and write the recordings of the client matrix's Python programs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zkmigrate.lab.load.json_lines import Recorder
from zkmigrate.lab.load.pace import Pace
from zkmigrate.lab.load.process import Orders

PLAIN = "ZKMIGRATE_PLAIN"
"""The environment variable that makes the producer not idempotent, if it is set."""
VALUE_BYTES = 100
COMMIT_MS = 1000
LINGER_MS = 5
TICK_S = 0.2


@dataclass(frozen=True)
class Task:
    """The arguments of one process.

    role: ``produce`` or ``consume``. name: the prefix of a producer's ids, or a consumer's group. file: the
    recording to write. rate: records per second; 0 for a consumer. idempotent: whether the producer is
    idempotent.
    """

    role: str
    bootstrap: str
    topic: str
    name: str
    file: Path
    rate: float
    idempotent: bool = True


Part = Callable[[Task, Recorder, Orders], dict[str, Any]]
"""A function that works until the stop signal and returns the counters for the closing line."""


def run(library: str, produce: Part, consume: Part) -> int:
    """Run the producer or the consumer that the command line names, and return the exit code.

    library: name and release of the client library. An error is written into the closing line and then
    raised.
    """
    role, bootstrap, topic, name, file, *rate = sys.argv[1:]
    task = Task(
        role, bootstrap, topic, name, Path(file), float(rate[0]) if rate else 0.0, PLAIN not in os.environ
    )
    orders = Orders().listen()
    with Recorder(task.file.parent, task.file.stem, {"library": library}) as record:
        counters = (produce if role == "produce" else consume)(task, record, orders)
        record.close("ordered", **counters)
    return 0


class Sending:
    """The ids that a producer sends at its rate, and how many were sent, acknowledged and failed."""

    def __init__(self, task: Task, record: Recorder) -> None:
        self._task = task
        self._record = record
        self._pace = Pace(task.rate, time.monotonic_ns())
        self.counts = {"sent": 0, "acked": 0, "failed": 0}

    def due(self) -> str | None:
        """Return the next id to send, or None if it is not time yet. Each id is returned once."""
        if not self._pace.take(time.monotonic_ns()):
            return None
        self.counts["sent"] += 1
        return f"{self._task.name}{self.counts['sent'] - 1}"

    @property
    def wait_s(self) -> float:
        """The seconds until the next id is due, at most TICK_S."""
        return min(TICK_S, max(0.0, (self._pace.next_ns - time.monotonic_ns()) / 1e9))

    def acked(self, id: str, sent_ns: int, partition: int, offset: int | None) -> None:
        """Record an acknowledgement. offset: None or negative if the broker reported none."""
        self.counts["acked"] += 1
        known = offset if offset is not None and offset >= 0 else None
        self._record.write(
            "ack", topic=self._task.topic, partition=partition, offset=known, id=id, sent_mono_ns=sent_ns
        )

    def failed(self, id: str, error: object) -> None:
        self.counts["failed"] += 1
        self._record.write("failed", topic=self._task.topic, id=id, error=f"{type(error).__name__}: {error}")


class Reading:
    """The recorder of a consumer's deliveries and assigned partitions."""

    def __init__(self, record: Recorder) -> None:
        self._record = record
        self.consumed = 0

    def got(self, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        self.consumed += 1
        id = (value or b"").decode(errors="replace").rstrip()
        self._record.write("consumed", topic=topic, partition=partition, offset=offset, id=id)

    def changed(self, event: str, partitions: list[tuple[str, int]]) -> None:
        """Record a change of the assigned partitions. event: ``assigned``, ``revoked`` or ``lost``."""
        self._record.write(event, partitions=[list(one) for one in sorted(partitions)])


def value_of(id: str) -> bytes:
    """Return the value of the record with this id: the id, padded with spaces to VALUE_BYTES."""
    return id.encode().ljust(VALUE_BYTES)
