"""A loaded lab in which one case of ``window_faults`` after the other is played and judged."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from zkmigrate.hosts import zkm_host
from zkmigrate.lab import fault
from zkmigrate.lab.baseline import baseline, lost_since, sessions_away
from zkmigrate.lab.drills import result
from zkmigrate.lab.drills.window_cases import Case
from zkmigrate.lab.drills.window_harm import Scene
from zkmigrate.lab.failure import LabError, NotReady
from zkmigrate.lab.footprint import configs, phases, tree_differences
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.operator import Typing
from zkmigrate.lab.render import ZOO_CFG
from zkmigrate.lab.source_state import source_state
from zkmigrate.lab.spec import Role
from zkmigrate.lab.wait import wait_until
from zkmigrate.model.window import Phase
from zkmigrate.zookeeper.data.errors import ZkDataError

CUTOVER = ("--until", "cutover")
JUDGED = ("lost", "duplicated", "acked_creates_missing")
TRIES = 3
"""So often a cut-over is begun: on a busy machine a gate of the preflight is closed now and then, or a lease
lapses, before the fault. What came before the last try is told."""
TOO_SLOW = (3, 6, 7, 9)
FLOWING_S, HEALTHY_S, HELD_S, ENDED_S, MOMENT_S = 60.0, 60.0, 240.0, 240.0, 120.0
AWAY, WITH_GO = Phase.ARMED.until(Phase.CUT), Phase.GO.until(Phase.OPEN)


@dataclass
class Bench(Scene):
    """A lab whose brokers and clients are on dest, under load, with the operator who is to cut over.

    lost: sessions of other clients that have ended, and of those of ``stranded``.
    """

    lost: tuple[int, int] | None = None
    _rolled: dict[str, list[str]] = field(init=False)
    _sessions: dict[str, Any] = field(init=False)
    _harmed: bool = False

    def __post_init__(self) -> None:
        """Take down what later has to be as it is now."""
        super().__post_init__()
        self._rolled = configs(self.lab)
        self._sessions = baseline(self.lab)

    # --- one case ---------------------------------------------------------------------------------------

    def play(self, case: Case) -> result.Case:
        """Cut over with the case's fault, judge, and leave dest observing, unless the case goes past OPEN."""
        began = time.monotonic()
        self.new, self.noticed, self.told, self._harmed, self.stranded = set(), [], [], False, set()
        self.silence = self.lost = None
        wrong: list[str] = []
        try:
            wrong += self._cut_over(case)
            wrong += self._judged(case)
        except (LabError, AssertionError, ZkDataError) as error:
            wrong.append(str(error))
        seconds = round(time.monotonic() - began, 1)
        outcome = "; ".join([*self.told, *self.noticed, *wrong])[:3000]
        held = not wrong + self.noticed
        told = result.Case(case.name, case.what, case.expected, outcome, seconds, held)
        if self.silence is None or self.lost is None:
            return told
        served, limit = self.silence
        lost, lone = self.lost
        figures = {"served_s": served, "limit_s": limit, "sessions_lost": lost, "lone_lost": lone}
        return result.Silenced(**asdict(told), **figures)

    def recover(self) -> None:
        """Bring dest back before the cut-over after a case that failed. LabError where that fails too."""
        self._healthy_hosts()
        self.operator.through("recover", "rollback", "--to", "cutover", "--steal")

    def _cut_over(self, case: Case) -> list[str]:
        """The tool's processes and what befalls the world; returns what was not as it has to be."""
        wrong, heard = [], set()
        try:
            code = self._first(case)
            self.told.append(f"run {code}")
            if code not in case.code:
                wrong.append(self._troubles())
            heard |= self._alarms()
            if case.alone:
                wait_until(case.alone, lambda: self.moment(case.alone), MOMENT_S)
        finally:
            if self._harmed:
                self.noticed += case.harm.mend(self)
        forward = "open" in phases(self.lab, self.run).values()
        if case.resumed:
            code, held = self._resumed(case)
            forward = forward or held
            self.told.append(f"resume {code}{' held at check' if held else ''}")
            if code not in case.resumed:
                wrong.append(self._troubles())
            heard |= self._alarms()
        went = "forward" if forward else "back"
        self.told.append(went)
        if case.way not in (went, "either"):
            wrong.append(f"went {went}")
        if case.alarm and not heard & set(case.alarm.split("|")):
            wrong.append(f"{case.alarm} was not told, only {sorted(heard)}")
        return wrong

    def _first(self, case: Case) -> int:
        """The cut-over with the fault; its exit code."""
        hold = ("--hold-at", case.hold) if case.hold else ()
        program = ["zkmigrate"]
        if case.kill is not None:
            program = ["zkmigrate.lab.killing", *map(str, case.kill)]
        for attempt in range(1, TRIES + 1):
            name = f"{case.name}-{attempt}"
            with self.operator.tool(name, "run", *CUTOVER, *hold, program=program) as self.typing:
                if reached := self._reached(case, self.typing):
                    self._harmed = True
                    case.harm.begin(self)
                    self._answer(case, self.typing)
                code = self.typing.end(ENDED_S)
            reached = code in case.code if case.kill is not None else reached
            if reached or code not in TOO_SLOW or set(phases(self.lab, self.run).values()) != {"idle"}:
                break
            self.told.append(f"try {attempt} ended with {code} before the fault: {self._troubles()[:200]}")
        return code

    def _reached(self, case: Case, typing: Typing) -> bool:
        """Wait for the hold, or the moment, of the case; False where the tool has ended without it."""
        if case.hold:
            return typing.held(HELD_S)
        if case.moment:

            def not_yet() -> str | None:
                return None if typing.ended else self.moment(case.moment)

            wait_until(case.moment, not_yet, MOMENT_S, 0.005)
            typing.kill()
        return not typing.ended

    @staticmethod
    def _answer(case: Case, typing: Typing) -> None:
        if case.answer == "kill":
            typing.kill()
        elif case.answer:
            typing.type(case.answer)

    def _resumed(self, case: Case) -> tuple[int, bool]:
        """Take the run up again; its exit code, and whether it came as far as a hold at CHECK."""
        hold = () if case.last else ("--hold-at", "check")
        with self.operator.tool(f"{case.name}-resume", "resume", *CUTOVER, *hold) as self.typing:
            held = not case.last and self.typing.held(HELD_S)
            if held:
                self.typing.type("back")
            return self.typing.end(ENDED_S), held

    def _alarms(self) -> set[str]:
        return set() if self.typing is None else {e["finding"]["id"] for e in self.typing.of("Alarm")}

    def _troubles(self) -> str:
        return "" if self.typing is None else self.typing.troubles()

    # --- the hosts --------------------------------------------------------------------------------------

    def moment(self, name: str) -> str | None:
        """None once the dest hosts are at this moment, else where they are."""
        seen = phases(self.lab, self.run)
        hosts = self.lab.role(Role.DEST)
        if name == "all open":
            return None if set(seen.values()) == {"open"} else str(seen)
        if name == "unsealed open":
            shut = {h: self._fence(h) for h, phase in seen.items() if phase != "sealed"}
            shut = {h: entries for h, entries in shut.items() if seen[h] not in AWAY or entries}
            return f"{seen}, fence entries {shut}" if shut else None
        there = {
            "stop": lambda: "stopped" in seen.values(),
            "config": lambda: any("observer" not in _text(host.root / ZOO_CFG.lstrip("/")) for host in hosts),
            # Before GO the record is that of the case before; ARM takes it away.
            "start": lambda: any(
                seen[host.name] in WITH_GO
                and " start 1 of" in _text(host.root / f"{zkm_host.run_dir(self.run).lstrip('/')}/finish.log")
                for host in hosts
            ),
            "serving": lambda: "started" in seen.values(),
        }[name]()
        return None if there else str(seen)

    def _fence(self, host: str) -> int:
        status = self.lab.exec(host, [zkm_host.INSTALLED_PATH, "--run", self.run, "status"]).stdout
        return int(dict(line.split("=", 1) for line in status.splitlines())["fence_entries"])

    def _healthy_hosts(self) -> None:
        fault.operator_restore(self.lab)
        for host in self.lab.role(Role.DEST):
            if not host.pid:
                fault.power_on(self.lab, host.name)

    # --- the verdict ------------------------------------------------------------------------------------

    def _judged(self, case: Case) -> list[str]:
        """What is not as it was before the case; waits until every session is served and all flows again."""
        gone = {self._sessions["ephemerals"][path]["owner"] for path in self.new}
        wanted = set(self._sessions["sessions"]) - gone - self.stranded
        wrong: list[str] = []
        try:
            wait_until("every session served again", lambda: sessions_away(self.lab, wanted), HEALTHY_S)
        except NotReady as late:
            wrong.append(str(late))
        flowing = ("producer", "consumer", "metadata", "raw")
        self.load.wait_flowing(flowing, FLOWING_S, since_ns=time.monotonic_ns())
        after = baseline(self.lab)
        wrong += lost_since(self._sessions, after, new=tuple(self.new))
        self.lost = (len(wanted - set(after["sessions"])), len(self.stranded - set(after["sessions"])))
        if ended := sorted(self.stranded - set(after["sessions"])):
            self.told.append(f"of a client that knows only the frozen host the session has ended: {ended}")
        if not case.last:
            wrong += self._dest_as_before()
        for host, text in source_state(self.lab).items():
            if text != self.source[host]:
                wrong.append(f"source changed on {host}")
        if self.new or ended or wrong:
            self._sessions = after
        return wrong

    def _dest_as_before(self) -> list[str]:
        """Trees like source's, and the hosts' configs, units and rules as after the roll."""
        wrong = tree_differences(self.lab)
        seen = phases(self.lab, self.run)
        if set(seen.values()) != {"idle"}:
            wrong.append(f"phases {seen}")
        for host, lines in configs(self.lab).items():
            differing = set(lines) ^ set(self._rolled[host])
            if differing or lines != self._rolled[host]:
                wrong.append(f"{host} differs: {sorted(differing)[:5]}")
        return wrong

    def finished(self, past_open: bool) -> result.Case:
        """End the load, walk a run that is past OPEN to its end, and judge what was recorded."""
        began = time.monotonic()
        wrong: list[str] = []
        try:
            if past_open:
                self.operator.through("end", "resume")
            wrong += self.load.finish()
        except LabError as error:
            wrong.append(str(error))
        verdict = judge(load_history(self.load.directory))
        claims = {name: verdict[name].value for name in JUDGED}
        wrong += [f"{name} {value}" for name, value in claims.items() if value != 0]
        seconds = round(time.monotonic() - began, 1)
        what = "the load's records over all cases of this lab" + (", the run to its end" if past_open else "")
        outcome = "; ".join([json.dumps(claims), *wrong])[:3000]
        return result.Case("nobody-hurt", what, "0 of each", outcome, seconds, not wrong)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
