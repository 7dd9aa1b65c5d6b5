"""Start dest on real servers whose disks differ: in the safe order, with faults, and in the wrong order.

The drill builds a lab and brings dest into a state that FENCE and DRAIN prevent (``staggered``): F of one
host, then F of two. F are the hosts that hold every acknowledged create. From there zkm-host starts dest in
the places that ``rules.start_order`` gives, again and again, with the images restored in between. The drill
reads every disk:

``ordered``       nothing is missing
``killed-at-X``   ZooKeeper of a host of F is killed at the moment X between its start and the first quorum;
                  its finisher starts it again; nothing is missing
``slow-epoch``    the same kill, with F's disk so slow that the others have the new epoch on theirs first
``power-cut``     a host of F loses power while it looks for others: no server serves until it is back and
                  has its GO again; nothing is missing
``danger``        F of one host, without zkm-host, the others first: acknowledged creates must be lost,
                  otherwise the rule protects nothing
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.drills.labs import OneLab, Play, Series, times_of
from tests.drills.roll_site import require
from tests.drills.staggered import (
    Staggered,
    lost,
    missing_on,
    reformed_in_the_wrong_order,
    server_pids,
    stagger,
    wait_until_serving,
)
from tests.lab.dest_hosts import SERVES_S, DestHosts, joined
from tests.lab.footprint import VERSION_2
from zkmigrate.lab import fault
from zkmigrate.lab.failure import LabError, NotReady
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.readiness import four_letter_word
from zkmigrate.lab.spec import CLIENT_PORT, LabSpec, Role
from zkmigrate.lab.wait import TimedProgress, wait_until
from zkmigrate.move.rules.start_order import places

pytestmark = pytest.mark.drill

MINUTES = 25
OPEN_LIMIT_MS = 600_000
MOMENTS = (
    "looking", "accepted-epoch-of-first", "accepted-epoch-of-other", "epoch-of-first", "epoch-of-other"
)  # fmt: skip
"""Moments between the start of F and the first quorum, in the order in which they occur."""
STUCK = ("failed", "none of the first is seen to lead")
STUCK_S = 3.0
"""Seconds that a host must stay stuck, because it may see the leader later than its followers."""
NOBODY_SERVES_S = 5.0
WHAT = {
    "danger": "the others started first, without zkm-host",
    "ordered": "the safe order",
    **{f"killed-at-{moment}": f"a host of F killed at {moment}" for moment in MOMENTS},
    "slow-epoch": "a host of F killed while its slow disk writes the new epoch",
    "power-cut": "a host of F off for a while before the first quorum",
}
"""The cases, in the order in which they are played."""
SLOW_FSYNC_MS = 700
MOMENT_S = 30.0


@dataclass(frozen=True)
class Start:
    """One start of dest.

    lacking: acknowledged creates that only F holds before. lost: acknowledged creates that some dest host
    does not hold afterwards.
    """

    lacking: int
    lost: int
    seconds: float
    note: str

    @property
    def outcome(self) -> str:
        """The outcome in words."""
        return f"lost {self.lost} of {self.lacking} creates that only F held, {self.seconds} s; {self.note}"


@dataclass
class StartOrders:
    """Dest hosts of one lab, staggered and sealed, which are started again and again."""

    lab: Lab
    dests: DestHosts
    state: Staggered
    series: Series = field(default_factory=Series)
    sealed: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.lab.names(Role.DEST)

    def seal(self) -> None:
        """Arm and seal hosts whose servers are dead."""
        self.dests.arm()
        self.dests.seal()
        self.sealed = True

    def go(self, *hosts: str) -> None:
        """Send GO to these hosts, or to all, each in its place."""
        place = places(self.names, self.state.first)
        first = ",".join(f"{self.lab.host(h).address}:{CLIENT_PORT}" for h in self.state.first)
        majority = str(len(self.names) // 2 + 1)
        self.dests.each(
            {h: ("go", place[h], first, majority, str(OPEN_LIMIT_MS)) for h in hosts or self.names}
        )

    def _started_or_refused(self) -> str:
        """Wait until every host serves in dest's ensemble, or one refuses; return the reason, or ""."""
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
        """Stop all servers and restore the images; the hosts are sealed, as before GO."""
        self.dests.do("halt")
        self.dests.do("image", "restore")

    def recover(self) -> None:
        """Restore the images after a case that failed, if there are any."""
        if self.sealed:
            self.restore()

    # --- cases ----------------------------------------------------------------------------------------------

    def play(self, act: Callable[[], str]) -> Start:
        """Start dest by ``act``, read every disk, restore everything."""
        began = time.monotonic()
        note = act()
        if refused := self._started_or_refused():
            # Now the hosts can only be started again all together, from the images.
            note += f"; {refused}: {self._led_without()}; all again"
            self.restore()
            self.go()
            self.dests.wait("every host serves", "phase", "started")
        seconds = round(time.monotonic() - began, 2)
        gone = lost(self.lab, self.state.promise)
        self.restore()
        return Start(self.state.only_on_first, gone, seconds, note)

    def cases(self) -> dict[str, Callable[[], str]]:
        """Return the starts of sealed hosts, by name."""
        kills = {f"killed-at-{moment}": partial(self.killed_at, moment) for moment in MOMENTS}
        return {
            "ordered": self.ordered, **kills, "slow-epoch": self.slow_epoch, "power-cut": self.power_cut
        }  # fmt: skip

    def _led_without(self) -> str:
        """Return the current leader and how many acknowledged creates it lacks, in words."""
        leading = [host for host, mode in self.lab.zookeeper_modes(self.names).items() if mode == "leader"]
        missing = missing_on(self.lab, self.state.promise)
        return ", ".join(f"{host} leads without {len(missing[host].creates)}" for host in leading)

    def ordered(self) -> str:
        self.go()
        return ""

    def killed_at(self, moment: str) -> str:
        """Kill a host of F once servers have reached ``moment``; its finisher starts it again."""
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
        """Return the epoch in a file; 0 while the file is absent or being written."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.lab.host(host).root / VERSION_2 / file).read_text())
        return 0

    def _moment(self, moment: str, victim: str) -> Callable[[], str | None]:
        """Return the condition that servers have reached the moment, according to their epoch files."""
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
    """Stagger dest and kill its servers; yield the starts and a directory for images beside them."""
    hosts = len(lab.role(Role.DEST))
    history = directory / f"raw-{hosts - len(laggards)}-of-{hosts}"
    state = stagger(lab, laggards, 100, history)
    with tempfile.TemporaryDirectory(dir=directory) as aside:
        yield StartOrders(lab, dests, state), Path(aside)


def danger(orders: StartOrders, aside: Path) -> Start:
    """Start dest in the wrong order, without zkm-host. Acknowledged creates must be lost."""
    began = time.monotonic()
    gone = reformed_in_the_wrong_order(orders.lab, orders.state, aside)
    seconds = round(time.monotonic() - began, 2)
    return Start(orders.state.only_on_first, gone, seconds, "laggards first: what the rule is there for")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each case, for each number of dest hosts and each size of F. Kills are repeated."""
    numbers = range(1, times_of(metafunc.config, 1) + 1)
    rows = []
    for hosts, fresh in ((3, 1), (3, 2), (5, 1), (5, 2)):
        for name in WHAT:
            if name == "danger" and fresh == 2:
                continue
            for number in numbers if name.startswith("killed-at-") else (1,):
                again = f"-{number}" if number > 1 else ""
                rows.append(pytest.param((hosts, fresh), name, id=f"{fresh}-of-{hosts}-{name}{again}"))
    metafunc.parametrize(("where", "name"), rows)


