"""What ``status`` and ``resume`` say of a window whose operator was killed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.world.desk import Desk
from tests.world.operator import Killed, NoSync, Operator, quiet_world
from tests.world.rolled import walked
from zkmigrate.inventory.inventory import digest, load
from zkmigrate.move.rules import window_rules
from zkmigrate.move.rules.unattended import kept
from zkmigrate.move.rules.window_estimate import cutover_lines
from zkmigrate.move.rules.window_rules import STEPS
from zkmigrate.runbook.engine import journal
from zkmigrate.runbook.engine.events import Holding
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.runs import mark_begun
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.model.window import Kept, Word
from zkmigrate.runbook.runs.left_window import SHUT_OUT
from zkmigrate.runbook.ui import sentences

RUN = "night"


class Night:
    """A desk whose run ``RUN`` was killed in a stage after so many of a verb's changes. answer: at CHECK."""

    def __init__(
        self, folder: Path, verb: str, count: int, stage: str = "cutover", answer: Word | None = None
    ) -> None:
        self.desk = Desk(folder)
        run_dir = self.desk.runs / RUN
        run_dir.mkdir(mode=0o700, parents=True)
        inventory = load(self.desk.file)
        journal = Journal.create(run_dir, lambda: self.desk.world.wall, NoSync())
        body = {"run": RUN, "playbook": PLAYBOOK.id, "inventory": digest(inventory), "plan": "", "hosts": {}}
        journal.append("begin", {**body, "name": inventory.name})
        journal.close()
        mark_begun(run_dir)
        operator = Operator(self.desk.world, run_dir)
        operator.kill_after_verb = (stage, verb, count)
        operator.answers = {"check": answer} if answer else {}
        skip = () if stage == "rehearse" else ("rehearse",)
        with pytest.raises(Killed):
            operator.forward(hold_at="check" if answer else "", skip=skip)

    def status(self, *words: str) -> tuple[int, dict[str, Any], str]:
        """Exit code, the judgement, and the text of ``status``."""
        said = self.desk.call("status", "--run-id", RUN, "--json", *words)
        text = self.desk.call("status", "--run-id", RUN, *words)
        assert text.exit_code == said.exit_code
        return said.exit_code, json.loads(said.output)["left"], text.output


@pytest.mark.parametrize(
    ("verb", "count", "seen", "offline", "does", "ended"),
    [
        ("cut", 3, "reopened", "leased", "walks back to the start of cutover", 9),
        (
            "seal",
            1,
            "partly sealed",
            "partly sealed",
            "walks back to the start of cutover, because a lease has ended",
            7,
        ),
        ("seal", 3, "sealed", "partly sealed", "cutover.go and cutover.open follow", 0),
        ("go", 1, "going", "going", "cutover.go and cutover.open follow", 0),
        ("go", 3, "opened", "going", "goes forward: hosts have opened", 0),
    ],
)
def test_a_killed_cut_over_says_who_is_shut_out_what_opens_and_what_resume_does(
    tmp_path: Path, verb: str, count: int, seen: str, offline: str, does: str, ended: int
) -> None:
    night = Night(tmp_path, verb, count)
    night.desk.world.advance(60.0)
    safe = seen in ("reopened", "opened")
    for words, kind in (((), seen), (("--offline",), offline)):
        code, left, text = night.status(*words)
        assert (code, left["kind"]) == (0 if safe and not words else SHUT_OUT, kind)
        first, *rest = text.splitlines()
        assert first.startswith("DANGER: the operator's process died; ") is (code == SHUT_OUT)
        assert "the dest hosts reopened by themselves: clients reach" in first or kind != "reopened"
        some = "clients are still blocked from 1 of 3 dest hosts" in first
        assert some is (kind == "partly sealed" and not words), "the others went back and let clients in"
        assert any("zkmigrate resume" in line for line in rest if line.startswith("do now: "))
        assert ("status without --offline" in text) is (bool(words) and kind != "sealed")
    resumed = night.desk.call("resume", "--run-id", RUN, "--yes", "--until", "cutover")
    assert resumed.exit_code == ended
    lines = resumed.output.splitlines()
    [said] = [number for number, line in enumerate(lines) if "this resume: " in line]
    assert does in lines[said]
    assert said < min(n for n, line in enumerate(lines) if "cutover" in line and " -> " in line)


def test_sessions_that_run_out_are_dated_and_the_way_forward_keeps_them(tmp_path: Path) -> None:
    _, left, text = Night(tmp_path, "seal", 3).status()
    assert left["runs_out"] == left["since"] + 12.0, "T - T/3 of 18 s"
    assert "a way back loses sessions (the shortest timeout is 18 s) from " in text
    assert "dest restarts their timeouts once it has a leader" in text
    assert "every dest host is sealed: none opens by itself" in text
    assert "dest1, dest2, dest3: sealed" in text


def test_a_way_back_that_was_killed_is_a_danger_too(tmp_path: Path) -> None:
    night = Night(tmp_path, "halt", 1, answer="back")
    code, left, text = night.status()
    assert (code, left["kind"]) == (SHUT_OUT, "way back")
    assert "(the run walks back to the start of cutover)" in text


