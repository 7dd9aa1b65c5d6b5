"""Named mutants of the shell programs: each takes one guard away, and the named tests must notice.

``python -m tests.mutants.shell [NAME…]`` works on a copy of the tree, one mutant after the other, and prints
a line for each. Exit code 0: all killed; 1: one survived; 2: no such name, or the
table does not fit the program any more.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from pathlib import Path

from tests.mutants.python import ROOT, Mutant, MutantError, copy, killed

TABLE = Path(__file__).with_name("zkm_host.toml")
PROGRAM = "zkmigrate/hostside/zkm-host"


def mutants() -> tuple[Mutant, ...]:
    """The table's; a row that names no file is of zkm-host."""
    table = tomllib.loads(TABLE.read_text())["mutant"]
    return tuple(Mutant(**{"file": PROGRAM, **row, "tests": tuple(row["tests"])}) for row in table)


def main(names: list[str]) -> int:
    wanted = [mutant for mutant in mutants() if not names or mutant.name in names]
    if not wanted:
        print("no mutant has such a name")
        return 2
    try:
        for mutant in wanted:
            mutant.of((ROOT / mutant.file).read_text())
    except MutantError as error:
        print(error)
        return 2
    survived = 0
    with tempfile.TemporaryDirectory(prefix="zkm-mutants-") as folder:
        tree = copy(Path(folder) / "tree")
        Path(folder).chmod(0o755)  # other accounts, which some tests play, run its programs
        for mutant in wanted:
            # No limit: on a slow machine a run that takes long must not count as killed.
            dead = killed(tree, mutant, limit_s=None)
            survived += not dead
            print(f"{'killed' if dead else 'SURVIVED'}  {mutant.name}", flush=True)
    print(f"{len(wanted) - survived} of {len(wanted)} killed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
