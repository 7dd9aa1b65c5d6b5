"""Repeat the cut-over under load: up to CHECK and back with every client on dest, the last time to OPEN.

It builds a lab, moves brokers and raw clients to dest, and repeats ``run --until cutover``, held after
CHECK and answered with ``back``: the whole cut-over except the open door. While the tool holds, the drill
copies dest's disks. They must hold every create and every Kafka change that was acknowledged by then, and
every session with its ephemerals. Source's disk must hold the same after each way back. Meanwhile dest
hosts receive source's frames late, and their disks are slow, each by another part of ``SKEW_MS``.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.drills.cut_figures import CutOver, summary
from tests.drills.disks import judged, loaded_from
from tests.drills.labs import Play, loaded_lab, times_of
from tests.drills.roll_site import require
from tests.lab.footprint import VERSION_2
from tests.lab.sessions import lost_since, sessions_not_served
from zkmigrate.lab import fault
from zkmigrate.lab.baseline import baseline
from zkmigrate.lab.commands import run as run_command
from zkmigrate.lab.delay import Delays, delays
from zkmigrate.lab.failure import NotReady
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.readiness import four_letter_word
from zkmigrate.lab.spec import LabSpec, Role
from zkmigrate.lab.timeline import step_spans
from zkmigrate.lab.wait import Progress, TimedProgress, wait_until
from zkmigrate.zookeeper.data.four_letter_words import parse_cons
from zkmigrate.zookeeper.data.reader import FileDirectory

pytestmark = [pytest.mark.drill, pytest.mark.timeout(5400)]

MINUTES = 35
RUN = "cuts"
JUDGED = (
    "lost", "duplicated", "acked_creates_missing", "raw_order_violations", "raw_sessions_lost",
    "metadata_changes", "other_tenant_unharmed",
)  # fmt: skip
FEW_TRIES = 4
TRIES = 2
"""Tries per cut-over on average: on a busy machine a gate of the preflight is closed now and then."""
FLOWING_S, HEALTHY_S, HELD_S, ENDED_S = 120.0, 120.0, 240.0, 900.0


SESSION_TIMEOUT_MS = 40_000
SKEW_MS = 500
"""The largest delay of source's frames to a dest host, and of a dest host's fsync, milliseconds."""
RATES = {"raw_rate": 20.0, "tenant_rate": 270.0, "metadata_rate": 30.0}
"""Writes per second of all clients of a kind; raw is per dest host."""


@dataclass
class Cuts:
    """One lab in which the cut-over is repeated."""

    lab: Lab
    load: LoadRunner
    directory: Path
    delays: Delays
    progress: Progress
    operator: Operator = field(init=False)
    done: list[CutOver] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    def __post_init__(self) -> None:
        self.operator = Operator(self.lab, self.directory, RUN)

    @property
    def windows(self) -> int:
        """How many cut-overs reached FENCE."""
        return sum(cut.span("cutover.fence") is not None for cut in self.done)

    def _run_until(self, name: str, stage: str, tries: int = 1) -> None:
        words = ("run", "--until", stage)
        self.operator.through(name, *words, limit_s=ENDED_S, tries=tries, progress=self.progress)

    def prepare(self) -> None:
        """Move brokers, producers and raw clients to dest, and wait until everything flows."""
        self.load.start(("producer", "consumer", "tenant"))
        self.load.wait_flowing(("producer", "consumer", "tenant"), FLOWING_S)
        write_inventory(self.lab, self.directory / "migration.yml")
        self._run_until("join", "join")
        self._disks_fast()
        self._run_until("roll", "roll", tries=FEW_TRIES)
        # Not before the roll: the client that deletes old notices is connected to dest.
        self.load.start(("raw", "metadata"))
        self.load.wait_flowing(("raw", "metadata"), FLOWING_S)

    def skewed(self) -> dict[str, int]:
        """Set a random delay for every dest host, and return the delays by host.

        The host that serves the controller has none. Kafka writes each change twice through its controller's
        session: half a second there would leave one change a second.
        """
        with self.lab.zookeeper(Role.DEST) as client:
            stat = client.exists(f"{self.lab.spec.chroot}/controller")
        served = self._serving(stat.ephemeralOwner) if stat is not None else ""
        others = [host for host in self.delays.hosts if host != served]
        self.chance.shuffle(others)
        chosen = dict.fromkeys(self.delays.hosts, 0)
        chosen |= {host: self.chance.randint(0, SKEW_MS) for host in others}
        if others:
            chosen[others[0]] = SKEW_MS
        for host, late in chosen.items():
            self.delays.set(host, late)
        return chosen

    def disks_slowed(self) -> dict[str, int]:
        """Set a random fsync delay for each dest host, and return them by host."""
        chosen = {host.name: self.chance.randint(0, SKEW_MS) for host in self.lab.role(Role.DEST)}
        chosen[self.chance.choice(list(chosen))] = SKEW_MS
        for host, late in chosen.items():
            fault.slow_disk(self.lab, host, late)
        return chosen

    def _disks_fast(self) -> None:
        for host in self.lab.names(Role.DEST):
            fault.slow_disk(self.lab, host, 1)

    def _serving(self, session: int) -> str:
        with self.lab.operator():
            for host in self.lab.role(Role.DEST):
                answer = four_letter_word(host.address, "cons") or ""
                if any(c.session == session for c in parse_cons(answer)):
                    return host.name
        return ""

    def cut_over(self, number: int) -> CutOver:
        """Cut over once: hold at CHECK, copy dest's disks, go back."""
        name = f"cut-{number}"
        before = baseline(self.lab)
        late, slow = self.skewed(), self.disks_slowed()
        spans = len(step_spans(self.operator.journal))
        asked_ns = time.monotonic_ns()
        promised_ns = 0
        self.operator.hold("check")
        with self.operator.tool(name, "run", "--until", "cutover") as tool:
            held = tool.wait_for_hold(HELD_S)
            if held:
                self._copy(name, "check", Role.DEST)
                promised_ns = time.monotonic_ns()
                tool.type("back")
            code = tool.wait_for_end(ENDED_S)
        cause = "" if held and code == 0 else tool.troubles()
        promised_ns = promised_ns or time.monotonic_ns()
        lost = self._healthy_again(before)
        self._copy(name, "back", Role.SOURCE)
        cut = CutOver(
            number, asked_ns, promised_ns, held, code, cause, late, slow, before, lost,
            step_spans(self.operator.journal)[spans:],
        )  # fmt: skip
        (self.directory / "disks" / name / "cut.json").write_text(json.dumps(asdict(cut)) + "\n")
        return cut

    def _copy(self, name: str, moment: str, role: Role) -> None:
        """Copy the disks now; of source's hosts one is enough."""
        hosts = self.lab.role(role)
        for host in hosts if role is Role.DEST else hosts[:1]:
            disk = host.root / VERSION_2
            target = self.directory / "disks" / name / moment / host.name
            target.mkdir(parents=True)
            files = [str(disk / file) for file in loaded_from(FileDirectory(disk))]
            run_command(["cp", "-a", "--sparse=always", *files, str(target)])

    def _healthy_again(self, before: dict[str, Any]) -> tuple[str, ...]:
        """Wait until every session is served and everything flows again, and return the losses."""
        for host in self.delays.hosts:
            self.delays.set(host, 0)
        self._disks_fast()
        lost: list[str] = []
        try:
            wait_until(
                "every session served again",
                lambda: sessions_not_served(self.lab, before["sessions"]),
                HEALTHY_S,
            )
        except NotReady as late:
            lost.append(str(late))
        self.load.wait_flowing(("raw", "producer", "metadata"), FLOWING_S, since_ns=time.monotonic_ns())
        after = baseline(self.lab)
        lost += lost_since(before, after)
        return tuple(lost)

    def open(self) -> dict[str, Any]:
        """Cut over to OPEN, end the load, and judge it."""
        began = time.monotonic()
        before = baseline(self.lab)
        self.skewed()
        self._run_until("open", "cutover", tries=FEW_TRIES)
        lost = self._healthy_again(before)
        seconds = round(time.monotonic() - began, 1)
        for problem in self.load.finish():
            self.progress(f"load: {problem}")
        body = {"brokers": [], "steps": step_spans(self.operator.journal)}
        (self.load.directory / "run.json").write_text(json.dumps(body) + "\n")
        verdict = judge(load_history(self.load.directory))
        claims = {name: (verdict[name].value, verdict[name].held.value) for name in JUDGED}
        details = {name: verdict[name].detail for name in JUDGED if verdict[name].held.value != "yes"}
        return {"claims": claims, "details": details, "sessions_lost": list(lost), "seconds": seconds}


