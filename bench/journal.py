"""The size of a long run's journal, and the time to read it: ``python -m bench.journal``.

The run moves 10,000 partitions, with an intent and an outcome each, changes a throttle once a minute for a
day, and records its plan: the order of each partition before and after. Then a dest host's copy gets one more
step.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.spread import shown
from zkmigrate.runbook.engine import chain, journal
from zkmigrate.runbook.engine.codec import encode_change
from zkmigrate.runbook.engine.copies import Copies
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.model.change import Outcome, PutFile, SetService
from zkmigrate.runbook.runs import playbook_files, run_status

MOVES = 10_000
THROTTLES = 24 * 60
AT_ONCE = 20
RUN = "long-1"
ROUNDS = 5


def move(number: int) -> SetService:
    """A change as large as the reassignment of a partition: topic, partition, order before and after."""
    to, before = (",".join(str(number % 90 + n) for n in some) for some in ((1, 2, 3), (4, 5, 6)))
    topic = f"some.service.with-a-long-name.events-{number // 24}"
    return SetService(f"broker{number % 90}", topic, "restart", (f"partition={number % 24}", f"to={to}",
                      f"before={before}"))  # fmt: skip


def throttle(minute: int) -> PutFile:
    """A change of all brokers' limits: large content, written again and again."""
    rates = "".join(f"broker{n}.follower.replication.throttled.rate={minute % 3}0000000\n" for n in range(90))
    return PutFile("broker1", "/throttles", rates.encode(), "root:root", "0600")


def plan() -> dict[str, Any]:
    """The record of a plan: each partition's order before and after."""
    return {str(n): {"before": move(n).commands[2], "to": move(n).commands[1]} for n in range(MOVES)}


def write(run_dir: Path) -> Journal:
    """The journal of such a run."""
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
        _change(book, number // AT_ONCE, number, move(number))
    for minute in range(THROTTLES):
        _change(book, MOVES + minute, MOVES + minute, throttle(minute))
    book.sync()
    return book


def _change(book: Journal, leg: int, number: int, change: SetService | PutFile) -> None:
    operation = f"move.move.{change.host}.{leg}.{number}"
    body = {"stage": "roll", "step": "roll", "target": change.host, "way": "forward", "leg": leg}
    intent = {**body, "operation": operation, "change": encode_change(change), "mono": 123456.789012 + number}
    book.append("intent", intent, sync=False)
    outcome = {
        "operation": operation,
        "status": "done",
        "rc": 0,
        "output": "",
        "mono": 123456.987654 + number,
    }
    book.append("outcome", outcome, sync=False)


def delta(content: bytes, more: bytes) -> int:
    """Bytes to send to a host whose copy lacks ``more``."""
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
        per = sum(e.kind == "content" for e in book.entries())
        print(f"{len(content) / 1e6:.1f} MB, {lines} lines, {per} contents, written in {took:.1f} s of CPU")
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
        print(f"as earlier versions held it: {plain(journal.parsed(run_dir)) / 1e6:.1f} MB")


def plain(parsed: chain.Parsed) -> int:
    """Bytes of the same lines with every content in them."""
    return sum(len(chain.render(e)) + 1 for e in parsed.entries if e.kind != "content")


if __name__ == "__main__":
    main()
