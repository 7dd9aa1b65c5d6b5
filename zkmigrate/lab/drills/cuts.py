"""The cut-over again and again under load: up to CHECK with every client on dest, and back; at last to OPEN.

``python -m zkmigrate.lab.drills.cuts`` builds a lab, moves brokers and raw clients to dest, and then repeats
``run --until cutover --hold-at check`` answered ``back``: the whole cut-over with its own quorum on dest, but
for the open door. While it is held the disks of dest are copied; judged later, they must hold every create
and every Kafka change that was acknowledged by then, and every session with what it owned. The same is asked
of source's disk after each way back. Dest hosts hear source late meanwhile, each by another part of
``--skew-ms``.

The last cut-over goes to OPEN. ``DIRECTORY/result.json`` has one entry per cut-over.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from zkmigrate.errors import ZkmigrateError
from zkmigrate.lab import fault
from zkmigrate.lab.baseline import baseline
from zkmigrate.lab.commands import run as run_command
from zkmigrate.lab.delay import Delays, delays
from zkmigrate.lab.drills.acknowledged import Missing, Promised, missing_in, promised
from zkmigrate.lab.drills.cut_figures import CutOver, figures_of, rates_of, summary
from zkmigrate.lab.ending import end_on_signals
from zkmigrate.lab.failure import LabError, NotReady
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.record import load_recording
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.readiness import four_letter_word
from zkmigrate.lab.spec import LabSpec, Role
from zkmigrate.lab.timeline import step_spans
from zkmigrate.lab.waiting import Progress, wait_until
from zkmigrate.zkdata.reader import FileDirectory
from zkmigrate.zkdata.tree import load_tree
from zkmigrate.zkdata.words import parse_cons

RUN = "cuts"
VERSION_2 = "var/lib/zookeeper/version-2"
KINDS = ("producer", "consumer", "metadata", "tenant", "raw")
JUDGED = (
    "lost", "duplicated", "acked_creates_missing", "raw_order_violations", "raw_sessions_lost",
    "metadata_changes", "other_tenant_unharmed",
)  # fmt: skip
NOT_ENDED = {"claims": {"opened": (False, "no")}, "details": {}, "sessions_lost": []}
TRIES = 2
"""A busy machine keeps a gate of the preflight closed now and then: so many tries per cut-over on average."""
FLOWING_S, HEALTHY_S, HELD_S = 60.0, 60.0, 240.0


@dataclass(frozen=True)
class Options:
    """What is asked of the drill; rates are per second over all clients of a kind, raw per dest host."""

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
    say: Progress
    load: LoadRunner = field(init=False)
    done: list[CutOver] = field(default_factory=list)

    def __post_init__(self) -> None:
        o = self.options
        self.load = runner_for(
            self.lab, self.history, raw_rate=o.raw_rate, tenant_rate=o.tenant_rate,
            metadata_rate=o.metadata_rate, metadata_create_every=100, metadata_in_flight=4,
            tenant_large_bytes=100_000,
        )  # fmt: skip
        self._chance = random.Random(o.seed)

    @property
    def history(self) -> Path:
        return self.directory / "history"

    @property
    def journal(self) -> Path:
        return self.directory / "runs" / RUN

    @property
    def windows(self) -> int:
        """How many cut-overs came to FENCE; a gate before it that was closed makes none."""
        return sum(cut.span("cutover.fence") is not None for cut in self.done)

    # --- the tool -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def tool(self, name: str, verb: str, *options: str) -> Iterator[subprocess.Popen[str]]:
        """zkmigrate from the operator's place, its events in ``said/NAME.jsonl``; ended on the way out."""
        path = self.directory / "said" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        inventory = str(self.directory / "migration.yml")
        argv = [sys.executable, "-m", "zkmigrate", verb, "-i", inventory, "--run-id", RUN, "--yes", "--json"]
        with path.open("w") as out:
            process = subprocess.Popen(
                self.lab.operator_command([*argv, *options]),
                env={**os.environ, "ZKMIGRATE_RUNS": str(self.directory / "runs")},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
                process.communicate()

    def said(self, name: str) -> list[dict[str, Any]]:
        """The whole events that the tool has told so far."""
        text = (self.directory / "said" / f"{name}.jsonl").read_text()
        lines = text.rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def through(self, name: str, verb: str, *options: str) -> None:
        """Run one verb to its end; LabError unless it ends with 0."""
        self.say(f"tool: {verb} {' '.join(options)}")
        with self.tool(name, verb, *options) as process:
            process.communicate()
        if process.returncode:
            raise LabError(f"zkmigrate {verb} ended with {process.returncode}: {_troubles(self.said(name))}")

    # --- the drill ------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Brokers, producers and raw clients on dest, everything flowing."""
        self.load.start(("producer", "consumer", "metadata", "tenant"))
        self.load.wait_flowing(("producer", "consumer", "metadata", "tenant"), FLOWING_S)
        write_inventory(self.lab, self.directory / "migration.yml")
        self.through("join", "run", "--until", "join")
        if self.options.disk_skew_ms:
            for host in self.lab.role(Role.DEST):
                fault.slow_disk(self.lab, host.name, 1)
        self.through("roll", "resume", "--until", "roll")
        self.load.start(("raw",))
        self.load.wait_flowing(("raw",), FLOWING_S)

    def skewed(self) -> dict[str, int]:
        """Another delay for every dest host; the one that serves the controller hears source at once.

        Kafka writes each change through its controller's session, twice: there half a second would leave one
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
        """Another fsync delay for each dest host, from none to the one asked for; {} without."""
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
        """One cut-over held at CHECK, dest's disks copied, and the way back."""
        name = f"cut-{number}"
        before = baseline(self.lab)
        late, slow = self.skewed(), self.disks_slowed()
        spans = len(step_spans(self.journal))
        asked_ns = time.monotonic_ns()
        held, promised_ns = False, 0
        with self.tool(name, "run", "--until", "cutover", "--hold-at", "check") as process:
            wait_until("held at CHECK, or ended", lambda: self._held_or_ended(name, process), HELD_S, 0.02)
            if process.poll() is None:
                held = True
                self._copy(name, "check", Role.DEST)
                promised_ns = time.monotonic_ns()
                assert process.stdin is not None
                process.stdin.write("back\n")
                process.stdin.flush()
            process.communicate()
        cause = "" if held and process.returncode == 0 else _troubles(self.said(name))
        promised_ns = promised_ns or time.monotonic_ns()
        lost = self._healthy_again(before)
        self._copy(name, "back", Role.SOURCE)
        cut = CutOver(
            number, asked_ns, promised_ns, held, process.returncode, cause, late, slow, before, lost,
            step_spans(self.journal)[spans:],
        )  # fmt: skip
        (self.directory / "disks" / name / "cut.json").write_text(json.dumps(asdict(cut)) + "\n")
        return cut

    def _held_or_ended(self, name: str, process: subprocess.Popen[str]) -> str | None:
        if process.poll() is not None or any(e["event"] == "Holding" for e in self.said(name)):
            return None
        return "neither"

    def _copy(self, name: str, moment: str, role: Role) -> None:
        """Keep the disks of this moment; of source's the first host's is enough."""
        hosts = self.lab.role(role)
        for host in hosts if role is Role.DEST else hosts[:1]:
            target = self.directory / "disks" / name / moment / host.name
            target.mkdir(parents=True)
            run_command(["cp", "-a", "--sparse=always", f"{host.root / VERSION_2}/.", str(target)])

    def _healthy_again(self, before: dict[str, Any]) -> tuple[str, ...]:
        """Wait until every session is served and everything flows again; what was lost of sessions."""
        for host in self.delays.hosts:
            self.delays.set(host, 0)
        if self.options.disk_skew_ms:
            for zookeeper in self.lab.role(Role.DEST):
                fault.slow_disk(self.lab, zookeeper.name, 1)

        def missing() -> str | None:
            try:
                away = set(before["sessions"]) - set(baseline(self.lab)["sessions"])
            except LabError as error:
                return str(error)
            return f"sessions {sorted(away)}" if away else None

        lost: list[str] = []
        try:
            wait_until("every session served again", missing, HEALTHY_S)
        except NotReady as late:
            lost.append(str(late))
        self.load.wait_flowing(("raw", "producer", "metadata"), FLOWING_S, since_ns=time.monotonic_ns())
        after = baseline(self.lab)
        lost += [
            f"{path}: {owner}, now {after['ephemerals'].get(path)}"
            for path, owner in before["ephemerals"].items()
            if after["ephemerals"].get(path) != owner
        ]
        if after["controller_epoch"] != before["controller_epoch"]:
            lost.append(f"controller epoch {before['controller_epoch']}, now {after['controller_epoch']}")
        return tuple(lost)

    def open(self) -> dict[str, Any]:
        """The cut-over to its end, and what is judged after the load has ended."""
        before = baseline(self.lab)
        self.skewed()
        self.through("open", "run", "--until", "cutover")
        lost = self._healthy_again(before)
        for problem in self.load.finish():
            self.say(f"load: {problem}")
        body = {"brokers": [], "steps": step_spans(self.journal)}
        (self.history / "run.json").write_text(json.dumps(body) + "\n")
        verdict = judge(load_history(self.history))
        claims = {name: (verdict[name].value, verdict[name].held.value) for name in JUDGED}
        details = {name: verdict[name].detail for name in JUDGED if verdict[name].held.value != "yes"}
        return {"claims": claims, "details": details, "sessions_lost": list(lost)}


def _troubles(said: list[dict[str, Any]]) -> str:
    """What the tool said stood in the way, and what it decided."""
    alarms = [(e, e["finding"]) for e in said if e["event"] == "Alarm"]
    found = [f"{e['phase']}: {f['id']} {f['target']}: {f['seen']} -> {e['decision']}" for e, f in alarms]
    ended = [e for e in said if e["event"] == "RunEnded"]
    for e in ended if not found else []:
        found.append(e["message"])
        found += [f"{f['id']} {f['target']}: {f['seen']}" for f in e["findings"] if f["held"] != "yes"]
    return "; ".join(found)[:2000]


def judge_disk(disk: Path, promise: Promised, chroot: str) -> Missing:
    """What the copied disk of one host does not hold of what was promised."""
    return missing_in(load_tree(FileDirectory(disk), chroot=chroot), promise, chroot)


def judged(directory: Path) -> dict[str, Any]:
    """Judge what a drill saved in its directory, to the end or not; returns what ``result.json`` holds.

    Copied disks are read two at a time, and removed when nothing is missing on any.
    """
    saved = sorted((directory / "disks").glob("cut-*/cut.json"), key=lambda path: int(path.parent.name[4:]))
    cuts = [CutOver(**json.loads(path.read_text())) for path in saved]
    spec = json.loads((directory / "options.json").read_text())
    recordings = {kind: load_recording(directory / "history", kind) for kind in KINDS}
    raw, metadata = recordings["raw"].of("ack"), recordings["metadata"].of("op")
    found: dict[int, tuple[Promised, dict[str, Missing]]] = {}
    with ProcessPoolExecutor(2) as pool:
        for cut in cuts:
            acked, changed = (
                [e for e in events if e["mono_ns"] <= cut.promised_ns] for events in (raw, metadata)
            )
            promise = promised(acked, changed, cut.baseline)
            root = directory / "disks" / f"cut-{cut.number}"
            disks = sorted(path for path in root.glob("*/*") if path.is_dir())
            n = len(disks)
            answers = pool.map(judge_disk, disks, [promise] * n, [LabSpec.chroot] * n)
            names = [str(path.relative_to(root)) for path in disks]
            found[cut.number] = (promise, dict(zip(names, answers, strict=True)))
    end_file = directory / "end.json"
    end = json.loads(end_file.read_text()) if end_file.exists() else NOT_ENDED
    result = figures_of(cuts, found, recordings["raw"], rates_of(recordings, cuts), end, spec)
    if result["missing"] == 0:
        for cut in cuts:
            for moment in ("check", "back"):
                shutil.rmtree(directory / "disks" / f"cut-{cut.number}" / moment, ignore_errors=True)
    return result


def drill(options: Options, directory: Path, say: Progress) -> None:
    """Build the lab, repeat, open and take it down; what is to be judged is in the directory afterwards."""
    (directory / "options.json").write_text(json.dumps(asdict(options)) + "\n")
    spec = LabSpec(dest_count=options.dest_count, session_timeout_ms=options.session_timeout_ms)
    with Lab.up(spec, say) as lab:
        dest = [host.name for host in lab.role(Role.DEST)]
        with delays(lab, dest) as late:
            cuts = Cuts(lab, directory, options, late, say)
            try:
                cuts.prepare()
                while len(cuts.done) < TRIES * options.times and cuts.windows < options.times:
                    cut = cuts.cut_over(len(cuts.done) + 1)
                    cuts.done.append(cut)
                    say(cut.line())
                (directory / "end.json").write_text(json.dumps(cuts.open()) + "\n")
            finally:
                cuts.load.kill()
        say("lab: taking everything down")


@click.command()
@click.option(
    "--times", default=Options.times, help="Cut-overs up to CHECK and back, before the one to OPEN."
)
@click.option("--dest-count", type=click.Choice(["3", "5"]), default="3", help="Dest hosts.")
@click.option("--session-timeout-ms", default=Options.session_timeout_ms, help="Of brokers and raw clients.")
@click.option("--metadata-rate", default=Options.metadata_rate, help="Kafka metadata changes per second.")
@click.option("--raw-rate", default=Options.raw_rate, help="Raw creates per second and dest host.")
@click.option("--tenant-rate", default=Options.tenant_rate, help="Writes per second of the other tenant.")
@click.option("--skew-ms", default=Options.skew_ms, help="How late the latest dest host hears source.")
@click.option("--disk-skew-ms", default=Options.disk_skew_ms, help="How slow the slowest fsync of dest is.")
@click.option("--seed", default=Options.seed, help="Of the skews.")
@click.option(
    "--directory", default="drills/cuts", type=click.Path(path_type=Path), help="Where the result goes."
)
@click.option("--judge-only", is_flag=True, help="Judge what DIRECTORY holds of a drill that was cut short.")
def main(directory: Path, dest_count: str, judge_only: bool, **options: Any) -> None:
    """Repeat the cut-over under load and judge what every acknowledged write became of."""
    started = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"[{time.monotonic() - started:6.1f} s] {line}")

    directory = directory.absolute()
    end_on_signals()
    if not judge_only:
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "history").mkdir(parents=True)
        try:
            drill(Options(dest_count=int(dest_count), **options), directory, say)
        except ZkmigrateError as error:
            say(f"failed: {error}; what was recorded is in {directory}")
            sys.exit(1)
    say("judging the disks")
    result = judged(directory)
    result["seconds"] = round(time.monotonic() - started, 1)
    (directory / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    click.echo(summary(result))
    sys.exit(0 if result["held"] else 1)


if __name__ == "__main__":
    main()
