"""The main job on the embedded lab: move a loaded Kafka between two real ensembles, then judge what was
recorded.

``python -m zkmigrate.lab.demo`` writes ``demo/result.json`` and exits 0 only if every claim held. The tool
is run
as an operator would run it: the command line, over ssh, from the operator's place in the lab.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from zkmigrate.engine import runs, samples
from zkmigrate.engine.journal import read as read_journal
from zkmigrate.errors import ZkmigrateError
from zkmigrate.lab import canary_topic, state
from zkmigrate.lab.baseline import save_baseline
from zkmigrate.lab.ending import end_on_signals, running
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.floor import measure_floor
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.judge import Policy, Verdict, judge, load_history
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.render import ZOOKEEPER_DATA
from zkmigrate.lab.service import read_log
from zkmigrate.lab.source_state import source_state
from zkmigrate.lab.spec import LabSpec, Role
from zkmigrate.lab.timeline import opened_by, step_spans
from zkmigrate.lab.versions import kafka_version, wanted_versions, zookeeper_version
from zkmigrate.lab.waiting import Progress
from zkmigrate.report import verb

RUN = "demo"
ANALYSES = ("tenants", "writers", "quiet")
BACKEND = "nspawn"
FLOWING_S = 60.0
LEFT = "there are still {}; `zkmigrate lab sweep`, or the next start, takes down what nobody owns any more"
# Three JVMs starting beside the brokers on two cores hold a producer up; see docs/track-record.md.
JUDGE = Policy(ack_gap_limit_s=10.0, tenant_gap_limit_s=5.0)


@dataclass
class Demo:
    """One demo run; ``directory`` receives everything it saves."""

    lab: Lab
    directory: Path
    say: Progress

    @property
    def history(self) -> Path:
        return self.directory / "history"

    @property
    def runs(self) -> Path:
        return self.directory / "runs"

    def move(self) -> dict[str, Any]:
        """Load, move, verify, judge; returns what ``result.json`` holds."""
        load = runner_for(self.lab, self.history)
        before = source_state(self.lab)
        try:
            self._walk(load)
        finally:
            self._save_logs()
        self.say("load: stopping, draining the consumer to the high watermarks")
        for problem in load.finish():
            self.say(f"load: {problem}")
        unchanged = source_state(self.lab) == before
        versions = self._versions()
        self.say("floor: three participants starting on the same data")
        floor = measure_floor(self.lab)
        return self._result(unchanged, floor, versions)

    def _walk(self, load: LoadRunner) -> None:
        self.say("load: producers, consumers, metadata changes and the other tenant start")
        load.start(("producer", "consumer", "metadata", "tenant"))
        load.wait_flowing(("producer", "consumer", "tenant"), FLOWING_S)
        self.analyse()
        topic = canary_topic.make(self.lab)
        write_inventory(self.lab, self.directory / "migration.yml", canary_topic=topic)
        self.tool("run", "--run-id", RUN, "--yes", "--until", "join")
        self.say("load: one raw client per dest host starts")
        load.start(("raw",))
        load.wait_flowing(("raw",), FLOWING_S)
        self.tool("resume", "--run-id", RUN, "--yes", "--until", "roll")
        save_baseline(self.lab, self.history / "baseline-before.json")
        self.tool("resume", "--run-id", RUN, "--yes", "--until", "cutover")
        load.wait_flowing(("producer", "consumer", "raw"), FLOWING_S, since_ns=time.monotonic_ns())
        save_baseline(self.lab, self.history / "baseline-open.json")
        self.tool("resume", "--run-id", RUN, "--yes")
        save_baseline(self.lab, self.history / "baseline-after.json")

    def analyse(self) -> None:
        """Who lives on source, who writes under the chroot and when it is quiet, from source's own files as
        they are now; LabError where that fails. As slowly as need be: the load has the machine."""
        places = [
            f"{host.name}={host.root / ZOOKEEPER_DATA.lstrip('/')}" for host in self.lab.role(Role.SOURCE)
        ]
        asked = ("--chroot", self.lab.spec.chroot, "--window", "5", "--top", "8", "--master", "local[1]")
        self.say(f"tool: zkmigrate analyze {','.join(ANALYSES)} ... {' '.join(asked)}")
        argv = [sys.executable, "-m", "zkmigrate", "analyze", ",".join(ANALYSES), *places, *asked]
        with running(["nice", "-n", "19", *argv, "--out", str(self.directory / "analysis")]) as process:
            code = process.wait()
        if code:
            raise LabError(f"zkmigrate analyze ended with exit code {code}")

    def tool(self, verb: str, *options: str) -> None:
        """Run zkmigrate from the operator's place; LabError with its exit code when it is not 0."""
        argv = [
            sys.executable,
            "-m",
            "zkmigrate",
            verb,
            "-i",
            str(self.directory / "migration.yml"),
            *options,
        ]
        self.say(f"tool: zkmigrate {verb} {' '.join(options)}")
        environment = {**os.environ, "ZKMIGRATE_RUNS": str(self.runs)}
        with running(self.lab.operator_command(argv), environment) as process:
            code = process.wait()
        if code:
            raise LabError(f"zkmigrate {verb} ended with exit code {code}")

    def _save_logs(self) -> None:
        """Broker logs and the steps with their times, as the judge reads them."""
        for host in self.lab.role(Role.BROKER):
            log = self.lab.exec(host.name, read_log(self.lab.spec, Role.BROKER), check=False).stdout
            (self.history / f"broker-{host.name}.log").write_text(log)
        journal = self.runs / RUN
        steps = step_spans(journal) if journal.exists() else []
        body = {"brokers": [h.name for h in self.lab.role(Role.BROKER)], "steps": steps}
        (self.history / "run.json").write_text(json.dumps(body, indent=1) + "\n")

    def _versions(self) -> dict[str, str]:
        """What the servers say that they are."""
        brokers = [h.name for h in self.lab.role(Role.BROKER)]
        return {
            "zookeeper_source": zookeeper_version(self.lab, Role.SOURCE),
            "zookeeper_dest": zookeeper_version(self.lab, Role.DEST),
            "kafka": kafka_version({b: (self.history / f"broker-{b}.log").read_text() for b in brokers}),
        }

    def _result(self, source_unchanged: bool, floor_s: float, versions: dict[str, str]) -> dict[str, Any]:
        history = read_journal(self.runs / RUN)
        surveyed = set(history.records()["cutover.survey"]["on_dest"])
        steps = json.loads((self.history / "run.json").read_text())["steps"]
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
            "opened_by": opened_by(self.runs / RUN, [h.name for h in self.lab.role(Role.DEST)]),
            "limits": {"ack_gap_s": JUDGE.ack_gap_limit_s, "tenant_gap_s": JUDGE.tenant_gap_limit_s},
        }
        return result_of(judge(load_history(self.history), JUDGE), facts, wanted_versions(self.lab.spec))

    def _canary(self) -> dict[str, int]:
        """How many records of the produce canary each broker acknowledged."""
        lines = (self.runs / RUN / samples.NAME).read_text().splitlines()
        counts = canary_topic.acknowledged(json.loads(line) for line in lines if line)
        return {h.name: counts.get(h.name, 0) for h in self.lab.role(Role.BROKER)}

    def _owners(self) -> set[str]:
        """Who owned the brokers' registrations and the controller in the baseline before the cut-over.

        The tool looked again at SURVEY, right before FENCE: there they must be clients of dest.
        """
        before = json.loads((self.history / "baseline-before.json").read_text())
        return {znode["owner"] for znode in before["ephemerals"].values()}


