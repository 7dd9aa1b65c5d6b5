"""The table of named mutants fits the tree, and the runner tells a mutant that is noticed from another."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import python, shell
from tests.mutants.python import ROOT, Mutant, MutantError

MUTANTS = python.table()
IN_SHELL = shell.mutants()


def test_every_mutant_changes_its_file_in_one_place_and_names_tests_that_there_are() -> None:
    for mutant in MUTANTS:
        before = (ROOT / mutant.file).read_text()
        after = mutant.of(before)
        assert after != before, mutant.name
        compile(after, mutant.file, "exec")
        assert mutant.tests, mutant.name
        assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests), mutant.name


def test_every_mutant_of_a_shell_program_changes_one_place_names_tests_and_can_be_run() -> None:
    for mutant in IN_SHELL:
        before = (ROOT / mutant.file).read_text()
        after = mutant.of(before)
        assert after != before, mutant.name
        subprocess.run(["bash", "-n"], input=after, text=True, check=True, timeout=60)
        assert mutant.tests, mutant.name
        assert all((ROOT / test.partition("::")[0]).is_file() for test in mutant.tests), mutant.name


@pytest.mark.parametrize("table", [MUTANTS, IN_SHELL], ids=["python", "shell"])
def test_every_name_is_there_once(table: tuple[Mutant, ...]) -> None:
    assert [name for name, times in Counter(m.name for m in table).items() if times > 1] == []


def test_a_text_that_is_gone_or_stands_twice_is_refused() -> None:
    for text in ("b", "a a"):
        with pytest.raises(MutantError, match="needed: once"):
            Mutant("one", "f.py", "a", "c", ()).of(text)


def test_a_mutant_is_killed_where_a_test_fails_and_the_file_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text("def safe(n: int) -> bool:\n    return n > 1 and n < 9\n")
    (tmp_path / "test_rule.py").write_text(
        "from rule import safe\n\n\ndef test_low() -> None:\n    assert not safe(1)\n"
    )
    low = Mutant("low", "rule.py", "n > 1 and ", "", ("test_rule.py",))
    high = Mutant("high", "rule.py", " and n < 9", "", ("test_rule.py",))
    before = (tmp_path / "rule.py").read_text()
    assert python.passes(tmp_path, low.tests)
    assert (python.killed(tmp_path, low), python.killed(tmp_path, high)) == (True, False)
    assert (tmp_path / "rule.py").read_text() == before
    (tmp_path / "test_rule.py").write_text("import nothing_of_the_sort\n")
    with pytest.raises(MutantError, match="pytest ended with"):
        python.passes(tmp_path, low.tests)
