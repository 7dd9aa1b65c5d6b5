"""Real server processes on a loopback address of this process's own, and the wait until they answer."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from zkmigrate.kafka.clients import connections
from zkmigrate.lab import provision
from zkmigrate.lab.readiness import four_letter_word
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Seen

START_SECONDS = 180

RELEASES = ("2.8.2", "3.9.1")
"""The releases of Kafka that most of these tests ask, each with brokers that it starts once."""

ADDRESS = f"127.1.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"
"""Where the servers of this process listen. Tests run side by side: on an address of its own nobody takes a
port between :func:`free_port` and the start of the server."""


def archive(jars: Sequence[Path]) -> Path:
    """Where the classes of these jars are kept as a JVM maps them: a server then starts in half of the time.

    The first server with these jars writes it as it ends. A JVM ignores one that does not fit.
    """
    told = " ".join(map(str, (Path("/usr/bin/java").resolve(), *jars)))
    return provision.cache_dir() / "classes" / f"{provision.digest(told)}.jsa"


@contextmanager
def shared_classes(jars: Sequence[Path]) -> Iterator[str]:
    """The option of a server that uses the archive, or writes it."""
    there = archive(jars)
    if there.is_file() or there in _WRITTEN:
        yield f"-XX:SharedArchiveFile={there}"
        return
    _WRITTEN.add(there)
    there.parent.mkdir(parents=True, exist_ok=True)
    new = there.with_suffix(f".{os.getpid()}")
    try:
        yield f"-XX:ArchiveClassesAtExit={new}"
    finally:
        if new.is_file():
            new.replace(there)


_WRITTEN = set[Path]()
"""Archives that a server of this process writes, or was to write."""


@contextmanager
def server(
    java: str, jars: Sequence[Path], argv: Sequence[str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """A server process that ends with the block. It has found all of its classes."""
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars))]
    with ExitStack() as stack:
        if java == "java":
            options.append(stack.enter_context(shared_classes(jars)))
        with log.open("wb") as output:
            process = subprocess.Popen([java, *options, *argv], stdout=output, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    said = log.read_text()
    assert "NoClassDefFoundError" not in said
    assert "Failed to load class" not in said, "no slf4j binding: the server would log nothing"


def wait_for(
    what: str,
    process: subprocess.Popen[bytes],
    log: Path,
    port: int,
    word: str,
    answer: str,
    address: str = ADDRESS,
) -> None:
    """Until ZooKeeper's answer holds `answer`; an ended server fails at once, with its log."""

    def missing() -> str | None:
        assert process.poll() is None, f"{what} ended with {process.returncode}:\n{log.read_text()[-3000:]}"
        seen = four_letter_word(address, word, port) or ""
        return None if answer in seen else f"{word} said {seen!r}"

    wait_until(what, missing, START_SECONDS)


def wait_until_it_answers(what: str, process: subprocess.Popen[bytes], log: Path, address: str) -> None:
    """Until a broker answers; one that ended fails at once, with its log."""

    def silent() -> str | None:
        assert process.poll() is None, f"{what} ended with {process.returncode}:\n{log.read_text()[-3000:]}"
        return answers(address)

    wait_until(what, silent, START_SECONDS)


def stand_still(pid: int) -> None:
    """Stop a process with SIGSTOP, and wait until each of its threads has stopped.

    The kernel first gives the signal to one thread, and the others run on until that one has the CPU.
    """
    os.kill(pid, signal.SIGSTOP)

    def running() -> str | None:
        tasks = Path(f"/proc/{pid}/task").glob("*/stat")
        states = {task.read_text().rpartition(") ")[2][:1] for task in tasks}
        return None if states == {"T"} else f"threads in the states {' '.join(states)}"

    wait_until(f"process {pid} stands still", running, START_SECONDS, poll_s=0.01)


def answers(address: str) -> str | None:
    """None once the broker at this address answers."""
    told = connections.ask([address], lambda _client, releases: Seen(len(releases)))
    return None if told == Seen(1) else str(told)