def result_of(verdict: Verdict, facts: dict[str, Any], wanted: dict[str, str]) -> dict[str, Any]:
    """What ``result.json`` holds. ``held`` only if every claim held and so did every condition.

    facts: what the driver of the run knows beside the recordings. wanted: the versions that were asked for.
    """
    conditions = {
        "real_hosts": facts["backend"] == BACKEND,
        "versions_as_asked": facts["versions"] == wanted,
        "source_files_unchanged": facts["source_files_unchanged"],
        "run_complete": facts["run_complete"],
        "owners_on_dest_at_survey": facts["owners_on_dest_at_survey"],
        "canary_acknowledged_by_each_broker": all(facts["canary_acknowledged"].values()),
    }
    held = verdict.held and all(conditions.values())
    return {**verdict.result(), **facts, "conditions": conditions, "held": held}


def told(directory: Path) -> Path:
    """Makes the report of a demo's run, with its clients beside it; where it is."""
    out = directory / verb.PAGE
    asked = verb.Asked(
        inventory=directory / "migration.yml",
        playbook="",
        runs=directory / "runs",
        run_id=RUN,
        format="html",
        out=out,
        load=directory / "history",
    )
    verb.report(asked, io.StringIO())
    return out


def summary(result: dict[str, Any]) -> str:
    """The screenful that ends a demo: every claim with whether it held, then the verdict."""
    lines = ["", "claim                                   held     value"]
    for name, claim in result["claims"].items():
        value = json.dumps(result[name])
        lines.append(f"{name:<40}{claim['held']:<9}{value[:90]}")
    lines += [f"{name:<40}{'yes' if held else 'no'}" for name, held in result["conditions"].items()]
    lines.append(f"{'opened_by':<49}{json.dumps(result['opened_by'])}")
    lines.append(f"{'canary_acknowledged':<49}{json.dumps(result['canary_acknowledged'])}")
    lines.append(f"{'limits':<49}{json.dumps(result['limits'])}")
    lines.append(f"{'window_s / floor_s':<49}{result['window_s']} / {result['floor_s']}")
    lines += ["", "every claim held" if result["held"] else "NOT every claim held: see demo/result.json"]
    return "\n".join(lines)


