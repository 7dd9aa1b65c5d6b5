"""``hold``, ``release`` and ``status`` at a second terminal, beside a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.test_main import ALL, Place, until
from zkmigrate.errors import LockedError
from zkmigrate.runbook.engine import process
from zkmigrate.runbook.engine.hold_file import NAME, RELEASED, Hold, HoldFile
from zkmigrate.runbook.ui import recent_events


class Desk(Place):
    """A place with a process at work, and what a second terminal says about it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.begun: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        self.begun.append(self.process(*words))
        return self.begun[-1]

    def status(self) -> dict[str, Any]:
        done = self.call("status", "--offline", "--json")
        assert done.exit_code == 0, done.output
        return dict(json.loads(done.output))

    def text(self) -> str:
        return self.call("status", "--offline").output

    def until_held(self) -> dict[str, Any]:
        until("it is held", lambda: self.journal().exists() and self.status()["held"] is not None)
        return self.status()

    def journal(self) -> Path:
        return self.runs / "lab-1" / "journal.jsonl"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    for begun in desk.begun:
        if begun.poll() is None:
            begun.kill()
        begun.wait()
        if begun.stdout is not None:
            begun.stdout.close()


def test_a_run_holds_says_so_and_goes_on_when_it_is_released(desk: Desk) -> None:
    assert desk.call("run", "--yes", "--until", "install").exit_code == 0
    placed = desk.ends(0, "hold", "--at", "prepare.two", "--why", "ask\tthe \x1b[31mteam")
    assert "run lab-1 holds before prepare.two" in placed
    assert "the hold is kept for the next run or resume" in placed
    assert f"a hold is requested, before prepare.two ({process.user()}: ask the [31mteam, " in desk.text()
    run = desk.start("resume", "--yes")
    said = desk.until_held()
    assert said["process"]["pid"] == run.pid
    assert said["process"]["verb"] == "resume"
    assert (said["held"]["step"], said["held"]["hold"]["why"]) == ("two", "ask the [31mteam")
    assert "  holding before prepare.two since " in desk.text()
    assert f"  under way: process {run.pid} (resume) by {process.user()}" in desk.text()
    assert "dest1/two" not in desk.files()
    assert desk.call("status", "--offline", "--wait", "prepare.two", "--timeout", "0").exit_code == 1
    assert desk.ends(0, "release").splitlines() == [
        f"run lab-1: the hold is released ({process.user()}: ask the [31mteam)",
        "  the run held before prepare.two and continues: prepare.two: write a file",
    ]
    waited = desk.call("status", "--offline", "--wait", "end", "--timeout", "60")
    assert (waited.exit_code, run.wait(timeout=30)) == (0, 0)
    assert waited.output == desk.text(), "the same text both ways"
    assert desk.files() == ALL
    out = run.communicate()[0]
    assert "a hold is requested, before prepare.two" in out
    assert (
        f"holding before prepare.two ({process.user()}: ask the [31mteam): zkmigrate release, or go (g)"
        in out
    )
    assert f"the hold at prepare.two ended: released by {process.user()}" in out
    assert not (desk.runs / "lab-1" / process.NAME).exists()


def test_a_hold_is_kept_for_a_run_that_has_not_begun(desk: Desk) -> None:
    placed = desk.ends(0, "hold", "--run-id", "lab-1", "--at", "install")
    assert "  the next step is preflight.sick: " in placed
    assert "run lab-1 has not begun: the hold is kept for zkmigrate run --run-id lab-1" in placed
    assert "the hold is released" in desk.ends(0, "release", "--run-id", "lab-1")
    assert desk.call("hold", "--run-id", "lab-1", "--at", "prepare.two").exit_code == 0
    run = desk.start("run", "--yes", "--run-id", "lab-1")
    assert desk.until_held()["held"]["where"] == "before prepare.two"
    assert desk.call("release").exit_code == 0
    assert run.wait(timeout=30) == 0


def test_a_hold_at_a_time_keeps_its_date(desk: Desk) -> None:
    desk.call("run", "--yes", "--until", "install")
    placed = json.loads(desk.ends(0, "hold", "--at", "2999-12-31T06:00+00:00", "--json"))["hold"]
    assert placed["at"].startswith("2999-12-31T") or placed["at"].startswith("3000-01-01T")
    assert placed["where"] == f"at the next place from {placed['at']} on"
    assert desk.status()["hold"] == placed
    assert desk.call("resume", "--yes").exit_code == 0, "the time has not come"


