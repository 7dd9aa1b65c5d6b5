"""Mutate the safety modules with mutmut and require that their fast tests fail.

``python -m tests.mutants.python [MODULE …]`` tries the modules under ``[tool.mutmut]`` in pyproject.toml, or
those whose dotted names end with one of the words. It fails for a survivor that is not in ``survivors.txt``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

ROOT = Path(__file__).resolve().parents[2]
LISTED = Path(__file__).with_name("survivors.txt")
MADE = ROOT / "mutants"
"""Where mutmut keeps its copy of the tree and its results."""

KILLED = frozenset({"killed", "timeout", "segfault"})


class ListError(Exception):
    """survivors.txt cannot be read."""


@dataclass(frozen=True, order=True)
class Survivor:
    """Identify one mutant by its change, so that other edits of the file do not rename it.

    Attributes:
        function: Name of the function, after its class where it has one.
        change: The removed lines after "- ", then the added lines after "+ ".
    """

    file: str
    function: str
    change: tuple[str, ...]

    def text(self, reason: str = "") -> str:
        """Return the entry of ``survivors.txt`` for this mutant."""
        return "\n".join((f"{self.file} {self.function}", *self.change, *([f"= {reason}"] if reason else [])))


@dataclass(frozen=True)
class Tried:
    """Report the mutants of one module. Unfinished ones have neither died nor survived."""

    survivors: tuple[Survivor, ...]
    killed: int
    unfinished: int
    seconds: float


def configuration() -> dict[str, Any]:
    """Return mutmut's configuration in pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    return found


def modules() -> tuple[str, ...]:
    """Return the files that mutmut is configured to mutate."""
    return tuple(configuration()["only_mutate"])


def dotted(file: str) -> str:
    """Return a file's name as a module."""
    return file.removesuffix(".py").replace("/", ".")


def chosen(files: Iterable[str], words: Sequence[str]) -> tuple[str, ...]:
    """Return the files whose module names end with one of the words, or all files without words."""
    return tuple(f for f in files if not words or any(f".{dotted(f)}".endswith(f".{word}") for word in words))


def listed(text: str) -> dict[Survivor, str]:
    """Read ``survivors.txt``: each accepted survivor with its reason, "" if nobody has judged it.

    Entries are separated by empty lines; lines that start with "#" are comments.

    Raises:
        ListError: An entry has no function or no change, or a line of another kind.
    """
    found: dict[Survivor, str] = {}
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for entry in filter(str.strip, lines.split("\n\n")):
        head, *rest = entry.strip("\n").splitlines()
        file, _, function = head.partition(" ")
        change = tuple(line for line in rest if line.startswith(("- ", "+ ")))
        reasons = [line.removeprefix("= ") for line in rest if line.startswith("= ")]
        if not (file and function and change) or len(change) + len(reasons) < len(rest):
            raise ListError(f"survivors.txt: this entry needs a file, a function and a change:\n{entry}")
        found[Survivor(file, function, change)] = " ".join(reasons)
    return found


def changed(diff: str) -> tuple[str, ...]:
    """Return the removed and added lines of a unified diff, without their indents."""
    lines = [line for line in diff.splitlines() if line[:1] in ("-", "+") and line[:3] not in ("---", "+++")]
    return tuple(f"{line[0]} {line[1:].strip()}" for line in lines)


def tried(file: str) -> Tried:
    """Read what mutmut has recorded of one module. The working directory must be the checkout."""
    data = SourceFileMutationData(path=file)
    data.load()
    of: dict[str, list[str]] = defaultdict(list)
    for name, code in data.exit_code_by_key.items():
        status = status_by_exit_code[code]
        kind = (
            "killed" if status in KILLED else "alive" if status in ("survived", "no tests") else "unfinished"
        )
        of[kind].append(name)
    alive = tuple(_survivor(file, name) for name in of["alive"])
    took = sum(data.durations_by_key.values())
    return Tried(alive, len(of["killed"]), len(of["unfinished"]), took)


def _survivor(file: str, name: str) -> Survivor:
    """Describe a mutant that mutmut names."""
    function, of_class = orig_function_and_class_names_from_key(name)
    whole = f"{of_class}.{function}" if of_class else function
    return Survivor(file, whole, changed(get_diff_for_mutant(name, path=file)))


def judge(results: Mapping[str, Tried], accepted: Mapping[Survivor, str]) -> tuple[list[str], int]:
    """Return the report of a run and its exit code.

    The code is 0 if all mutants were tried and each survivor is accepted. An accepted mutant that no longer
    survives is reported only.
    """
    lines = [f"{'mutants':>8}{'killed':>8}{'alive':>8}{'unlisted':>10}{'seconds':>9}  module"]
    code = 0
    for file, result in results.items():
        unlisted = [one for one in result.survivors if one not in accepted]
        alive = len(result.survivors)
        total = alive + result.killed + result.unfinished
        lines.append(
            f"{total:8}{result.killed:8}{alive:8}{len(unlisted):10}{result.seconds:9.0f}  {dotted(file)}"
        )
        if result.unfinished or not total:
            lines.append(
                f"{result.unfinished} of {total} mutants of {file} were not tried to their end. Run it again."
            )
            code = 1
        if unlisted:
            lines += [f"SURVIVED\n{one.text()}\n" for one in sorted(set(unlisted))]
            code = 1
        gone = sorted(one for one in accepted if one.file == file and one not in result.survivors)
        lines += [f"No longer survives; delete it from survivors.txt:\n{one.text()}\n" for one in gone]
    return lines, code


def main(words: Sequence[str]) -> int:
    """Run mutmut from scratch and compare its survivors with ``survivors.txt``."""
    files = chosen(modules(), words)
    if not files:
        print(f"No module matches {' '.join(words)}. Choose from: {' '.join(map(dotted, modules()))}")
        return 1
    accepted = listed(LISTED.read_text())
    os.chdir(ROOT)
    # mutmut keeps results until the mutated function changes, but tests change too.
    shutil.rmtree(MADE, ignore_errors=True)
    names = [f"{dotted(file)}.*" for file in files]
    begun = time.monotonic()
    done = subprocess.run(
        [Path(sys.executable).with_name("mutmut"), "run", "--max-children", "2", *names], check=False
    )
    if done.returncode:
        print("mutmut did not come to its end. Its message is above.")
        return done.returncode
    lines, code = judge({file: tried(file) for file in files}, accepted)
    print(*lines, f"{time.monotonic() - begun:.0f} s in all", sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
