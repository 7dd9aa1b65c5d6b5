"""Silent hosts: the screen says something first, and Ctrl-C is answered while a connection is pending."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.test_main import Place, place

__all__ = ["place"]

SILENT = """
import os, signal, sys, threading
from tests.unit.disk_world import DiskSite
from zkmigrate.cli.main import cli
from zkmigrate.hosts.parallel import together

def connect():
    os.write({told}, b"connecting")
    threading.Event().wait()

def deaf(wait):
    signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})
    while True:
        try:
            wait()
        except KeyboardInterrupt:
            pass

class Silent(DiskSite):
    def window_lines(self, playbook, records):
        {wait}
    def close(self):
        connect()

cli({words!r}, obj=Silent)
"""
LANES = "together({'source1': connect})"
DEAF = "deaf(connect)"
"""The main thread waits inside the system, the kernel gives the signal to another thread, no handler runs."""

SLOW_IMPORT = """
import os, signal, sys, threading
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "pydantic":
            signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})
            while True:
                try:
                    os.write({told}, b"connecting")
                    threading.Event().wait()
                except KeyboardInterrupt:
                    pass
sys.meta_path.insert(0, Slow())
from zkmigrate.cli.main import cli
cli({words!r})
"""


class Called:
    """A process at a terminal; it tells by a pipe when it hangs."""

    def __init__(self, place: Place, code: str, **parts: object) -> None:
        reader, writer = os.pipe()
        self.hangs, self._open = reader, [reader]
        theirs, ours = pty.openpty()
        self.screen = theirs
        self._open.append(theirs)
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", code.format(told=writer, **parts)],
            env={**os.environ, **place.environ, "TERM": "dumb"},
            cwd=Path(__file__).parents[3],
            stdin=subprocess.DEVNULL,
            stdout=ours,
            stderr=ours,
            pass_fds=(writer,),
            start_new_session=True,
        )
        os.close(writer)
        os.close(ours)

    def read(self, fd: int, what: str) -> bytes:
        ready = select.poll()
        ready.register(fd, select.POLLIN)
        assert ready.poll(60_000), f"never: {what}; {self.text!r}"
        try:
            return os.read(fd, 1 << 16)
        except OSError:
            return b""

    def until(self, wanted: str) -> None:
        end = time.monotonic() + 60.0
        while wanted not in self.text:
            assert time.monotonic() < end, f"never: {wanted}; {self.text!r}"
            more = self.read(self.screen, wanted)
            assert more, f"ended without {wanted!r}: {self.text!r}"
            self.text += more.decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for fd in self._open:
            os.close(fd)


@pytest.fixture
def called(place: Place) -> Iterator[list[Called]]:
    made: list[Called] = []
    yield made
    for one in made:
        one.close()


def begun(called: list[Called], place: Place, code: str, *words: str, **parts: object) -> Called:
    called.append(Called(place, code, words=place.words(*words), **parts))
    return called[0]


@pytest.mark.parametrize("wait", [LANES, DEAF], ids=["lanes", "deaf"])
def test_the_screen_speaks_before_a_host_answers_and_ctrl_c_is_answered(
    called: list[Called], place: Place, wait: str
) -> None:
    run = begun(called, place, SILENT, "run", "--yes", wait=wait)
    run.until("zkmigrate run started; press Ctrl-C to stop it")
    run.until("reading the state of the hosts; nothing is changed")
    assert run.read(run.hangs, "a connection") == b"connecting"
    run.process.send_signal(signal.SIGINT)
    if wait == LANES:
        run.until("stopped while the hosts were read; nothing was changed (exit code 130)")
    else:
        run.until("stopping; press Ctrl-C again to exit at once")
        assert run.process.poll() is None, "it hangs where no handler runs"
        run.process.send_signal(signal.SIGINT)
    assert run.process.wait(60) == 130
    assert place.files() == set()


VERBS = [
    ("run", "--yes"), ("preflight",), ("plan",), ("runbook",), ("status",), ("preflight", "--stage", "after"),
    ("retire", "broker1", "--run-id", "r", "--reason", "gone"),
]  # fmt: skip


@pytest.mark.parametrize("words", VERBS, ids=[words[0] for words in VERBS])
def test_ctrl_c_is_answered_during_slow_imports(
    called: list[Called], place: Place, words: tuple[str, ...]
) -> None:
    """Each verb that asks hosts says so before anything slow is done: the hosts may be silent."""
    run = begun(called, place, SLOW_IMPORT, *words)
    run.until(f"zkmigrate {words[0]} started; press Ctrl-C to stop it")
    assert run.read(run.hangs, "an import") == b"connecting"
    run.process.send_signal(signal.SIGINT)
    run.until("stopping; press Ctrl-C again to exit at once")
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(60) == 130


def test_in_a_walk_the_first_asks_and_the_second_ends_it_though_a_host_is_silent(
    called: list[Called], place: Place
) -> None:
    (place.world / "release").unlink()
    run = begun(called, place, SILENT, "run", "--yes", wait="return ()")
    begins = place.world / "dest1/slow.begun"
    end = time.monotonic() + 60.0
    while not begins.exists():
        assert time.monotonic() < end, f"never: the slow change; {run.text!r}"
        assert run.process.poll() is None, run.text
        select.poll().poll(20)
    run.process.send_signal(signal.SIGINT)
    run.until("stop requested: changes in flight are finished and journaled first")
    run.process.send_signal(signal.SIGINT)
    assert run.process.wait(60) == 130
    while more := run.read(run.screen, "the end"):
        run.text += more.decode()
    assert "(exit code 0)" not in run.text
