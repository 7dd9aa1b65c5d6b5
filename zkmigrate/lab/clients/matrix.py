"""Run the client matrix: start each client, run a callback halfway, stop all clients and judge them."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from zkmigrate.lab.clients.families import Program
from zkmigrate.lab.failure import LabError, NotReady
from zkmigrate.lab.judge.clients import Played, Row, judge_clients
from zkmigrate.lab.judge.history import Log, parse_log
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.json_lines import Follower, load_recording
from zkmigrate.lab.load.producer import create_topics
from zkmigrate.lab.load.reread import NAME as LOG_FILE
from zkmigrate.lab.load.reread import write_log
from zkmigrate.lab.shutdown import running
from zkmigrate.lab.wait import Progress, wait_until

ROLES = ("producer", "consumer")
_DONE = {"producer": "ack", "consumer": "consumed"}
_METADATA_S = 5.0
_LEADERS_S = 60.0
_SAID = 400


@dataclass(frozen=True)
class Matrix:
    """The parameters of a client matrix.

    bootstrap: the only broker addresses that the clients get, ``host:port,…``. topic: created with partitions
    and replication_factor if it does not exist; records of earlier runs are ignored. groups: the prefix of
    each client's group name. rate: records per second and producer. seconds: how long the clients work, from
    the moment when each client has done something or flow_s seconds have passed. log_at: the addresses at
    which the log is read at the end, or a function that returns these addresses then; "" means bootstrap.
    patience_s: how many seconds a client may take to flush, and a group to read the rest. A client that takes
    longer is killed.
    """

    bootstrap: str
    topic: str = "clients"
    partitions: int = 3
    replication_factor: int = 1
    groups: str = "clients"
    rate: float = 20.0
    seconds: float = 60.0
    log_at: str | Callable[[], str] = ""
    flow_s: float = 90.0
    patience_s: float = 150.0

    def load(self, bootstrap: str) -> LoadConfig:
        """Return a load configuration for creating and reading the topic. bootstrap: the addresses to use."""
        return LoadConfig(
            bootstrap=bootstrap, topics=(self.topic,), partitions=self.partitions,
            replication_factor=self.replication_factor, min_insync=1, group=f"{self.groups}-judge",
            drain_deadline_s=self.patience_s,
        )  # fmt: skip


def play(
    matrix: Matrix,
    programs: Mapping[str, Program],
    directory: Path,
    progress: Progress,
    during: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Run the matrix and return the verdict on each client.

    programs: by client name. directory: receives ``NAME-producer.jsonl``, ``NAME-consumer.jsonl``, the
    programs' output as ``.log``, and ``log.json``. during: called once, halfway, while all clients work; an
    exception from this function ends the matrix. Raises LabError if the topic cannot be created.
    """
    began = secrets.token_hex(3)
    prefixes = {name: f"{name}/{began}/" for name in programs}
    _topic(matrix)
    with ExitStack() as stack:
        at_work = {
            (name, role): stack.enter_context(
                _started(matrix, programs[name], f"{name}-{role}", prefixes[name], directory)
            )
            for role in reversed(ROLES)
            for name in programs
        }
        progress(f"{len(at_work)} programs started, ids of this run begin with NAME/{began}/")
        _try(
            f"each client at work within {matrix.flow_s:g} s",
            _idle(at_work, directory),
            matrix.flow_s,
            progress,
        )
        time.sleep(matrix.seconds / 2)
        during()
        time.sleep(matrix.seconds / 2)
        killed = _stop(at_work, "producer", matrix.patience_s)
        progress("producers stopped; reading the log")
        log_at = matrix.log_at if isinstance(matrix.log_at, str) else matrix.log_at()
        write_log(directory, matrix.load(log_at or matrix.bootstrap))
        log = parse_log((directory / LOG_FILE).read_text())
        unread = _unread(at_work, directory, log, tuple(prefixes.values()))
        _try(f"each group at the end within {matrix.patience_s:g} s", unread, matrix.patience_s, progress)
        killed += _stop(at_work, "consumer", matrix.patience_s)
    for name, role in killed:
        progress(f"{name}-{role} did not end and was killed")
    return judge_clients([_played(name, prefixes[name], directory) for name in programs], log)


