"""Take each named guard out of the shell programs and see its tests fail.

``python -m tests.mutants.shell [PART OF A NAME …]`` tries the rows of ``zkm_host.toml`` in copies of the
tree. It fails if a mutant survives without a reason, or if a test fails without any mutant.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("zkm_host.toml")
PROGRAM = "zkmigrate/hosts/zkm_host/zkm-host"
AT_ONCE = 2

LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*_cache")
COPIED = (
    "zkmigrate",
    "playbooks",
    "tests",
    "bench",
    "docs",
    "pyproject.toml",
    "README.md",
    "SECURITY.md",
    "setup",
)


class MutantError(Exception):
    """The table does not fit the tree."""


@dataclass(frozen=True)
class Mutant:
    """Describe one change of one file.

    Attributes:
        old: Text that the file contains exactly once.
        tests: Test files that must fail.
        survives: Why no test can notice the change, or "" if one must.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    def of(self, text: str) -> str:
        """Return the file's text with the change."""
        if (times := text.count(self.old)) != 1:
            raise MutantError(f"{self.name}: {self.file} holds the text {times} times, needed: once")
        return text.replace(self.old, self.new)


def copy(to: Path) -> Path:
    """Copy the tree that tests run in."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, to / name)
    return to


def passes(tree: Path, tests: Sequence[str]) -> bool:
    """Return whether these tests pass in a tree.

    There is no time limit: on a slow machine a run that takes long must not count as killed.
    """
    words = ("-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests)
    env = os.environ | {"PYTHONPATH": str(tree)}
    done = subprocess.run(
        (sys.executable, *words), cwd=tree, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise MutantError(
            f"{' '.join(tests)}: pytest ended with {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.returncode == 0


def killed(tree: Path, mutant: Mutant) -> bool:
    """Return whether the tests notice the mutant. The tree is restored afterwards."""
    path = tree / mutant.file
    before = path.read_text()
    try:
        path.write_text(mutant.of(before))
        return not passes(tree, mutant.tests)
    finally:
        path.write_text(before)


def run(mutants: Sequence[Mutant], parts: Sequence[str]) -> int:
    """Try the mutants whose names contain one of these parts, or all without parts. Print a line for each.

    Returns:
        0 if all were killed or give a reason for surviving; 1 if one survived, or no name matches.
    """
    mutants = [m for m in mutants if not parts or any(part in m.name for part in parts)]
    if not mutants:
        print("No mutant has such a name.")
        return 1
    with tempfile.TemporaryDirectory(prefix="mutants-") as made:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(AT_ONCE):
            trees.put(copy(Path(made) / str(number)))
        Path(made).chmod(0o755)  # other accounts, which some tests play, run its programs

        def one(mutant: Mutant) -> bool:
            tree = trees.get()
            try:
                return killed(tree, mutant)
            finally:
                trees.put(tree)

        tests = sorted({test for m in mutants for test in m.tests})
        if not passes(Path(made) / "0", tests):
            print("A test fails without any mutant. Make the tests pass, then run this again.")
            return 1
        alive = []
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for mutant, dead in zip(mutants, pool.map(one, mutants), strict=True):
                if not dead and not mutant.survives:
                    alive.append(mutant.name)
                why = f": {mutant.survives}" if mutant.survives and not dead else ""
                print(f"{'killed' if dead else 'SURVIVED'}  {mutant.name}{why}", flush=True)
    print(f"{len(mutants)} mutants, {len(alive)} survived without a reason")
    return 1 if alive else 0


def table() -> tuple[Mutant, ...]:
    """Return the rows of the table. A row without a file changes zkm-host."""
    rows = tomllib.loads(TABLE.read_text())["mutant"]
    return tuple(Mutant(**{"file": PROGRAM, **row, "tests": tuple(row["tests"])}) for row in rows)


if __name__ == "__main__":
    sys.exit(run(table(), sys.argv[1:]))
