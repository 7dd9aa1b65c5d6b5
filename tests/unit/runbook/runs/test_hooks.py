"""Hooks as processes: what they are told, what is kept of them, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from pathlib import Path

import pytest

from tests.unit.cli.test_main import ALL, Place, place, until
from tests.unit.engine_world import ended
from tests.unit.inventory.test_inventory import GOOD
from zkmigrate.errors import InventoryError
from zkmigrate.inventory.inventory import digest, load
from zkmigrate.runbook.engine import journal
from zkmigrate.runbook.engine.clock import Interrupt
from zkmigrate.runbook.engine.ports import HookCall, HookEnd
from zkmigrate.runbook.runs.hooks import HookProcesses

__all__ = ["place"]


class Bench:
    """Programs in a folder, and a run directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run_dir = root / "run"
        self.run_dir.mkdir(mode=0o700)
        self.interrupt = Interrupt()
        self.processes = HookProcesses(self.run_dir, root, self.interrupt, grace_s=0.2)

    def program(self, text: str, name: str = "hook") -> str:
        path = self.root / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def call(self, text: str, timeout_s: float = 30.0, *args: str) -> HookCall:
        variables = {"ZKMIGRATE_STAGE": "roll"}
        return HookCall("before_stage", self.program(text), args, timeout_s, variables, '{"stage": "roll"}\n')

    def run(self, text: str, timeout_s: float = 30.0, *args: str) -> HookEnd:
        return self.processes.run(self.call(text, timeout_s, *args))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_hook_gets_variables_a_json_object_and_its_words(bench: Bench) -> None:
    end = bench.run('pwd; echo "$ZKMIGRATE_STAGE $ZKMIGRATE_RUN_DIR"; cat; echo "$#: $1"', 30.0, "a b $c")
    assert (end.how, end.code) == ("done", 0)
    lines = Path(end.output).read_text().splitlines()
    assert lines[:4] == [str(bench.root), f"roll {bench.run_dir}", '{"stage": "roll"}', "1: a b $c"]
    assert lines[-1].startswith("[zkmigrate: done, exit code 0, ")
    assert end.said == f"roll {bench.run_dir}" + ' / {"stage": "roll"} / 1: a b $c'
    assert Path(end.output).name == "0001-before_stage.log"
    assert Path(end.output).stat().st_mode & 0o777 == 0o600
    assert Path(bench.run("true").output).name == "0002-before_stage.log"


def test_how_a_hook_ends_is_told_as_a_shell_does(bench: Bench) -> None:
    assert bench.run("echo bad; exit 7").code == 7
    assert bench.run("kill -9 $$").code == 137
    end = bench.run("printf '\\033[31mred\\033[0m\\a\\n\\377\\n' >&2; exit 1")
    assert end.said == "red / \ufffd"


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_a_hook_that_hangs_is_killed_with_all_it_started(bench: Bench, trap: str) -> None:
    end = bench.run(f"{trap}sleep 1000 & echo $! > pid; wait; wait; wait", 0.5)
    assert (end.how, end.code) == ("timeout", None)
    pid = int((bench.root / "pid").read_text())
    until("the child is gone", lambda: gone(pid))


