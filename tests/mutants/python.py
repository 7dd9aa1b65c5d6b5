"""Named mutants: each takes one guard out of a copy of this tree, and the tests that concern it must fail.

``python -m tests.mutants.python [PART OF A NAME …]`` tries those of ``python.toml``. It ends with 1 where one
survives for which ``python.toml`` gives no reason, or where a test fails without any mutant.
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
TABLE = Path(__file__).with_name("python.toml")
AT_ONCE = 2
LIMIT_S = 300.0
ALL_OF_THEM = 12
"""So many times as long may take what all mutants need, without any."""

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
    """One change of one file. old: text that the file holds exactly once. tests: files that must notice.
    survives: why no test can notice, "" where one must."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    def of(self, text: str) -> str:
        """The file's text with the change."""
        if (times := text.count(self.old)) != 1:
            raise MutantError(f"{self.name}: {self.file} holds the text {times} times, needed: once")
        return text.replace(self.old, self.new)


def table(path: Path = TABLE) -> tuple[Mutant, ...]:
    """The mutants of a table; each file's tests stand under ``tests``, those of one mutant beside it."""
    read = tomllib.loads(path.read_text())
    found = []
    for body in read["mutant"]:
        tests = tuple(body["tests"] if "tests" in body else read["tests"][body["file"]])
        about = (body["name"], body["file"], body["old"], body["new"])
        found.append(Mutant(*about, tests, body.get("survives", "")))
    return tuple(found)


def copy(to: Path) -> Path:
    """A copy of the tree that tests run in."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=LEFT_OUT)
        else:
            shutil.copy(ROOT / name, to / name)
    return to


def passes(tree: Path, tests: Sequence[str], limit_s: float | None = LIMIT_S) -> bool:
    """Whether these tests pass in a tree; a run that has not ended after ``limit_s`` is one that fails."""
    words = ("-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests)
    env = os.environ | {"PYTHONPATH": str(tree)}
    try:
        done = subprocess.run(
            (sys.executable, *words),
            cwd=tree,
            env=env,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):
        raise MutantError(
            f"{' '.join(tests)}: pytest ended with {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.returncode == 0


def killed(tree: Path, mutant: Mutant, limit_s: float | None = LIMIT_S) -> bool:
    """Whether the tests notice the mutant; the tree is as it was afterwards."""
    path = tree / mutant.file
    before = path.read_text()
    try:
        _write(path, mutant.of(before))
        return not passes(tree, mutant.tests, limit_s)
    finally:
        _write(path, before)


def _write(path: Path, text: str) -> None:
    """Without the compiled file: it is dated to the second, and two mutants may be of one length."""
    path.write_text(text)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def run(mutants: Sequence[Mutant], parts: Sequence[str], limit_s: float | None = LIMIT_S) -> int:
    """Try the mutants whose names hold one of these parts, all without parts; print a line for each.

    Exit code 0: all killed, or it is said why one survives. 1: one survived, or no mutant has such a name.
    """
    mutants = [m for m in mutants if not parts or any(part in m.name for part in parts)]
    if not mutants:
        print("no mutant has such a name")
        return 1
    with tempfile.TemporaryDirectory(prefix="mutants-") as made:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(AT_ONCE):
            trees.put(copy(Path(made) / str(number)))
        Path(made).chmod(0o755)  # other accounts, which some tests play, run its programs

        def one(mutant: Mutant) -> bool:
            tree = trees.get()
            try:
                return killed(tree, mutant, limit_s)
            finally:
                trees.put(tree)

        tests = sorted({test for m in mutants for test in m.tests})
        if not passes(Path(made) / "0", tests, None if limit_s is None else ALL_OF_THEM * limit_s):
            print("a test fails without any mutant: nothing can be said")
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


if __name__ == "__main__":
    sys.exit(run(table(), sys.argv[1:]))
