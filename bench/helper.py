"""A process that answers one question after the other, so that its start is not measured."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import click

from bench.usage import below, born

Answering = Callable[[Callable[[Callable[[Any], Any]], None]], None]
"""Runs in the process: gets `serve`, and calls it with the function that answers."""

_END_S, _STOP_S = 60.0, 10.0


class Helper:
    """The process. It ignores Ctrl-C: its maker ends it."""

    def __init__(self, name: str, answering: Answering) -> None:
        context = get_context("spawn")
        self.name = name
        self._busy = True  # until it is ready
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(theirs, answering), name=name, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send(self, question: Any) -> None:
        """Ask; `answer` returns its answer."""
        self._busy = True
        self.connection.send(question)

    def answer(self) -> Any:
        """The answer to the last question. Raises ClickException when the process has ended."""
        try:
            found = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise click.ClickException(f"{self.name} has ended, see what it wrote above") from None
        self._busy = False
        return found

    def end(self) -> None:
        """End it and all processes that it started."""
        family = [(pid, born(pid)) for pid in below(self.pid)]
        self.connection.close()  # this ends one that waits for a question
        if self._busy:
            self._process.terminate()
        self._process.join(_END_S)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in _alive(family):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            deadline = time.monotonic() + _STOP_S
            while _alive(family) and time.monotonic() < deadline:
                time.sleep(0.05)


@contextmanager
def helpers(**wanted: Answering) -> Iterator[dict[str, Helper]]:
    """Helpers by name, each ready; they end with the block."""
    found: dict[str, Helper] = {}
    try:
        for name, answering in wanted.items():
            found[name] = Helper(name, answering)
        for one in found.values():
            one.answer()
        yield found
    finally:
        for one in found.values():
            one.end()


def _alive(family: list[tuple[int, str]]) -> list[int]:
    """Those that still run."""
    return [pid for pid, when in family if when and born(pid) == when]


def _run(connection: Connection, answering: Answering) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # stops servers and sessions on the way out

    def serve(answer: Callable[[Any], Any]) -> None:
        connection.send(None)
        while True:
            try:
                question = connection.recv()
            except (EOFError, ConnectionResetError):
                return
            connection.send(answer(question))

    answering(serve)
