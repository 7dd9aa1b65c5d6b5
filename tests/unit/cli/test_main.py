"""The verbs with their exit codes, in process and as a real process under signals."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.unit import disk_world
from tests.unit.inventory.test_inventory import GOOD
from zkmigrate.cli.main import cli
from zkmigrate.runbook.engine import journal

HOSTS = ("dest1", "dest2", "dest3")
DISK = Path(__file__).parents[2] / "recorded/zk/3.9.3/observer"
PLAYBOOK = str(Path(disk_world.__file__))


class Place:
    """A directory with an inventory, a world and runs, and the command line over it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.world = root / "world"
        self.runs = root / "runs"
        self.file = root / "migration.yml"
        self.file.write_text(GOOD)
        for host in HOSTS:
            (self.world / host).mkdir(parents=True)
        (self.world / "release").touch()
        self.environ = {"TINY_WORLD": str(self.world), "ZKMIGRATE_RUNS": str(self.runs)}

    def words(self, *words: str) -> list[str]:
        verb, *rest = words
        return [verb, "-i", str(self.file), "--playbook", PLAYBOOK, *rest]

    def call(self, *words: str, input: str = "") -> Result:
        return CliRunner().invoke(
            cli, self.words(*words), obj=disk_world.DiskSite, env=self.environ, input=input
        )

    def ends(self, code: int, *words: str, input: str = "") -> str:
        """What a call prints that ends with this exit code."""
        done = self.call(*words, input=input)
        assert done.exit_code == code, done.output
        return done.output

    def process(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.unit.disk_world", *self.words(*words)],
            env={**os.environ, **self.environ},
            cwd=Path(__file__).parents[3],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def files(self) -> set[str]:
        found = (p.relative_to(self.world) for p in self.world.rglob("*") if p.is_file())
        return {str(p) for p in found if not {".before", "var"} & set(p.parts) and p.name != "release"}


ALL = {f"{host}/{name}" for host in HOSTS for name in ("one", "slow", "two")}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def until(name: str, true: Callable[[], bool]) -> None:
    end = time.monotonic() + 120.0
    while not true():
        assert time.monotonic() < end, f"never: {name}"
        threading.Event().wait(0.02)


@pytest.mark.parametrize("words", [["--help"], ["zxid", "tail", str(DISK)]], ids=["help", "tail"])
def test_a_quick_verb_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys, click.testing, zkmigrate.cli.main as c\n"
        f"assert click.testing.CliRunner().invoke(c.cli, {words}).exit_code == 0\n"
        "heavy = {'paramiko', 'fabric', 'kafka', 'kazoo', 'pydantic', 'rich', 'zkmigrate.lab.cli'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_installed_package_says_where_the_lab_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if f"{name}.".startswith("zkmigrate.lab.")]:
        monkeypatch.delitem(sys.modules, name)

    class Installed:
        """Finds no lab, as where a wheel is installed."""

        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "zkmigrate.lab":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Installed, *sys.meta_path])
    done = CliRunner().invoke(cli, ["lab", "up"])
    assert done.exit_code == 2
    assert "Run it from a checkout of the repository: make setup" in done.stderr


def test_run_walks_everything_and_exits_0(place: Place) -> None:
    done = place.ends(0, "run", "--yes")
    assert place.files() == ALL
    assert "disk is complete (exit code 0)" in done
    copy = (place.world / "dest1/var/lib/zkmigrate/lab-1/journal.jsonl").read_bytes()
    assert len(copy) > 1000
    assert (place.runs / "lab-1" / journal.NAME).read_bytes().startswith(copy)


def test_without_a_terminal_nobody_can_be_asked(place: Place) -> None:
    for words in (("run",), ("run", "--json")):
        assert "Pass --yes" in place.ends(2, *words)
        assert place.files() == set()


