"""Run the demo: move a loaded Kafka between two real ensembles of a lab, then judge the recording.

``python -m zkmigrate.lab.demo`` writes ``demo/result.json`` and exits with 0 only if every claim held. The
demo runs the tool as an operator would: the command line, over ssh, from the operator's network of the lab.
First it measures the machine and adapts its settings to it (``lab/fit.py``). If a stage turns back, the demo
tries the stage again, as an operator would.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import click

from zkmigrate.lab import canary_topic, planted
from zkmigrate.lab.baseline import save_baseline
from zkmigrate.lab.cluster_demo import DEMOS
from zkmigrate.lab.cluster_site import six_brokers
from zkmigrate.lab.demo_result import result_of, show
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.fit import AS_MEASURED, WINDOW_OVER_FLOOR, Fit, Speed, describe, fit
from zkmigrate.lab.floor import measure_floor
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.judge import Claim, judge, load_history
from zkmigrate.lab.lab import Lab, needs_root, sweep
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.render import ZOOKEEPER_DATA
from zkmigrate.lab.security import parse
from zkmigrate.lab.shutdown import running, shown
from zkmigrate.lab.source_state import source_state
from zkmigrate.lab.spec import SHARED, SHARED_HELP, LabSpec, Role
from zkmigrate.lab.speed import measure
from zkmigrate.lab.timeline import opened_by, step_spans
from zkmigrate.lab.versions import broker_logs, kafka_version, wanted_versions, zookeeper_version
from zkmigrate.lab.wait import Progress
from zkmigrate.move.facts.records import Surveyed
from zkmigrate.report import verb
from zkmigrate.runbook.engine import runs, samples
from zkmigrate.runbook.engine.journal import read as read_journal
from zkmigrate.runbook.model.step_record import recorded
from zkmigrate.zookeeper.data.session import format_session

RUN = "demo"
MOVE = "kafka_zookeeper_move"
ANALYSES = ("tenants", "writers", "quiet")
FLOWING_S = 60.0
TRIES = 3
"""The maximum number of tries of rehearsal, roll and cut-over."""
PRIORITY = ("nice", "-n", "-5")
"""The command that gives the tool a higher priority than the load clients.

