"""What ``status`` and ``resume`` say of a window whose operator was killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.world.desk import Desk
from tests.world.operator import Killed, NoSync, Operator
from zkmigrate.engine.journal import Journal
from zkmigrate.inventory.inventory import digest, load
from zkmigrate.model.window import Word
from zkmigrate.runs.left_window import SHUT_OUT

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
            "walks back to the start of cutover, or goes forward",
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
    assert "a way back loses sessions (the shortest lives 18 s) from " in text
    assert "dest counts their time anew once it has a leader" in text
    assert "every dest host is sealed: none opens by itself" in text
    assert "dest1, dest2, dest3: sealed" in text


def test_a_way_back_that_was_killed_is_a_danger_too(tmp_path: Path) -> None:
    night = Night(tmp_path, "halt", 1, answer="back")
    code, left, text = night.status()
    assert (code, left["kind"]) == (SHUT_OUT, "way back")
    assert "(it walks back to the start of cutover)" in text


def test_a_host_that_does_not_answer_is_not_taken_for_open(tmp_path: Path) -> None:
    night = Night(tmp_path, "cut", 3)
    night.desk.world.advance(60.0)
    said = night.desk.call("status", "--run-id", RUN, unreachable=frozenset({"dest2"}))
    assert said.exit_code == SHUT_OUT
    assert "dest2: does not answer" in said.output


def test_a_rehearsal_shuts_nobody_out(tmp_path: Path) -> None:
    code, left, text = Night(tmp_path, "seal", 3, stage="rehearse").status()
    assert (code, left) == (0, None)
    assert "DANGER" not in text