def _topic(matrix: Matrix) -> None:
    """Create the topic and wait until each partition has a leader. Raises LabError."""

    def leaderless() -> str | None:
        seen = AdminClient({"bootstrap.servers": matrix.bootstrap}).list_topics(matrix.topic, _METADATA_S)
        partitions = seen.topics[matrix.topic].partitions
        led = sum(one.leader >= 0 for one in partitions.values())
        return (
            None
            if led == len(partitions) == matrix.partitions
            else f"{led} of {len(partitions)} partitions led"
        )

    try:
        create_topics(matrix.load(matrix.bootstrap))
        wait_until(f"{matrix.partitions} partitions of {matrix.topic}", leaderless, _LEADERS_S)
    except KafkaException as error:
        raise LabError(f"topic {matrix.topic} cannot be created at {matrix.bootstrap}: {error}") from error


@contextmanager
def _started(
    matrix: Matrix, program: Program, name: str, prefix: str, directory: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one program for the block, with its output in ``NAME.log``. name: the client and its role."""
    file = str(directory / f"{name}.jsonl")
    client, _, role = name.rpartition("-")
    if role == "producer":
        words = ["produce", matrix.bootstrap, matrix.topic, prefix, file, str(matrix.rate)]
    else:
        words = ["consume", matrix.bootstrap, matrix.topic, f"{matrix.groups}-{client}", file]
    with (
        (directory / f"{name}.log").open("wb") as output,
        running([*program.argv, *words], {**os.environ, **program.environment}, output=output) as process,
    ):
        yield process


AtWork = Mapping[tuple[str, str], subprocess.Popen[bytes]]
"""The process of each program, by client and role."""


def _idle(at_work: AtWork, directory: Path) -> Callable[[], str | None]:
    """Return a condition that is met once each running program has recorded a success."""
    followers = {key: Follower(directory, "-".join(key)) for key in at_work}
    left = set(at_work)

    def idle() -> str | None:
        for key in sorted(left):
            ended = at_work[key].poll() is not None
            if ended or any(event["event"] == _DONE[key[1]] for event in followers[key].more()):
                left.discard(key)
        return ", ".join("-".join(key) for key in sorted(left)) or None

    return idle


def _unread(
    at_work: AtWork, directory: Path, log: Log, prefixes: tuple[str, ...]
) -> Callable[[], str | None]:
    """Return a condition that is met once the running consumers have recorded each record of this run."""
    needed = {
        (partition, offset)
        for (_, partition), records in log.records.items()
        for offset, id in records.items()
        if id.startswith(prefixes)
    }
    names = [name for name, role in at_work if role == "consumer"]
    followers = {name: Follower(directory, f"{name}-consumer") for name in names}
    left = {name: set(needed) for name in names}

    def unread() -> str | None:
        for name, places in left.items():
            places -= {
                (event["partition"], event["offset"])
                for event in followers[name].more()
                if event["event"] == "consumed"
            }
        reading = [name for name in names if left[name] and at_work[name, "consumer"].poll() is None]
        return ", ".join(f"{len(left[name])} records by {name}" for name in reading) or None

    return unread


def _try(what: str, condition: Callable[[], str | None], limit_s: float, progress: Progress) -> None:
    """Wait for the condition, and continue even if it is not met in time.

    The judge then finds in the files what is missing.
    """
    try:
        wait_until(what, condition, limit_s)
    except NotReady as late:
        progress(str(late))


def _stop(at_work: AtWork, role: str, limit_s: float) -> list[tuple[str, str]]:
    """Stop the programs of a role. Kill those that do not end in time, and return their names and roles."""
    own = {key: process for key, process in at_work.items() if key[1] == role}
    for process in own.values():
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    end = time.monotonic() + limit_s
    killed = []
    for key, process in own.items():
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed.append(key)
    return killed


def _played(name: str, prefix: str, directory: Path) -> Played:
    producer, consumer = (load_recording(directory, f"{name}-{role}") for role in ROLES)
    said = {role: _last_words(directory / f"{name}-{role}.log") for role in ROLES}
    return Played(name, prefix, producer, consumer, said)


def _last_words(output: Path) -> str:
    """Return the last lines of a program's output as one line."""
    return " | ".join(output.read_text(errors="replace").split("\n")[-4:])[-_SAID:].strip(" |")
