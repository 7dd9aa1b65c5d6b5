"""A move in which a broker's host dies for good: it is retired from the run, and the others move without it.

``python -m zkmigrate.lab.drills.retired`` moves a loaded Kafka of three brokers in a lab. Behind two brokers
the host of the third loses its power. What the roll says, what ``retire`` refuses and when it does not, what
a retired broker that comes back does to the gate of the cut-over, and what the clients recorded is judged.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from zkmigrate.dependents.kafka import LEADERS
from zkmigrate.errors import ZkmigrateError
from zkmigrate.lab import fault
from zkmigrate.lab.baseline import baseline, lost_since
from zkmigrate.lab.drills import result
from zkmigrate.lab.drills.result import Case
from zkmigrate.lab.drills.roll_site import (
    ROLLED,
    RUN,
    RollSite,
    comes,
    ended,
    interrupted,
    must,
    named,
    to_end,
    waves,
)
from zkmigrate.lab.drills.start import Telling, begun
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.spec import PATIENT
from zkmigrate.lab.wait import Progress, wait_until

NAME = "retired"
REFUSED = 6
FLOWING_S, EXPIRED_S = 90.0, 180.0
REASON = "its disk is broken"
SPEC = replace(PATIENT, broker_options={"auto.leader.rebalance.enable": "false"})
"""A controller that begins elects preferred leaders after five seconds of its own accord, where it may."""

JUDGED = ("lost", "duplicated", "acked_creates_missing")


@dataclass
class Retirement:
    """One lab, one run. gone: the broker whose host dies."""

    site: RollSite
    say: Progress
    gone: str = ""
    cases: list[Case] = field(default_factory=list)

    def play(self) -> None:
        """All of it, in order; each case begins where the one before left the run."""
        with self.site.inventory.open("a") as file:
            file.write("policy:\n  roll_leaders: true\n")
        for name, what, expected, act in (
            ("dies-in-roll", "the third broker's host loses its power behind two that have moved",
             "retire refused (6) while it is registered; the roll waits for it by name", self.dies),
            ("is-retired", "retired once its session has ended, and the roll resumed",
             "0; status names it, with the reason; the others on dest; preferred leaders", self.is_retired),
            ("comes-back", "its host is switched on again before the cut-over",
             "the gate of the cut-over is closed (6) by kafka.retired", self.comes_back),
            ("moves-without-it", "its host is off again, and the run goes on to its end",
             "0; every other owner, czxid and the controller epoch as before; in the report", self.moves),
            ("load", "what the clients recorded", "0 of each", self.judged),
        ):  # fmt: skip
            self._case(name, what, expected, act)

    def _case(self, name: str, what: str, expected: str, act: Callable[[], str]) -> None:
        began = time.monotonic()
        try:
            outcome, held = act(), True
        except ZkmigrateError as error:
            outcome, held = str(error), False
        self.cases.append(Case(name, what, expected, outcome, round(time.monotonic() - began, 1), held))
        self.say(f"{name}: {'as it must be' if held else 'WRONG'}: {outcome}")
        must(held, f"the cases behind {name} were not played")

    def dies(self) -> str:
        with self.site.tool("run", "--until", "roll", "--pause-after", "2") as typing:
            comes(typing, "it holds behind two brokers", lambda: bool(typing.of("Holding")))
            moved = waves(typing)
            must(len(set(moved)) == 2, f"moved: {moved}")
            (self.gone,) = set(self.site.brokers) - set(moved)
            fault.power_cut(self.site.lab, self.gone)
            interrupted(typing)
        code, said = self._verb("retire", self.gone, "--reason", REASON)
        must(code == REFUSED, f"retire of a registered broker ended with {code}: {said}")
        # It was the controller, so that the others may not even tell yet whether it serves.
        must(
            "retire.serves" in said and f"{self.gone} is not retired" in said, f"it does not say why: {said}"
        )
        self._expired()
        with self.site.tool("resume", "--until", "roll") as typing:
            comes(typing, "it holds as before", lambda: bool(typing.of("Holding")))
            self.site.beside("release")
            comes(typing, "the roll waits for it by name", lambda: self._waits_for(typing.of("Waits")))
            interrupted(typing)
        return f"{', '.join(moved)} moved; {self.gone} died; retire refused, then waited for by name"

    def _waits_for(self, waits: list[dict[str, str]]) -> bool:
        last = waits[-1] if waits else {"what": "", "progress": ""}
        return self.gone in last["what"] and f"zkmigrate retire {self.gone}" in last["progress"]

    def _expired(self) -> None:
        """Wait until the dead broker's session has ended on source."""
        site = self.site
        seen = lambda: f"{self.gone} is registered" if self.gone in site.registered() else None  # noqa: E731
        wait_until(f"{self.gone} is registered no more", seen, EXPIRED_S)

    def is_retired(self) -> str:
        code, said = self._verb("retire", self.gone, "--reason", REASON)
        must(code == 0, f"retire ended with {code}: {said}")
        before = self.site.misled()
        with self.site.tool("resume", "--until", "roll") as typing:
            ended(typing, 0, "resume --until roll")
            elected = [e for e in typing.of("WaveBegun") if e["targets"] == [LEADERS]]
        self.site.place = ROLLED
        after = self.site.misled()
        must(bool(before) == bool(elected), f"misled before: {before}; elections: {len(elected)}")
        must(not after, f"not led by their preferred replica: {after}")
        code, said = self._verb("status", "--offline")
        must(code == 0 and f"{self.gone} " in said and REASON in said, f"status, {code}: {said}")
        left = self._left()
        dest = [self.site.lab.plans[host].address for host in self.site.dests]
        for host, text in self.site.properties(left).items():
            must(all(address in text for address in dest), f"{host} is not on dest: {text}")
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
        seen = lambda: None if self.gone in self.site.registered() else f"{self.gone} is not registered"  # noqa: E731
        wait_until(f"{self.gone} is registered again", seen, EXPIRED_S)
        findings = self.site.ends(REFUSED, "resume", "--until", "cutover")
        told = named(findings, "kafka.retired")
        fault.power_cut(self.site.lab, self.gone)
        self._expired()
        return told

    def moves(self) -> str:
        before = baseline(self.site.lab)
        self.site.ends(0, "resume")
        lost = lost_since(before, baseline(self.site.lab))
        must(not lost, f"lost: {lost}")
        code, said = self._verb("report")
        must(code == 0, f"report ended with {code}: {said}")
        page = (self.site.operator.journal / "report.html").read_text()
        must(
            f"<td>retired</td><td>{self.gone}</td>" in page and REASON in page,
            "the report does not name the retired broker",
        )
        return f"owners, czxid and controller epoch as before: {len(before['ephemerals'])} ephemerals"

    def judged(self) -> str:
        wrong = self.site.load.finish()
        verdict = judge(load_history(self.site.load.directory))
        claims = {name: verdict[name].value for name in JUDGED}
        must(not wrong and set(claims.values()) == {0}, f"{claims} {'; '.join(wrong)}")
        return json.dumps(claims)

    def _verb(self, verb: str, *words: str) -> tuple[int, str]:
        """A verb from the operator's place, to its end; its exit code, and what it said."""
        argv = [sys.executable, "-m", "zkmigrate", verb, *words, "--run-id", RUN]
        return to_end(
            self.site.lab.operator_command([*argv, "-i", str(self.site.inventory)]),
            self.site.directory / "runs",
        )


@click.command()
@click.option(
    "--directory", default=f"drills/{NAME}", type=click.Path(path_type=Path), help="Where the result goes."
)
def main(directory: Path) -> None:
    """Move three brokers, of which one dies on the way, and judge what came of it."""
    say = Telling()
    directory = begun(directory)
    cases: list[Case] = []
    whole = False
    try:
        with Lab.up(SPEC, say) as lab:
            load = runner_for(lab, directory / "history", raw_rate=20.0, tenant_rate=30.0)
            try:
                load.start(("producer", "consumer", "metadata", "tenant"))
                load.wait_flowing(("producer", "consumer", "tenant"), FLOWING_S)
                Retirement(RollSite(lab, directory, load), say, cases=cases).play()
                whole = True
            finally:
                load.kill()
            say("lab: taking everything down")
    except ZkmigrateError as error:
        say(f"failed: {error}; what was recorded is in {directory}")
    finally:
        body = result.body_of(NAME, cases, say.seconds)
        body["held"] = body["held"] and whole
        result.write(directory, body)
    say(f"{len(cases)} cases, {'all as they must be' if body['held'] else 'NOT all as they must be'}")
    sys.exit(0 if body["held"] else 1)


if __name__ == "__main__":
    main()
