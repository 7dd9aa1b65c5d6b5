"""Completion: the scripts, and the words a shell gets for what was typed."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import playbooks
from playbooks.kafka_zookeeper_move import PLAYBOOK as MOVE
from tests.unit.cli.test_main import PLAYBOOK, Place, place
from zkmigrate.cli import completion
from zkmigrate.cli.main import cli
from zkmigrate.runbook.engine import step_names

__all__ = ["place"]


def completed(line: str, environ: dict[str, str]) -> list[str]:
    """What the shell's function is given for a line; the last word is the one that is typed."""
    *before, word = line.split(" ")
    typed = {"COMP_WORDS": "\n".join([*before, word]), "COMP_CWORD": str(len(before))}
    done = CliRunner().invoke(
        cli, prog_name="zkmigrate", env={**environ, **typed, "_ZKMIGRATE_COMPLETE": "bash_complete"}
    )
    assert done.stderr == ""
    return [row.removeprefix("plain,") for row in done.stdout.splitlines() if row]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_of_its_own(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    assert f"_ZKMIGRATE_COMPLETE={shell}_complete" in done.stdout
    assert "zkmigrate" in done.stdout
    assert CliRunner().invoke(cli, ["completion", "csh"]).exit_code == 2


def test_verbs_options_and_the_labs_own_verbs_are_completed() -> None:
    assert completed("zkmigrate re", {}) == ["release", "replay", "report", "resume", "retire"]
    assert completed("zkmigrate rollback --t", {}) == ["--to"]
    assert "down" in completed("zkmigrate lab do", {})
    assert completed("zkmigrate completion z", {}) == ["zsh"]


def test_runs_are_those_that_have_begun_the_newest_first(place: Place) -> None:
    assert completed("zkmigrate resume --run-id ", place.environ) == []
    for age, name in enumerate(("old", "new", "other")):
        assert place.call("run", "--yes", "--run-id", name).exit_code == 0
        os.utime(place.runs / name, (1e9 + age, 1e9 + age))
    (place.runs / "never-begun").mkdir()
    (place.runs / "Not A Run").mkdir()
    for verb in ("resume", "rollback", "status", "plan", "hold", "report"):
        assert completed(f"zkmigrate {verb} --run-id ", place.environ) == ["other", "new", "old"]
    assert completed("zkmigrate resume --run-id o", place.environ) == ["other", "old"]


def test_steps_and_phases_are_those_the_verbs_take() -> None:
    steps = completed("zkmigrate run --until ", {})
    assert set(steps) == {stage.id for stage in MOVE.stages} | set(MOVE.step_ids())
    for name in steps:
        step_names.known(MOVE, name)
    for name in completed("zkmigrate hold --at ", {}):
        assert step_names.place(MOVE, name)
    assert completed("zkmigrate hold --at se", {}) == ["seal", "serve"]
    assert completed("zkmigrate rollback --to cutover.se", {}) == ["cutover.seal", "cutover.serve"]
    assert completed("zkmigrate status --wait en", {}) == ["end"]
    assert step_names.skippable(MOVE, tuple(completed("zkmigrate run --skip ", {})))


def test_steps_are_those_of_the_playbook_on_the_line() -> None:
    assert completed(f"zkmigrate run --playbook {PLAYBOOK} --until prepare.", {}) == [
        "prepare.slow",
        "prepare.two",
    ]
    shipped = completed("zkmigrate run --playbook ", {})
    assert shipped == sorted(one.name for one in pkgutil.iter_modules(playbooks.__path__))
    assert "kafka_zookeeper_move" in shipped
    assert completed("zkmigrate run --playbook ./b", {}) == ["file,./b"]


@pytest.mark.parametrize("text", ["print('noise')\n1/0", "raise SystemExit(3)", "PLAYBOOK = 7", "\0"])
def test_what_does_not_read_completes_to_nothing_and_says_nothing(place: Place, text: str) -> None:
    book = place.root / "book.py"
    book.write_text(text)
    assert completed(f"zkmigrate run --playbook {book} --until ", {}) == []
    place.runs.write_text("no directory")
    assert completed("zkmigrate resume --run-id ", place.environ) == []


def test_bash_completes_with_the_script(place: Place) -> None:
    """The whole way through a real bash: the script is sourced, its function called as Tab does."""
    assert place.call("run", "--yes", "--run-id", "night").exit_code == 0
    program = place.root / "zkmigrate"
    program.write_text(
        f"#!{sys.executable}\nfrom zkmigrate.cli.main import cli\ncli(prog_name='zkmigrate')\n"
    )
    program.chmod(0o755)
    (place.root / "script").write_text(completion.script(cli, "bash"))

    def tab(*words: str) -> list[str]:
        line = " ".join(f"'{word}'" for word in words)
        done = subprocess.run(
            [
                "bash",
                "-c",
                f"source script; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
                "_zkmigrate_completion zkmigrate; printf '%s\\n' \"${COMPREPLY[@]}\"; complete -p zkmigrate",
            ],
            cwd=place.root,
            env={
                **os.environ,
                **place.environ,
                "PATH": f"{place.root}:{os.environ['PATH']}",
                "PYTHONPATH": str(Path(__file__).parents[3]),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        *found, registered = done.stdout.splitlines()
        assert registered == "complete -o nosort -F _zkmigrate_completion zkmigrate"
        assert done.stderr == ""
        return found

    assert tab("zkmigrate", "res") == ["resume"]
    assert tab("zkmigrate", "resume", "--run-id", "") == ["night"]
    assert tab("zkmigrate", "hold", "--at", "che") == ["check"]


def test_help_and_completion_import_nothing_heavy() -> None:
    heavy = "paramiko", "fabric", "kazoo", "kafka", "rich", "pydantic", "ruamel"

    def imported(code: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
        )
        return {name.partition(".")[0] for name in done.stdout.split()} & set(heavy)

    run = "from zkmigrate.cli.main import cli\ncli({}, standalone_mode=False)"
    assert imported(run.format("['--help']")) == set()
    for words in (["run", "--help"], ["plan", "--help"], ["--version"]):
        assert imported(run.format(words)) == set(), words
    typed = "import os; os.environ.update(COMP_WORDS='zkmigrate\\nrun\\n--until\\n', COMP_CWORD='3')\n"
    asks = "from zkmigrate.cli import completion; completion.words('steps', {}, '')"
    assert imported(typed + asks) <= {"pydantic", "ruamel"}
