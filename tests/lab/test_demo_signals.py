"""The demo ended by a signal while the tool works in its lab. Alone, because two whole labs do not fit.

Ctrl-C in a lab that is being built is in test_lab.py; from there on both signals take the same way.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.no_trace import traces


def test_a_signal_in_the_middle_of_the_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "zkmigrate.lab.demo", "--directory", str(tmp_path / "demo")]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    lab_id = next(line for line in demo.stdout if " lab " in line).split(" lab ")[1].split(":")[0]
    seen = []
    for line in demo.stdout:
        seen.append(line)
        if "-> join" in line:
            break
    else:
        pytest.fail(f"never joined: {''.join(seen)}")
    demo.send_signal(signal.SIGTERM)
    said = demo.stdout.read()
    demo.stdout.close()
    assert demo.wait() == 128 + signal.SIGTERM
    assert "interrupted: nothing of the lab is left behind" in said
    assert traces(lab_id) == []