def test_a_wrong_inventory_or_playbook_is_refused_with_2(place: Place) -> None:
    place.file.write_text(GOOD.replace("myid: 12", "myid: 11"))
    assert "migration.yml:16: dest.hosts[1].myid" in place.ends(2, "run", "--yes")
    place.file.write_text(GOOD)
    for name in ("no_such_book", "../book", "book.py"):
        done = CliRunner().invoke(cli, ["plan", "-i", str(place.file), "--playbook", name])
        assert (done.exit_code, "Traceback" in done.output) == (2, False)
    assert place.call("run", "--yes", "--until", "prepare.three").exit_code == 2


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("def x(:\n", "book.py:1: the playbook file fails: SyntaxError: "),
        (
            "\nimport no_such_module\n",
            "book.py:2: the playbook file fails: ModuleNotFoundError: No module",
        ),
        ("raise SystemExit(0)\n", "book.py:1: the playbook file fails: SystemExit: 0"),
        ("x = 1\n", "book.py has no PLAYBOOK (seen none, needed PLAYBOOK = Playbook(...)"),
        ("PLAYBOOK = {}\n", "book.py has no PLAYBOOK (seen a dict"),
    ],
    ids=["syntax", "import", "exit", "none", "dict"],
)
def test_a_playbook_file_that_is_none_is_refused_with_2(place: Place, content: str, expected: str) -> None:
    book = place.root / "book.py"
    book.write_text(content)
    done = CliRunner().invoke(cli, ["plan", "-i", str(place.file), "--playbook", str(book)])
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit), done.exception
    assert expected in done.output
    assert "Next: correct the file, or leave --playbook out" in done.output


@pytest.mark.parametrize("words", [("run",), ("resume", "--journal-lost", "back", "--run-id", "lab-1")])
def test_a_runs_directory_that_cannot_be_made_is_refused_with_2(place: Place, words: tuple[str, ...]) -> None:
    place.runs.write_text("a file")
    done = place.call(*words, "--yes")
    assert done.exit_code == 2
    assert isinstance(done.exception, SystemExit), done.exception
    assert f"the run directory {place.runs}/lab-1 cannot be created (" in done.output
    assert "ZKMIGRATE_RUNS" in done.output


def test_a_run_directory_that_is_a_link_is_refused_with_8(place: Place) -> None:
    place.call("run", "--yes", "--until", "install")
    (place.runs / "lab-1").rename(place.root / "elsewhere")
    (place.runs / "lab-1").symlink_to(place.root / "elsewhere")
    assert "not a link" in place.ends(8, "resume", "--yes")


def test_an_error_of_this_machine_is_no_traceback(place: Place) -> None:
    place.call("run", "--yes", "--until", "install")
    (place.runs / "lab-1/events.jsonl").unlink()
    (place.runs / "lab-1/events.jsonl").mkdir()
    done = place.call("resume", "--yes")
    assert done.exit_code == 8
    assert isinstance(done.exception, SystemExit), done.exception
    assert "events.jsonl" in done.output


def test_preflight_prints_findings_and_exits_3_when_one_blocks(place: Place) -> None:
    assert place.call("preflight").exit_code == 0
    (place.world / "sick").touch()
    done = place.ends(3, "preflight")
    assert "BLOCKS (1): fix these first\n  disk.well: Failed: sick\n    expected  the world is well\n" in done
    assert "    do        heal it\n" in done
    assert done.splitlines()[-1].startswith(
        "fix the blocking findings, then check again: zkmigrate preflight"
    )
    said = json.loads(place.call("preflight", "--json").output)
    assert (said["code"], said["findings"][0]["held"]) == (3, "no")
    assert sum(said["counts"].values()) == len(said["findings"])
    assert said["counts"]["blocks"] == 1
    assert place.call("run", "--yes").exit_code == 3
    assert not place.runs.joinpath("lab-2").exists()


