"""What an operator sees: plain lines, the live view, JSON lines, and prompts on a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from tests.unit.cli.test_main import ALL, Place
from tests.unit.engine_world import HOSTS, ended
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.engine.clock import Interrupt
from zkmigrate.runbook.model.change import Fence, PutFile, SetService
from zkmigrate.runbook.model.finding import Severity, claim
from zkmigrate.runbook.model.step import Hazard, Way
from zkmigrate.runbook.ui import finding_lines, sentences
from zkmigrate.runbook.ui.console import StdConsole
from zkmigrate.runbook.ui.jsonl import JsonLines
from zkmigrate.runbook.ui.live import LiveView
from zkmigrate.runbook.ui.plain import Plain
from zkmigrate.runbook.ui.run_files import EVENTS, recorded

SICK = claim("tiny.sick", "it is well", False, seen="sick", needed="health", moves=("heal it",), target="d2")
STORY: tuple[events.Event, ...] = (
    events.RunBegun("r-1", "tiny", Way.FORWARD, False, HOSTS, (("main", "Do"),)),
    events.StageBegun("main", "Do", Way.FORWARD, True, False),
    events.StepBegun("main", "fence", "Fence", Hazard.WINDOW, Way.FORWARD),
    events.WaveBegun("main", "fence", Way.FORWARD, HOSTS),
    events.ChangeSent("d1", "main.fence.d1.1.1", Fence("d1", 5000)),
    events.ChangeEnded("d1", "main.fence.d1.1.1", "done", 0, "ok"),
    events.ChangeEnded("d2", "main.fence.d2.1.1", "failed", 5, "no room"),
    events.Waits("main", "fence", "the door is closed", "2 of 3", 4.0),
    events.Waits("main", "fence", "the door is closed", "2 of 3", 3.9),
    events.Countdown(6.2),
    events.Countdown(6.1),
    events.Holding("fence", 6.0, who="ann@ops"),
    events.StepEnded("main", "fence", Way.FORWARD, 0.25, (claim("tiny.ok", "shut", True, seen="3 of 3"),)),
    events.Consented("main", "Now?", "go", "anna"),
    events.Alarm("fence", SICK, "back"),
    events.Turned(Way.BACK, "main", "tiny.sick: sick"),
    events.StepBlocked("main", "cut", Way.FORWARD, (SICK,)),
    events.Noted("a remark"),
    events.RunEnded(7, "back at the start of main", (SICK,)),
)


def test_plain_lines_tell_the_whole_story_once() -> None:
    out = StringIO()
    plain = Plain(out, lambda: "12:00:00", lambda: 100.0)
    for event in STORY:
        plain(event)
    assert [line.removeprefix("12:00:00 ") for line in out.getvalue().splitlines()] == [
        "run r-1 of tiny begun, forward",
        "-> main: Do (window)",
        "-> main.fence: Fence",
        "   d1: refuse clients (lease 5000 ms) and end their connections",
        "!! d2: main.fence.d2.1.1 failed: no room",
        "   main.fence waits until the door is closed: 2 of 3 (4 s left)",
        "   6 s left to turn back",
        "   holding after fence (ann@ops), 6 s left: zkmigrate release, or go (g), stop (s) or back (b)?",
        "   main.fence done in 0.25 s",
        "     [ok] tiny.ok: shut; 3 of 3",
        "   main: Now? go (anna)",
        "!! after fence: [NO] tiny.sick d2: Failed: sick; expected: it is well (needed: health): back",
        "<- back to the start of main: tiny.sick: sick",
        "!! main.cut is blocked",
        "     [NO] tiny.sick d2: Failed: sick; expected: it is well (needed: health)",
        "   a remark",
        "back at the start of main (exit code 7)",
    ]


def test_many_findings_that_hold_are_counted_and_the_others_told_in_full() -> None:
    held = [claim(f"tiny.{name}", "well", True, target=host) for name in "abcd" for host in HOSTS]
    later = claim("tiny.e", "well", None, seen="later: checked at the gate roll", severity=Severity.INFO)
    unsure = claim("tiny.f", "it answers", None, seen="no answer", severity=Severity.WARN)
    assert finding_lines.findings([*held, later, SICK, unsure]) == [
        "[NO] tiny.sick d2: Failed: sick; expected: it is well (needed: health)",
        "[??] tiny.f: Unknown: no answer; expected: it answers",
        "12 findings hold; 1 check runs later",
    ]


def test_a_claim_that_holds_on_every_host_is_one_line() -> None:
    held = [claim("tiny.a", "no client gets in", True, target=host, seen="0 sockets") for host in HOSTS]
    assert finding_lines.findings(held) == ["[ok] tiny.a d1, d2, d3: no client gets in"]


def test_at_a_question_what_does_not_hold_is_last_and_what_holds_is_grouped() -> None:
    warns = claim("tiny.quiet", "it is quiet", False, seen="loud", severity=Severity.WARN, moves=("wait",))
    held = [claim(f"host.{n}", "well", True, target=host) for n in "ab" for host in HOSTS]
    later = claim("roll.x", "well", None, severity=Severity.INFO)
    evidence = {"look.look": (claim("a.b", "so", True),), "main.fence": (warns, SICK, *held, later)}
    assert finding_lines.evidence_lines(evidence, "") == [
        "shortened; in full: f main.fence, or f all",
        "other steps with findings: look.look (1)",
        "main.fence:",
        "  6 hold:",
        "    host.a (3), host.b (3)",
        "  1 check runs later:",
        "    roll.x",
        "  [warn] tiny.quiet: Failed: loud; expected: it is quiet",
        "       next: wait",
        "  [NO] tiny.sick d2: Failed: sick; expected: it is well (needed: health)",
        "       next: heal it",
    ]
    whole = finding_lines.evidence_lines(evidence, "main")
    assert whole[-4:] == [
        "  [NO] tiny.sick d2: Failed: sick", "       expected: it is well", "       needed: health",
        "       next: heal it",
    ]  # fmt: skip
    assert sum("[ok] host." in line for line in whole) == 6
    assert "look.look:" in finding_lines.evidence_lines(evidence, "all")


def test_upper_case_is_for_what_stands_in_the_way() -> None:
    marks = {
        severity: finding_lines.finding(claim("tiny.a", "so it is", False, severity=severity)).split()[0]
        for severity in Severity
    }
    assert marks == {Severity.BLOCK: "[NO]", Severity.WARN: "[warn]", Severity.INFO: "[note]"}


def test_a_run_that_stopped_says_the_moves_and_one_that_turned_back_does_not() -> None:
    assert (
        sentences.Story().lines(events.RunEnded(6, "blocked", (SICK,)))[-1] == "   next: heal it (tiny.sick)"
    )
    assert "heal it" not in "".join(sentences.Story().lines(events.RunEnded(9, "back", (SICK,))))


def test_the_screen_keeps_what_was_shown_between_two_questions(tmp_path: Path) -> None:
    from rich.console import Console

    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as out:
        view = LiveView(out)
        view._console = Console(file=out, width=80, force_terminal=True)
        with view:
            view(STORY[0])
            console = StdConsole(0, out, view.quiet)
            console.show(["kept"])
            before = view._live
            console.show(["kept too"])
        assert view._live is not before, "a stopped Live would wipe the lines above it when started again"
    os.close(ours)


def test_a_question_is_left_when_somebody_wants_to_stop() -> None:
    reader, writer = os.pipe()
    out = StringIO()
    console = StdConsole(reader, out, interrupted=lambda: True)
    assert console.ask("go? ") is None
    os.close(reader)
    os.close(writer)


def test_a_descriptor_above_1023_can_be_waited_for() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        reader, writer = os.pipe()
        interrupt = Interrupt()
        assert reader > 1023
        console = StdConsole(reader, StringIO())
        assert console.poll(0.0) == ""
        os.write(writer, b"go\n")
        assert console.poll(1.0) == "go"
        interrupt.ask()
        interrupt.wait(60.0)
        for fd in (reader, writer):
            os.close(fd)
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_events_are_recorded_after_another_and_a_full_disk_stops_nothing(tmp_path: Path) -> None:
    seen: list[events.Event] = []
    for event in STORY[:2]:
        with recorded(tmp_path, seen.append) as emit:
            emit(event)
    said = [json.loads(line) for line in (tmp_path / EVENTS).read_text().splitlines()]
    assert [s["event"] for s in said] == ["RunBegun", "StageBegun"]
    (tmp_path / EVENTS).unlink()
    (tmp_path / EVENTS).symlink_to("/dev/full")
    seen.clear()
    with recorded(tmp_path, seen.append) as emit:
        for event in STORY[:2]:
            emit(event)
    assert [type(e).__name__ for e in seen] == ["Noted", "RunBegun", "StageBegun"]
    assert "No space left on device" in sentences.sentence(seen[0])


def test_json_lines_hold_every_event_and_no_file_content() -> None:
    out = StringIO()
    lines = JsonLines(out, lambda: 1_700_000_000.1234)
    for event in (*STORY, events.ChangeSent("d1", "x", PutFile("d1", "/f", b"secret", "root:root"))):
        lines(event)
    said = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [s["event"] for s in said] == [*(type(e).__name__ for e in STORY), "ChangeSent"]
    assert said[0]["at"] == 1_700_000_000.123
    assert said[-1]["change"]["text"] == "write /f (6 bytes, mode 0644, owner root:root)"
    assert "c2VjcmV0" not in out.getvalue()


def test_the_live_view_shows_hosts_waits_and_the_countdown() -> None:
    out = StringIO()
    with LiveView(out, lambda: 100.0) as view:
        for event in STORY[:12]:
            view(event)
        drawn = StringIO()
        from rich.console import Console

        Console(file=drawn, width=120).print(view._drawn())
        with view.quiet():
            pass
        for event in STORY[12:]:
            view(event)
    text = drawn.getvalue()
    assert "run r-1: tiny" in text
    assert re.search(r"d1 +done 0 s ago: refuse clients", text)
    words = " ".join(text.split())
    assert "holding after fence (ann@ops): zkmigrate release, or go (g), stop (s) or back (b)?" in words
    assert "6.0 s left to turn back" in text
    assert "[NO] tiny.sick d2: Failed: sick; expected: it is well" in out.getvalue()


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("window", [False, True])
def test_the_live_view_keeps_what_was_done_to_which_host_and_when(window: bool) -> None:
    from rich.console import Console

    out = StringIO()
    view = LiveView(out, clock=lambda: "12:00:00")
    view._console = Console(file=out, width=100)
    view(events.StageBegun("roll", "Roll", Way.FORWARD, window, False))
    for host, status in (("b1", "done"), ("b2", "failed")):
        view(events.ChangeSent(host, f"op.{host}", SetService(host, "kafka.service", "restart")))
        view(events.ChangeEnded(host, f"op.{host}", status, 0, ""))
    lines = out.getvalue().splitlines()
    assert ("   12:00:00 b1: restart kafka.service" in lines) is not window
    assert not any("b2: restart" in line for line in lines)


def test_what_one_thread_prints_and_another_draws_leaves_no_line_behind(switching: None) -> None:
    """The board changes its height all the time; a line of it that stays is one that was drawn meanwhile."""
    from rich.console import Console

    out = StringIO()
    view = LiveView(out)
    view._console = Console(file=out, width=80, height=40, force_terminal=True)
    view._live = view._new_live()
    with view:
        view(STORY[0])

        def draw() -> None:
            for _ in range(100):
                view._redraw()

        drawers = [threading.Thread(target=draw, daemon=True) for _ in range(3)]
        for drawer in drawers:
            drawer.start()
        for n in range(100):
            view(events.Waits("main", "fence", "a door", f"{n}", 4.0))
            view(events.Noted(f"remark {n}"))
            view(events.WaveBegun("main", "fence", Way.FORWARD, HOSTS))
        ended(*drawers)
    assert on_screen(out.getvalue())[1:] == [f"   remark {n}" for n in range(100)]


def on_screen(written: str) -> list[str]:
    """What is left on a screen that is high enough, of text, CR, LF, and the codes for up and erase line."""
    lines, row = [""], 0
    for code, final, char in re.findall(r"\x1b\[([0-9;?]*)([A-Za-z])|([^\x1b])", written):
        if char == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif final == "A":
            row = max(0, row - int(code or 1))
        elif final == "K":
            lines[row] = ""
        elif char and char != "\r":
            lines[row] += char
    return [line.rstrip() for line in lines if line.strip()]


def read_until(fd: int, text: str, seen: str) -> str:
    end = time.monotonic() + 30.0
    while text not in seen:
        assert time.monotonic() < end, f"never: {text!r} in {seen[-2000:]!r}"
        try:
            seen += os.read(fd, 4096).decode()
        except OSError:  # the other end is closed
            break
    return seen


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_ctrl_c_at_a_question_stops_and_says_how_to_go_on(tmp_path: Path, term: str) -> None:
    place = Place(tmp_path)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.disk_world", *place.words("run")],
        env={**os.environ, **place.environ, "COLUMNS": "200", "TERM": term},
        cwd=Path(__file__).parents[4],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = read_until(ours, "install.one: go (g)", "")
    process.send_signal(signal.SIGINT)
    seen = read_until(ours, "zkmigrate status", seen)
    assert process.wait(timeout=30) == 130
    os.close(ours)
    assert "stop requested: changes in flight" in seen
    assert f"go on forward: zkmigrate resume -i {place.file} --playbook" in seen
    assert "--run-id lab-1" in seen
    assert ("\x1b[" in seen) is (term == "xterm"), "a dumb terminal gets no control codes"
    assert place.files() == set()


@pytest.mark.parametrize(
    ("answers", "code", "left"),
    [
        ((("install.one: go (g)", "g"), ("prepare: go (g)", "y"), ("prepare.slow: go (g)", "g"),
          ("prepare.two: go (g)", "go")), 0, ALL),
        ((("install.one: go (g)", "g"), ("prepare: go (g)", "s")), 130, {f for f in ALL if "one" in f}),
        ((("install.one: go (g)", "g"), ("prepare: go (g)", "y"), ("prepare.slow: go (g)", "g"),
          ("prepare.two: go (g)", "b prepare")), 0, {f for f in ALL if "one" in f}),
    ],
    ids=["go", "stop", "back"],
)  # fmt: skip
def test_on_a_terminal_every_step_is_explained_and_asked(
    tmp_path: Path, answers: tuple[tuple[str, str], ...], code: int, left: set[str]
) -> None:
    place = Place(tmp_path)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.disk_world", *place.words("run")],
        env={**os.environ, **place.environ, "COLUMNS": "200", "TERM": "xterm"},
        cwd=Path(__file__).parents[4],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = ""
    for question, answer in answers:
        seen = read_until(ours, question, seen)
        os.write(ours, f"{answer}\n".encode())
    read_until(ours, f"(exit code {code})", seen)
    assert process.wait(timeout=30) == code
    os.close(ours)
    assert place.files() == left


def test_a_hold_says_when_the_hosts_open_by_themselves_and_what_is_left_to_say_then() -> None:
    assert sentences.sentence(events.Holding("check", None, 7.4, who="ann")) == (
        "   holding after check (ann); in 7 s at most the hosts open by themselves: "
        "zkmigrate release, or go (g), stop (s) or back (b)?"
    )
    assert sentences.sentence(events.Holding("check", None, 2.0, who="ann", late=True)) == (
        "   holding after check (ann); in 2 s at most the hosts open by themselves: "
        "zkmigrate release, or go (g), stop (s) or back (b; too late to keep the clients' sessions)?"
    )


def test_a_long_wait_is_shown_less_often_than_a_short_one_or_a_countdown() -> None:
    out, now = StringIO(), 100.0
    plain = Plain(out, lambda: "12:00:00", lambda: now)
    for second in range(61):
        now = 100.0 + second
        plain(events.Waits("main", "fence", "the door is closed", f"at {second}", 4.0))
    shown = [int(line.rpartition("at ")[2].split()[0]) for line in out.getvalue().splitlines()]
    assert shown == [*range(0, 20, 2), 28, 38, 48, 58]
    plain(events.Waits("main", "fence", "another door", "at 0", 4.0))
    now += 2
    plain(events.Waits("main", "fence", "another door", "at 2", 4.0))
    assert out.getvalue().count("another door") == 2


def test_a_wait_reads_as_a_sentence() -> None:
    """Clauses such as "dest1 observes source" were printed as "waits for dest1 observes source"."""
    waits = events.Waits("join", "join", "dest1 observes source and has caught up", "at 3 of 9", 4.0)
    assert sentences.sentence(waits) == (
        "   join.join waits until dest1 observes source and has caught up: at 3 of 9 (4 s left)"
    )
    look = events.Waits("join", "join", "the tree on the disk of dest1", "3 of 9", None)
    assert sentences.sentence(look) == "   join.join waits for the tree on the disk of dest1: 3 of 9"
