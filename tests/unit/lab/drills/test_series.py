"""The drills one after the other: what the series makes of how each ended, and the rows it records."""

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
from zkmigrate.lab.drills.recorded import KEPT, RECORD, TRACK_RECORD, kept, series_of
from zkmigrate.lab.drills.result import Case, Silenced, body_of
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


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose record has nothing in it."""
    for folder in (RECORD, KEPT):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("drills", "figures", "defects", "limits"):
        (tmp_path / RECORD / f"{name}.toml").write_text("")
    return tmp_path


# --- what is kept -------------------------------------------------------------------------------------------


def recorded(drill: str, cases: list[Case], seen: str = "today, abc") -> dict[str, Any]:
    return kept(body_of(drill, cases, 9), seen, "/where/it/ran")


def silent(kind: str, served_s: float, held: bool = True, phase: str = "seal") -> Silenced:
    name, way = f"silent-{kind}-{phase}", "forward: 0" if phase == "go" else "back: 8, resume 7"
    return Silenced(name, "w", way, "o", 60.0, held, served_s, 36.5, 1 - held, 1)


def test_a_series_is_one_row_and_a_failed_case_is_named() -> None:
    cases = [case(seconds=3.0), case("lost", held=False, seconds=4.6), case("two")]
    assert series_of(recorded("x", cases)) == [
        ("x", "all others", "2 of 3; NOT held: lost", "5 s (lost)", "", "today, abc")
    ]


def test_silent_hosts_are_a_row_for_each_kind_and_outcome_with_the_figure_nearest_to_its_limit() -> None:
    cases = [silent("frozen", 5.7), silent("frozen", 11.1, phase="cut"), silent("ssh", 40.0, held=False)]
    not_judged = case("silent-dropped-seal", held=False)
    assert series_of(recorded("x", [*cases, not_judged, silent("ssh", 9, phase="go"), case()])) == [
        ("x", "frozen host, back", "2 of 2", "11.1 s of 36.5 (silent-frozen-cut)",
         "0; 2 that knew that host alone", "today, abc"),
        ("x", "stopped sshd, back", "0 of 1; NOT held: silent-ssh-seal", "40.0 s of 36.5 (silent-ssh-seal)",
         "1; 1 that knew that host alone", "today, abc"),
        ("x", "dropped packets, good", "0 of 1; NOT held: silent-dropped-seal", "1 s (silent-dropped-seal)",
         "", "today, abc"),
        ("x", "stopped sshd, forward", "1 of 1", "9.0 s of 36.5 (silent-ssh-go)",
         "0; 1 that knew that host alone", "today, abc"),
        ("x", "all others", "1 of 1", "1 s (one)", "", "today, abc"),
    ]  # fmt: skip


def test_what_is_kept_has_figures_and_no_place_of_the_machine() -> None:
    more = {"held_s": 2.5, "disks": ["/where/it/ran/disks"], "note": "long"}
    body = body_of("x", [{**vars(case(outcome="see /where/it/ran/drills/x")), **more}], 9)
    assert kept({**body, "machine": "two cores"}, "today", "/where/it/ran") == {
        "drill": "x",
        "held": True,
        "seconds": 9,
        "seen": "today",
        "cases": [{**vars(case(outcome="see ./drills/x")), "held_s": 2.5}],
    }


def test_what_is_kept_is_small_and_of_drills_that_exist() -> None:
    names = {json.loads(path.read_text())["drill"] for path in (ROOT / KEPT).glob("*.json")}
    assert names <= {program.name for program in PROGRAMS}
    sizes = {path.name: path.stat().st_size for path in (ROOT / KEPT).glob("*")}
    assert {name: size for name, size in sizes.items() if size > 200_000} == {}


def test_a_drill_is_recorded_by_the_name_of_its_program_and_one_without_a_result_changes_nothing(
    checkout: Path,
) -> None:
    series.record([series.Ended("x", 1.0, "", body_of("whole", [case()], 9))], checkout, "today")
    said = (checkout / TRACK_RECORD).read_text()
    assert "| x | all others | 1 of 1 |" in said
    without = [series.Ended("x", 1.0, "it left no result"), series.Ended("y", 1.0, "")]
    series.record(without, checkout, "tomorrow")
    assert (checkout / TRACK_RECORD).read_text() == said
    assert [path.name for path in (checkout / KEPT).iterdir()] == ["x.json"]


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


def test_it_records_only_where_the_record_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(series.main, ["--record", "--only", PROGRAMS[0].name])
    assert done.exit_code == 2
    assert "from the top of the repository: defects.toml" in done.output
    assert CliRunner().invoke(series.main, ["--pages"]).exit_code == 2