def test_plan_shows_changes_with_diffs_and_a_stable_digest(place: Place) -> None:
    (place.world / "dest2/one").write_text("tickTime=3000\n")
    done = place.ends(0, "plan")
    assert "$ sudo zkm-host --run RUN --as N put OPID /one 0644 root:root" in done
    assert "-tickTime=3000" in done
    assert "+tickTime=2000" in done
    first, second = (json.loads(place.call("plan", "--json").output) for _ in range(2))
    assert first == second
    steps = {step["id"]: step for stage in first["stages"] for step in stage["steps"]}
    assert set(steps["one"]["targets"]) == set(HOSTS)
    assert steps["sick"]["note"] == "only reads"
    assert not place.runs.exists(), "plan writes nothing"


def test_a_run_keeps_its_plan_and_its_events(place: Place) -> None:
    printed = place.call("plan", "--json").output
    place.call("run", "--yes", "--until", "install")
    assert json.loads((place.runs / "lab-1/plan.json").read_text()) == json.loads(printed)
    place.call("resume", "--yes")
    events = [json.loads(line) for line in (place.runs / "lab-1/events.jsonl").read_text().splitlines()]
    assert [e["event"] for e in events if e["event"].startswith("Run")] == ["RunBegun", "RunEnded"] * 2
    assert (place.runs / "lab-1/events.jsonl").stat().st_mode & 0o777 == 0o600


def test_an_open_run_ends_with_the_commands_that_go_on(place: Place) -> None:
    done = place.call("run", "--yes", "--until", "prepare")
    assert "go on" not in done.output, "it is complete"
    done = place.call("rollback", "--yes", "--to", "prepare")
    assert f"go on forward: zkmigrate run -i {place.file} --playbook {PLAYBOOK} --run-id lab-1" in done.output
    place.world.joinpath("sick").touch()
    assert place.call("rollback", "--yes").exit_code == 0
    assert (
        f"go on forward: zkmigrate resume -i {place.file} --playbook {PLAYBOOK} --run-id lab-2"
        in place.ends(3, "run", "--yes")
    )


def test_until_resume_and_rollback(place: Place) -> None:
    assert place.call("run", "--yes", "--until", "prepare.slow").exit_code == 0
    assert place.files() == {f for f in ALL if not f.endswith("two")}
    assert "run lab-1 is not finished (at prepare.two, forward)" in place.ends(2, "run", "--yes")
    assert place.call("resume", "--yes").exit_code == 0
    assert place.files() == ALL
    assert place.call("rollback", "--yes", "--to", "prepare").exit_code == 0
    assert place.files() == {f"{host}/one" for host in HOSTS}
    assert place.call("run", "--yes", "--run-id", "lab-1").exit_code == 0
    assert place.call("rollback", "--yes").exit_code == 0
    assert place.files() == set()
    assert place.call("run", "--yes").exit_code == 0
    assert (place.runs / "lab-2").is_dir()


def test_json_is_one_event_per_line(place: Place) -> None:
    done = place.call("run", "--yes", "--json")
    said = [json.loads(line) for line in done.output.splitlines()]
    assert said[0]["event"] == "RunBegun"
    assert said[-1]["event"] == "RunEnded"
    assert said[-1]["code"] == 0
    sent = [s for s in said if s["event"] == "ChangeSent"]
    assert len(sent) == 9
    assert all("content" not in s["change"] for s in sent)


def test_status_reads_the_journal_and_what_hosts_say(place: Place) -> None:
    assert place.call("status").exit_code == 2
    place.call("run", "--yes", "--until", "install")
    before = (place.runs / "lab-1" / journal.NAME).read_bytes()
    done = place.call("status")
    assert done.exit_code == 0
    assert "run lab-1 of disk: open, at prepare.slow, forward" in done.output
    assert "  dest1: unknown (missing-tool): dest1 has no zkm-host" in done.output
    said = json.loads(place.call("status", "--json", "--offline").output)
    assert said["done"] == ["preflight.sick", "install.one"]
    assert "hosts" not in said
    assert (place.runs / "lab-1" / journal.NAME).read_bytes() == before


