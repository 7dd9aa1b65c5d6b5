"""What a measurement sees of the processes that it measures, and that none of them is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import click
import pytest

from bench.helper import helpers
from bench.usage import below, born, cpu_s, watched

_SPIN = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


def doubling(serve: Callable[[Callable[[Any], Any]], None]) -> None:
    """Answers with the double, and starts a process that would outlive it."""
    subprocess.Popen(["sleep", "600"])
    serve(lambda number: number * 2)


def failing(serve: Callable[[Callable[[Any], Any]], None]) -> None:
    serve(lambda _: 1 // 0)


def test_a_helper_answers_and_leaves_nothing_behind() -> None:
    with helpers(one=doubling) as at:
        at["one"].send(21)
        assert at["one"].answer() == 42
        family = below(at["one"].pid)
        assert len(family) == 2
    assert not any(born(pid) for pid in family)


def test_a_helper_that_fails_is_told_and_leaves_nothing_behind() -> None:
    with helpers(one=failing, other=doubling) as at:
        family = below(at["other"].pid)
        at["other"].send(21)  # nobody waits for this one
        at["one"].send(0)
        with pytest.raises(click.ClickException, match="one has ended"):
            at["one"].answer()
    assert not any(born(pid) for pid in family)


def test_processes_that_have_ended_count() -> None:
    with watched(os.getpid()) as usage:
        subprocess.run([sys.executable, "-c", _SPIN], check=True)
    assert usage.cpu_s >= 0.29
    assert usage.seconds >= 0.29


def test_memory_is_that_of_all_processes() -> None:
    held = "import sys; held = bytearray(50 << 20); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        one.stdout.readline()
        with watched(one.pid) as usage:
            pass
        assert usage.peak_bytes >= 50 << 20


def test_who_is_gone_took_nothing() -> None:
    with subprocess.Popen(["true"]) as one:
        pass
    assert born(one.pid) == ""
    assert cpu_s(one.pid) == 0
