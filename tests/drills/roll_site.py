"""A loaded lab and one run, which drills bring to a state, disturb and judge."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.footprint import footprint, tree_differences, without_process
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.operator import Operator, ToolProcess
from zkmigrate.lab.source_state import source_state
from zkmigrate.lab.spec import Role
from zkmigrate.lab.wait import wait_until

RUN = "roll"
VERB_S, FLOWING_S, BACK_S = 600.0, 90.0, 120.0
FRESH, JOINED, REHEARSED, ROLLED = "fresh", "joined", "rehearsed", "rolled"
"""The states of the run between two trials: nothing done, dest observes, before the roll, after it."""
_PROCESS = ["systemctl", "show", "-p", "MainPID", "-p", "ExecMainStartTimestampMonotonic"]


class Unexpected(LabError):
    """The outcome of a case is not as expected."""


def require(right: bool, seen: str) -> None:
    """Raise Unexpected with `seen` unless `right`."""
    if not right:
        raise Unexpected(seen)


@dataclass
class RollSite:
    """One lab under load and one run.

    initial: files and rules of dest hosts and brokers before the run. source: source's state. source_killed:
    whether a case has killed a server of source.
    """

    lab: Lab
    directory: Path
    load: LoadRunner
    initial: dict[str, str] = field(init=False)
    source: dict[str, str] = field(init=False)
    state: str = FRESH
    source_killed: bool = False
    _calls: int = 0
    _judged: bool = False

    def __post_init__(self) -> None:
        self.inventory = write_inventory(self.lab, self.directory / "migration.yml")
        self.operator = Operator(self.lab, self.directory, RUN)
        self.initial, self.source = footprint(self.lab), source_state(self.lab)

    @property
    def dests(self) -> tuple[str, ...]:
        return self.lab.names(Role.DEST)

    @property
    def brokers(self) -> tuple[str, ...]:
        return self.lab.names(Role.BROKER)

    # --- the tool -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def tool(
        self, verb: str, *options: str, kill: tuple[str, str, int] | None = None
    ) -> Iterator[ToolProcess]:
        """Start a verb. kill: the arguments of ``zkmigrate.lab.killing``: KIND, HOST, OTHERS."""
        self._calls += 1
        self._judged = False
        program = ["zkmigrate"] if kill is None else ["zkmigrate.lab.killing", *map(str, kill)]
        with self.operator.tool(f"{self._calls}-{verb}", verb, *options, program=program) as tool:
            yield tool

    def run_verb(
        self, code: int, verb: str, *options: str, kill: tuple[str, str, int] | None = None
    ) -> list[dict[str, Any]]:
        """Run a verb to its end, require this exit code, and return the findings that did not hold."""
        with self.tool(verb, *options, kill=kill) as tool:
            return expect_exit(tool, code, f"{verb} {' '.join(options)}")

    def run_beside(self, verb: str, *options: str) -> None:
        """Run a verb at a second terminal that reaches no host. Raises Unexpected unless it ends with 0."""
        argv = [sys.executable, "-m", "zkmigrate", verb, "-i", str(self.inventory), "--run-id", RUN, *options]
        code, output = run_program(argv, self.directory / "runs")
        require(code == 0, f"{verb} ended with {code}: {output}")

    @contextlib.contextmanager
    def edited(self, old: str, new: str) -> Iterator[None]:
        """Replace one text in the inventory within the block."""
        text = self.inventory.read_text()
        require(old in text, f"the inventory has no {old!r}")
        self.inventory.write_text(text.replace(old, new, 1))
        try:
            yield
        finally:
            self.inventory.write_text(text)

    # --- places ---------------------------------------------------------------------------------------------

    def bring_to(self, state: str) -> None:
        """Bring the run to this state, forward or back, and judge the hosts there."""
        if state == self.state:
            return
        order = [FRESH, JOINED, REHEARSED, ROLLED]
        if order.index(state) > order.index(self.state):
            until = {JOINED: "join", REHEARSED: "rehearse", ROLLED: "roll"}
            self.run_verb(0, "run", "--until", until[state])
        else:
            back_to = {FRESH: (), JOINED: ("--to", "rehearse"), REHEARSED: ("--to", "roll")}
            self.run_verb(0, "rollback", *back_to[state])
        self.state = state
        self.judge()

    def judge(self) -> None:
        """Judge once after each verb: files and rules, trees, source, and whether the load flows.

        Trees are compared where dest has just changed: when it observes again, and after the roll.
        """
        if self._judged:
            return
        now = footprint(self.lab)
        if self.state == FRESH:
            require(now == self.initial, f"not as found: {differences(self.initial, now)}")
        elif self.state != ROLLED:

            def others(seen: dict[str, str]) -> dict[str, list[str]]:
                """Brokers' lines that do not name zkmigrate's own files and rules."""
                return {h: [line for line in seen[h].splitlines() if "zkm" not in line] for h in self.brokers}

            before, after = others(self.initial), others(now)
            require(after == before, f"brokers not as found: {differences(before, after)}")
        if self.state != FRESH:
            wait_until("dest observes", self.not_observing, BACK_S)
        if self.state in (JOINED, ROLLED):
            found = tree_differences(self.lab)
            require(not found, f"trees differ: {'; '.join(found[:3])}")
        state = source_state(self.lab)
        require(state == self.source, f"source was touched: {differences(self.source, state)}")
        self.load.wait_flowing(("producer", "consumer", "tenant"), FLOWING_S, since_ns=time.monotonic_ns())
        self._judged = True

    def not_observing(self) -> str | None:
        """Return None if every dest host observes, otherwise the modes."""
        modes = self.modes(Role.DEST)
        return None if set(modes.values()) == {"observer"} else str(modes)

    def modes(self, role: Role) -> dict[str, str | None]:
        """Return the mode that each server reports."""
        return self.lab.zookeeper_modes(self.lab.names(role))

    def source_leader(self) -> str:
        leading = [host for host, mode in self.modes(Role.SOURCE).items() if mode == "leader"]
        require(len(leading) == 1, f"leaders of source: {leading}")
        return leading[0]

    def accept_source(self) -> None:
        """Wait until all source servers serve after a kill, and expect the new process from then on."""

        self.source_killed = True

        def missing() -> str | None:
            modes = self.modes(Role.SOURCE)
            right = sorted(filter(None, modes.values())) == ["follower", "follower", "leader"]
            return None if right else str(modes)

        wait_until("source is whole", missing, BACK_S)
        now = source_state(self.lab)
        changed = [h for h, text in now.items() if without_process(text) != without_process(self.source[h])]
        require(not changed, f"files of source have changed: {changed}")
        self.source = now

    # --- brokers --------------------------------------------------------------------------------------------

    def processes(self) -> dict[str, str]:
        """Return each broker's process, as pid and start time."""
        return {h: self.lab.exec(h, [*_PROCESS, "kafka.service"]).stdout for h in self.brokers}

    def properties(self, brokers: Sequence[str] = ()) -> dict[str, str]:
        """Return the line with the connect string of each of these brokers, or of all."""
        grep = ["grep", "^zookeeper.connect=", "/etc/kafka/server.properties"]
        return {h: self.lab.exec(h, grep).stdout for h in brokers or self.brokers}

    def controller(self) -> str:
        """Return the controller according to source."""
        with self.lab.zookeeper() as client:
            data, _ = client.get(f"{self.lab.spec.chroot}/controller")
        number = json.loads(data)["brokerid"]
        return next(h for h in self.brokers if self.lab.plans[h].number == number)

    def registered(self) -> set[str]:
        """Return the registered brokers according to source."""
        with self.lab.zookeeper() as client:
            ids = {int(id) for id in client.get_children(f"{self.lab.spec.chroot}/brokers/ids")}
        return {h for h in self.brokers if self.lab.plans[h].number in ids}

    def wrongly_led(self) -> list[str]:
        """Return the partitions (``topic/number``) whose first replica is in sync but does not lead."""
        root, found = f"{self.lab.spec.chroot}/brokers/topics", []
        with self.lab.zookeeper() as client:
            for topic in client.get_children(root):
                replicas = json.loads(client.get(f"{root}/{topic}")[0])["partitions"]
                for number, (first, *_) in replicas.items():
                    state = json.loads(client.get(f"{root}/{topic}/partitions/{number}/state")[0])
                    if first in state["isr"] and first != state["leader"]:
                        found.append(f"{topic}/{number}")
        return found