def test_a_damaged_journal_stops_with_8_and_goes_on_when_told_the_way(place: Place) -> None:
    place.call("run", "--yes", "--until", "prepare.slow")
    file = place.runs / "lab-1" / journal.NAME
    lines = file.read_bytes().splitlines(keepends=True)
    lines[-3] = lines[-3].replace(b"a", b"b")
    file.write_bytes(b"".join(lines))
    assert f"journal line {len(lines) - 2} does not match its sum" in place.ends(8, "resume", "--yes")
    assert place.call("resume", "--yes", "--journal-lost", "back").exit_code == 0
    assert place.files() == set()


def test_a_lost_journal_takes_the_position_from_the_hosts(place: Place) -> None:
    place.call("run", "--yes", "--until", "prepare.slow")
    (place.runs / "lab-1" / journal.NAME).unlink()
    for copy in place.world.rglob(journal.NAME):
        copy.unlink()
    assert place.call("resume", "--yes").exit_code == 8
    assert place.call("resume", "--yes", "--journal-lost", "forward").exit_code == 0
    assert place.files() == ALL


def test_a_lost_journal_is_taken_from_the_copies_on_the_dest_hosts(place: Place) -> None:
    (place.world / "dest3/one").write_text("before\n")
    place.call("run", "--yes", "--until", "prepare.slow")
    (place.runs / "lab-1" / journal.NAME).unlink()
    (place.world / "dest1/var/lib/zkmigrate/lab-1/journal.jsonl").write_text("rubbish\n")
    assert place.call("rollback", "--yes").exit_code == 8
    done = place.call("resume", "--yes", "--journal-lost", "back")
    assert "recovered" in (place.runs / "lab-1" / journal.NAME).read_text()
    assert place.files() == {"dest3/one"}, done.output
    assert (place.world / "dest3/one").read_text() == "before\n"


# --- real processes ------------------------------------------------------------------------------------


@pytest.fixture
def busy(place: Place) -> Iterator[tuple[Place, subprocess.Popen[str]]]:
    """A process in the middle of a change on every host."""
    (place.world / "release").unlink()
    process = place.process("run", "--yes")
    try:
        until("all hosts are busy", lambda: all((place.world / h / "slow.begun").exists() for h in HOSTS))
        yield place, process
    finally:
        (place.world / "release").touch()
        if process.stdout is not None and not process.stdout.closed:
            process.kill()
            process.communicate()


def test_two_runs_exclude_each_other_with_5(busy: tuple[Place, subprocess.Popen[str]]) -> None:
    place, _ = busy
    for words in (("resume", "--yes"), ("rollback", "--yes"), ("run", "--yes", "--run-id", "lab-1")):
        assert "another zkmigrate process on this machine works on lab-1" in place.ends(5, *words)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_finishes_what_is_in_flight_and_stops_resumable(
    busy: tuple[Place, subprocess.Popen[str]], number: signal.Signals
) -> None:
    place, process = busy
    process.send_signal(number)
    (place.world / "release").touch()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, out
    assert "interrupted; run lab-1 is at prepare.slow, forward; zkmigrate resume continues" in out
    assert journal.read(place.runs / "lab-1").unconfirmed() == ()
    assert place.files() == {f for f in ALL if not f.endswith("two")}
    assert place.call("resume", "--yes").exit_code == 0
    assert place.files() == ALL


def ends_when_closed(place: Place, process: subprocess.Popen[Any], close: Callable[[], None]) -> None:
    """Close what a run writes to while its hosts are busy, and let them finish: the run ends with 130."""
    try:
        until("all hosts are busy", lambda: all((place.world / h / "slow.begun").exists() for h in HOSTS))
        close()
        (place.world / "release").touch()
        assert process.wait(120) == 130
    finally:
        (place.world / "release").touch()
        process.kill()
        process.wait()


