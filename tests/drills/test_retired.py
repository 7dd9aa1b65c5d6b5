"""A broker's host dies for good during a move: it is retired, and the others move without it.

The drill moves a loaded Kafka of three brokers in a lab. After two brokers the host of the third loses power.
The drill judges the findings of the roll, when ``retire`` refuses, the gate of the cut-over after a retired
broker has come back, and the records of the clients.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.drills.labs import Chain, Play, finish_load, loaded_lab
from tests.drills.roll_site import (
    ROLLED,
    RUN,
    RollSite,
    expect_exit,
    interrupt,
    require,
    require_finding,
    run_program,
    wait_during,
    wave_targets,
)
from tests.lab.sessions import lost_since
from zkmigrate.lab import fault
from zkmigrate.lab.baseline import baseline
from zkmigrate.lab.spec import LONG_SESSIONS
from zkmigrate.lab.wait import TimedProgress, wait_until
from zkmigrate.move.dependents.kafka import LEADERS

pytestmark = pytest.mark.drill

MINUTES = 7
REFUSED = 6
FLOWING_S, EXPIRED_S = 90.0, 180.0
REASON = "its disk is broken"
SPEC = replace(LONG_SESSIONS, broker_options={"auto.leader.rebalance.enable": "false"})
"""Without this setting a new controller elects preferred leaders by itself after five seconds."""

JUDGED = ("lost", "duplicated", "acked_creates_missing")


CASES = {
    "dies-in-roll": (
        "the third broker's host loses its power behind two that have moved",
        "retire refused (6) while it is registered; the roll waits for it by name",
    ),
    "is-retired": (
        "retired once its session has ended, and the roll resumed",
        "0; status names it, with the reason; the others on dest; preferred leaders",
    ),
    "comes-back": (
        "its host is switched on again before the cut-over",
        "the gate of the cut-over is closed (6) by kafka.retired",
    ),
    "moves-without-it": (
        "its host is off again, and the run goes on to its end",
        "0; every other owner, czxid and the controller epoch as before; in the report",
    ),
    "load": ("what the clients recorded", "0 of each"),
}
"""What is done and what is expected, by name, in order."""


@dataclass
class Retirement:
    """One lab and one run. gone: the broker whose host dies."""

    site: RollSite
    gone: str = ""

    def dies(self) -> str:
        self.site.run_beside("hold", "--at", "2")
        with self.site.tool("run", "--until", "roll") as tool:
            wait_during(tool, "it holds behind two brokers", lambda: bool(tool.events_of("Holding")))
            moved = wave_targets(tool)
            require(len(set(moved)) == 2, f"moved: {moved}")
            (self.gone,) = set(self.site.brokers) - set(moved)
            fault.power_cut(self.site.lab, self.gone)
            interrupt(tool)
        code, output = self._verb("retire", self.gone, "--reason", REASON)
        require(code == REFUSED, f"retire of a registered broker ended with {code}: {output}")
        # It was the controller: the others may not know yet whether it serves.
        require(
            "retire.serves" in output and f"{self.gone} is not retired" in output,
            f"it does not say why: {output}",
        )
        self._wait_registered(False)
        self.site.run_beside("release")
        with self.site.tool("resume", "--until", "roll") as tool:
            wait_during(
                tool, "the roll waits for it by name", lambda: self._waits_for(tool.events_of("Waits"))
            )
            interrupt(tool)
        return f"{', '.join(moved)} moved; {self.gone} died; retire refused, then waited for by name"

    def _waits_for(self, waits: list[dict[str, str]]) -> bool:
        last = waits[-1] if waits else {"what": "", "progress": ""}
        return self.gone in last["what"] and f"zkmigrate retire {self.gone}" in last["progress"]

    def _wait_registered(self, registered: bool) -> None:
        """Wait until source reports that the broker is registered, or that it is not."""
        state = "registered" if registered else "not registered"

        def other() -> str | None:
            return None if (self.gone in self.site.registered()) == registered else f"not {state}"

        wait_until(f"{self.gone} {state}", other, EXPIRED_S)

    def is_retired(self) -> str:
        code, output = self._verb("retire", self.gone, "--reason", REASON)
        require(code == 0, f"retire ended with {code}: {output}")
        before = self.site.wrongly_led()
        with self.site.tool("resume", "--until", "roll") as tool:
            expect_exit(tool, 0, "resume --until roll")
            elected = [e for e in tool.events_of("WaveBegun") if e["targets"] == [LEADERS]]
        self.site.state = ROLLED
        after = self.site.wrongly_led()
        require(bool(before) == bool(elected), f"misled before: {before}; elections: {len(elected)}")
        require(not after, f"not led by their preferred replica: {after}")
        code, output = self._verb("status", "--offline")
        require(code == 0 and f"{self.gone} " in output and REASON in output, f"status, {code}: {output}")
        left = self._left()
        dest = [self.site.lab.plans[host].address for host in self.site.dests]
        for host, text in self.site.properties(left).items():
            require(all(address in text for address in dest), f"{host} is not on dest: {text}")
        self.site.load.start(("raw",))
        self.site.load.wait_flowing(("raw", "producer"), FLOWING_S, since_ns=time.monotonic_ns())
        return (
            f"{self.gone} retired; {', '.join(left)} on dest; status says so; in {len(elected)} elections "
            f"{len(before)} partitions got their preferred leader"
        )

    def _left(self) -> tuple[str, ...]:
        return tuple(host for host in self.site.brokers if host != self.gone)

    def comes_back(self) -> str:
        fault.power_on(self.site.lab, self.gone)
        self._wait_registered(True)
        findings = self.site.run_verb(REFUSED, "resume", "--until", "cutover")
        outcome = require_finding(findings, "kafka.retired")
        fault.power_cut(self.site.lab, self.gone)
        self._wait_registered(False)
        return outcome

    def moves(self) -> str:
        before = baseline(self.site.lab)
        self.site.run_verb(0, "resume")
        lost = lost_since(before, baseline(self.site.lab))
        require(not lost, f"lost: {lost}")
        code, output = self._verb("report")
        require(code == 0, f"report ended with {code}: {output}")
        page = (self.site.operator.journal / "report.html").read_text()
        require(
            f"<td>retired</td><td>{self.gone}</td>" in page and REASON in page,
            "the report does not name the retired broker",
        )
        return f"owners, czxid and controller epoch as before: {len(before['ephemerals'])} ephemerals"

    def judge_load(self) -> str:
        return finish_load(self.site.load, dict.fromkeys(JUDGED, 0))

    def _verb(self, verb: str, *words: str) -> tuple[int, str]:
        """Run a verb in the operator's network to its end; return its exit code and output."""
        argv = [sys.executable, "-m", "zkmigrate", verb, *words, "--run-id", RUN]
        return run_program(
            self.site.lab.operator_command([*argv, "-i", str(self.site.inventory)]),
            self.site.directory / "runs",
        )


@pytest.fixture(scope="module")
def chain(directory: Path) -> Iterator[Chain]:
    history, progress = directory / "history", TimedProgress()
    with loaded_lab(SPEC, history, progress, raw_rate=20.0, tenant_rate=30.0) as (lab, load):
        load.start(("producer", "consumer", "metadata", "tenant"))
        load.wait_flowing(("producer", "consumer", "tenant"), FLOWING_S)
        site = RollSite(lab, directory, load)
        with site.inventory.open("a") as file:
            file.write("policy:\n  roll_leaders: true\n")
        one = Retirement(site)
        acts = (one.dies, one.is_retired, one.comes_back, one.moves, one.judge_load)
        yield Chain(dict(zip(CASES, acts, strict=True)))


@pytest.mark.parametrize("name", CASES)
def test_the_others_move_without_a_broker_whose_host_has_died(chain: Chain, name: str, play: Play) -> None:
    play(*CASES[name], lambda: chain.play(name))
