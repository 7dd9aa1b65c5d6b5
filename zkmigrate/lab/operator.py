"""The operator of a lab: the command line from the operator's place, what it tells, and what is typed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zkmigrate.lab.failure import LabError
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.wait import wait_until

_POLL_S = 0.02


@dataclass
class Typing:
    """One process of the tool and the file that its events go to."""

    process: subprocess.Popen[str]
    events: Path

    def said(self) -> list[dict[str, Any]]:
        """The whole events that the tool has told so far."""
        text = self.events.read_text()
        lines = text.rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Its events of one kind so far."""
        return [event for event in self.said() if event["event"] == kind]

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def held(self, limit_s: float) -> bool:
        """Wait until it holds, or has ended; whether it holds. NotReady when neither."""

        def neither() -> str | None:
            # Looked at fifty times a second beside the cut-over itself: the text will do.
            return None if self.ended or b'"event": "Holding"' in self.events.read_bytes() else "neither"

        wait_until("held, or ended", neither, limit_s, _POLL_S)
        return not self.ended

    def type(self, word: str) -> None:
        """Type a word and Enter; a process that has just ended does not hear it."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """``kill -9``."""
        self.process.send_signal(signal.SIGKILL)

    def end(self, limit_s: float) -> int:
        """Wait for the end; the exit code. LabError when it does not end."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired as late:
            raise LabError(f"the tool has not ended within {limit_s:g} s: {self.troubles()}") from late

    def troubles(self) -> str:
        """What the tool said stood in the way, and what it decided."""
        found = [f"{e['phase']}: {_finding(e['finding'])} -> {e['decision']}" for e in self.of("Alarm")]
        for e in self.of("RunEnded") if not found else []:
            found.append(e["message"])
            found += [_finding(f) for f in e["findings"] if f["held"] != "yes"]
        return "; ".join(found)[:2000]


def _finding(finding: dict[str, Any]) -> str:
    return f"{finding['id']} {finding['target']}: {finding['seen']}"


@dataclass(frozen=True)
class Operator:
    """Runs the verbs of one run. directory: holds ``migration.yml``; ``runs`` and ``said`` are made there."""

    lab: Lab
    directory: Path
    run: str

    @property
    def journal(self) -> Path:
        """The run's directory."""
        return self.directory / "runs" / self.run

    @contextlib.contextmanager
    def tool(
        self, name: str, verb: str, *options: str, program: Sequence[str] = ("zkmigrate",)
    ) -> Iterator[Typing]:
        """A verb under way, its events in ``said/NAME.jsonl``; ended on the way out.

        program: a module and its own words before the verb.
        """
        path = self.directory / "said" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        inventory = str(self.directory / "migration.yml")
        argv = [sys.executable, "-m", *program, verb, "-i", inventory]
        argv += ["--run-id", self.run, "--yes", "--json", *options]
        with path.open("w") as out:
            process = subprocess.Popen(
                self.lab.operator_command(argv),
                env={**os.environ, "ZKMIGRATE_RUNS": str(self.directory / "runs")},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            try:
                yield Typing(process, path)
            finally:
                if process.poll() is None:
                    process.kill()
                with contextlib.suppress(BrokenPipeError):
                    process.communicate()

    def through(self, name: str, verb: str, *options: str, limit_s: float = 600.0) -> None:
        """Run one verb to its end; LabError unless it ends with 0."""
        with self.tool(name, verb, *options) as typing:
            code = typing.end(limit_s)
        if code:
            raise LabError(f"zkmigrate {verb} ended with {code}: {typing.troubles()}")
