"""The cut-over again and again under load: up to CHECK and back with every client on dest, at last to OPEN.

``python -m zkmigrate.lab.drills.cuts`` builds a lab, moves brokers and raw clients to dest, and repeats ``run
--until cutover --hold-at check`` answered ``back``: the whole cut-over except the open door. While the tool
holds, the drill copies dest's disks. They must hold every create and every Kafka change that was acknowledged
by then, and every session with what it owned; so must source's disk after each way back. Dest hosts hear
source late meanwhile, each by another part of ``--skew-ms``.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from zkmigrate.errors import ZkmigrateError
from zkmigrate.lab import fault
from zkmigrate.lab.baseline import baseline, lost_since, sessions_not_served
from zkmigrate.lab.commands import run as run_command
from zkmigrate.lab.delay import Delays, delays
from zkmigrate.lab.drills import result
from zkmigrate.lab.drills.cut_figures import CutOver, cases_of, summary
from zkmigrate.lab.drills.disks import judged, loaded_from
from zkmigrate.lab.drills.runner import directory_option, prepare
from zkmigrate.lab.failure import NotReady
from zkmigrate.lab.footprint import VERSION_2
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.readiness import four_letter_word
from zkmigrate.lab.spec import LabSpec, Role
from zkmigrate.lab.timeline import step_spans
from zkmigrate.lab.wait import Progress, TimedProgress, wait_until
from zkmigrate.zookeeper.data.four_letter_words import parse_cons
from zkmigrate.zookeeper.data.reader import FileDirectory

RUN = "cuts"
JUDGED = (
    "lost", "duplicated", "acked_creates_missing", "raw_order_violations", "raw_sessions_lost",
    "metadata_changes", "other_tenant_unharmed",
)  # fmt: skip
FEW_TRIES = 4
TRIES = 2
"""Tries per cut-over on average: on a busy machine a gate of the preflight is closed now and then."""
FLOWING_S, HEALTHY_S, HELD_S, ENDED_S = 120.0, 120.0, 240.0, 900.0


@dataclass(frozen=True)
class Options:
    """The drill's options; rates are per second over all clients of a kind, raw per dest host."""

    times: int = 10
    dest_count: int = 3
    session_timeout_ms: int = 40_000
    metadata_rate: float = 30.0
    raw_rate: float = 20.0
    tenant_rate: float = 270.0
    skew_ms: int = 500
    disk_skew_ms: int = 0
    seed: int = 1


@dataclass
class Cuts:
    """One lab in which the cut-over is repeated."""

    lab: Lab
    directory: Path
    options: Options
    delays: Delays
    progress: Progress
    load: LoadRunner = field(init=False)
    operator: Operator = field(init=False)
    done: list[CutOver] = field(default_factory=list)

    def __post_init__(self) -> None:
        o = self.options
        self.load = runner_for(
            self.lab, self.history, raw_rate=o.raw_rate, tenant_rate=o.tenant_rate,
            metadata_rate=o.metadata_rate, metadata_create_every=200, metadata_in_flight=12,
            tenant_large_bytes=100_000, notices=f"{self.lab.spec.chroot}/config/changes",
            drain_deadline_s=300.0,
        )  # fmt: skip
        self.operator = Operator(self.lab, self.directory, RUN)
        self._chance = random.Random(o.seed)

    @property
    def history(self) -> Path:
        return self.directory / "history"

    @property
    def windows(self) -> int:
        """How many cut-overs came to FENCE."""
        return sum(cut.span("cutover.fence") is not None for cut in self.done)

    def _run_until(self, name: str, stage: str, tries: int = 1) -> None:
        words = ("run", "--until", stage)
        self.operator.through(name, *words, limit_s=ENDED_S, tries=tries, progress=self.progress)

    def prepare(self) -> None:
        """Brokers, producers and raw clients on dest, everything flowing."""
        self.load.start(("producer", "consumer", "tenant"))
        self.load.wait_flowing(("producer", "consumer", "tenant"), FLOWING_S)
        write_inventory(self.lab, self.directory / "migration.yml")
        self._run_until("join", "join")
        if self.options.disk_skew_ms:
            for host in self.lab.role(Role.DEST):
                fault.slow_disk(self.lab, host.name, 1)
        self._run_until("roll", "roll", tries=FEW_TRIES)
        # Not before: the client that takes old notices away is one of dest.
        self.load.start(("raw", "metadata"))
        self.load.wait_flowing(("raw", "metadata"), FLOWING_S)

    def skewed(self) -> dict[str, int]:
        """Set another delay for every dest host, but none for the one that serves the controller.

        Kafka writes each change twice through its controller's session: half a second there would leave one
        change a second.
        """
        with self.lab.zookeeper(Role.DEST) as client:
            stat = client.exists(f"{self.lab.spec.chroot}/controller")
        served = self._serving(stat.ephemeralOwner) if stat is not None else ""
        others = [host for host in self.delays.hosts if host != served]
        self._chance.shuffle(others)
        most = self.options.skew_ms
        chosen = dict.fromkeys(self.delays.hosts, 0)
        chosen |= {host: self._chance.randint(0, most) for host in others}
        if others:
            chosen[others[0]] = most
        for host, late in chosen.items():
            self.delays.set(host, late)
        return chosen

    def disks_slowed(self) -> dict[str, int]:
        """Set another fsync delay for each dest host, up to the option's; {} without the option."""
        most = self.options.disk_skew_ms
        if not most:
            return {}
        chosen = {host.name: self._chance.randint(0, most) for host in self.lab.role(Role.DEST)}
        chosen[self._chance.choice(list(chosen))] = most
        for host, late in chosen.items():
            fault.slow_disk(self.lab, host, late)
        return chosen

    def _serving(self, session: int) -> str:
        with self.lab.operator():
            for host in self.lab.role(Role.DEST):
                answer = four_letter_word(host.address, "cons") or ""
                if any(c.session == session for c in parse_cons(answer)):
                    return host.name
        return ""

    def cut_over(self, number: int) -> CutOver:
        """One cut-over: hold at CHECK, copy dest's disks, go back."""
        name = f"cut-{number}"
        before = baseline(self.lab)
        late, slow = self.skewed(), self.disks_slowed()
        spans = len(step_spans(self.operator.journal))
        asked_ns = time.monotonic_ns()
        promised_ns = 0
        with self.operator.tool(name, "run", "--until", "cutover", "--hold-at", "check") as tool:
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
        """Copy the disks now; of source one is enough."""
        hosts = self.lab.role(role)
        for host in hosts if role is Role.DEST else hosts[:1]:
            disk = host.root / VERSION_2
            target = self.directory / "disks" / name / moment / host.name
            target.mkdir(parents=True)
            files = [str(disk / file) for file in loaded_from(FileDirectory(disk))]
            run_command(["cp", "-a", "--sparse=always", *files, str(target)])

    def _healthy_again(self, before: dict[str, Any]) -> tuple[str, ...]:
        """Wait until every session is served and everything flows again; the losses."""
        for host in self.delays.hosts:
            self.delays.set(host, 0)
        if self.options.disk_skew_ms:
            for zookeeper in self.lab.role(Role.DEST):
                fault.slow_disk(self.lab, zookeeper.name, 1)

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
        """Cut over to the end, end the load, and judge it."""
        began = time.monotonic()
        before = baseline(self.lab)
        self.skewed()
        self._run_until("open", "cutover", tries=FEW_TRIES)
        lost = self._healthy_again(before)
        seconds = round(time.monotonic() - began, 1)
        for problem in self.load.finish():
            self.progress(f"load: {problem}")
        body = {"brokers": [], "steps": step_spans(self.operator.journal)}
        (self.history / "run.json").write_text(json.dumps(body) + "\n")
        verdict = judge(load_history(self.history))
        claims = {name: (verdict[name].value, verdict[name].held.value) for name in JUDGED}
        details = {name: verdict[name].detail for name in JUDGED if verdict[name].held.value != "yes"}
        return {"claims": claims, "details": details, "sessions_lost": list(lost), "seconds": seconds}