@pytest.mark.parametrize("term", ["dumb", "xterm"])
@pytest.mark.parametrize("more", ["--yes", "-v"])
def test_a_terminal_that_is_closed_stops_the_run_as_a_signal_does(place: Place, term: str, more: str) -> None:
    """Each line that could not be written was an error: it could end the walk in the middle of a window."""
    (place.world / "release").unlink()
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "tests.unit.disk_world", *place.words("run", "--yes", more)]
    process = subprocess.Popen(
        ["setsid", "--ctty", *words],
        env={**os.environ, **place.environ, "TERM": term},
        cwd=Path(__file__).parents[3],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)

    def close() -> None:
        os.close(ours)
        time.sleep(0.5)  # it now tells that it was asked to stop

    ends_when_closed(place, process, close)
    history = journal.read(place.runs / "lab-1")
    assert history.unconfirmed() == ()
    assert history.ended == (
        130,
        "interrupted; run lab-1 is at prepare.slow, forward; zkmigrate resume continues",
    )
    assert place.call("resume", "--yes").exit_code == 0
    assert place.files() == ALL


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["lines", "json"])
def test_a_pipe_that_nobody_reads_any_more_stops_the_run_too(place: Place, more: tuple[str, ...]) -> None:
    (place.world / "release").unlink()
    process = place.process("run", "--yes", *more)
    assert process.stdout is not None
    ends_when_closed(place, process, process.stdout.close)
    history = journal.read(place.runs / "lab-1")
    assert (history.unconfirmed(), (history.ended or (0, ""))[0]) == ((), 130)
    assert place.call("resume", "--yes").exit_code == 0
    assert place.files() == ALL


def test_the_second_signal_stops_at_once_and_says_in_what_state(
    busy: tuple[Place, subprocess.Popen[str]],
) -> None:
    place, process = busy
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, out
    assert "stopped at once; run lab-1 is at prepare.slow, forward; not confirmed: prepare.slow.dest1" in out
    assert len(journal.read(place.runs / "lab-1").unconfirmed()) == 3
    (place.world / "release").touch()
    assert place.call("resume", "--yes").exit_code == 0
    assert place.files() == ALL


def test_killed_in_the_middle_resume_and_rollback_work(busy: tuple[Place, subprocess.Popen[str]]) -> None:
    place, process = busy
    process.kill()
    process.communicate()
    (place.world / "release").touch()
    assert place.call("rollback", "--yes").exit_code == 0
    assert {f for f in place.files() if not f.endswith(".begun")} == set()


def test_help_lists_the_move_first_and_every_other_verb_in_its_area() -> None:
    done = CliRunner().invoke(cli, ["--help"], terminal_width=80)
    assert CliRunner().invoke(cli, ["-h"], terminal_width=80).output == done.output
    groups = re.findall(r"^([A-Z][^\n]*):\n((?:  \w[^\n]*\n)+)", done.output, re.MULTILINE)
    assert [name for name, _ in groups if name != "Options"] == [
        "Move",
        "Other areas (zkmigrate AREA --help)",
    ]
    lines = [line for name, text in groups if name != "Options" for line in text.splitlines()]
    said = dict(re.findall(r"^  (\S+) +([A-Z].*)", "\n".join(lines), re.MULTILINE))
    assert len(said) == len(lines) <= 20
    for area in ("topics", "disks"):
        shown = CliRunner().invoke(cli, [area, "--help"], terminal_width=80).output.partition("Commands:")[2]
        own = dict(re.findall(r"^  (\S+) +([A-Z].*)", shown, re.MULTILINE))
        assert own
        said |= own
        assert CliRunner().invoke(cli, [area, "run"]).exit_code == 2
    assert sorted(said) == sorted(cli.list_commands(click.Context(cli)))
    assert all(line.endswith(".") and "..." not in line for line in said.values())
    assert max(map(len, lines)) <= 80
