"""Named mutants of the shell programs: each takes one guard away, and the named tests must notice.

``python tests/mutants/shell.py [NAME…]`` works on a copy of the tree, one mutant after the other, and prints
a line for each. Exit code 0: all killed; 1: one survived; 2: the table does not fit the program any more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("zkm_host.toml")


@dataclass(frozen=True)
class Mutant:
    """``old`` stands exactly once in ``file``; ``tests`` are what pytest is given."""

    name: str
    old: str
    new: str
    tests: tuple[str, ...]
    file: str = "zkmigrate/hostside/zkm-host"

    def of(self, text: str) -> str:
        """The program with this guard taken away; ``ValueError`` where it does not stand there once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: stands {text.count(self.old)} times in {self.file}: {self.old}")
        return text.replace(self.old, self.new)


def mutants() -> tuple[Mutant, ...]:
    table = tomllib.loads(TABLE.read_text())["mutant"]
    return tuple(Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in table)


def killed(mutant: Mutant, copy: Path) -> bool:
    """Whether a test of it fails in this copy of the tree; the copy is whole again afterwards."""
    file = copy / mutant.file
    text = file.read_text()
    file.write_text(mutant.of(text))
    argv = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *mutant.tests]
    try:
        done = subprocess.run(
            argv, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, check=False
        )
    finally:
        file.write_text(text)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{mutant.name}: pytest ended with {done.returncode}:\n{done.stdout.decode()}")
    return done.returncode == 1


def main(names: list[str]) -> int:
    wanted = [mutant for mutant in mutants() if not names or mutant.name in names]
    try:
        for mutant in wanted:
            mutant.of((TREE / mutant.file).read_text())
    except ValueError as error:
        print(error)
        return 2
    survived = 0
    with tempfile.TemporaryDirectory(prefix="zkm-mutants-") as folder:
        copy = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "demo")
        shutil.copytree(TREE, copy, ignore=ignored, symlinks=True)
        Path(folder).chmod(0o755)  # other accounts, which some tests play, run its programs
        for mutant in wanted:
            dead = killed(mutant, copy)
            survived += not dead
            print(f"{'killed' if dead else 'SURVIVED'}  {mutant.name}", flush=True)
    print(f"{len(wanted) - survived} of {len(wanted)} killed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