def test_a_host_that_does_not_answer_is_not_taken_for_open(tmp_path: Path) -> None:
    night = Night(tmp_path, "cut", 3)
    night.desk.world.advance(60.0)
    said = night.desk.call("status", "--run-id", RUN, unreachable=frozenset({"dest2"}))
    assert said.exit_code == SHUT_OUT
    assert "dest2: does not answer" in said.output


def test_a_rehearsal_shuts_nobody_out(tmp_path: Path) -> None:
    said = Night(tmp_path, "seal", 3, stage="rehearse").desk.call("status", "--run-id", RUN)
    assert said.exit_code == 0
    text = said.output
    assert "DANGER" not in text


def test_a_way_back_says_at_its_end_whether_it_was_in_time_and_what_survived(tmp_path: Path) -> None:
    operator = Operator(quiet_world(), tmp_path / "run")
    operator.answers = {"cut": "back"}
    ended = operator.forward(hold_at="cut", skip=("rehearse",))
    assert ended.code == 0
    assert re.search(r"the way back began \d\.\d s after FENCE, in time \(limit 6\.5 s\); ", ended.message)
    assert ended.message.endswith("all 3 sessions survived")


def test_a_way_back_from_check_is_judged_by_the_limit_that_its_prompt_counts_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt said "too late", and the last line "in time", by the limit of an earlier way back."""
    operator = walked(tmp_path, "roll")
    monkeypatch.setattr(window_rules, "seconds", lambda *_: {"seal": 2.0, "go": 2.0})
    operator.answers = {"check": "back"}
    ended = operator.forward(hold_at="check")
    assert ended.code == 0
    assert re.search(r"s after FENCE, (in time|too late) \(limit behind CHECK 5\.0 s\); ", ended.message)


def test_a_way_back_that_came_too_late_names_the_sessions_that_ended() -> None:
    assert kept((1, 2, 3), (1, 2, 3), (1, 2, 3)) == Kept("all 3 sessions survived")
    late = kept((1, 2, 3), (1, 3), (1,))
    assert late == Kept(
        "1 of 3 sessions ended (0x2); 1 of 3 sessions live but have no client on dest yet", settled=False
    )


def test_back_at_check_is_told_to_cost_the_sessions_before_and_at_the_hold(tmp_path: Path) -> None:
    """As rehearsed the way back from CHECK takes longer than what T leaves."""
    operator = walked(tmp_path, "roll")
    world = operator.world
    took = {step: {"forward": 0.6, "back": 1.5} for step in STEPS.shut}
    records = {**journal.read(operator.run_dir).records(), "rehearse": {"seconds": took}}
    told = "\n".join(cutover_lines(Context("run", world.inventory, records=records)))
    assert "back (b) at a hold after CHECK costs the sessions: CHECK is done 5.4 s after FENCE" in told
    short = {step: {"forward": 0.1, "back": 0.1} for step in STEPS.shut}
    records["rehearse"] = {"seconds": short}
    told = "\n".join(cutover_lines(Context("run", world.inventory, records=records)))
    assert "keeps the sessions only within 5.6 s" in told


def test_the_hold_after_check_says_that_it_is_too_late(tmp_path: Path) -> None:
    operator = walked(tmp_path, "roll")
    world = operator.world
    rehearsed = Journal.open(operator.run_dir, lambda: world.wall, NoSync())
    for step in STEPS.shut:
        body = {"stage": "rehearse", "step": step, "way": "back", "event": "done", "seconds": 1.5}
        rehearsed.append("step", {**body, "mono": 0.0, "findings": []})
    rehearsed.close()
    operator.answers = {"check": "go"}
    assert operator.forward(until="cutover", hold_at="check").code == 0
    [held] = [e for e in operator.events if isinstance(e, Holding) and e.phase == "check"]
    assert held.late
    assert "too late to keep the clients' sessions" in sentences.holding(held)


@pytest.mark.parametrize(
    ("verb", "count", "stand", "code"),
    [
        ("seal", 3, "dest1, dest2, dest3: sealed: closed to clients until it receives an order", SHUT_OUT),
        ("fence", 3, "dest1, dest2, dest3: closed to clients until its lease ends", SHUT_OUT),
        ("arm", 3, "  dest1: phase armed", 8),
    ],
)
@pytest.mark.parametrize("kept", [0, 3], ids=["emptied", "shortened"])
def test_the_hosts_tell_of_a_run_whose_journal_cannot_be_read(
    tmp_path: Path, verb: str, count: int, stand: str, code: int, kept: int
) -> None:
    """``status`` said only that the journal was damaged, and nothing of clients that were shut out."""
    night = Night(tmp_path, verb, count)
    file = night.desk.runs / RUN / journal.NAME
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:kept]))
    said, left, text = night.status()
    first, *rest = text.splitlines()
    assert (said, left is None) == (code, code != SHUT_OUT)
    assert first.startswith("DANGER: the journal of this run cannot be read; ") is (code == SHUT_OUT)
    assert any(line.startswith(stand) for line in rest)
    assert f"journal line {kept + 1} is missing" in text
    assert f"--run-id {RUN} --journal-lost back" in text
    assert "do now" not in text
    offline = night.desk.call("status", "--run-id", RUN, "--offline")
    assert offline.exit_code == 8
    unheard = night.desk.call("status", "--run-id", RUN, unreachable=frozenset({"dest2"}))
    assert "  dest2: unknown" in unheard.output