def test_what_a_hook_leaves_running_keeps_nobody_waiting(bench: Bench) -> None:
    end = bench.run("sleep 1000 & echo $! > pid; echo started")
    pid = int((bench.root / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    assert (end.how, end.code, end.said) == ("done", 0, "started")


def test_a_hook_that_reads_and_closes_nothing_is_waited_for(bench: Bench) -> None:
    end = bench.run("exec >&- 2>&-; sleep 0.3; exit 4")
    assert end.code == 4


def test_a_flood_of_output_fills_no_disk(bench: Bench) -> None:
    end = bench.run("yes | head -c 5000000; echo the end")
    assert end.code == 0
    assert end.said.endswith("/ the end")
    assert Path(end.output).stat().st_size < (1 << 20) + 200
    assert "the rest of its output was not kept" in Path(end.output).read_text()[-200:]


def test_ctrl_c_ends_the_hook_that_is_waited_for(bench: Bench) -> None:
    def ask() -> None:
        until("it has begun", (bench.root / "begun").exists)
        bench.interrupt.ask()

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    end = bench.run("touch begun; sleep 1000")
    ended(asker)
    assert (end.how, end.code) == ("interrupted", None)
    assert bench.run("exit 0").how == "done", "one that comes after the wish to stop is about the stop"


@pytest.mark.parametrize("wrong", ["none", "folder", "text", "locked"])
def test_what_cannot_be_started_is_an_end_like_any_other(bench: Bench, wrong: str) -> None:
    call = bench.call("exit 0")
    path = Path(call.run)
    path.unlink()
    if wrong == "folder":
        path.mkdir()
    elif wrong == "text":
        path.write_bytes(b"\x00\x01 no program")
        path.chmod(0o755)
    elif wrong == "locked":
        path.write_text("#!/bin/sh\n")
    end = bench.processes.run(call)
    assert (end.how, end.code) == ("not-started", None)
    assert end.said


def test_without_a_place_for_its_output_a_hook_is_not_started(bench: Bench) -> None:
    (bench.run_dir / "hooks").write_text("")
    end = bench.run("touch ran")
    assert (end.how, end.output, (bench.root / "ran").exists()) == ("not-started", "", False)


def test_beside_the_walk_and_settled_at_its_end(bench: Bench) -> None:
    ended: list[HookEnd] = []
    bench.processes.start(bench.call("while [ ! -e go ]; do sleep 0.02; done; exit 5"), ended.append)
    assert ended == []
    (bench.root / "go").touch()
    bench.processes.settle()
    assert [end.code for end in ended] == [5]


def test_the_second_ctrl_c_kills_what_runs_beside_the_walk(bench: Bench) -> None:
    ended: list[HookEnd] = []
    bench.processes.start(bench.call("touch begun; sleep 1000"), ended.append)
    until("it has begun", (bench.root / "begun").exists)
    bench.processes.kill()
    bench.processes.settle()
    assert [end.code for end in ended] == [137]


# --- from migration.yml --------------------------------------------------------------------------------


def with_hooks(place: Place, hooks: str) -> None:
    place.file.write_text(f"{GOOD}hooks:\n{hooks}")


def script(place: Place, name: str, text: str) -> Path:
    path = place.root / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_mistakes_in_hooks_are_told_with_their_line(place: Place) -> None:
    with_hooks(
        place,
        "  before_walk: []\n"
        "  on_failure:\n"
        "    - {run: page, failure: stop}\n"
        "    - {run: 'page; rm', timeout_s: 0}\n"
        "  before_window:\n"
        "    - {run: check, timeout_s: 61}\n"
        '    - {run: check, args: ["a\\nb", 3]}\n'
        "    - check\n",
    )
    top = len(GOOD.splitlines()) + 1
    with pytest.raises(InventoryError) as refused:
        load(place.file)
    said = [line.removeprefix(f"{place.file}:") for line in str(refused.value).splitlines()]
    for line, text in (
        (1, "hooks.before_walk: unknown key (needed one of: before_run, "),
        (
            3,
            "hooks.on_failure[0].failure: a hook cannot stop the run at on_failure, because stopping there",
        ),
        (4, "hooks.on_failure[1].run: not allowed (seen 'page; rm', needed a program's file name"),
        (4, "hooks.on_failure[1].timeout_s: out of range (seen 0, needed more than 0.0)"),
        (6, "hooks.before_window[0].timeout_s: too long (seen 61, needed at most 60 at before_window"),
        (7, "hooks.before_window[1].args[0]: not allowed (seen 'a\\nb', needed text without control"),
        (7, "hooks.before_window[1].args[1]: not text (seen 3, needed text without control characters"),
        (8, "hooks.before_window[2]: not a mapping"),
    ):
        assert any(row.startswith(f"{top + line}: {text}") for row in said), (line, text, said)


def test_a_hook_is_found_beside_the_inventory_and_is_none_of_its_digest(place: Place) -> None:
    before = digest(load(place.file))
    with_hooks(place, "  on_end:\n    - {run: hooks/page, args: [night]}\n")
    inventory = load(place.file)
    assert inventory.hooks.on_end[0].run == str(place.root.resolve() / "hooks/page")
    assert digest(inventory) == before


def test_run_refuses_hooks_that_cannot_be_run_and_resume_says_so(place: Place) -> None:
    with_hooks(place, "  before_run: [{run: none}]\n  on_end: [{run: locked}]\n")
    (place.root / "locked").write_text("")
    refused = place.call("run", "--yes")
    assert refused.exit_code == 2
    root = place.root.resolve()
    assert f"hooks.before_run[0]: {root}/none does not exist; " in refused.stderr
    assert f"hooks.on_end[0]: {root}/locked is not executable; needed: " in refused.stderr
    assert not place.runs.exists()
    place.file.write_text(GOOD)
    assert place.call("run", "--yes", "--until", "install").exit_code == 0
    with_hooks(place, "  on_end: [{run: none}]\n")
    done = place.call("resume", "--yes")
    assert done.exit_code == 0, "what may be urgent is not held up by it"
    assert f"hooks.on_end[0]: {root}/none does not exist" in done.output
    assert "hook on_end: not started: [Errno 2]" in done.output
    assert place.files() == ALL


def test_a_hook_that_fails_stops_the_run_mended_or_taken_out_it_goes_on(place: Place) -> None:
    script(place, "check", 'echo "no change tonight"; [ "$ZKMIGRATE_STAGE" != prepare ] || exit 9')
    with_hooks(place, "  before_stage: [{run: check}]\n")
    stopped = place.ends(6, "run", "--yes")
    log = place.runs.resolve() / "lab-1/hooks/0003-before_stage.log"
    said = rf"hook before_stage of prepare: exit code 9 after \S+ s: no change tonight \({log}\)"
    assert re.search(said, stopped)
    assert "a before_stage hook of prepare stopped the run; fix the cause, then resume" in stopped
    assert "or change hooks in migration.yml" in stopped
    assert len(place.files()) == 3
    place.file.write_text(GOOD)
    assert place.call("resume", "--yes").exit_code == 0
    assert place.files() == ALL


def test_nothing_that_a_hook_is_told_is_an_argument_and_its_words_are_not_journaled(place: Place) -> None:
    script(place, "page", 'tr "\\0" "\\n" < /proc/$$/cmdline > argv; cat > told')
    with_hooks(place, "  on_failure: [{run: page, args: [room-7]}]\n")
    (place.world / "sick").touch()
    assert place.call("run", "--yes").exit_code == 3
    assert (place.root / "argv").read_text().splitlines() == [
        "/bin/sh",
        str(place.root.resolve() / "page"),
        "room-7",
    ]
    told = json.loads((place.root / "told").read_text())
    assert (told["code"], told["findings"][0]["id"]) == (3, "disk.well")
    assert b"room-7" not in (place.runs / "lab-1" / journal.NAME).read_bytes()


def test_looking_verbs_run_no_hook(place: Place) -> None:
    script(place, "mark", "touch ran")
    moments = ("before_run", "before_stage", "on_end", "on_failure")
    with_hooks(place, "".join(f"  {moment}: [{{run: mark}}]\n" for moment in moments))
    for words in (("plan",), ("preflight",), ("plan", "--json")):
        assert place.call(*words).exit_code == 0
    assert not (place.root / "ran").exists()


def test_killed_while_a_hook_runs_it_comes_again_after_resume(place: Place) -> None:
    script(place, "slow", "echo x >> ran; [ -e go ] || { echo $$ > pid; sleep 1000; }")
    with_hooks(place, "  before_wave: [{run: slow}]\n")
    process = place.process("run", "--yes")
    until("the hook runs", (place.root / "pid").exists)
    process.kill()
    process.communicate()
    os.killpg(int((place.root / "pid").read_text()), signal.SIGKILL)
    (place.root / "go").touch()
    assert place.call("resume", "--yes").exit_code == 0
    assert place.files() == ALL
    assert (place.root / "ran").read_text() == "x\n" * 4, "three waves, the first of them twice"


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_during_a_hook(place: Place, signals: int) -> None:
    """Once: the hook is asked to end, twice: it is killed. Nothing is left running, the run is resumable."""
    trap = "trap 'touch asked' TERM;" if signals == 2 else ""
    script(
        place, "slow", f"{trap} [ -e go ] || {{ echo $$ > new; mv new pid; while :; do sleep 0.05; done; }}"
    )
    with_hooks(place, "  before_stage: [{run: slow}]\n")
    process = place.process("run", "--yes")
    until("the hook runs", (place.root / "pid").exists)
    process.send_signal(signal.SIGINT)
    if signals == 2:
        until("the hook was asked to end", (place.root / "asked").exists)
        process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    until("the hook is gone", lambda: gone(int((place.root / "pid").read_text())))
    (place.root / "go").touch()
    assert place.call("resume", "--yes").exit_code == 0
    assert place.files() == ALL
