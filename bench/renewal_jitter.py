"""How regular the watch's renewals are beside the walk's work and on a busy machine.

``python -m bench.renewal_jitter``: the real watch renews a double for three hosts twice a second, beside busy
processes, while the main thread writes and reads JSON of 50 MB and renders tables. Prints the seconds between
two renewals of a host: median, 99th percentile and the longest. A renewal may be late by a third of the cut's
lease without effect.

``--beside``: the real second process renews, over a real sshd on this machine; the times are of arrivals
there.
"""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
from rich.console import Console
from rich.table import Table

from tests.unit import sshd
from zkmigrate.engine.history import History
from zkmigrate.engine.renewal_process import RenewalProcess
from zkmigrate.engine.watch import Watch
from zkmigrate.inventory.inventory import Inventory, Lease, Policy
from zkmigrate.model.change import Outcome
from zkmigrate.model.playbook import Stage
from zkmigrate.model.step import Context, Way
from zkmigrate.moves.rules.window_rules import WINDOW

HOSTS = ("d1", "d2", "d3")
ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
SPEAKER = r"""#!/bin/bash
read -r _ _ address _ <<<"$SSH_CONNECTION"
while read -r id verb rest; do
  read -r up _ </proc/uptime
  [ "$verb" = renew ] && echo "$address $up" >>"$ZKM_RENEWED"
  echo ". $id 0"
done
"""


def _spin() -> None:
    while True:
        pass


def _work(until: float, size: int) -> None:
    """The walk's work at its worst: a large journal written and parsed whole, and a screen drawn."""
    row = {"operation": "cutover.fence.dest1.1", "status": "done", "output": "x" * 100, "mono": 1.5}
    body = [row] * (size // len(json.dumps(row)))
    while time.monotonic() < until:
        json.loads(json.dumps(body))
        table = Table()
        for number in range(2000):
            table.add_row(str(number), "cutover", "fence")
        Console(file=io.StringIO(), width=120).print(table)


class Arrivals:
    """A real sshd whose zkm-host notes when a renewal arrives, and the second process that sends them."""

    def __init__(self, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._log = folder / "renewed"
        daemon = stack.enter_context(sshd.running(folder, environment=f"ZKM_RENEWED={self._log}"))
        daemon.allow_sudo()
        daemon.program("speaker", SPEAKER)
        plain = sshd.inventory(daemon, known_hosts=daemon.pin(ADDRESSES)).model_dump(mode="json")
        for host, address in zip(plain["dest"]["hosts"], ADDRESSES, strict=True):
            host["address"] = address
        inventory = Inventory.model_validate_json(json.dumps(plain))
        self.process = RenewalProcess(HOSTS, inventory, "r1", lambda: 1, str(daemon.programs / "speaker"))
        stack.callback(self.process.close)
        self.process.renew(Lease(), time.monotonic() + 600)
        deadline = time.monotonic() + 60
        while not all(map(self.process.reached, HOSTS)) and time.monotonic() < deadline:
            time.sleep(0.1)

    def since(self, begun: float) -> dict[str, list[float]]:
        """When renewals arrived at each host, in seconds of this machine's clock since it started."""
        sent: dict[str, list[float]] = defaultdict(list)
        for line in self._log.read_text().splitlines():
            address, up = line.split()
            if float(up) >= begun:
                sent[address].append(float(up))
        return sent


@click.command()
@click.option("--busy", default=10, show_default=True, help="Processes that only want the processor.")
@click.option("--seconds", default=30.0, show_default=True)
@click.option("--megabytes", default=50.0, show_default=True, help="Of JSON, written and read at once.")
@click.option("--apart", is_flag=True, help="The work is done by another process than the renewals.")
@click.option("--beside", is_flag=True, help="The watch's second process renews, over ssh.")
def main(busy: int, seconds: float, megabytes: float, apart: bool, beside: bool) -> None:
    """Measure the time between two renewals of a host."""
    with ExitStack() as stack:
        measure(busy, seconds, megabytes, apart, Arrivals(stack) if beside else None)


def measure(busy: int, seconds: float, megabytes: float, apart: bool, arrivals: Arrivals | None) -> None:
    """Work for so long among busy processes, then print the gaps."""
    sent: dict[str, list[float]] = defaultdict(list)

    def renew(host: str, _fence_ms: int, _cut_ms: int) -> Outcome:
        sent[host].append(time.monotonic())
        return Outcome(0, "renewed")

    second = arrivals.process if arrivals else None
    watch = Watch(HOSTS, renew, time.monotonic, time.time, second=second)
    stage = Stage(
        "cutover",
        "Cut over",
        (),
        window=replace(WINDOW, deadline_s=lambda _context: 1e9, lease=lambda _context: Lease()),
    )
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
        begun = time.monotonic()
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
    if arrivals:
        sent = arrivals.since(begun)
    gaps = sorted(b - a for times in sent.values() for a, b in itertools.pairwise(times))
    lease = Policy().lease
    how = ", apart" * apart + ", beside" * (arrivals is not None)
    click.echo(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}, {busy} busy processes, "
        f"{megabytes:g} MB of JSON{how}: {len(gaps)} renewals, "
        f"median {statistics.median(gaps):.3f} s, p99 {gaps[int(len(gaps) * 0.99)]:.3f} s, "
        f"longest {gaps[-1]:.3f} s; wanted every {lease.renew_every_ms / 1000} s, "
        f"lease {lease.cut_ttl_ms / 1000} s"
    )


if __name__ == "__main__":
    main()
