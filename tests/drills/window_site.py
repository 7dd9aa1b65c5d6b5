"""A loaded lab that plays and judges the cases of ``window_faults`` one after the other."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.drills.labs import finish_load
from tests.drills.roll_site import require
from tests.drills.window_cases import Case
from tests.drills.window_harm import Scene
from tests.lab.footprint import configs, phases, tree_differences
from tests.lab.sessions import lost_since, sessions_not_served
from zkmigrate.hosts import zkm_host
from zkmigrate.lab import fault
from zkmigrate.lab.baseline import baseline
from zkmigrate.lab.failure import LabError, NotReady
from zkmigrate.lab.operator import ToolProcess
from zkmigrate.lab.render import ZOO_CFG
from zkmigrate.lab.source_state import source_state
from zkmigrate.lab.spec import Role
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.engine import journal
from zkmigrate.runbook.model.window import Phase
from zkmigrate.zookeeper.data.errors import ZkDataError

CUTOVER = ("--until", "cutover")
JUDGED = ("lost", "duplicated", "acked_creates_missing")
TRIES = 3
"""The maximum number of tries of a cut-over.

On a busy machine a gate of the preflight is closed, or a lease lapses, before the fault now and then. The
outcome names what ended the earlier tries.
"""
TOO_SLOW = (3, 6, 7, 9)
FLOWING_S, HEALTHY_S, HELD_S, ENDED_S, MOMENT_S = 60.0, 60.0, 240.0, 240.0, 120.0
AWAY, WITH_GO = Phase.ARMED.until(Phase.CUT), Phase.GO.until(Phase.OPEN)


@dataclass
class WindowSite(Scene):
    """A lab whose brokers and clients are on dest, under load, with the operator who cuts over.

    lost: how many sessions have ended, of clients that are not stranded and of stranded ones. past_open: the
    run has gone past OPEN, so no other case can be played.
    """

    lost: tuple[int, int] | None = None
    past_open: bool = False
    _rolled: dict[str, list[str]] = field(init=False)
    _sessions: dict[str, Any] = field(init=False)
    _harmed: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rolled = configs(self.lab)
        self._sessions = baseline(self.lab)

    # --- one case ---------------------------------------------------------------------------------------

    def play(self, case: Case) -> str:
        """Cut over with the case's fault, judge, and leave dest observing, unless the case goes past OPEN.

        Returns the outcome in words. Raises Unexpected if it is not as expected.
        """
        self.new_owners, self.noticed, self.notes, self.stranded = set(), [], [], set()
        self.silence, self.lost, self._harmed = None, None, False
        wrong: list[str] = []
        try:
            wrong += self._cut_over(case)
            wrong += self._judged(case)
        except (LabError, AssertionError, ZkDataError) as error:
            wrong.append(str(error))
        self.past_open = self.past_open or case.last
        outcome = "; ".join([*self.notes, *self.noticed, *wrong])[:3000]
        require(not wrong + self.noticed, outcome)
        return outcome

    def recover(self) -> None:
        """Take the run back to before the cut-over after a case that failed.

        Raises LabError if that fails.
        """
        fault.operator_restore(self.lab)
        for host in self.lab.role(Role.DEST):
            if not host.pid:
                fault.power_on(self.lab, host.name)
        self.operator.through("recover", "rollback", "--to", "cutover", "--steal")

    def _cut_over(self, case: Case) -> list[str]:
        """Run the tool and do the harm; return what was wrong with exit codes, direction and alarms."""
        wrong, heard = [], set()
        try:
            code = self._first(case)
            self.notes.append(f"run {code}")
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
            self.notes.append(f"resume {code}{' held at check' if held else ''}")
            if code not in case.resumed:
                wrong.append(self._troubles())
            heard |= self._alarms()
        went = "forward" if forward else "back"
        self.notes.append(went)
        if case.direction not in (went, "either"):
            wrong.append(f"went {went}")
        if case.alarm and not heard & set(case.alarm.split("|")):
            wrong.append(f"{case.alarm} was not told, only {sorted(heard)}")
        return wrong

    def _first(self, case: Case) -> int:
        """Run the cut-over with the fault and return its exit code."""
        program = ["zkmigrate"]
        if case.kill is not None:
            program = ["zkmigrate.lab.killing", *map(str, case.kill)]
        for attempt in range(1, TRIES + 1):
            name = f"{case.name}-{attempt}"
            self.operator.hold(case.hold)
            with self.operator.tool(name, "run", *CUTOVER, program=program) as self.tool:
                if reached := self._reached(case, self.tool):
                    self._harmed = True
                    case.harm.begin(self)
                    self._answer(case, self.tool)
                code = self.tool.wait_for_end(ENDED_S)
            reached = code in case.code if case.kill is not None else reached
            if reached or code not in TOO_SLOW or set(phases(self.lab, self.run).values()) != {"idle"}:
                break
            self.notes.append(f"try {attempt} ended with {code} before the fault: {self._troubles()[:200]}")
        return code

    def _reached(self, case: Case, tool: ToolProcess) -> bool:
        """Wait for the hold or the moment of the case; return False if the tool has ended without it."""
        if case.hold:
            return tool.wait_for_hold(HELD_S)
        if case.moment:

            def not_yet() -> str | None:
                return None if tool.has_ended else self.moment(case.moment)

            wait_until(case.moment, not_yet, MOMENT_S, 0.005)
            tool.kill()
        return not tool.has_ended

    @staticmethod
    def _answer(case: Case, tool: ToolProcess) -> None:
        if case.answer == "kill":
            tool.kill()
        elif case.answer:
            tool.type(case.answer)

    def _resumed(self, case: Case) -> tuple[int, bool]:
        """Resume the run; return its exit code, and whether it reached a hold at CHECK."""
        # The journal has the direction: an option of the way forward is refused on a way back.
        turn = journal.read(self.operator.journal).turn
        back = turn is not None and turn.then == "end"
        words = () if back else CUTOVER
        self.operator.hold("" if back or case.last else "check")
        with self.operator.tool(f"{case.name}-resume", "resume", *words) as self.tool:
            held = not case.last and not back and self.tool.wait_for_hold(HELD_S)
            if held:
                self.tool.type("back")
            code = self.tool.wait_for_end(ENDED_S)
            if held and any(event["how"] == "deadline" for event in self.tool.events_of("HoldEnded")):
                raise LabError(
                    "the hold after CHECK began too late for a way back that keeps sessions, so the run went "
                    "on to OPEN by itself. Repeat this case on an idle machine"
                )
            return code, held

    def _alarms(self) -> set[str]:
        return set() if self.tool is None else {e["finding"]["id"] for e in self.tool.events_of("Alarm")}

    def _troubles(self) -> str:
        return "" if self.tool is None else self.tool.troubles()

    # --- the hosts --------------------------------------------------------------------------------------

    def moment(self, name: str) -> str | None:
        """Return None if the dest hosts are at this moment, otherwise their phases."""
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
            # Before GO the log is that of the case before; ARM deletes it.
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

    # --- the verdict ------------------------------------------------------------------------------------

    def _judged(self, case: Case) -> list[str]:
        """Wait until every session is served and all flows again; return what differs from before."""
        gone = {self._sessions["ephemerals"][path]["owner"] for path in self.new_owners}
        wanted = set(self._sessions["sessions"]) - gone - self.stranded
        wrong: list[str] = []
        try:
            wait_until("every session served again", lambda: sessions_not_served(self.lab, wanted), HEALTHY_S)
        except NotReady as late:
            wrong.append(str(late))
        flowing = ("producer", "consumer", "metadata", "raw")
        self.load.wait_flowing(flowing, FLOWING_S, since_ns=time.monotonic_ns())
        after = baseline(self.lab)
        wrong += lost_since(self._sessions, after, new=tuple(self.new_owners))
        self.lost = (len(wanted - set(after["sessions"])), len(self.stranded - set(after["sessions"])))
        if ended := sorted(self.stranded - set(after["sessions"])):
            self.notes.append(f"of a client that knows only the frozen host the session has ended: {ended}")
        if not case.last:
            wrong += self._dest_as_before()
        for host, text in source_state(self.lab).items():
            if text != self.source[host]:
                wrong.append(f"source changed on {host}")
        if self.new_owners or ended or wrong:
            self._sessions = after
        return wrong

    def _dest_as_before(self) -> list[str]:
        """Return what differs from the state after the roll.

        That is: trees compared with source's, and the hosts' configs, units and rules.
        """
        wrong = tree_differences(self.lab)
        seen = phases(self.lab, self.run)
        if set(seen.values()) != {"idle"}:
            wrong.append(f"phases {seen}")
        for host, lines in configs(self.lab).items():
            differing = set(lines) ^ set(self._rolled[host])
            if differing or lines != self._rolled[host]:
                wrong.append(f"{host} differs: {sorted(differing)[:5]}")
        return wrong

    def judge_load(self) -> str:
        """Finish a run that is past OPEN, end the load, and judge its records."""
        if self.past_open:
            self.operator.through("end", "resume")
        return finish_load(self.load, dict.fromkeys(JUDGED, 0))


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