The tool must renew leases in time, and the load clients share its processors.
"""


@dataclass
class Demo:
    """One run of the demo. directory: receives all its results. fit: its settings for this machine."""

    lab: Lab
    directory: Path
    progress: Progress
    fit: Fit = AS_MEASURED
    speed: Speed | None = None
    tries: list[dict[str, Any]] = field(default_factory=list)
    """The tries that had to be repeated. Each has verb, stage, exit code, and the demo's reaction."""
    search: planted.Search | None = None
    """The search for the secrets of a secured lab."""

    @property
    def history(self) -> Path:
        return self.directory / "history"

    @property
    def runs(self) -> Path:
        return self.directory / "runs"

    def move(self) -> dict[str, Any]:
        """Start the load, run the move, verify and judge. Return the content of ``result.json``."""
        load = runner_for(self.lab, self.history, **self.fit.rates())
        before = source_state(self.lab)
        if self.lab.spec.security:
            self.search = planted.Search(planted.secrets_of(self.lab))
        try:
            with nullcontext() if self.search is None else self.search.during(self.lab):
                self._walk(load)
        finally:
            self._save_logs()
        self.progress("load: stopping, draining the consumer to the high watermarks")
        for problem in load.finish():
            self.progress(f"load: {problem}")
        unchanged = source_state(self.lab) == before
        versions = self._versions()
        self.progress("floor: three participants starting on the same data")
        floor = measure_floor(self.lab)
        return self._result(unchanged, floor, versions, self.analyse())

    def _walk(self, load: LoadRunner) -> None:
        self.progress("load: producers, consumers, metadata changes and the other tenant start")
        load.start(("producer", "consumer", "metadata", "tenant"))
        load.wait_flowing(("producer", "consumer", "tenant"), self._flowing_s)
        topic = canary_topic.make(self.lab)
        policy = self.fit.policy(self.lab.spec.session_timeout_ms)
        write_inventory(self.lab, self.directory / "migration.yml", policy, canary_topic=topic)
        if self.search is not None:
            self.tool("plan", "--out", str(self.directory / "plan"))
        self.tool("run", "--run-id", RUN, "--yes", "--until", "join")
        self.progress("load: one raw client per dest host starts")
        load.start(("raw",))
        load.wait_flowing(("raw",), self._flowing_s)
        self._rolled_and_cut_over(load)
        self._wait_flowing(load)
        save_baseline(self.lab, self.history / "baseline-open.json")
        self.tool("resume", "--run-id", RUN, "--yes")
        save_baseline(self.lab, self.history / "baseline-after.json")

    @property
    def _flowing_s(self) -> float:
        return FLOWING_S * self.fit.slowness

    def _wait_flowing(self, load: LoadRunner) -> None:
        kinds = ("producer", "consumer", "raw")
        load.wait_flowing(kinds, self._flowing_s, since_ns=time.monotonic_ns())

    def _rolled_and_cut_over(self, load: LoadRunner) -> None:
        """Rehearse, roll and cut over, and repeat a try that turns back, up to TRIES tries.

        The baseline is saved before the first try of the cut-over, and again only after another roll. So it
        shows sessions that were lost in a try that turned back.
        """
        verb, until = "resume", "roll"
        while True:
            code = self._ran(verb, "--run-id", RUN, "--yes", "--until", until)
            if not code and until == "cutover":
                return
            if not code:
                save_baseline(self.lab, self.history / "baseline-before.json")
                verb, until = "resume", "cutover"
                continue
            then = next_try(code, len(self.tries) + 1)
            if then is None:
                raise _failed(verb, code)
            self.tries.append({"verb": verb, "until": until, "code": code, "then": then})
            self.progress(announce_try(code, then, len(self.tries) + 1))
            if then == "rehearse":
                self.tool("rollback", "--run-id", RUN, "--yes", "--to", "rehearse")
                until = "roll"
            verb = "run"
            self._wait_flowing(load)

    def analyse(self) -> bool:
        """Analyse source's files, and return whether the analysis succeeded.

        The analysis lists tenants and writers under the chroot, and finds quiet times. Brokers and dest are
        switched off first, so that the analysis can use the whole machine.
        """
        self.progress("lab: brokers and dest are switched off, so that the analysis has the whole machine")
        for host in (*self.lab.role(Role.BROKER), *self.lab.role(Role.DEST)):
            self.lab.cut_power(host.name)
        data = ZOOKEEPER_DATA.lstrip("/")
        places = [f"{host.name}={host.root / data}" for host in self.lab.role(Role.SOURCE)]
        chroot = self.lab.spec.chroot
        only = ("--only", "kafka,zkmigrate-raw") if chroot == "/" else ()
        options = ("--chroot", chroot, *only, "--window", "5", "--top", "8")
        self.progress(f"tool: zkmigrate analyze {','.join(ANALYSES)} ... {' '.join(options)}")
        argv = [sys.executable, "-m", "zkmigrate", "analyze", ",".join(ANALYSES), *places, *options]
        return self._code_of([*argv, "--out", str(self.directory / "analysis")]) == 0

    def tool(self, verb: str, *options: str) -> None:
        """Run zkmigrate as the operator. Raises LabError for an exit code other than 0."""
        if code := self._ran(verb, *options):
            raise _failed(verb, code)

    def _ran(self, verb: str, *options: str) -> int:
        """Run zkmigrate as the operator and return its exit code."""
        inventory = str(self.directory / "migration.yml")
        argv = [*PRIORITY, sys.executable, "-m", "zkmigrate", verb, "-i", inventory, *options]
        self.progress(f"tool: zkmigrate {verb} {' '.join(options)}")
        logged = ("--log-file", str(self.directory / "log"))
        return self._code_of(self.lab.operator_command([*argv, *logged]))

    def _code_of(self, argv: Sequence[str]) -> int:
        """Run a program to its end, and return its exit code.

        Without a search for secrets it has the demo's own terminal, and so its live screen.
        """
        environment = {**os.environ, "ZKMIGRATE_RUNS": str(self.runs)}
        if self.search is not None:
            return shown(argv, environment, self.directory / "output")
        with running(argv, environment) as process:
            return process.wait()

    def _save_logs(self) -> None:
        """Save the broker logs and the times of the steps in the judge's format."""
        for broker, log in broker_logs(self.lab, self.lab.names(Role.BROKER)).items():
            (self.history / f"broker-{broker}.log").write_text(log)
        journal = self.runs / RUN
        steps = step_spans(journal) if journal.exists() else []
        body = {"brokers": self.lab.names(Role.BROKER), "steps": steps}
        (self.history / "run.json").write_text(json.dumps(body, indent=1) + "\n")

    def _versions(self) -> dict[str, str]:
        """Return the versions that the servers report, by their names in the result."""
        return {
            "zookeeper_source": zookeeper_version(self.lab, Role.SOURCE),
            "zookeeper_dest": zookeeper_version(self.lab, Role.DEST),
            "kafka": kafka_version(
                {b: (self.history / f"broker-{b}.log").read_text() for b in self.lab.names(Role.BROKER)}
            ),
        }

    def _result(
        self, source_unchanged: bool, floor_s: float, versions: dict[str, str], analysed: bool
    ) -> dict[str, Any]:
        history = read_journal(self.runs / RUN)
        survey = recorded(Surveyed, history.records()["cutover.survey"], history.run)
        surveyed = {format_session(session) for session in survey.on_dest}
        steps = json.loads((self.history / "run.json").read_text())["steps"]
        limits = self.fit.judge()
        facts = {
            "backend": self.lab.record.backend,
            "versions": versions,
            "floor_s": round(floor_s, 3),
            "source_files_unchanged": source_unchanged,
            "steps": [
                {"name": s["name"], "seconds": round((s["end_mono_ns"] - s["start_mono_ns"]) / 1e9, 3)}
                for s in steps
            ],
            "run_complete": history.ended is not None and history.ended[0] == 0,
            "owners_on_dest_at_survey": self._owners() <= surveyed,
            "canary_acknowledged": self._canary(),
            "opened_by": opened_by(self.runs / RUN, self.lab.names(Role.DEST)),
            "machine": {
                **(asdict(self.speed) if self.speed else {}),
                "slowness": self.fit.slowness,
                "load": self.fit.load,
                "session_timeout_ms": self.lab.spec.session_timeout_ms,
            },
            "tries": self.tries,
            "analysed": analysed,
            "limits": {
                "ack_gap_s": limits.ack_gap_limit_s,
                "tenant_gap_s": limits.tenant_gap_limit_s,
                "window_over_floor": WINDOW_OVER_FLOOR,
            },
        }
        verdict = judge(load_history(self.history), limits)
        if self.search is not None:
            verdict = replace(verdict, claims=(*verdict.claims, self._secrets(self.search)))
        return result_of(verdict, facts, wanted_versions(self.lab.spec))

    def _secrets(self, search: planted.Search) -> Claim:
        """Return the claim that none of the demo's files has a secret, with what the search saw before."""
        write_report(self.directory)
        search.file(planted.OUTPUT, "the output", self.directory / "output")
        search.folder(planted.DIRECTORY, self.directory, without=("output",))
        return search.claim(self.lab)

    def _canary(self) -> dict[str, int]:
        """Return how many records of the produce canary each broker acknowledged, by broker."""
        lines = (self.runs / RUN / samples.NAME).read_text().splitlines()
        counts = canary_topic.acknowledged(json.loads(line) for line in lines if line)
        return {broker: counts.get(broker, 0) for broker in self.lab.names(Role.BROKER)}

    def _owners(self) -> set[str]:
        """Return the sessions that owned broker registrations and the controller before the cut-over.

        The sessions are read from the baseline. At SURVEY, right before FENCE, the same sessions must be
        clients of dest.
        """
        before = json.loads((self.history / "baseline-before.json").read_text())
        return {znode["owner"] for znode in before["ephemerals"].values()}