@click.command()
@click.option("--source-version", default=LabSpec.source_version, help="ZooKeeper of source.")
@click.option("--dest-version", default=LabSpec.dest_version, help="ZooKeeper of dest.")
@click.option("--kafka-version", default=LabSpec.kafka_version, help="Kafka.")
@click.option("--dest-count", type=int, default=LabSpec.dest_count, help="Dest hosts: 3 or 5.")
@click.option(
    "--session-timeout-ms", type=int, default=LabSpec.session_timeout_ms, help="Of brokers and raw clients."
)
@click.option(
    "--service",
    type=click.Choice(["systemd", "commands"]),
    default="systemd",
    help="What starts the servers of dest and the brokers.",
)
@click.option(
    "--source-reconfig",
    "reconfig_enabled",
    is_flag=True,
    help="reconfigEnabled on source, and on dest later.",
)
@click.option("--tree-size", type=int, default=0, help="Filler znodes on source, outside the chroot.")
@click.option("--tree-node-bytes", type=int, default=LabSpec.tree_node_bytes, help="Size of each filler.")
@click.option("--directory", default="demo", type=click.Path(path_type=Path), help="Where the result goes.")
def main(directory: Path, **of_the_lab: Any) -> None:
    """Move a loaded Kafka between two real ZooKeeper ensembles in a lab on this machine, and judge it."""
    started = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"[{time.monotonic() - started:6.1f} s] {line}")

    directory = directory.absolute()
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "history").mkdir(parents=True)
    end_on_signals()
    others = state.directories()
    try:
        with Lab.up(LabSpec(**of_the_lab), say) as lab:
            try:
                result = Demo(lab, directory, say).move()
            finally:
                say("lab: taking everything down")
    except ZkmigrateError as error:
        say(f"failed: {error}")
        say(f"what was recorded is in {directory}")
        if runs.has_begun(directory / "runs" / RUN):
            say(f"the report: {told(directory)}")
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as end:
        # A second signal may have ended the taking down as well.
        left = [path.name for path in state.directories() if path not in others]
        say("interrupted: " + (LEFT.format(", ".join(left)) if left else "nothing of the lab is left behind"))
        sys.exit(end.code if isinstance(end, SystemExit) else 130)
    result["seconds"] = round(time.monotonic() - started, 1)
    (directory / "result.json").write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    click.echo(summary(result))
    click.echo(f"the report, to be read in a browser: {told(directory)}")
    sys.exit(0 if result["held"] else 1)


if __name__ == "__main__":
    main()
