"""The move on real hosts under load: rollbacks, kills and the way forward again, chained on one lab.

Kafka is at the chroot ``/``, beside another tenant.

Each test goes on where the one before left the lab. Three of them do the same to the model world and expect
the same verdicts (parity).
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.drills.window_cases import CASES
from tests.drills.window_site import WindowSite
from tests.lab import tool
from tests.lab.footprint import configs, footprint, phases, tree_differences
from tests.lab.sessions import sessions_not_served
from tests.parity import length, verdicts
from tests.world.operator import Killed, Operator
from tests.world.test_chroot import LEFT, at_the_root
from zkmigrate.lab import canary_topic, fault
from zkmigrate.lab.baseline import baseline
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.judge import Policy, judge, load_history
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.operator import Operator as LabOperator
from zkmigrate.lab.source_state import source_state
from zkmigrate.lab.spec import LONG_SESSIONS, Role
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.engine import samples
from zkmigrate.runbook.runs.left_window import SHUT_OUT

pytestmark = pytest.mark.lab

RUN = "lab"
STEP_BLOCKED, LEASE_ENDED, LEFT_WITHOUT_A_WORD = 7, 9, 8
DEST = ("dest1", "dest2", "dest3")
FAULTS = ("leak-established-in", "broker-ask")
WITH_GO = {"go", "started", "checked"}


@dataclass
class Night:
    """A loaded lab, the operator's directory, and a model world that goes through the same."""

    lab: Lab
    directory: Path
    load: LoadRunner
    source: dict[str, str]
    first: dict[str, str]
    twin: Operator
    sessions: dict[str, Any] = field(default_factory=dict)
    rolled: dict[str, list[str]] = field(default_factory=dict)

    @property
    def run_directory(self) -> Path:
        return self.directory / "runs" / RUN

    def start(
        self, verb: str, *options: str, kill: tuple[str, str, int] | None = None
    ) -> subprocess.Popen[str]:
        """The command line, from the operator's place, with its input held open."""
        program = ["zkmigrate"] if kill is None else ["zkmigrate.lab.killing", kill[0], kill[1], str(kill[2])]
        return tool.started(self.lab, self.directory, RUN, verb, *options, program=program)

    def tool(
        self, verb: str, *options: str, answer: str = "", kill: tuple[str, str, int] | None = None
    ) -> int:
        """Run one verb to its end and print what it said; its exit code."""
        return tool.ended(self.start(verb, *options, kill=kill), answer, 400)

    def said(self, verb: str, *options: str, answer: str = "") -> tuple[int, str]:
        """Run one verb to its end; its exit code and all that it said."""
        process = self.start(verb, *options)
        text, _ = process.communicate(answer, timeout=400)
        print(text)
        return process.returncode, text

    def status(self, *options: str) -> tuple[int, str]:
        """``status`` at the operator's terminal, which asks the hosts; its exit code and text."""
        words = ("status", "--run-id", RUN, *options)
        done = tool.asked(self.lab, self.directory / "migration.yml", *words, timeout_s=400)
        return done.returncode, done.stdout

    def second(self, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
        """A verb at a second terminal, which sees the run's directory and not the hosts."""
        return tool.beside(self.directory, RUN, verb, *options)

    def footprint(self) -> dict[str, str]:
        """What a rollback must leave as it found it on dest hosts and brokers, file by file."""
        return footprint(self.lab)

    def configs(self) -> dict[str, list[str]]:
        """The footprint without data and records, which go on."""
        return configs(self.lab)

    def trees_equal(self) -> None:
        """Every dest disk holds the same subtree as source's, at dest's newest transaction."""
        assert tree_differences(self.lab) == []

    def same_sessions(self) -> None:
        """Every session and ephemeral that was there when the roll was done is still the same."""
        now = baseline(self.lab)
        assert now["ephemerals"] == self.sessions["ephemerals"]
        assert set(self.sessions["sessions"]) <= set(now["sessions"])
        assert now["controller_epoch"] == self.sessions["controller_epoch"]

    def phases(self, hosts: tuple[str, ...] = DEST) -> dict[str, str]:
        """What each host's phase file says; "none" without one."""
        return phases(self.lab, RUN, hosts)

    def not_in_phase(self, wanted: str, hosts: tuple[str, ...] = DEST) -> str | None:
        """The phases of the hosts as long as one is in another; None when all are in that phase."""
        found = self.phases(hosts)
        return None if set(found.values()) == {wanted} else str(found)

    def acknowledged(self) -> dict[str, int]:
        """How many records of the produce canary each broker acknowledged up to now."""
        lines = (self.run_directory / samples.NAME).read_text().splitlines()
        return canary_topic.acknowledged(json.loads(line) for line in lines if line)

    def clients_are_back(self) -> None:
        """Brokers and raw clients are served by dest again."""
        wanted = set(self.sessions["sessions"])
        wait_until("clients on dest again", lambda: sessions_not_served(self.lab, wanted), 180)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    directory = tmp_path_factory.mktemp("night")
    with Lab.up(replace(LONG_SESSIONS, chroot="/"), print) as lab:
        # The rates keep the logs short, and leave a slow machine its time: brokers and clients take it at
        # each record, for as long as the tests last.
        load = runner_for(
            lab, directory / "history", produce_rate=30.0, metadata_rate=0.5, raw_rate=12.0, tenant_rate=12.0
        )
        load.start(("producer", "consumer", "metadata", "tenant"))
        load.wait_flowing(("producer", "consumer", "tenant"), 60)
        write_inventory(lab, directory / "migration.yml", canary_topic=canary_topic.make(lab))
        twin = Operator(at_the_root(LEFT), directory / "twin")
        made = Night(lab, directory, load, source_state(lab), {}, twin)
        made.first = made.footprint()
        try:
            yield made
        finally:
            load.kill()


def test_rollback_after_join_leaves_every_host_as_it_was(night: Night) -> None:
    assert night.tool("run", "--until", "join") == 0
    night.trees_equal()
    assert night.acknowledged() == {}, "nothing is sent before the roll"
    assert night.tool("rollback") == 0
    assert night.footprint() == night.first

    assert night.twin.forward(until="join").code == 0
    assert night.twin.back().code == 0
    assert verdicts(night.run_directory) == verdicts(night.twin.run_dir)


def brokers_as_first(night: Night) -> None:
    """Every file of every broker is as it was, but for zkm-host, which is still installed."""
    now = night.footprint()
    for host in night.lab.role(Role.BROKER):
        without_ours = [line for line in now[host.name].splitlines() if "zkm" not in line]
        assert without_ours == night.first[host.name].splitlines()


def test_killed_in_the_roll_it_resumes_held_and_released_from_a_second_terminal(night: Night) -> None:
    killed = night.tool("run", "--until", "roll", "--skip", "rehearse", kill=("EditLine", "broker2", 0))
    assert killed == -signal.SIGKILL
    assert night.second("status", "--offline", "--wait", "roll").returncode == LEFT_WITHOUT_A_WORD
    assert night.second("hold", "--at", "roll.roll", "--why", "look at broker2").returncode == 0
    process = night.start("resume", "--until", "roll")

    def not_held() -> str | None:
        said = json.loads(night.second("status", "--offline", "--json").stdout)
        return None if said["held"] else f"not held: {said['now']}"

    wait_until("the roll is held", not_held, 300)
    assert "holding in roll.roll since" in night.second("status", "--offline").stdout
    assert "and continues: roll.roll" in night.second("release").stdout
    waited = night.second("status", "--offline", "--wait", "roll", "--timeout", "300")
    assert waited.returncode == 0, waited.stdout
    assert tool.ended(process, "", 60) == 0


def test_rollback_after_the_roll_and_forward_again(night: Night) -> None:
    assert night.tool("rollback", "--to", "roll") == 0
    brokers_as_first(night)
    assert night.tool("run", "--until", "roll") == 0
    assert set(night.acknowledged()) == {host.name for host in night.lab.role(Role.BROKER)}
    night.load.start(("raw",))
    night.load.wait_flowing(("raw", "producer"), 60, since_ns=time.monotonic_ns())
    night.sessions = baseline(night.lab)
    night.rolled = night.configs()
    for host in DEST:
        lines = " ".join(night.rolled[host])
        assert all(
            part in lines for part in ("zoo.cfg", "/etc/sudoers.d/", "/etc/systemd/system/", "zkm-host")
        )


@contextmanager
def hanging_hook(night: Night, moment: str) -> Iterator[None]:
    """A hook that hangs for 15 s: longer than a way back may take."""
    inventory = night.directory / "migration.yml"
    text = inventory.read_text()
    program = night.directory / "hang"
    program.write_text("#!/bin/sh\nsleep 1000\n")
    program.chmod(0o755)
    inventory.write_text(f"{text}hooks:\n  {moment}: [{{run: hang, timeout_s: 15}}]\n")
    try:
        yield
    finally:
        inventory.write_text(text)


def test_rollback_from_cut_keeps_sessions_and_trees(night: Night) -> None:
    before = length(night.run_directory)
    with hanging_hook(night, "on_turn_back"):
        assert night.second("hold", "--at", "cut").returncode == 0
        code, text = night.said("run", "--until", "cutover", answer="back\n")
    assert code == 0
    assert "s after FENCE, in time (limit " in text
    assert " sessions survived" in text
    lab_saw = verdicts(night.run_directory, before)
    (log,) = (night.run_directory / "hooks").iterdir()
    assert "[zkmigrate: timeout, exit code None" in log.read_text(), "it hung"
    assert night.configs() == night.rolled
    night.clients_are_back()
    night.same_sessions()
    night.trees_equal()

    twin = night.twin
    assert twin.forward(until="roll").code == 0
    before = length(twin.run_dir)
    twin.answers["cut"] = "back"
    assert twin.forward(until="cutover", hold_at="cut").code == 0
    assert lab_saw == verdicts(twin.run_dir, before)


def test_a_fault_while_cut_turns_back_and_nobody_is_hurt(night: Night) -> None:
    """The watch sees a leaking block and a lost broker; the drill ``window_faults`` has every fault."""
    site = WindowSite(night.lab, LabOperator(night.lab, night.directory, RUN), night.load)
    cases = [case for case in CASES if case.name in FAULTS]
    assert len(cases) == len(FAULTS)
    for case in cases:
        print(site.play(case))
    night.sessions = baseline(night.lab)


def test_with_the_operator_cut_off_dest_observes_again_by_itself(night: Night) -> None:
    assert night.second("hold", "--at", "cut").returncode == 0
    process = night.start("run", "--until", "cutover")
    wait_until("every dest host is cut", lambda: night.not_in_phase("cut"), 300, 0.05)
    fault.operator_cut(night.lab)
    # Killed at once: a tool that noticed its own silence first would have turned back for that reason.
    process.kill()
    process.communicate()
    assert night.second("release").returncode == 0
    try:
        wait_until("dest has gone back by itself", lambda: night.not_in_phase("armed"), 180)
    finally:
        fault.operator_restore(night.lab)
    night.clients_are_back()
    night.same_sessions()
    night.trees_equal()
    code, text = night.status()
    assert code == 0
    assert text.startswith(
        "the operator's process died; the dest hosts reopened by themselves: clients reach"
    )
    assert night.second("status", "--offline").returncode == SHUT_OUT
    # Whether or not its deadline has passed meanwhile: the hosts are asked first, and say that they lapsed.
    assert night.tool("resume") == LEASE_ENDED
    assert night.configs() == night.rolled


def test_killed_between_two_seals_it_resumes_on_the_way_back(night: Night) -> None:
    assert night.tool("run", "--until", "cutover", kill=("Seal", "dest2", 1)) == -signal.SIGKILL
    sealed = tuple(host for host, phase in night.phases().items() if phase == "sealed")
    assert len(sealed) == 1
    others = tuple(host for host in DEST if host not in sealed)
    assert "dest2" in others
    wait_until("the unsealed hosts have gone back", lambda: night.not_in_phase("armed", others), 180)
    assert night.phases(sealed) == {sealed[0]: "sealed"}
    code, text = night.status()
    assert code == SHUT_OUT
    assert text.startswith(
        "DANGER: the operator's process died; clients are still blocked from 1 of 3 dest hosts since "
    )
    assert f"{sealed[0]}: sealed: closed to clients until it receives an order" in text
    # Not 9: once a SEAL was sent neither an ended lease nor the deadline decides. It is SEAL itself that
    # cannot be completed any more, on the hosts that went back.
    assert night.tool("resume", "--until", "cutover") == STEP_BLOCKED
    assert night.configs() == night.rolled
    night.clients_are_back()
    night.same_sessions()
    night.trees_equal()


def test_rollback_from_check_keeps_sessions_and_trees(night: Night) -> None:
    assert night.second("hold", "--at", "check").returncode == 0
    assert night.tool("run", "--until", "cutover", answer="back\n") == 0
    assert night.configs() == night.rolled
    night.clients_are_back()
    night.same_sessions()
    night.trees_equal()


def test_killed_between_two_gos_it_resumes_forward(night: Night) -> None:
    before = length(night.run_directory)
    assert night.tool("run", "--until", "cutover", kill=("Go", "dest2", 1)) == -signal.SIGKILL
    found = night.phases()
    gone = {host for host, phase in found.items() if phase in WITH_GO}
    assert len(gone) == 1
    assert {found[host] for host in DEST if host not in gone} == {"sealed"}
    assert "dest2" not in gone
    code, text = night.status()
    assert code == SHUT_OUT
    assert f"{gone.pop()}: has received GO, and opens by itself" in text
    code, text = night.said("resume", "--until", "cutover")
    assert code == 0
    said, sent = (
        text.index("this resume: the run goes forward: cutover.go and cutover.open follow"),
        text.index(": go: "),
    )
    assert said < sent
    lab_saw = verdicts(night.run_directory, before)
    night.clients_are_back()
    night.same_sessions()

    twin = night.twin
    before = length(twin.run_dir)
    twin.kill_before_second = "Go"
    with pytest.raises(Killed):
        twin.forward(until="cutover")
    twin.kill_before_second = ""
    assert twin.resume(until="cutover").code == 0
    assert lab_saw == verdicts(twin.run_dir, before)


def test_after_open_the_rollback_is_refused_by_name(night: Night) -> None:
    assert night.tool("rollback", "--to", "cutover") == 6


def test_after_open_the_look_after_a_move_finds_nothing(night: Night) -> None:
    words = ("preflight", "--stage", "after", "--json")
    done = tool.asked(night.lab, night.directory / "migration.yml", *words, timeout_s=400)
    body = json.loads(done.stdout)
    assert (done.returncode, body["counts"]["holds"]) == (0, len(body["findings"])), done.stdout


def test_nobody_was_hurt(night: Night) -> None:
    night.same_sessions()
    assert source_state(night.lab) == night.source
    assert night.load.finish() == []
    # A busy machine answers late; a client of source that waits as long as its session lasts is harmed.
    patience = Policy(tenant_gap_limit_s=LONG_SESSIONS.session_timeout_ms / 1000)
    verdict = judge(load_history(night.directory / "history"), patience)
    claims = {name: verdict[name].value for name in ("lost", "duplicated", "acked_creates_missing")}
    assert claims == {"lost": 0, "duplicated": 0, "acked_creates_missing": 0}, json.dumps(verdict.result())
    assert verdict["other_tenant_unharmed"].value is True, verdict["other_tenant_unharmed"].detail
