"""The demo ended by a signal while the tool works in its lab. Alone, because two whole labs do not fit."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.test_lab import traces


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_the_demo_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals
) -> None:
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
    demo.send_signal(number)
    said = demo.stdout.read()
    demo.stdout.close()
    assert demo.wait() == (130 if number is signal.SIGINT else 128 + number)
    assert "interrupted: nothing of the lab is left behind" in said
    assert traces(lab_id) == []
