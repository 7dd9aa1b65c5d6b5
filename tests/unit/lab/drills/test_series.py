"""The drills one after the other: what the series makes of how each ended."""

from __future__ import annotations

import json
import os
import pkgutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from zkmigrate.lab import drills
from zkmigrate.lab.drills import __main__ as series
from zkmigrate.lab.drills import client_matrix, result
from zkmigrate.lab.drills.programs import PROGRAMS, Program
from zkmigrate.lab.drills.reassign_faults import VERSIONS
from zkmigrate.lab.drills.result import Case, body_of
from zkmigrate.lab.drills.window_faults import chosen
from zkmigrate.lab.wait import wait_until

ROOT = Path(__file__).parents[4]


def case(name: str = "one", outcome: str = "as it must be", held: bool = True, seconds: float = 1.0) -> Case:
    return Case(name, f"what {name} does", "good", outcome, seconds, held)


def test_a_result_holds_when_it_has_cases_and_all_held() -> None:
    assert body_of("x", [case()], 2.04)["held"] is True
    assert body_of("x", [case(), case(held=False)], 2.0)["held"] is False
    assert body_of("x", [], 2.0)["held"] is False


def test_every_drill_with_a_command_of_its_own_is_in_the_series_and_in_its_page() -> None:
    folder = Path(drills.__file__).parent
    commands = {
        module.name
        for module in pkgutil.iter_modules([str(folder)])
        if "@click.command()" in (folder / f"{module.name}.py").read_text() and module.name != "__main__"
    }
    commands -= {client_matrix.NAME}  # needs a cluster that is up already
    assert {f"{drills.__name__}.{name}" for name in commands} == {program.module for program in PROGRAMS}
    page = (ROOT / "docs" / "how-to" / "drills.md").read_text()
    assert [p.name for p in PROGRAMS if f"| `{p.name}` |" not in page] == []


def test_parts_of_a_drill_play_each_of_its_cases_once() -> None:
    words = [program.words for program in PROGRAMS if program.module.endswith(".window_faults")]
    parts = [[case.name for case in chosen(pattern)] for _only, pattern in words]
    assert sorted(name for part in parts for name in part) == sorted(case.name for case in chosen(""))
    words = [program.words for program in PROGRAMS if program.module.endswith(".reassign_faults")]
    assert words == [("--kafka-version", version) for version in VERSIONS]


# --- the series ---------------------------------------------------------------------------------------------

DRILL = """
import json, os, signal, sys, time
from pathlib import Path
directory = Path(sys.argv[sys.argv.index("--directory") + 1])
directory.mkdir(parents=True, exist_ok=True)
BODY = {"drill": "d", "held": True, "seconds": 1.0, "cases": [dict(
    name="one", what="w", expected="e", outcome="o", seconds=1.0, held=True)]}
def leave(body): (directory / "result.json").write_text(json.dumps(body))
"""
HOLDS = "leave(BODY)"
FAILS = "BODY['held'] = BODY['cases'][0]['held'] = False; leave(BODY); sys.exit(1)"
SAYS_NOTHING = "pass"
LIES = "BODY['held'] = False; leave(BODY)"
BREAKS = "leave(BODY); sys.exit(3)"
STAYS = """
def end(*_):
    (directory / "ended").write_text("in order")
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
(directory / "at-work").write_text(str(os.getpid()))
time.sleep(600)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose modules are drills: NAME.py there is the program NAME."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")
    monkeypatch.setattr(Program, "module", property(lambda self: f"drill_{self.name}"))
    return folder


def run(modules: Path, limit_s: int = 60, **bodies: str) -> list[series.Ended]:
    programs = []
    for name, body in bodies.items():
        (modules / f"drill_{name}.py").write_text(DRILL + body)
        programs.append(Program(name, "w", 60, limit_s))
    made = series.Series(programs, modules.parent / "drills", lambda _line: None)
    made.run()
    return made.done


def test_a_drill_holds_by_its_exit_code_and_its_own_result(modules: Path) -> None:
    done = run(modules, a=HOLDS, b=FAILS, c=SAYS_NOTHING, d=LIES, e=BREAKS, f=HOLDS)
    assert {ended.name: ended.why for ended in done} == {
        "a": "",
        "b": "exit code 1, cases one",
        "c": "it left no result",
        "d": "its result does not say that it held",
        "e": "exit code 3",
        "f": "",
    }
    assert "a               yes   1 of 1" in series.table(done)
    assert "b               NO    0 of 1" in series.table(done)


def test_a_program_is_told_which_part_of_its_drill_to_play(modules: Path) -> None:
    (modules / "drill_part.py").write_text(DRILL + "BODY['told'] = sys.argv[1:3]; leave(BODY)")
    programs = [Program("part", "w", 60, 60, words=("--only", "^this"))]
    made = series.Series(programs, modules.parent / "drills", lambda _line: None)
    made.run()
    assert [ended.body["told"] for ended in made.done if ended.body] == [["--only", "^this"]]


def test_an_old_result_vouches_for_nothing(modules: Path) -> None:
    run(modules, a=HOLDS)
    assert [ended.why for ended in run(modules, a=SAYS_NOTHING)] == ["it left no result"]


def test_a_drill_past_its_limit_is_ended_in_order_and_the_next_one_runs(modules: Path) -> None:
    done = run(modules, limit_s=2, slow=STAYS, quick=HOLDS)
    assert [ended.why for ended in done] == ["no end within 2 s", ""]
    assert (modules.parent / "drills" / "slow" / "ended").read_text() == "in order"


def test_the_whole_holds_only_when_each_that_was_asked_for_ran_and_held(modules: Path) -> None:
    programs = [Program(name, "w", 1, 1) for name in "ab"]
    right, wrong = series.Ended("a", 1.0, ""), series.Ended("b", 1.0, "exit code 1")
    assert series.body_of(programs, [right, series.Ended("b", 1.0, "")], 2)["held"] is True
    assert series.body_of(programs, [right, wrong], 2)["held"] is False
    assert series.body_of(programs, [right], 2)["held"] is False


INTERRUPTED = """
import sys
from pathlib import Path
from zkmigrate.lab.drills import __main__ as series, programs
programs.Program.module = property(lambda self: f"drill_{self.name}")
series.PROGRAMS = tuple(programs.Program(name, "w", 60, 600) for name in ("a", "slow", "never"))
series.main(["--directory", sys.argv[1]])
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_one_that_runs_in_order(
    modules: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    for name, body in (("a", HOLDS), ("slow", STAYS), ("never", HOLDS)):
        (modules / f"drill_{name}.py").write_text(DRILL + body)
    directory = tmp_path / "drills"
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(directory)], stdout=subprocess.PIPE, text=True
    )
    at_work = directory / "slow" / "at-work"
    try:
        wait_until("the second drill is at work", lambda: None if at_work.exists() else "its file", 30)
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code
    assert (directory / "slow" / "ended").read_text() == "in order"
    told: dict[str, Any] = json.loads((directory / result.FILE).read_text())
    assert [(d["drill"], d["held"], d["why"]) for d in told["drills"]] == [
        ("a", True, ""),
        ("slow", False, "interrupted"),
    ]
    assert told["held"] is False
    assert "NO" in said


def test_it_lists_what_there_is_and_runs_none() -> None:
    done = CliRunner().invoke(series.main, ["--list"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines()] == [program.name for program in PROGRAMS]
