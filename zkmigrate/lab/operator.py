"""Act as the operator of a lab: run the command line, read its events and type answers."""

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
from zkmigrate.lab.wait import Progress, silent, wait_until
from zkmigrate.runbook.engine import hold_file

_POLL_S, _STATUS_S = 0.02, 120.0
_BUSY = (6, 7)
"""The exit codes after which another try may succeed: closed gate (6), turn back without an operator (7)."""


def call(lab: Lab, inventory: Path, *words: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command of zkmigrate to its end in the operator's network, without a terminal.

    The directory ``runs`` is beside the inventory. Raises subprocess.TimeoutExpired.
    """
    return subprocess.run(
        lab.operator_command([sys.executable, "-m", "zkmigrate", *words, "-i", str(inventory)]),
        env={**os.environ, "ZKMIGRATE_RUNS": str(inventory.parent / "runs")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@dataclass
class ToolProcess:
    """One process of the tool, and the file that receives its events."""

    process: subprocess.Popen[str]
    path: Path

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        """Return the complete events of one kind that were written so far."""
        lines = self.path.read_text().rpartition("\n")[0].splitlines()
        events = (json.loads(line) for line in lines if line.startswith("{"))
        return [event for event in events if event["event"] == kind]

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait_for_hold(self, limit_s: float) -> bool:
        """Wait until the tool holds or has ended. Return True if it holds.

        Raises NotReady if neither happens within `limit_s` seconds.
        """

        def neither() -> str | None:
            # This runs fifty times a second beside the cut-over, so it searches the text without parsing it.
            return None if self.has_ended or b'"event": "Holding"' in self.path.read_bytes() else "neither"

        wait_until("held, or ended", neither, limit_s, _POLL_S)
        return not self.has_ended

    def type(self, word: str) -> None:
        """Type a word and Enter. A process that has just ended does not receive it."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()

    def kill(self) -> None:
        """Kill the process as ``kill -9`` does."""
        self.process.send_signal(signal.SIGKILL)

    def wait_for_end(self, limit_s: float) -> int:
        """Wait for the end of the tool and return its exit code.

        Raises LabError if it does not end in time.
        """
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired as late:
            raise LabError(f"the tool has not ended within {limit_s:g} s: {self.troubles()}") from late

    def troubles(self) -> str:
        """Return the alarms and decisions that the tool reported, as text.

        Without any, the text is the tool's last message and the findings that did not hold.
        """
        found = [
            f"{e['phase']}: {_finding(e['finding'])} -> {e['decision']}" for e in self.events_of("Alarm")
        ]
        for e in self.events_of("RunEnded") if not found else []:
            found.append(e["message"])
            found += [_finding(f) for f in e["findings"] if f["held"] != "yes"]
        return "; ".join(found)[:2000]


def _finding(finding: dict[str, Any]) -> str:
    return f"{finding['id']} {finding['target']}: {finding['seen']}"


@dataclass(frozen=True)
class Operator:
    """The operator of one run, who runs zkmigrate's commands.

    directory: holds ``migration.yml``; receives ``runs`` and ``said``. run: the id of the run.
    """

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
    ) -> Iterator[ToolProcess]:
        """Start a command with its events in ``said/NAME.jsonl``.

        Kill it at the end of the block if it still runs. program: a module and its own arguments before the
        command.
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
                yield ToolProcess(process, path)
            finally:
                if process.poll() is None:
                    process.kill()
                with contextlib.suppress(BrokenPipeError):
                    process.communicate()

    def hold(self, at: str, *options: str) -> None:
        """Replace the requested hold by a hold after step ``at``, or remove the hold if ``at`` is empty.

        Raises LabError if the hold is refused.
        """
        (self.journal / hold_file.NAME).unlink(missing_ok=True)
        if at:
            words = ["hold", "--run-id", self.run, "--at", at, *options]
            done = call(self.lab, self.directory / "migration.yml", *words, timeout_s=_STATUS_S)
            if done.returncode:
                raise LabError(f"hold --at {at} ended with {done.returncode}: {done.stderr}")

    def status(self, *options: str) -> tuple[int, dict[str, Any]]:
        """Return the exit code of ``status`` and the printed JSON. Raises LabError if there is no JSON."""
        words = ["status", "--run-id", self.run, "--json", *options]
        done = call(self.lab, self.directory / "migration.yml", *words, timeout_s=_STATUS_S)
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError as error:
            raise LabError(f"status ended with {done.returncode}: {done.stdout}{done.stderr}") from error

    def through(
        self,
        name: str,
        verb: str,
        *options: str,
        limit_s: float = 600.0,
        tries: int = 1,
        progress: Progress = silent,
    ) -> None:
        """Run one command to its end. Raises LabError unless it ends with exit code 0.

        name: the name of the file of events. tries: the largest number of tries, because on a busy machine a
        check sometimes fails, or the tool sometimes turns back.
        """
        for number in range(1, tries + 1):
            progress(f"tool: {verb} {' '.join(options)}")
            with self.tool(f"{name}-{number}", verb, *options) as process:
                code = process.wait_for_end(limit_s)
            if code not in _BUSY:
                break
            progress(f"not yet ({code}): {process.troubles()}")
        if code:
            raise LabError(f"zkmigrate {verb} ended with {code}: {process.troubles()}")
