"""Start, watch and stop the load processes of one run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import zkmigrate
from zkmigrate.lab.failure import LabError, NotReady
from zkmigrate.lab.load.config import KINDS, LoadConfig
from zkmigrate.lab.load.json_lines import Event, Follower, load_recording
from zkmigrate.lab.processes import ProcessId
from zkmigrate.lab.wait import wait_until

Command = Callable[[Sequence[str]], Sequence[str]]
"""A function that wraps a command to run it where the clients are, such as in a network namespace."""

_START_LIMIT_S = 30.0
_GRACE_S = 30.0


@dataclass(frozen=True)
class KindStatus:
    """The state of one kind of load.

    running: whether its process exists. events: the number of recorded lines. last_event: the name of the
    last event. problem: why the recording is not complete; "" if it is complete, or if the kind is still
    running.
    """

    kind: str
    pid: int
    running: bool
    events: int
    last_event: str
    problem: str


class LoadRunner:
    """A starter and stopper of the load processes of one directory.

    ``DIR/load.json`` is the configuration, ``DIR/processes.json`` lists the processes (pid and start time),
    ``DIR/KIND.jsonl`` is the recording of a kind, and ``DIR/KIND.stderr`` its error output. A later runner in
    the same directory finds the same processes, so start and stop may be two commands. command: see
    `Command`.
    """

    def __init__(self, directory: Path, config: LoadConfig, command: Command = tuple) -> None:
        self.directory = directory
        self.config = config
        self._command = command

    # --- starting -------------------------------------------------------------------------------------------

    def start(self, kinds: Iterable[str]) -> None:
        """Start these kinds and wait until each has written its opening line.

        Raises LabError if a process ends at once, or if the directory already has a recording of one of these
        kinds; in the second case nothing is started. Raises NotReady if an opening line does not arrive in
        time.
        """
        wanted = list(kinds)
        for kind in wanted:
            if (self.directory / f"{kind}.jsonl").exists():
                raise LabError(
                    f"{self.directory} already has a recording of {kind}. Next: use another directory"
                )
        self.directory.mkdir(parents=True, exist_ok=True)
        self.config.write(self.directory / "load.json")
        for kind in wanted:
            child = self._spawn(kind, self.directory / f"{kind}.stderr")
            # Popen would warn about this child, which must keep running after this process ends.
            child.returncode = 0
            self._remember(kind, child.pid)
            self._wait_opened(kind)

    def _spawn(self, kind: str, errors: Path) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "zkmigrate.lab.load", kind]
        argv += ["--config", str(self.directory / "load.json"), "--out", str(self.directory)]
        paths = [str(Path(zkmigrate.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        with open(errors, "ab") as stderr:
            return subprocess.Popen(
                list(self._command(argv)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                # Ctrl-C at the terminal is for the runner, which then stops the load in order
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )

    def _wait_opened(self, kind: str) -> None:
        def opened() -> str | None:
            if load_recording(self.directory, kind).events:
                return None
            self._must_live(kind)
            return "its opening line"

        wait_until(f"start of load {kind}", opened, _START_LIMIT_S, poll_s=0.05)
        # signals must reach the load itself, not a wrapper that started it: the load records its own pid
        self._remember(kind, int(load_recording(self.directory, kind).events[0]["pid"]))

    # --- watching -------------------------------------------------------------------------------------------

    def status(self) -> list[KindStatus]:
        """Return the state of each kind of load client that was started, by kind."""
        found = []
        for kind, process in self._processes().items():
            recording = load_recording(self.directory, kind)
            last = recording.events[-1]["event"] if recording.events else ""
            counted = len(recording.events)
            alive = process.alive()
            problem = recording.problem if not (alive and recording.problem == "no closing line") else ""
            found.append(KindStatus(kind, process.pid, alive, counted, last, problem))
        return found

    def wait_flowing(self, kinds: Iterable[str], deadline_s: float, since_ns: int = 0) -> None:
        """Wait until each of these kinds has recorded a success at or after ``since_ns``.

        since_ns: CLOCK_MONOTONIC. The kind ``raw`` needs one acknowledged create on every host. Raises
        NotReady after ``deadline_s`` seconds, and LabError if a process has ended.
        """
        for kind in kinds:
            wait_until(f"load {kind} flowing", self._flow(kind, since_ns), deadline_s, poll_s=0.1)

    def _flow(self, kind: str, since_ns: int) -> Callable[[], str | None]:
        """Return a condition that is met once ``kind`` has recorded its successes."""
        follower = Follower(self.directory, kind, newest=since_ns > 0)
        raw = kind == "raw"
        needed = set(self.config.raw_hosts) if raw else {""}

        def missing() -> str | None:
            for event in follower.more():
                if event["mono_ns"] >= since_ns and _success(event):
                    needed.discard(event["host"] if raw else "")
            if not needed:
                return None
            self._must_live(kind)
            return f"an acknowledged create on {', '.join(sorted(needed))}" if raw else "a success"

        return missing

    def _must_live(self, kind: str) -> None:
        process = self._processes().get(kind)
        if process is None or not process.alive():
            raise LabError(f"load {kind} has ended by itself: {self._complaint(kind)}")

    def _complaint(self, kind: str) -> str:
        path = self.directory / f"{kind}.stderr"
        text = path.read_text(errors="replace").strip() if path.exists() else ""
        return text[-2000:] or "it printed nothing"

    # --- stopping -------------------------------------------------------------------------------------------

    def stop(self, kinds: Iterable[str] = KINDS, deadline_s: float | None = None) -> list[str]:
        """Stop these kinds and wait for their end. Kill kinds that do not end, and return their names.

        A killed kind has no closing line, so no claim about its recording can be *yes*. The default deadline
        is the producer's flush deadline plus 30 seconds.
        """
        limit_s = self.config.flush_deadline_s + _GRACE_S if deadline_s is None else deadline_s
        signalled = self._signal(kinds, signal.SIGTERM)
        return self._wait_ended(signalled, limit_s)

    def drain(self) -> bool:
        """Let the consumer read to the high watermarks and end. Return whether it did so in time.

        Call this method after the producer has ended and while all brokers are up.
        """
        signalled = self._signal(["consumer"], signal.SIGUSR1)
        self._wait_ended(signalled, self.config.drain_deadline_s + _GRACE_S)
        closing = load_recording(self.directory, "consumer").closing
        return closing is not None and closing.get("drained") is True

    def kill(self) -> None:
        """Kill every load process of this directory. The recordings stay."""
        self._wait_ended(self._signal(KINDS, signal.SIGKILL), _GRACE_S)

    def finish(self) -> list[str]:
        """Stop the writers, drain the consumer, read the log again and list the raw clients' znodes.

        Returns one sentence for each part that failed. The judge finds the same problems in the files.
        """
        writers = [kind for kind in KINDS if kind != "consumer"]
        wrong = [f"{kind} had to be killed" for kind in self.stop(writers)]
        if "consumer" in self._processes() and not self.drain():
            wrong.append("the consumer did not read to the high watermarks")
        if "producer" in self._processes() and not self.read_again():
            wrong.append("the log could not be read again from its beginning")
        if "raw" in self._processes() and not self.list_trees():
            wrong.append("not every dest host could be listed")
        return wrong

    def list_trees(self) -> bool:
        """Write ``tree-HOST.json`` for every raw host. Return whether all listings are complete."""
        return self._done("tree", self.config.drain_deadline_s)

    def read_again(self) -> bool:
        """Write ``log.json`` and return whether it is complete.

        Call this method after every client has ended.
        """
        return self._done("again", self.config.drain_deadline_s + _GRACE_S)

    def _done(self, work: str, limit_s: float) -> bool:
        process = self._spawn(work, self.directory / f"{work}.stderr")
        try:
            return process.wait(limit_s) == 0
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False

    def _signal(self, kinds: Iterable[str], number: signal.Signals) -> dict[str, ProcessId]:
        processes = self._processes()
        signalled = {kind: processes[kind] for kind in kinds if kind in processes}
        for process in signalled.values():
            process.send(number)
        return signalled

    def _wait_ended(self, signalled: dict[str, ProcessId], limit_s: float) -> list[str]:
        def running() -> str | None:
            for process in signalled.values():
                process.reap()
            left = [kind for kind, process in signalled.items() if process.alive()]
            return ", ".join(left) or None

        try:
            wait_until("end of the load", running, limit_s)
        except NotReady:
            stuck = [kind for kind, process in signalled.items() if process.send(signal.SIGKILL)]
            wait_until("end of the killed load", running, _GRACE_S)
            return stuck
        return []

    # --- the processes of this directory --------------------------------------------------------------------

    def _processes(self) -> dict[str, ProcessId]:
        path = self.directory / "processes.json"
        if not path.exists():
            return {}
        return {kind: ProcessId(pid, start) for kind, (pid, start) in json.loads(path.read_text()).items()}

    def _remember(self, kind: str, pid: int) -> None:
        process = ProcessId.of(pid)
        if process is None:
            raise LabError(f"load {kind} has ended by itself: {self._complaint(kind)}")
        known = {**self._processes(), kind: process}
        text = json.dumps({name: [item.pid, item.start] for name, item in known.items()})
        part = self.directory / "processes.json.part"
        part.write_text(text + "\n")
        part.rename(self.directory / "processes.json")


def _success(event: Event) -> bool:
    return event["event"] in ("ack", "consumed", "sample") or event.get("outcome") == "ok"
