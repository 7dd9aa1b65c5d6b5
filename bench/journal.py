"""Measure the size of a long run's journal and the time to read it: ``python -m bench.journal``.

The run moves 10,000 partitions, with an intent and an outcome each. It writes a file of throttles once a
minute for a day, and records its plan: the order of each partition before and after. Then a dest host's copy
gets one more step.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.spread import shown
from zkmigrate.kafka.changes import KAFKA, ReassignPartition
from zkmigrate.runbook.engine import chain
from zkmigrate.runbook.engine.codec import encode_change
from zkmigrate.runbook.engine.copies import Copies
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.step_names import operation_id
from zkmigrate.runbook.model.change import Change, Outcome, PutFile
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.runs import playbook_files, run_status

MOVES = 10_000
THROTTLES = 24 * 60
AT_ONCE = 20
RUN = "long-1"
ROUNDS = 5


def move(number: int) -> ReassignPartition:
    """Return the reassignment of a partition."""
    to, before = (tuple(number % 90 + n for n in some) for some in ((1, 2, 3), (4, 5, 6)))
    topic = f"some.service.with-a-long-name.events-{number // 24}"
    return ReassignPartition(KAFKA, topic, number % 24, to, before)


def throttle(minute: int) -> PutFile:
    """Return a change of all brokers' limits: large content that is written again and again."""
    rates = "".join(f"broker{n}.follower.replication.throttled.rate={minute % 3}0000000\n" for n in range(90))
    return PutFile("broker1", "/throttles", rates.encode(), "root:root", "0600")


def plan() -> dict[str, Any]:
    """Return the record of a plan: each partition's order before and after."""
    return {str(n): {"before": list(move(n).before), "to": list(move(n).replicas)} for n in range(MOVES)}


def write(run_dir: Path) -> Journal:
    """Write the journal of the run and return it."""
    book = Journal.create(run_dir, time.time)
    digest = hashlib.sha256(b"").hexdigest()
    book.append(
        "begin",
        {"run": RUN, "name": "", "playbook": playbook_files.DEFAULT, "inventory": digest, "plan": digest},
    )
    at = {"stage": "roll", "step": "roll"}
    book.append("record", {**at, "record": plan()}, sync=False)
    book.append("step", {**at, "way": "forward", "event": "begin", "mono": 1.0}, sync=False)
    for number in range(MOVES):
        change = move(number)
        _change(book, number // AT_ONCE, number, f"{change.topic}-{change.partition}", change)
    for minute in range(THROTTLES):
        _change(book, MOVES + minute, MOVES + minute, "broker1", throttle(minute))
    book.sync()
    return book


def _change(book: Journal, leg: int, number: int, target: str, change: Change) -> None:
    operation = operation_id("roll.roll", target, Way.FORWARD, leg, 1)
    body = {"stage": "roll", "step": "roll", "target": target, "way": "forward", "leg": leg}
    packed = encode_change(change, pack=True)
    intent = {**body, "operation": operation, "change": packed, "mono": 123456.789012 + number}
    book.append("intent", intent, sync=False)
    outcome = {"operation": operation, "status": "done", "rc": 0, "output": change.describe()}
    book.append("outcome", {**outcome, "mono": 123456.987654 + number}, sync=False)


def delta(content: bytes, more: bytes) -> int:
    """Return how many bytes are sent to a host whose copy lacks ``more``."""
    sent: list[int] = []

    def ask(_host: str, words: tuple[str, ...], _fencing: int) -> Outcome:
        sent.append(sum(len(word) + 1 for word in words))
        return Outcome(0)

    copies = Copies(ask, lambda: ("dest1",), lambda: 1, time.monotonic)
    copies(content)
    sent.clear()
    copies(content + more)
    return sum(sent)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / RUN
        began = time.process_time()
        book = write(run_dir)
        took = time.process_time() - began
        content = book.content()
        lines = content.count(b"\n")
        print(f"{len(content) / 1e6:.1f} MB, {lines} lines, written in {took:.1f} s of CPU")
        step = {"stage": "roll", "step": "roll", "way": "forward", "event": "done", "mono": 1.0}
        book.append("step", step)
        print(f"a step more brings a host up with {delta(content, book.content()[len(content) :])} bytes")
        parses, statuses = [], []
        for _ in range(ROUNDS):
            began = time.process_time()
            chain.parse(content)
            parses.append(time.process_time() - began)
            began = time.process_time()
            run_status.of_run(run_dir, playbook_files.load(playbook_files.DEFAULT), (), time.time)
            statuses.append(time.process_time() - began)
        book.close()
        print(shown("lines read, CPU", parses))
        print(shown("status, CPU", statuses))


if __name__ == "__main__":
    main()
