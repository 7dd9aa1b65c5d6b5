"""How regular the watch's renewals are while the walk's own work and a busy machine want the processor.

``python -m bench.renewal_jitter``: the real watch renews a double for three hosts twice a second, beside busy
processes, while the main thread writes and reads JSON of 50 MB, renders tables. Prints the seconds between
two renewals of a host: median, 99th percentile and the longest. A renewal may come a third of the cut's lease
late without anybody noticing.
"""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import os
import statistics
import time
from collections import defaultdict
from types import SimpleNamespace
from typing import cast

import click
from rich.console import Console
from rich.table import Table

from zkmigrate.engine.apply import Outcome
from zkmigrate.engine.history import History
from zkmigrate.engine.ports import WindowRules
from zkmigrate.engine.watch import Watch
from zkmigrate.inventory import Lease, Policy
from zkmigrate.model.playbook import Stage
from zkmigrate.model.step import Context, Way

HOSTS = ("dest1", "dest2", "dest3")


def _spin() -> None:
    while True:
        pass


def _work(until: float, size: int) -> None:
    """What a walk does at its worst: a large journal written and parsed whole, and a screen drawn."""
    row = {"operation": "cutover.fence.dest1.1", "status": "done", "output": "x" * 100, "mono": 1.5}
    body = [row] * (size // len(json.dumps(row)))
    while time.monotonic() < until:
        json.loads(json.dumps(body))
        table = Table()
        for number in range(2000):
            table.add_row(str(number), "cutover", "fence")
        Console(file=io.StringIO(), width=120).print(table)


@click.command()
@click.option("--busy", default=10, show_default=True, help="Processes that only want the processor.")
@click.option("--seconds", default=30.0, show_default=True)
@click.option("--megabytes", default=50.0, show_default=True, help="Of JSON, written and read at once.")
@click.option("--apart", is_flag=True, help="The work is done by another process than the renewals.")
def main(busy: int, seconds: float, megabytes: float, apart: bool) -> None:
    """Measure the time between two renewals of a host."""
    sent: dict[str, list[float]] = defaultdict(list)

    def renew(host: str, _fence_ms: int, _cut_ms: int) -> Outcome:
        sent[host].append(time.monotonic())
        return Outcome(0, "renewed")

    rules = WindowRules(lambda *_: "go", lambda _context: 1e9, lambda _sealed: "go")
    watch = Watch(HOSTS, lambda _context: Lease(), rules, renew, time.monotonic, time.time)
    stage = Stage("cutover", "Cut over", (), window=True)
    fenced = SimpleNamespace(
        entries=1,
        first_sent={"cutover.fence": (2, time.time(), time.monotonic())},
        done=set(),
        way=Way.FORWARD,
    )
    spinning = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(busy)]
    for process in spinning:
        process.start()
    try:
        watch.follow(stage, cast(History, fenced), cast(Context, None))
        work = (time.monotonic() + seconds, int(megabytes * 1e6))
        if apart:
            other = multiprocessing.Process(target=_work, args=work, daemon=True)
            other.start()
            other.join()
        else:
            _work(*work)
    finally:
        watch.close()
        for process in spinning:
            process.kill()
    gaps = sorted(b - a for times in sent.values() for a, b in itertools.pairwise(times))
    lease = Policy().lease
    click.echo(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, {busy} busy processes, "
        f"{megabytes:g} MB of JSON{', apart' if apart else ''}: {len(gaps)} renewals, "
        f"median {statistics.median(gaps):.3f} s, p99 {gaps[int(len(gaps) * 0.99)]:.3f} s, "
        f"longest {gaps[-1]:.3f} s; wanted every {lease.renew_every_ms / 1000} s, "
        f"lease {lease.cut_ttl_ms / 1000} s"
    )


if __name__ == "__main__":
    main()