def drill(options: Options, directory: Path, say: Progress) -> None:
    """Build the lab, repeat, open and take it down; what to judge is then in the directory."""
    (directory / "options.json").write_text(json.dumps(asdict(options)) + "\n")
    spec = LabSpec(dest_count=options.dest_count, session_timeout_ms=options.session_timeout_ms)
    with Lab.up(spec, say) as lab:
        with delays(lab, lab.names(Role.DEST)) as late:
            cuts = Cuts(lab, directory, options, late, say)
            try:
                cuts.prepare()
                while len(cuts.done) < TRIES * options.times and cuts.windows < options.times:
                    cut = cuts.cut_over(len(cuts.done) + 1)
                    cuts.done.append(cut)
                    say(cut.line())
                    if cut.opened_alone:
                        break
                (directory / "end.json").write_text(json.dumps(cuts.open()) + "\n")
            finally:
                cuts.load.kill()
        say("lab: taking everything down")


@click.command()
@click.option("--times", default=Options.times, help="Cut-overs to CHECK and back, before the one to OPEN.")
@click.option("--dest-count", type=click.Choice(["3", "5"]), default="3", help="Dest hosts.")
@click.option("--session-timeout-ms", default=Options.session_timeout_ms, help="Of brokers and raw clients.")
@click.option("--metadata-rate", default=Options.metadata_rate, help="Kafka metadata changes per second.")
@click.option("--raw-rate", default=Options.raw_rate, help="Raw creates per second and dest host.")
@click.option("--tenant-rate", default=Options.tenant_rate, help="Writes per second of the other tenant.")
@click.option("--skew-ms", default=Options.skew_ms, help="How late the latest dest host hears source.")
@click.option("--disk-skew-ms", default=Options.disk_skew_ms, help="How slow the slowest fsync of dest is.")
@click.option("--seed", default=Options.seed, help="Of the skews.")
@directory_option(RUN)
@click.option("--judge-only", is_flag=True, help="Judge what DIRECTORY holds of a drill that was cut short.")
def main(directory: Path, dest_count: str, judge_only: bool, **options: Any) -> None:
    """Repeat the cut-over under load, and judge what became of every acknowledged write."""
    progress = TimedProgress()
    directory = prepare(directory, keep=judge_only)
    if not judge_only:
        (directory / "history").mkdir()
        try:
            drill(Options(dest_count=int(dest_count), **options), directory, progress)
        except ZkmigrateError as error:
            progress(f"failed: {error}; the recordings are in {directory}")
            sys.exit(1)
    progress("judging the disks")
    figures = judged(directory)
    # The figures decide whether the drill held: a drill that was cut short may have cases that all held.
    result.write(directory, result.body_of(RUN, cases_of(figures), progress.seconds) | figures)
    click.echo(summary(figures))
    sys.exit(0 if figures["held"] else 1)


if __name__ == "__main__":
    main()
