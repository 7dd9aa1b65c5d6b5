"""What an operator sees: plain lines, the live view, JSON lines, and prompts on a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest

from tests.unit.engine_world import HOSTS
from tests.unit.test_cli import ALL, Place
from zkmigrate.engine import events
from zkmigrate.model.change import Fence, PutFile
from zkmigrate.model.finding import claim
from zkmigrate.model.step import Hazard, Way
from zkmigrate.ui.jsonl import JsonLines
from zkmigrate.ui.live import LiveView
from zkmigrate.ui.plain import Plain

SICK = claim("tiny.sick", "it is well", False, seen="sick", needed="health", moves=("heal it",), target="d2")
STORY: tuple[events.Event, ...] = (
    events.RunBegun("r-1", "tiny", Way.FORWARD, False, HOSTS, (("main", "Do"),)),
    events.StageBegun("main", "Do", Way.FORWARD, True, False),
    events.StepBegun("main", "fence", "Fence", Hazard.WINDOW, Way.FORWARD),
    events.WaveBegun("main", "fence", Way.FORWARD, HOSTS),
    events.ChangeSent("d1", "main.fence.d1.1.1", Fence("d1", 5000)),
    events.ChangeEnded("d1", "main.fence.d1.1.1", "done", 0, "ok"),
    events.ChangeEnded("d2", "main.fence.d2.1.1", "failed", 5, "no room"),
    events.Waits("main", "fence", "a closed door", "2 of 3", 4.0),
    events.Waits("main", "fence", "a closed door", "2 of 3", 3.9),
    events.Countdown(6.2),
    events.Countdown(6.1),
    events.Holding("fence", 6.0),
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
        "   main.fence waits for a closed door: 2 of 3 (4 s left)",
        "   6 s left to turn back",
        "   holding after fence, 6 s left: go (g), stop (s) or back (b)?",
        "   main.fence done in 0.25 s",
        "     [ok] tiny.ok: shut; 3 of 3",
        "   main: Now? go (anna)",
        "!! after fence: [NO] tiny.sick d2: it is well; sick (needed: health): back",
        "<- back to the start of main: tiny.sick: sick",
        "!! main.cut is blocked",
        "     [NO] tiny.sick d2: it is well; sick (needed: health)",
        "   a remark",
        "back at the start of main (exit code 7)",
        "   possible now: heal it",
    ]


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
    with LiveView(out) as view:
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
    assert re.search(r"d1 +refuse clients .* done", text)
    assert "holding after fence: go (g), stop (s) or back (b)?" in text
    assert "6.0 s left to turn back" in text
    assert "[NO] tiny.sick d2: it is well; sick" in out.getvalue()


def read_until(fd: int, text: str, seen: str) -> str:
    end = time.monotonic() + 30.0
    while text not in seen:
        assert time.monotonic() < end, f"never: {text!r} in {seen[-2000:]!r}"
        try:
            seen += os.read(fd, 4096).decode()
        except OSError:  # the other end is closed
            break
    return seen


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
        cwd=Path(__file__).parents[2],
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