def test_killed_while_it_holds_the_run_holds_again_when_it_is_resumed(desk: Desk) -> None:
    desk.call("run", "--yes", "--until", "install")
    desk.call("hold")
    run = desk.start("resume", "--yes")
    desk.until_held()
    waiting = desk.start("status", "--offline", "--wait", "prepare")
    run.kill()
    run.wait()
    assert waiting.wait(timeout=30) == 8, "the process exited without recording a result"
    said = desk.status()
    assert (said["process"], said["held"], said["hold"]["where"]) == (None, None, "at the next place")
    assert "exited without recording a result" in desk.text()
    again = desk.start("resume", "--yes")
    desk.until_held()
    assert json.loads(desk.call("release", "--json").output)["held"] == "prepare.slow"
    assert again.wait(timeout=30) == 0


def test_a_change_in_flight_is_told_and_a_wait_ends_with_the_run_s_own_code(desk: Desk) -> None:
    (desk.world / "release").unlink()
    run = desk.start("run", "--yes")
    until("the slow change is under way", lambda: (desk.world / "dest3/slow.begun").exists())
    said = desk.status()
    in_flight = sorted(sent["host"] for sent in said["now"]["in_flight"])
    assert in_flight == ["dest1", "dest2", "dest3"]
    assert said["now"]["step"] == "prepare.slow"
    assert "  now: prepare.slow since " in desk.text()
    assert "  in flight: dest1: write /slow" in desk.text()
    waiting = desk.start("status", "--offline", "--wait", "end")
    run.send_signal(signal.SIGINT)
    (desk.world / "release").touch()
    assert run.wait(timeout=30) == waiting.wait(timeout=30) == 130
    assert desk.call("status", "--offline", "--wait", "install").exit_code == 0
    assert desk.call("status", "--offline", "--wait", "prepare").exit_code == 130
    assert desk.call("resume", "--yes", "--until", "prepare.slow").exit_code == 0
    assert desk.call("status", "--offline", "--wait", "prepare.two").exit_code == 1, "it ended with 0 without"
    assert json.loads(desk.call("status", "--offline", "--json", "--wait", "end").output)["waited"] == {
        "for": "end", "code": 0
    }  # fmt: skip


