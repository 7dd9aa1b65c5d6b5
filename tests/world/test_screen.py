"""A whole run at a real terminal, over the model world: what is asked, in which order, and what is not."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.world.site import INVENTORY
from zkmigrate.runbook.engine.journal import NAME, Journal
from zkmigrate.runbook.engine.process import user

# Long leases: the test is about the screen, and must not fail because a loaded machine renews late.
PATIENT = "policy: {lease: {fence_ttl_ms: 60000, cut_ttl_ms: 30000}}\n"
QUESTION = re.compile(r"^(\S+): go \(g\), stop \(s\), .*findings \[STEP\] \(f\)\? ?", re.MULTILINE)


class Screen:
    """A process at a terminal; ``text`` is what it has written, without control codes, ``raw`` with them."""

    def __init__(self, folder: Path, *words: str) -> None:
        file = folder / "migration.yml"
        file.write_text(INVENTORY + PATIENT)
        self._fd, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.world.site", *words, "-i", str(file)],
            env={
                **os.environ,
                "ZKMIGRATE_RUNS": str(folder / "runs"),
                "WORLD_SPEED": "2",
                "TERM": "xterm",
                "COLUMNS": "120",
            },
            cwd=Path(__file__).parents[2],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.raw = ""
        self.text = ""
        self._seen = 0

    def until(self, wanted: str) -> None:
        """Read until ``wanted`` was written after what was last waited for, or until the end."""
        end = time.monotonic() + 60.0
        while (found := self.text.find(wanted, self._seen)) < 0:
            assert time.monotonic() < end, f"never: {wanted!r} in {self.text[-2000:]!r}"
            ready = select.poll()
            ready.register(self._fd, select.POLLIN)
            if not ready.poll(1000):
                continue
            try:
                more = os.read(self._fd, 65536).decode("utf-8", "replace")
            except OSError:
                return
            self.raw += more
            self.text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", more).replace("\r", "")
        self._seen = found + len(wanted)

    def type(self, line: str) -> None:
        os.write(self._fd, f"{line}\n".encode())

    def close(self) -> int:
        code = self.process.wait(timeout=60)
        os.close(self._fd)
        return code


def test_a_whole_run_asks_before_what_changes_and_never_inside_the_window(tmp_path: Path) -> None:
    screen = Screen(tmp_path, "run")
    for name in ("install.install", "join.join", "rehearse", "roll", "cutover"):
        screen.until(f"{name}: go (g), stop (s), back [TO] (b), ")
        screen.type("g")
    screen.until("finalize: go (g), stop (s), findings [STEP] (f)? ")
    screen.type("b")
    screen.until("there is no way back after cutover.open")
    screen.type("g")
    screen.until("(exit code ")
    assert screen.close() == 0, screen.text[-3000:]
    assert QUESTION.findall(screen.text) == [
        "install.install",
        "join.join",
        "rehearse",
        "roll",
        "cutover",
        "finalize",
        "finalize",
    ]
    before_cut = screen.text[: screen.text.index("Cut over now?")]
    assert "as rehearsed: " in before_cut
    assert "the hosts wait 10 s for OPEN" in before_cut
    assert "the way back starts by 12.0 - " in before_cut
    assert "findings hold" in before_cut
    assert not re.search(r"\[ok\] source\.", screen.text), "what holds at preflight is folded"


def test_a_key_pressed_once_too_often_answers_no_later_question(tmp_path: Path) -> None:
    screen = Screen(tmp_path, "run")
    for name in ("install.install", "join.join", "rehearse"):
        screen.until(f"{name}: go (g), stop (s), back [TO] (b), ")
        screen.type("g")
    screen.until("rehearse.arm: Arm dest")
    screen.type("g\ng\ng")
    screen.until("roll: go (g), stop (s), back [TO] (b), ")
    screen.type("s")
    screen.until("(exit code ")
    assert screen.close() == 130, screen.text[-3000:]
    assert QUESTION.findall(screen.text)[-1] == "roll"


def test_a_slip_of_the_finger_at_a_question_is_asked_about_again(tmp_path: Path) -> None:
    screen = Screen(tmp_path, "run")
    screen.until("install.install: go (g), ")
    screen.type("b instal")
    screen.until("'instal' is not a stage or step of kafka_zookeeper_move; possible: ")
    screen.until("install.install: go (g), ")
    screen.type("b roll")
    screen.until(
        "the run has not reached roll; possible: preflight, install, preflight.preflight, install.install"
    )
    screen.until("install.install: go (g), ")
    screen.type("f")
    screen.until("preflight.preflight:")
    screen.until("needed: ")
    screen.until("install.install: go (g), ")
    screen.type("g")
    screen.until("join.join: go (g), ")
    screen.type("g")
    screen.until("rehearse: go (g), stop (s), back [TO] (b), skip (k), ")
    assert "Without this stage: dest's configs" in screen.text
    screen.type("k")
    screen.until("rehearse is skipped")
    screen.until("roll: go (g), ")
    assert "skip (k)" not in screen.text[screen.text.rindex("roll: go (g)") :]
    screen.type("s")
    screen.until("(exit code ")
    assert screen.close() == 130, screen.text[-3000:]


def test_a_hold_counts_down_and_obeys_back(tmp_path: Path) -> None:
    asked = Screen(tmp_path, "hold", "--run-id", "early", "--at", "cut", "--why", "look")
    asked.until("run early has not begun")
    assert asked.close() == 0
    screen = Screen(tmp_path, "run", "--yes", "--run-id", "early")
    screen.until(f"holding after cut ({user()}: look): zkmigrate release, or go (g), stop (s) or back (b)?")
    screen.until("s left to turn back")
    screen.type("back")
    screen.until("zkmigrate status")
    assert screen.close() == 0
    assert "back at the start of cutover: asked by the operator" in screen.text
    assert "go on forward: zkmigrate run -i" in screen.text


@pytest.mark.parametrize(("answer", "code"), [("g", 0), ("yes", 0), ("s", 130)])
def test_the_question_of_a_rollback_stays_on_the_screen(tmp_path: Path, answer: str, code: int) -> None:
    begun = Screen(tmp_path, "run", "--yes", "--until", "install")
    begun.until("zkmigrate status")
    assert begun.close() == 0, begun.text[-3000:]
    screen = Screen(tmp_path, "rollback")
    screen.until("walk these steps back: go (g), stop (s)? ")
    assert "  install.install\n" in screen.text
    # A live view hides the cursor while it is drawn, over whatever was written below it since.
    asked = screen.raw[: screen.raw.index("walk these steps back: go (g), stop (s)? ")]
    assert asked.count("\x1b[?25l") == asked.count("\x1b[?25h") > 0, "no live view while the question is open"
    screen.type(answer)
    screen.until("zkmigrate status" if code else "(exit code 0)")
    assert screen.close() == code, screen.text[-3000:]
    if code:
        assert "not rolled back: nothing was changed" in screen.text
    else:
        assert "back at the beginning: asked by the operator" in screen.text
        assert "run world-1 of kafka_zookeeper_move resumed, walking back" in screen.text
        assert "resumed, forward" not in screen.text


def test_a_resume_that_goes_back_asks_like_a_rollback(tmp_path: Path) -> None:
    begun = Screen(tmp_path, "run", "--yes", "--until", "install")
    begun.until("zkmigrate status")
    assert begun.close() == 0, begun.text[-3000:]
    book = Journal.open(tmp_path / "runs" / "world-1", time.time)
    body = {"way": "back", "to": "install", "then": "end", "why": "asked by the operator", "code": 0}
    book.append("turn", {**body, "reset": ["install"]})
    book.close()
    screen = Screen(tmp_path, "resume")
    screen.until("this resume goes back to the start of install (asked by the operator), in 1 steps: install")
    screen.until("walk these steps back: go (g), stop (s)? ")
    screen.type("s")
    screen.until("not resumed: nothing was changed")
    screen.until("go on back to the start of install: zkmigrate resume -i")
    screen.until("go back to the beginning: zkmigrate rollback -i")
    screen.until("go forward: only from there: zkmigrate run -i")
    screen.until("zkmigrate status")
    assert screen.close() == 130, screen.text[-3000:]


def test_without_its_journal_a_way_back_says_that_listed_steps_may_never_have_begun(tmp_path: Path) -> None:
    """The list named cutover.open and finalize, of a run that had only installed."""
    begun = Screen(tmp_path, "run", "--yes", "--until", "install")
    begun.until("zkmigrate status")
    assert begun.close() == 0, begun.text[-3000:]
    (tmp_path / "runs" / "world-1" / NAME).write_bytes(b"")
    screen = Screen(tmp_path, "resume", "--run-id", "world-1", "--journal-lost", "back")
    screen.until("cutover.open")
    screen.until("The journal was lost, so this list has every step, also those that never began.")
    screen.until("walk these steps back: go (g), stop (s)? ")
    screen.type("s")
    assert screen.close() == 130, screen.text[-3000:]


def test_a_word_that_is_no_answer_to_a_rollback_asks_again(tmp_path: Path) -> None:
    begun = Screen(tmp_path, "run", "--yes", "--until", "install")
    begun.until("zkmigrate status")
    assert begun.close() == 0, begun.text[-3000:]
    screen = Screen(tmp_path, "rollback")
    screen.until("walk these steps back: go (g), stop (s)? ")
    screen.type("")
    screen.until("not understood: ''. g walks them back")
    screen.type("s")
    screen.until("not rolled back: nothing was changed")
    screen.until("zkmigrate status")
    assert screen.close() == 130
