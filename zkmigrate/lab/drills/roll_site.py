"""A loaded lab whose run is brought to a place, disturbed and judged: what the drill of the roll works on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zkmigrate.lab.failure import LabError
from zkmigrate.lab.footprint import footprint, tree_differences
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.operator import Operator, Typing
from zkmigrate.lab.readiness import four_letter_word, server_mode
from zkmigrate.lab.source_state import source_state
from zkmigrate.lab.spec import Role
from zkmigrate.lab.wait import wait_until

RUN = "roll"
VERB_S, FLOWING_S, BACK_S = 600.0, 90.0, 120.0
FRESH, JOINED, REHEARSED, ROLLED = "fresh", "joined", "rehearsed", "rolled"
"""Where a case finds the run, and leaves it: nothing done, dest observes, before the roll, behind it."""
_PROCESS = ["systemctl", "show", "-p", "MainPID", "-p", "ExecMainStartTimestampMonotonic"]
_OURS = re.compile("zkm")


class Wrong(LabError):
    """What a case saw is not what it must be."""


def must(right: bool, seen: str) -> None:
    """Wrong with what was seen, unless it is right."""
    if not right:
        raise Wrong(seen)


@dataclass
class RollSite:
    """One lab under load and one run. first, source: hosts as they were found, and source's own."""

    lab: Lab
    directory: Path
    load: LoadRunner
    first: dict[str, str] = field(init=False)
    source: dict[str, str] = field(init=False)
    place: str = FRESH
    _calls: int = 0
    _judged: bool = False

    def __post_init__(self) -> None:
        self.inventory = write_inventory(self.lab, self.directory / "migration.yml")
        self.operator = Operator(self.lab, self.directory, RUN)
        self.first, self.source = footprint(self.lab), source_state(self.lab)

    @property
    def dests(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.lab.role(Role.DEST))

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.lab.role(Role.BROKER))

    # --- the tool -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def tool(self, verb: str, *options: str, kill: tuple[str, str, int] | None = None) -> Iterator[Typing]:
        """A verb under way. kill: the kind of change, the host and how many others before, as ``killing``."""
        self._calls += 1
        self._judged = False
        program = ["zkmigrate"] if kill is None else ["zkmigrate.lab.killing", *map(str, kill)]
        with self.operator.tool(f"{self._calls}-{verb}", verb, *options, program=program) as typing:
            yield typing

    def ends(
        self, code: int, verb: str, *options: str, kill: tuple[str, str, int] | None = None
    ) -> list[dict[str, Any]]:
        """Run a verb to its end, which must be with this exit code; the findings that did not hold."""
        with self.tool(verb, *options, kill=kill) as typing:
            return ended(typing, code, f"{verb} {' '.join(options)}")

    def beside(self, verb: str, *options: str) -> None:
        """A verb at a second terminal, without a way to the hosts; Wrong unless it ends with 0."""
        argv = [sys.executable, "-m", "zkmigrate", verb, "-i", str(self.inventory), "--run-id", RUN, *options]
        code, said = to_end(argv, self.directory / "runs")
        must(code == 0, f"{verb} ended with {code}: {said}")

    @contextlib.contextmanager
    def edited(self, old: str, new: str) -> Iterator[None]:
        """The inventory with one text in place of another, as long as this lasts."""
        text = self.inventory.read_text()
        must(text.count(old) >= 1, f"the inventory has no {old!r}")
        self.inventory.write_text(text.replace(old, new, 1))
        try:
            yield
        finally:
            self.inventory.write_text(text)

    # --- places ---------------------------------------------------------------------------------------------

    def at(self, place: str) -> None:
        """Bring the run there, forward or back, and look that the hosts are as they must be there."""
        if place == self.place:
            return
        order = [FRESH, JOINED, REHEARSED, ROLLED]
        until = {JOINED: "join", REHEARSED: "rehearse", ROLLED: "roll"}
        if order.index(place) > order.index(self.place):
            self.ends(0, "run", "--until", until[place])
        else:
            back_to = {FRESH: (), JOINED: ("--to", "rehearse"), REHEARSED: ("--to", "roll")}[place]
            self.ends(0, "rollback", *back_to)
        self.place = place
        self.judge()

    def judge(self) -> None:
        """The world is as it must be at this place: files and rules, trees, source, and the load flows.

        Once after each verb. Trees are read where dest was changed just before: on its way back to observing,
        and behind the roll.
        """
        if self._judged:
            return
        now = footprint(self.lab)
        if self.place == FRESH:
            must(now == self.first, f"not as found: {differing(self.first, now)}")
        elif self.place != ROLLED:
            first = {host: _without_ours(self.first[host]) for host in self.brokers}
            here = {host: _without_ours(now[host]) for host in self.brokers}
            must(here == first, f"brokers not as found: {differing(first, here)}")
        if self.place != FRESH:
            wait_until("dest observes", self.not_observing, BACK_S)
        if self.place in (JOINED, ROLLED):
            found = tree_differences(self.lab)
            must(not found, f"trees differ: {'; '.join(found[:3])}")
        state = source_state(self.lab)
        must(state == self.source, f"source was touched: {differing(self.source, state)}")
        self.load.wait_flowing(("producer", "consumer", "tenant"), FLOWING_S, since_ns=time.monotonic_ns())
        self._judged = True

    def not_observing(self) -> str | None:
        """The modes of dest hosts as long as one does not observe."""
        modes = self.modes(Role.DEST)
        return None if set(modes.values()) == {"observer"} else str(modes)

    def modes(self, role: Role) -> dict[str, str | None]:
        """What each server says that it is."""
        with self.lab.operator():
            return {h.name: server_mode(four_letter_word(h.address, "srvr")) for h in self.lab.role(role)}

    def source_leader(self) -> str:
        """Who leads source."""
        leading = [host for host, mode in self.modes(Role.SOURCE).items() if mode == "leader"]
        must(len(leading) == 1, f"leaders of source: {leading}")
        return leading[0]

    def source_again(self) -> None:
        """A case ended a server of source itself: wait until all serve, and take it as it is from here."""

        def missing() -> str | None:
            modes = self.modes(Role.SOURCE)
            right = sorted(filter(None, modes.values())) == ["follower", "follower", "leader"]
            return None if right else str(modes)

        wait_until("source is whole", missing, BACK_S)
        now = source_state(self.lab)
        files = {host: _files(text) for host, text in now.items()}
        must(files == {host: _files(t) for host, t in self.source.items()}, "files of source have changed")
        self.source = now

    # --- brokers --------------------------------------------------------------------------------------------

    def processes(self) -> dict[str, str]:
        """Which process each broker is, by pid and start."""
        return {h: self.lab.exec(h, [*_PROCESS, "kafka.service"]).stdout for h in self.brokers}

    def properties(self, brokers: Sequence[str] = ()) -> dict[str, str]:
        """The connect string of each of these brokers, or of all."""
        grep = ["grep", "^zookeeper.connect=", "/etc/kafka/server.properties"]
        return {h: self.lab.exec(h, grep).stdout for h in brokers or self.brokers}

    def controller(self) -> str:
        """The broker that is the controller, as source says."""
        with self.lab.zookeeper() as client:
            data, _ = client.get(f"{self.lab.spec.chroot}/controller")
        number = json.loads(data)["brokerid"]
        return next(h for h in self.brokers if self.lab.plans[h].number == number)

    def registered(self) -> set[str]:
        """The brokers that are registered, as source says."""
        with self.lab.zookeeper() as client:
            ids = {int(id) for id in client.get_children(f"{self.lab.spec.chroot}/brokers/ids")}
        return {h for h in self.brokers if self.lab.plans[h].number in ids}

    def misled(self) -> list[str]:
        """Partitions, as ``topic/number``, that their first replica does not lead although it is in sync."""
        root, found = f"{self.lab.spec.chroot}/brokers/topics", []
        with self.lab.zookeeper() as client:
            for topic in client.get_children(root):
                replicas = json.loads(client.get(f"{root}/{topic}")[0])["partitions"]
                for number, (first, *_) in replicas.items():
                    state = json.loads(client.get(f"{root}/{topic}/partitions/{number}/state")[0])
                    found += (
                        [f"{topic}/{number}"] if first in state["isr"] and first != state["leader"] else []
                    )
        return found