def next_try(code: int, tried: int) -> Literal["run", "rehearse"] | None:
    """Return the demo's reaction to this exit code of the tool in try number ``tried``.

    The reaction is "run" to run the stage again, "rehearse" to rehearse again, or None if an operator must
    look.
    """
    if tried >= TRIES:
        return None
    if code in (7, 9):
        return "run"
    return "rehearse" if code == 6 else None


def announce_try(code: int, then: Literal["run", "rehearse"], number: int) -> str:
    """Return the line that announces another try."""
    why = {
        6: "a gate is closed",
        7: "the window turned back",
        9: "a lease ended; dest observes source again",
    }[code]
    how = "runs the stage again" if then == "run" else "goes back to the rehearsal and measures it again"
    return (
        f"the tool ended with exit code {code} ({why}; the lines above say why). Clients go on as before. "
        f"The demo {how}, as an operator would: try {number} of {TRIES}."
    )


def _failed(verb: str, code: int) -> LabError:
    return LabError(
        f"zkmigrate {verb} ended with exit code {code}; the lines above say why. What each code means is in "
        "docs/reference/exit-codes.md. Next: make the machine less busy, then run the demo again"
    )


def write_report(directory: Path) -> Path | None:
    """Write the report of the move and its clients. Return the report's path, or None if no run has begun."""
    if not runs.has_begun(directory / "runs" / RUN):
        return None
    out = directory / verb.PAGE
    request = verb.ReportRequest(
        inventory=directory / "migration.yml", playbook="", runs=directory / "runs", run_id=RUN,
        format="html", out=out, load=directory / "history",
    )  # fmt: skip
    verb.report(request, io.StringIO())
    return out


