"""A run whose output is closed ends with its own code, although Python flushes both streams at its exit."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from zkmigrate.runbook.ui.outlet import outlet

lost = []
out = outlet(sys.stdout, lambda: lost.append(1))
sys.stdin.readline()
for _ in range(2):
    out.write("a line\\n")
    out.flush()
sys.stderr.write("a message\\n")
sys.exit(130 + len(lost))
"""


@pytest.mark.parametrize("errors", [subprocess.STDOUT, subprocess.DEVNULL], ids=["same pipe", "elsewhere"])
def test_a_closed_pipe_changes_no_exit_code(errors: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.close()
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.wait(120) == 131
