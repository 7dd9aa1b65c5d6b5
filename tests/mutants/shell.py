"""Named mutants of the shell programs: each takes one guard away, and the named tests must notice.

``python -m tests.mutants.shell [PART OF A NAME …]`` tries those of ``zkm_host.toml``, as
``python.py`` tries its own.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from tests.mutants.python import Mutant, run

TABLE = Path(__file__).with_name("zkm_host.toml")
PROGRAM = "zkmigrate/hosts/zkm_host/zkm-host"


def mutants() -> tuple[Mutant, ...]:
    """The table's; a row that names no file is of zkm-host."""
    table = tomllib.loads(TABLE.read_text())["mutant"]
    return tuple(Mutant(**{"file": PROGRAM, **row, "tests": tuple(row["tests"])}) for row in table)


if __name__ == "__main__":
    # No limit: on a slow machine a run that takes long must not count as killed.
    sys.exit(run(mutants(), sys.argv[1:], limit_s=None))