def fitted(spec: LabSpec, session_timeout_ms: int | None, progress: Progress) -> tuple[LabSpec, Speed]:
    """Measure this machine. Return the spec adapted to its speed, and the speed.

    session_timeout_ms: the wanted session timeout; None chooses one that suits the machine. Abandoned labs
    are removed first, because they would make the machine look slower than it is.
    """
    needs_root()
    sweep(progress)
    progress("machine: three ZooKeepers start at once, twice, to measure it")
    speed = measure(spec)
    chosen = fit(speed)
    timeout_ms = session_timeout_ms or chosen.session_timeout_ms
    spec = replace(spec, session_timeout_ms=timeout_ms, tick_time_ms=chosen.tick_time_ms(timeout_ms))
    progress(f"machine: {describe(speed, chosen, spec)}")
    return spec, speed


def lab_of(playbook: str, options: dict[str, Any], *, policy: bool = False) -> LabSpec:
    """Return the spec of the lab for the demo of a playbook other than the move.

    policy: whether the brokers load our CreateTopicPolicy. Raises UsageError for an option of the move.
    """
    default = {item.name: item.default for item in fields(LabSpec)}
    foreign = [name for name, value in options.items() if name != "kafka_version" and value != default[name]]
    if foreign:
        words = ", ".join(name.replace("_", "-") for name in foreign)
        raise click.UsageError(
            f"the demo of {playbook} takes only --kafka-version. Options only for {MOVE}: {words}"
        )
    needs_root()
    return six_brokers(options["kafka_version"], policy=policy)


@click.command()
@click.option(
    "--playbook",
    type=click.Choice([MOVE, *DEMOS]),
    default=MOVE,
    show_default=True,
    help="The playbook to run.",
)
@click.option("--source-version", default=LabSpec.source_version, help="ZooKeeper version of source.")
@click.option("--dest-version", default=LabSpec.dest_version, help="ZooKeeper version of dest.")
@click.option("--kafka-version", default=LabSpec.kafka_version, help="Kafka version.")
@click.option("--dest-count", type=int, default=LabSpec.dest_count, help="Number of dest hosts: 3, 5 or 7.")
@click.option("--source-count", type=int, default=LabSpec.source_count, help="Number of source servers.")
@click.option("--source-observers", type=int, default=0, help="Number of source's own observers: 0 to 2.")
@click.option("--debian", type=int, default=LabSpec.debian, help="Debian on all hosts: 12 or 13.")
@click.option("--chroot", default=LabSpec.chroot, help="Kafka's chroot on source, or /.")
@click.option(
    "--session-timeout-ms",
    type=int,
    help="Session timeout of brokers and raw clients. Default: 18,000 to 90,000, as this machine needs.",
)
@click.option(
    "--service",
    type=click.Choice(["systemd", "commands"]),
    default="systemd",
    help="How the servers of dest and the brokers are started.",
)
@click.option(
    "--source-reconfig",
    "reconfig_enabled",
    is_flag=True,
    help="Set reconfigEnabled on source, and later on dest.",
)
@click.option(
    "--tree-size", type=int, default=0, help="Number of filler znodes on source, outside the chroot."
)
@click.option("--tree-node-bytes", type=int, default=LabSpec.tree_node_bytes, help="Size of a filler znode.")
@click.option(
    "--security",
    callback=lambda _context, _option, text: parse(text),
    default="",
    help="Kinds of security with commas between, as for `lab up`; or full, which is all but enforce.",
)
@click.option("--shared", type=click.Choice([*SHARED]), help=SHARED_HELP)
@click.option("--policy", is_flag=True, help="Let the brokers load our CreateTopicPolicy (not the move).")
@click.option(
    "--directory", default="demo", type=click.Path(path_type=Path), help="Directory for the result."
)
def main(
    playbook: str, policy: bool, directory: Path, session_timeout_ms: int | None, **of_the_lab: Any
) -> None:
    """Run a playbook on a loaded Kafka in a lab on this machine, and judge it."""
    other = None if playbook == MOVE else lab_of(playbook, of_the_lab, policy=policy)
    measured: list[Speed] = []

    def prepare(progress: Progress) -> LabSpec:
        if other is not None:
            return other
        spec, speed = fitted(LabSpec(**of_the_lab), session_timeout_ms, progress)
        measured.append(speed)
        return spec

    def play(lab: Lab, directory: Path, progress: Progress) -> dict[str, Any]:
        if other is not None:
            return DEMOS[playbook](lab, directory, progress).play()
        return Demo(lab, directory, progress, fit(measured[0]), measured[0]).move()

    show(directory, prepare, play, write_report)


if __name__ == "__main__":
    main()