def test_a_wait_ends_at_ctrl_c(desk: Desk) -> None:
    desk.call("run", "--yes", "--until", "install")
    desk.call("hold")
    desk.start("resume", "--yes")
    desk.until_held()
    waiting = desk.start("status", "--offline", "--wait", "end")
    until("it waits", lambda: _catches(waiting.pid, signal.SIGTERM))
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(timeout=30) == 130


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal (SigCgt, proc(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
    return bool(caught >> (number - 1) & 1)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("hold", "--at", "nowhere"), 2, "cannot hold at 'nowhere' in disk: no such place; possible: "),
        (("hold", "--at", "install"), 2, "run lab-1 has already passed 'before install'. Next: hold "),
        (("hold", "--at", "preflight.sick"), 2, "has already passed 'before preflight.sick'"),
        (("hold", "--run-id", "other"), 2, "no run other in "),
        (("hold", "--at", "3"), 2, "cannot hold at 3: disk has no step that counts targets"),
        (("hold", "--at", "2020-01-01T00:00Z"), 2, "2020-01-01T00:00Z is past"),
        (("release", "--run-id", "other"), 2, "no run other in "),
        (("release",), 2, "run lab-1 has no hold to release. Next: zkmigrate status"),
        (("status", "--wait", "nowhere"), 2, "'nowhere' is not a stage or step"),
        (("status", "--timeout", "3"), 2, "--timeout needs --wait"),
        (("status", "--wait", "end", "--timeout", "-1"), 2, "is not in the range"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(desk: Desk, words: tuple[str, ...], code: int, said: str) -> None:
    desk.call("run", "--yes", "--until", "install")
    before = sorted(p.name for p in (desk.runs / "lab-1").iterdir())
    done = desk.call(*words)
    assert done.exit_code == code
    assert said in done.output
    assert sorted(p.name for p in (desk.runs / "lab-1").iterdir()) == before


def test_a_complete_run_is_not_held(desk: Desk) -> None:
    assert desk.call("run", "--yes").exit_code == 0
    done = desk.call("hold", "--json")
    assert done.exit_code == 2
    assert "run lab-1 is complete: there is nothing to hold" in json.loads(done.stdout)["error"]


def test_a_run_that_was_interrupted_in_a_step_can_be_held_before_it(desk: Desk) -> None:
    desk.call("run", "--yes", "--until", "install")
    (desk.world / "release").unlink()
    run = desk.start("resume", "--yes")
    until("the slow change is under way", lambda: (desk.world / "dest3/slow.begun").exists())
    assert desk.call("hold", "--at", "prepare.slow").exit_code == 2, "it is in it"
    run.kill()
    run.wait()
    (desk.world / "release").touch()
    assert desk.call("hold", "--at", "prepare.slow").exit_code == 0


def test_the_hold_of_somebody_else_is_not_replaced(desk: Desk) -> None:
    desk.call("run", "--yes", "--until", "install")
    file = HoldFile(desk.runs / "lab-1")
    file.place(Hold("", "mine", "bert@desk", "", 1.0))
    assert "a hold exists already (bert@desk: mine). Next: zkmigrate release" in desk.ends(5, "hold")
    released = desk.call("release")
    assert released.exit_code == 0
    assert "the hold is released (bert@desk: mine)" in released.output
    assert "run or resume continues with prepare.slow: write a file" in released.output
    assert desk.call("hold", "--why", "one").exit_code == 0
    assert "your earlier hold is replaced" in desk.ends(0, "hold", "--why", "two")
    assert desk.status()["hold"]["why"] == "two"
    assert (desk.runs / "lab-1" / NAME).stat().st_mode & 0o777 == 0o600


def test_a_hold_that_cannot_be_written_is_no_traceback(desk: Desk) -> None:
    desk.call("run", "--yes", "--until", "install")
    (desk.runs / "lab-1" / f"{NAME}.new").touch()
    (desk.runs / "lab-1" / RELEASED).mkdir()
    desk.call("hold")
    done = desk.call("release")
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (8, True), done.output
    assert (desk.runs / "lab-1" / NAME).exists(), "still held"


def test_two_who_hold_at_once_do_not_both_succeed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = HoldFile(tmp_path), HoldFile(tmp_path)
    monkeypatch.setattr(second, "wanted", lambda: None)  # it looked before the first one was written
    first.place(Hold(by="anna"))
    with pytest.raises(LockedError, match="somebody else has just made a hold"):
        second.place(Hold(by="bert"))
    assert [p.name for p in tmp_path.iterdir()] == [NAME]


def test_who_works_on_a_run_is_asked_without_getting_in_the_way(tmp_path: Path) -> None:
    assert process.at_work(tmp_path) is None
    made = process.Process(17, "run", "anna@desk", "/dev/pts/1", 5.0)
    fd = process.announce(tmp_path, made)
    assert process.at_work(tmp_path) == made
    told = '{"pid": %s, "verb": "run", "by": "a", "place": "", "since": %s}'
    numbers = (("Infinity", "5"), ("1e999", "5"), ("true", "5"), ("1.5", "5"), ('"17"', "5"), ("-1", "5"))
    odd = [told % one for one in (*numbers, ("17", "NaN"), ("17", "true"), ("17", "Infinity"))]
    for content in ("{", "[]", "[" * 60_000, told % (17, 5) + "}", *odd):
        (tmp_path / process.NAME).write_text(content)
        assert process.at_work(tmp_path) == process.Process(), "somebody does, whoever it is"
    os.close(fd)
    assert process.at_work(tmp_path) is None


def test_events_that_do_not_read_are_left_out(tmp_path: Path) -> None:
    said = ['{"at": 5, "event": "StepBegun", "stage": "a", "step": "b", "way": "forward"}', "[]", "{",
            "[" * 999, '{"event": "Waits"}', '{"at": "x", "event": "Waits"}',
            '{"at": 6, "event": "Waits", "what": "x"}',
            '{"at": 7, "event": "Countdown", "left_s": 3}', '{"at": 8, "event": "Coun']  # fmt: skip
    (tmp_path / "events.jsonl").write_text("\n".join(said))
    found = recent_events.read(tmp_path)
    assert (found.step, found.since, found.waits, found.left_s) == ("a.b", 5.0, None, 3.0)
    (tmp_path / "events.jsonl").unlink()
    assert recent_events.read(tmp_path) == recent_events.RecentEvents()
    (tmp_path / "events.jsonl").mkdir()
    assert recent_events.read(tmp_path) == recent_events.RecentEvents()


def test_a_run_that_holds_waits_for_nothing_else(tmp_path: Path) -> None:
    said = [
        {"at": 1, "event": "Waits", "what": "it", "progress": "", "left_s": 9},
        {"at": 2, "event": "Holding", "left_s": None},
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(map(json.dumps, said)))
    assert recent_events.read(tmp_path).waits is None


def test_a_wait_that_goes_on_keeps_when_it_began(tmp_path: Path) -> None:
    waits = '{"at": %d, "event": "Waits", "what": "%s", "progress": "%d", "left_s": 9}'
    said = [waits % (1, "it", 1), waits % (2, "it", 2), waits % (3, "that", 3), waits % (4, "that", 4)]
    for count, (since, progress) in enumerate([(1, "1"), (1, "2"), (3, "3"), (3, "4")], start=1):
        (tmp_path / "events.jsonl").write_text("\n".join(said[:count]))
        found = recent_events.read(tmp_path).waits
        assert found is not None
        assert (found["since"], found["progress"]) == (since, progress)


def test_a_hook_that_is_waited_for_is_what_the_run_waits_for(tmp_path: Path) -> None:
    begun = '{"at": %d, "event": "HookBegun", "moment": "before_wave", "stage": "roll", "run": "/h/ask",'
    said = [
        f'{begun % 1} "timeout_s": 30.0, "waited": false}}',
        f'{begun % 2} "timeout_s": 30.0, "waited": true}}',
        '{"at": 3, "event": "HookEnded", "moment": "before_wave"}',
    ]
    waits = {
        "what": "the hook before_wave has ended",
        "progress": "/h/ask",
        "left_s": 30.0,
        "at": 2.0,
        "since": 2.0,
    }
    for count, expected in ((1, None), (2, waits), (3, None)):
        (tmp_path / "events.jsonl").write_text("\n".join(said[:count]))
        assert recent_events.read(tmp_path).waits == expected


def test_the_findings_behind_a_step_are_told_whole(desk: Desk) -> None:
    desk.call("run", "--yes", "--until", "install")
    done = desk.ends(0, "status", "--offline", "--findings", "all")
    assert "  findings of preflight.sick:\n    [ok] disk.well: the world is well\n         seen: well" in done
    assert "  findings of install.one:" in done
    said = json.loads(desk.call("status", "--offline", "--json", "--findings", "install").output)
    assert [f["id"] for f in said["findings"]["install.one"]] == ["disk.one"]
    assert list(said["findings"]) == ["install.one"]
    assert desk.call("status", "--offline", "--findings", "instal").exit_code == 2


def test_what_the_run_saw_last_is_told_as_far_as_it_reads(desk: Desk) -> None:
    desk.call("run", "--yes", "--until", "install")
    desk.call("hold")
    run = desk.start("resume", "--yes")
    desk.until_held()
    servers = {"source1": ["leader", "0x5"], "dest1": ["observer", "0x3"]}
    seen = {"kind": "ensembles", "at": 1.0, "servers": servers}
    for spoilt in ("", '{"kind": "ensembles", "at": 5, "servers": 7}', '{"kind": "brokers"}'):
        with (desk.runs / "lab-1" / "samples.jsonl").open("a") as file:
            file.write(f"{json.dumps(seen)}\n{spoilt}\n")
        said = desk.text()
        assert "holding before prepare.slow" in said
        assert ("  source: source1 leads, 1 of 1 serve, zxid 0x5" in said) is (not spoilt), spoilt
        assert ("observer, 2 behind (" in said) is (not spoilt), spoilt
    desk.call("release")
    assert run.wait(timeout=30) == 0
