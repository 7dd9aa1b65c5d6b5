"""The start order on real servers whose disks differ: kept, with a kill on the way, and broken.

``python -m zkmigrate.lab.drills.start_order`` builds a lab and brings dest to where FENCE and DRAIN do not
let it come (``staggered``): F of one host, then F of two. F are the hosts that hold every acknowledged
create. From there zkm-host starts dest in the places that ``rules.start_order`` gives, again and again, with
the images put back between. The drill looks at every disk:

``ordered``       nothing is missing
``killed-at-X``   ZooKeeper of a host of F is killed at the moment X between its start and the first quorum;
                  its finisher starts it again; nothing is missing
``slow-epoch``    the same, with F's disk so slow that the others have the new epoch on theirs first
``power-cut``     a host of F loses its power while it looks for others: nobody serves until it is back and
                  has its GO again; nothing is missing
``danger``        F of one host, without zkm-host, the others first: acknowledged creates must be lost, or the
                  rule guards against nothing
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from zkmigrate.lab import fault
from zkmigrate.lab.by_hand import SERVES_S, DestHosts, joined
from zkmigrate.lab.drills.runner import directory_option, run_drill
from zkmigrate.lab.drills.staggered import (
    Staggered,
    lost,
    missing_on,
    reformed_in_the_wrong_order,
    server_pids,
    stagger,
    wait_until_serving,
)
from zkmigrate.lab.failure import LabError, NotReady
from zkmigrate.lab.footprint import VERSION_2
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.readiness import four_letter_word
from zkmigrate.lab.spec import CLIENT_PORT, LabSpec, Role
from zkmigrate.lab.wait import Progress, wait_until
from zkmigrate.move.rules.start_order import places

NAME = "start_order"
OPEN_LIMIT_MS = 600_000
MOMENTS = (
    "looking", "accepted-epoch-of-first", "accepted-epoch-of-other", "epoch-of-first", "epoch-of-other"
)  # fmt: skip
"""Moments between the start of F and the first quorum, in the order in which they come."""
STUCK = ("failed", "none of the first is seen to lead")
STUCK_S = 3.0
"""Seconds that a host must stay stuck: the leader may be heard later than its followers."""
NOBODY_SERVES_S = 5.0
WHAT = {
    "danger": "the others started first, without zkm-host",
    "ordered": "the safe order",
    "slow-epoch": "a host of F killed while its slow disk writes the new epoch",
    "power-cut": "a host of F off for a while before the first quorum",
    **{f"killed-at-{moment}": f"a host of F killed at {moment}" for moment in MOMENTS},
}
SLOW_FSYNC_MS = 700
MOMENT_S = 30.0


@dataclass(frozen=True)
class Start:
    """One start of dest. hosts: dest hosts; fresh: |F|. lacking: acknowledged creates that only F holds
    before; lost: acknowledged creates that some dest host does not hold afterwards. held: the loss is as
    expected."""

    name: str
    hosts: int
    fresh: int
    lacking: int
    lost: int
    seconds: float
    held: bool
    note: str

    def case(self) -> dict[str, Any]:
        """The case of the result, with the figures of this start."""
        where = f"F of {self.fresh} among {self.hosts}"
        return {
            **asdict(self),
            "name": f"{self.name}, {where}",
            "what": f"{WHAT[self.name]}, {where} dest hosts",
            "expected": "lost some" if self.name == "danger" else "lost none",
            "outcome": f"lost {self.lost} of {self.lacking} creates that only F held",
        }


@dataclass
class StartOrders:
    """Dest hosts of one lab, staggered and sealed, started again and again."""

    lab: Lab
    dests: DestHosts
    state: Staggered

    def start(self, name: str, lost: int, seconds: float, held: bool, note: str) -> Start:
        """What came of one start of these hosts."""
        fresh, lacking = len(self.state.first), self.state.only_on_first
        return Start(name, len(self.names), fresh, lacking, lost, seconds, held, note)

    @property
    def names(self) -> tuple[str, ...]:
        return self.lab.names(Role.DEST)

    def seal(self) -> None:
        """Arm and seal hosts whose servers are dead."""
        self.dests.arm()
        self.dests.seal()

    def go(self, *hosts: str) -> None:
        """GO to these hosts, or to all, each in its place."""
        place = places(self.names, self.state.first)
        first = ",".join(f"{self.lab.host(h).address}:{CLIENT_PORT}" for h in self.state.first)
        majority = str(len(self.names) // 2 + 1)
        self.dests.each(
            {h: ("go", place[h], first, majority, str(OPEN_LIMIT_MS)) for h in hosts or self.names}
        )

    def _started_or_refused(self) -> str:
        """Wait until every host serves in dest's ensemble, or one refuses to go on; its reason then."""
        refusal, since = "", 0.0

        def missing() -> str | None:
            nonlocal refusal, since
            seen = {channel.host: channel.status() for channel in self.dests.channels}
            stuck = [s["finisher"] for s in seen.values() if any(word in s["finisher"] for word in STUCK)]
            since = since or time.monotonic() if stuck else 0.0
            refusal = "; ".join(stuck) if stuck and time.monotonic() - since > STUCK_S else ""
            phases = {host: s["phase"] for host, s in seen.items()}
            return None if refusal or set(phases.values()) == {"started"} else str(phases)

        wait_until("every host serves", missing, SERVES_S)
        return refusal

    def restore(self) -> None:
        """Stop all and put the images back: sealed, as before GO."""
        self.dests.do("halt")
        self.dests.do("image", "restore")

    # --- cases ----------------------------------------------------------------------------------------------

    def play(self, name: str, act: Callable[[], str]) -> Start:
        """Start dest by ``act``, look at every disk, put everything back."""
        began = time.monotonic()
        note = act()
        if refused := self._started_or_refused():
            # Now only all hosts together, from the images, can be started again.
            note += f"; {refused}: {self._led_without()}; all again"
            self.restore()
            self.go()
            self.dests.wait("every host serves", "phase", "started")
        seconds = round(time.monotonic() - began, 2)
        gone = lost(self.lab, self.state.promise)
        self.restore()
        return self.start(name, gone, seconds, gone == 0, note)

    def _led_without(self) -> str:
        """The leader now, and how many acknowledged creates it lacks."""
        leading = [host for host, mode in self.lab.zookeeper_modes(self.names).items() if mode == "leader"]
        missing = missing_on(self.lab, self.state.promise)
        return ", ".join(f"{host} leads without {len(missing[host].creates)}" for host in leading)

    def ordered(self) -> str:
        self.go()
        return ""

    def killed_at(self, moment: str) -> str:
        """Kill a host of F once servers have come to ``moment``; its finisher starts it again."""
        victim = self.state.first[0]
        reached = self._moment(moment, victim)
        old = set(server_pids(self.lab, victim))
        self.go()
        wait_until(f"{victim} starts", lambda: self._no_process(victim, old), MOMENT_S, 0.005)
        pids = self._pids(victim, old)
        wait_until(moment, reached, MOMENT_S, 0.001)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        epochs = {h: (self._epoch(h, "acceptedEpoch"), self._epoch(h, "currentEpoch")) for h in self.names}
        return f"{victim} killed; accepted and current epochs {epochs}"

    def slow_epoch(self) -> str:
        """Kill a host of F while its disk still writes the epoch that the others have."""
        victim = self.state.first[0]
        fault.slow_disk(self.lab, victim, SLOW_FSYNC_MS)
        try:
            return self.killed_at("epoch-of-other")
        finally:
            fault.slow_disk(self.lab, victim, 1)

    def power_cut(self) -> str:
        """Switch a host of F off while it looks for others; then on again, with another GO."""
        victim = self.state.first[0]
        self.go()
        wait_until(f"{victim} looks for others", lambda: self._not_looking(victim), MOMENT_S, 0.005)
        fault.power_cut(self.lab, victim)
        others = [host for host in self.names if host != victim]
        # The others may not form a quorum without it; the drill watches for this long.
        with contextlib.suppress(NotReady):
            wait_until("somebody serves", lambda: self._nobody(others), NOBODY_SERVES_S, 0.1)
            raise LabError(f"a quorum without {victim}: {self.lab.zookeeper_modes(others)}")
        fault.power_on(self.lab, victim)
        self.dests.reconnect(victim)
        self.go(victim)
        return f"{victim} off for {NOBODY_SERVES_S:g} s and more; nobody served meanwhile"

    def _nobody(self, hosts: list[str]) -> str | None:
        seen = self.lab.zookeeper_modes(hosts)
        return None if any(seen.values()) else "nobody"

    def _pids(self, host: str, old: set[int]) -> list[int]:
        return [pid for pid in server_pids(self.lab, host) if pid not in old]

    def _no_process(self, host: str, old: set[int]) -> str | None:
        return None if self._pids(host, old) else "no process"

    def _not_looking(self, host: str) -> str | None:
        with self.lab.operator():
            answer = four_letter_word(self.lab.host(host).address, "srvr")
        return None if answer and "not currently serving" in answer else f"said {answer!r}"

    def _epoch(self, host: str, file: str) -> int:
        """The epoch in a file; 0 while the file is absent or being written."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.lab.host(host).root / VERSION_2 / file).read_text())
        return 0

    def _moment(self, moment: str, victim: str) -> Callable[[], str | None]:
        """Condition: servers have come to the moment, by their epoch files."""
        if moment == "looking":
            return lambda: self._not_looking(victim)
        file = "acceptedEpoch" if moment.startswith("accepted") else "currentEpoch"
        others = [host for host in self.names if host != victim]
        watched = [victim] if moment.endswith("of-first") else others
        paths = [self.lab.host(host).root / VERSION_2 / file for host in watched]
        before = {path: path.read_text() for path in paths}

        def missing() -> str | None:
            for path in paths:
                with contextlib.suppress(OSError):
                    if (text := path.read_text()) and text != before[path]:
                        return None
            return "no epoch has moved"

        return missing


@contextlib.contextmanager
def staggered_orders(
    lab: Lab, dests: DestHosts, laggards: tuple[str, ...], directory: Path
) -> Iterator[tuple[StartOrders, Path]]:
    """Dest staggered, its servers dead; a directory for images beside it."""
    history = directory / f"raw-{len(lab.role(Role.DEST)) - len(laggards)}"
    state = stagger(lab, laggards, 100, history)
    with tempfile.TemporaryDirectory(dir=directory) as aside:
        yield StartOrders(lab, dests, state), Path(aside)


def danger(orders: StartOrders, aside: Path) -> Start:
    """The order broken, without zkm-host. It holds when acknowledged creates are gone."""
    began = time.monotonic()
    gone = reformed_in_the_wrong_order(orders.lab, orders.state, aside)
    seconds = round(time.monotonic() - began, 2)
    return orders.start("danger", gone, seconds, gone > 0, "laggards first: what the rule is there for")


def play(
    dest_count: int, times: int, directory: Path, progress: Progress, cases: list[dict[str, Any]]
) -> None:
    """Play every case on one lab of so many dest hosts; each kill ``times`` times."""

    def add(start: Start) -> None:
        cases.append(start.case())
        what = f"lost {start.lost} of {start.lacking} that only F held, {start.seconds} s"
        held = "as expected" if start.held else "WRONG"
        progress(f"{start.name}, |F| {start.fresh} of {start.hosts}: {what}, {held} {start.note}")

    with Lab.up(LabSpec(dest_count=dest_count), progress) as lab:
        names = lab.names(Role.DEST)
        dests = joined(lab)
        try:
            fault.slow_disk(lab, names[0], 1)
            wait_until_serving(lab, names, ("observer",))
            for fresh in (1, 2):
                with staggered_orders(lab, dests, names[fresh:], directory) as (orders, aside):
                    if fresh == 1:
                        add(danger(orders, aside))
                    orders.seal()
                    add(orders.play("ordered", orders.ordered))
                    for moment in MOMENTS:
                        for _ in range(times):
                            add(orders.play(f"killed-at-{moment}", partial(orders.killed_at, moment)))
                    add(orders.play("slow-epoch", orders.slow_epoch))
                    add(orders.play("power-cut", orders.power_cut))
                    dests.unseal()
        finally:
            dests.close()


@click.command()
@click.option("--dest-count", type=click.Choice(["3", "5"]), default="3", help="Dest hosts.")
@click.option("--times", default=1, help="How often each kill is tried.")
@directory_option(NAME)
def main(dest_count: str, times: int, directory: Path) -> None:
    """Start dest hosts with different disks: in order, with deaths on the way, and in the wrong order."""

    def drill(directory: Path, progress: Progress, cases: list[Any]) -> None:
        play(int(dest_count), times, directory, progress, cases)

    run_drill(NAME, directory, drill)


if __name__ == "__main__":
    main()
