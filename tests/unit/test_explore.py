"""Looking for new examples: every test of hypothesis is asked, with a new seed each time, and for so long."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests import explore
from tests.examples import examples

ROOT = Path(__file__).parents[2]
HEAD = """
import threading
from hypothesis import given, settings, strategies as st
from tests.conftest import settings as _profiles
from tests.examples import examples
"""
HOLDS = "@given(st.integers())\ndef test_holds(n): pass\n"
RARE = "@settings(max_examples=examples(20))\n@given(st.integers(0, 50))\ndef test_fails(n): assert n != 37\n"
STANDS = "@given(st.integers())\ndef test_stands(n): threading.Event().wait()\n"


def explored(folder: Path, body: str, minutes: float) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(HEAD + body)
    argv = [sys.executable, "-m", "tests.explore", "--minutes", str(minutes), str(folder)]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)


def test_no_test_holds_its_count_of_examples_back() -> None:
    fixed = re.compile(r"max_examples=(?!examples\()")
    found = [str(path) for path in explore.files(ROOT / "tests") if fixed.search(Path(path).read_text())]
    assert [path for path in found if Path(path) != Path(__file__)] == []


def test_the_profile_scales_what_a_test_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examples(300) < 300
    assert examples(1) == 1
    monkeypatch.setattr("tests.examples.settings", lambda: settings(max_examples=1000))
    assert examples(300) == 3000


def test_what_fails_is_told_with_its_seed_and_a_blob_to_repeat_it(tmp_path: Path) -> None:
    done = explored(tmp_path, RARE, 3)
    assert done.returncode == 1, done
    assert "@reproduce_failure(" in done.stdout
    [seed] = re.findall(r"--hypothesis-seed=(\d+) TEST", done.stdout)
    assert f": --hypothesis-seed={seed}\n" in done.stdout


def test_examples_of_a_whole_round_are_counted(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(HEAD + HOLDS)
    code, said = explore.one_round(explore.files(tmp_path), 7, 240)
    assert code == 0, said
    assert explore.tried(said) == 300


def test_a_round_that_does_not_end_is_ended_in_time(tmp_path: Path) -> None:
    done = explored(tmp_path, STANDS, 0.1)
    assert done.returncode == 0, done
    assert "1 files, 0 whole rounds, 0 examples, no failure" in done.stdout