def run_program(argv: Sequence[str], runs: Path) -> tuple[int, str]:
    """Run a program to its end; return its exit code and the end of its output.

    runs: the directory of the runs.
    """
    done = subprocess.run(
        argv,
        env={**os.environ, "ZKMIGRATE_RUNS": str(runs)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=VERB_S,
        check=False,
    )
    return done.returncode, f"{done.stdout}{done.stderr}".strip()[-3000:]


def expect_exit(tool: ToolProcess, code: int, what: str, limit_s: float = VERB_S) -> list[dict[str, Any]]:
    """Wait for the end, require this exit code, and return the findings that did not hold."""
    seen = tool.wait_for_end(limit_s)
    require(seen == code, f"{what} ended with {seen}, not {code}: {tool.troubles()}")
    return [f for e in tool.events_of("RunEnded") for f in e["findings"] if f["held"] != "yes"]


def require_finding(findings: Sequence[dict[str, Any]], id: str, target: str = "") -> str:
    """Return the finding of this id on this target, in words. Raises Unexpected if it is not there."""
    for finding in findings:
        if finding["id"] == id and finding["target"] in (target, target or finding["target"]):
            return f"{id} {finding['target']}: {finding['seen']}".replace("\n", " ")[:160]
    raise Unexpected(f"no finding {id} {target}; there are: {[(f['id'], f['target']) for f in findings]}")


def wait_during(tool: ToolProcess, what: str, condition: Callable[[], bool], limit_s: float = VERB_S) -> None:
    """Wait for a condition while the tool runs. Raises Unexpected if the tool ends before."""

    def missing() -> str | None:
        if condition():
            return None
        if tool.has_ended:
            raise Unexpected(f"ended before {what}: {tool.process.returncode} {tool.troubles()}")
        return "not yet"

    wait_until(what, missing, limit_s, 0.05)


def wave_targets(tool: ToolProcess, stage: str = "roll") -> list[str]:
    """Return the targets of this stage's waves so far, in order."""
    return [target for e in tool.events_of("WaveBegun") if e["stage"] == stage for target in e["targets"]]


def interrupt(tool: ToolProcess) -> None:
    """Send Ctrl-C; the tool must end with 130."""
    tool.process.send_signal(signal.SIGINT)
    expect_exit(tool, 130, "after Ctrl-C")


def differences(first: Any, now: Any) -> str:
    """Return the lines that differ, each with its host, at most 1,500 characters."""
    found = []
    for host in first:
        a, b = (x[host].splitlines() if isinstance(x[host], str) else x[host] for x in (first, now))
        found += [f"{host} -{line}" for line in a if line not in b]
        found += [f"{host} +{line}" for line in b if line not in a]
    return "; ".join(found)[:1500]
