"""Two servers of tests never get the same port."""

from __future__ import annotations

import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from tests import ports

TAKE = """
import sys
from tests import ports

ports._RANDOM.randrange = lambda *_: int(sys.argv[1])
ports.free_port()
"""


def test_a_port_is_given_once_here_and_in_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_port()
    chosen = count(first)
    monkeypatch.setattr(ports._RANDOM, "randrange", lambda *_: next(chosen), raising=False)
    assert ports.free_port() > first
    done = subprocess.run(
        [sys.executable, "-c", TAKE, str(first)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert "no free port" in done.stderr