@contextlib.contextmanager
def observing(hosts: int) -> Iterator[tuple[Lab, DestHosts]]:
    """Build a lab with this number of dest hosts, which observe."""
    progress = TimedProgress()
    with Lab.up(LabSpec(dest_count=hosts), progress) as lab:
        dests = joined(lab)
        try:
            fault.slow_disk(lab, lab.names(Role.DEST)[0], 1)
            wait_until_serving(lab, lab.names(Role.DEST), ("observer",))
            yield lab, dests
        finally:
            dests.close()
        progress("lab: taking everything down")


Orders: TypeAlias = OneLab[tuple[int, int], tuple[StartOrders, Path]]


@pytest.fixture(scope="module")
def placed(directory: Path) -> Iterator[Orders]:
    """Build labs with dest staggered, by number of dest hosts and size of F, each with a directory."""
    labs = OneLab(observing)

    @contextlib.contextmanager
    def up(where: tuple[int, int]) -> Iterator[tuple[StartOrders, Path]]:
        hosts, fresh = where
        lab, dests = labs.of(hosts)
        laggards = lab.names(Role.DEST)[fresh:]
        with staggered_orders(lab, dests, laggards, directory) as (orders, aside):
            yield orders, aside
            if orders.sealed and not orders.series.lost:
                dests.unseal()

    with contextlib.closing(labs), contextlib.closing(Orders(up)) as made:
        yield made


def test_dest_starts_from_disks_that_differ(
    placed: Orders, where: tuple[int, int], name: str, play: Play
) -> None:
    orders, aside = placed.of(where)

    def start() -> Start:
        if name == "danger":
            return danger(orders, aside)
        if not orders.sealed:
            orders.seal()
        return orders.play(orders.cases()[name])

    def act() -> str:
        one = start()
        require((one.lost > 0) == (name == "danger"), one.outcome)
        return one.outcome

    what = f"{WHAT[name]}, F of {len(orders.state.first)} among {len(orders.names)} dest hosts"
    expected = "lost some" if name == "danger" else "lost none"
    play(what, expected, lambda: orders.series.play(name, act, orders.recover))