@pytest.fixture
def cuts(request: pytest.FixtureRequest, directory: Path) -> Iterator[Cuts]:
    hosts, progress = request.param, TimedProgress()
    folder = directory / f"{hosts}-hosts"
    (folder / "history").mkdir(parents=True)
    spec = LabSpec(dest_count=hosts, session_timeout_ms=SESSION_TIMEOUT_MS)
    with loaded_lab(
        spec, folder / "history", progress, **RATES, metadata_create_every=200, metadata_in_flight=12,
        tenant_large_bytes=100_000, notices=f"{spec.chroot}/config/changes", drain_deadline_s=300.0,
    ) as (lab, load), delays(lab, lab.names(Role.DEST)) as late:  # fmt: skip
        yield Cuts(lab, load, folder, late, progress)


@pytest.mark.parametrize("cuts", [3, 5], indirect=True, ids=lambda hosts: f"{hosts}-hosts")
def test_no_acknowledged_write_is_missing_on_any_disk(
    cuts: Cuts, play: Play, pytestconfig: pytest.Config
) -> None:
    times = times_of(pytestconfig, 10)

    def act() -> str:
        cuts.prepare()
        while len(cuts.done) < TRIES * times and cuts.windows < times:
            cut = cuts.cut_over(len(cuts.done) + 1)
            cuts.done.append(cut)
            cuts.progress(cut.line())
            if cut.opened_alone:
                break
        end = cuts.open()
        cuts.progress("judging the disks")
        figures = judged(cuts.directory, end)
        (cuts.directory / "result.json").write_text(json.dumps(figures, indent=1) + "\n")
        require(figures["held"], summary(figures))
        return summary(figures)

    what = f"{times} cut-overs up to CHECK under load, and back; the last one to OPEN"
    play(what, "nothing missing on any disk, no session lost, every claim of the judge holds", act)
