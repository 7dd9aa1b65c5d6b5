"""The tables of mutants fit the tree, and a survivor that nobody has accepted fails the run."""

from __future__ import annotations

import subprocess
from collections import Counter

import pytest

from tests.mutants import python, shell
from tests.mutants.python import ListError, Survivor, Tried
from tests.mutants.shell import ROOT, Mutant, MutantError

IN_SHELL = shell.table()
FILE = "zkmigrate/one.py"
BELOW = Survivor(FILE, "Rule.safe", ("- return n < 9", "+ return n <= 9"))
ENTRY = "zkmigrate/one.py Rule.safe\n- return n < 9\n+ return n <= 9\n"


def test_every_mutant_of_a_shell_program_changes_one_place_names_tests_and_can_be_run() -> None:
    for mutant in IN_SHELL:
        before = (ROOT / mutant.file).read_text()
        after = mutant.of(before)
        assert after != before, mutant.name
        subprocess.run(["bash", "-n"], input=after, text=True, check=True, timeout=60)
        assert mutant.tests, mutant.name
        assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests), mutant.name


def test_every_name_is_there_once() -> None:
    assert [name for name, times in Counter(m.name for m in IN_SHELL).items() if times > 1] == []


def test_a_text_that_is_gone_or_stands_twice_is_refused() -> None:
    for text in ("b", "a a"):
        with pytest.raises(MutantError, match="needed: once"):
            Mutant("one", "f.sh", "a", "c", ()).of(text)


def test_mutmut_is_given_modules_and_tests_that_there_are() -> None:
    configured = python.configuration()
    named = (*configured["only_mutate"], *configured["pytest_add_cli_args_test_selection"])
    assert [name for name in named if not (ROOT / name).exists()] == []
    files = python.modules()
    assert len(files) >= 12
    assert python.chosen(files, ["rules.next_wave", "lock"]) == (
        "zkmigrate/runbook/engine/lock.py",
        "zkmigrate/kafka/rules/next_wave.py",
    )
    assert python.chosen(files, []) == files


def test_the_list_of_survivors_is_of_those_modules() -> None:
    listed = python.listed(python.LISTED.read_text())
    assert {one.file for one in listed} <= set(python.modules())


def test_an_entry_reads_as_it_is_written() -> None:
    other = Survivor(FILE, "safe", ("- a", "+ b"))
    text = f"# A comment.\n\n{BELOW.text('9 never comes')}\n\n{other.text()}\n"
    assert python.listed(text) == {BELOW: "9 never comes", other: ""}


@pytest.mark.parametrize(
    "entry", ["zkmigrate/one.py\n- a\n+ b", "zkmigrate/one.py safe\n= it does", ENTRY + "why"]
)
def test_an_entry_without_a_function_or_a_change_is_refused(entry: str) -> None:
    with pytest.raises(ListError, match="needs a file"):
        python.listed(entry)


def test_a_change_is_told_from_its_context_and_its_indent() -> None:
    diff = "--- one.py\n+++ one.py\n@@ -1,2 +1,2 @@\n def safe(n):\n-    return n < 9\n+    return n <= 9"
    assert python.changed(diff) == BELOW.change


def test_a_survivor_fails_the_run_unless_it_is_listed() -> None:
    results = {FILE: Tried((BELOW,), 7, 0, 2.0)}
    lines, code = python.judge(results, {})
    assert code == 1
    assert f"SURVIVED\n{ENTRY}" in lines
    lines, code = python.judge(results, {BELOW: "9 never comes"})
    assert code == 0
    assert not any("SURVIVED" in line for line in lines)


def test_a_listed_mutant_that_is_killed_is_named_and_fails_nothing() -> None:
    lines, code = python.judge({FILE: Tried((), 8, 0, 2.0)}, {BELOW: ""})
    assert code == 0
    assert any("No longer survives" in line and ENTRY in line for line in lines)


@pytest.mark.parametrize("tried", [Tried((), 7, 1, 2.0), Tried((), 0, 0, 0.0)], ids=["cut short", "none"])
def test_mutants_that_were_not_tried_fail_the_run(tried: Tried) -> None:
    lines, code = python.judge({FILE: tried}, {})
    assert code == 1
    assert "Run it again." in lines[-1]