def to_end(argv: Sequence[str], runs: Path) -> tuple[int, str]:
    """Run a program to its end. runs: where runs are kept. The exit code, and the end of what it said."""
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


def ended(typing: Typing, code: int, what: str, limit_s: float = VERB_S) -> list[dict[str, Any]]:
    """Wait for the end, which must be with this exit code; the findings that did not hold."""
    seen = typing.end(limit_s)
    must(seen == code, f"{what} ended with {seen}, not {code}: {typing.troubles()}")
    return failed(typing)


def failed(typing: Typing) -> list[dict[str, Any]]:
    """The findings with which a verb ended that did not hold."""
    return [f for e in typing.of("RunEnded") for f in e["findings"] if f["held"] != "yes"]


def named(findings: Sequence[dict[str, Any]], id: str, target: str = "") -> str:
    """The finding of this id on this target, which must be there; it in words."""
    for finding in findings:
        if finding["id"] == id and finding["target"] in (target, target or finding["target"]):
            return f"{id} {finding['target']}: {finding['seen']}".replace("\n", " ")[:160]
    raise Wrong(f"not named: {id} {target}; named: {[(f['id'], f['target']) for f in findings]}")


def comes(typing: Typing, what: str, condition: Callable[[], bool], limit_s: float = VERB_S) -> None:
    """Wait for a condition while a verb is under way; Wrong when the verb ends before."""

    def missing() -> str | None:
        if condition():
            return None
        if typing.ended:
            raise Wrong(f"ended before {what}: {typing.process.returncode} {typing.troubles()}")
        return "not yet"

    wait_until(what, missing, limit_s, 0.05)


def waves(typing: Typing, stage: str = "roll") -> list[str]:
    """The targets of this stage's waves so far, in order."""
    return [target for e in typing.of("WaveBegun") if e["stage"] == stage for target in e["targets"]]


def interrupted(typing: Typing) -> None:
    """Ctrl-C; it must end with 130."""
    typing.process.send_signal(signal.SIGINT)
    ended(typing, 130, "after Ctrl-C")


def _without_ours(text: str) -> list[str]:
    return [line for line in text.splitlines() if not _OURS.search(line)]


def _files(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith(("MainPID", "ExecMain"))]


def differing(first: Any, now: Any) -> str:
    """What differs between two worlds, by host; the beginning of it."""
    found = []
    for host in first:
        a, b = (x[host].splitlines() if isinstance(x[host], str) else x[host] for x in (first, now))
        found += [f"{host} -{line}" for line in a if line not in b]
        found += [f"{host} +{line}" for line in b if line not in a]
    return "; ".join(found)[:1500]
