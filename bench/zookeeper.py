"""Run a real ZooKeeper for measurements and send it requests."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from tests.ports import free_port
from zkmigrate.lab import provision
from zkmigrate.lab.load import zkmessages as messages
from zkmigrate.lab.load.zkclient import Client
from zkmigrate.lab.load.zkloop import settle, turn

VERSION = "3.5.8"
_ANSWER_S, _SEND_S = 60.0, 1800.0


@contextmanager
def server(folder: Path, heap: str, snap_count: int) -> Iterator[int]:
    """Run a standalone ZooKeeper on loopback and yield its port.

    heap: for java's -Xmx. snap_count: transactions between two snapshots.
    """
    port = free_port()
    config = folder / "zoo.cfg"
    config.write_text(
        f"tickTime=2000\ndataDir={folder}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "admin.enableServer=false\n"
    )
    jars = ":".join(map(str, provision.zookeeper_classpath(VERSION)))
    argv = ["java", f"-Xmx{heap}", f"-Dzookeeper.snapCount={snap_count}", "-cp", f"{folder}:{jars}"]
    argv += ["org.apache.zookeeper.server.ZooKeeperServerMain", str(config)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def send(
    port: int, requests: Iterator[tuple[int, bytes]], in_flight: int, start_s: float = _ANSWER_S
) -> None:
    """Send requests (operation, body) in a session that is closed at the end.

    in_flight: the maximum number of unanswered requests. start_s: seconds that the server may take for its
    first answer. Raises ClickException if a request fails.
    """
    client = Client([("127.0.0.1", port)], 40_000, lambda _event, _fields: None)
    if not settle([client], lambda: client.connected, start_s):
        raise click.ClickException("the server did not answer")
    failed: list[int] = []

    def answered(reply: messages.Reply) -> None:
        if reply.error:
            failed.append(reply.error)

    deadline = time.monotonic() + _SEND_S
    todo = next(requests, None)
    while todo is not None and not failed and time.monotonic() < deadline:
        while client.connected and client.in_flight < in_flight and todo is not None:
            client.submit(*todo, answered)
            todo = next(requests, None)
        turn([client], time.monotonic_ns() + 50_000_000)
    if failed or todo is not None or not settle([client], lambda: not client.in_flight, _ANSWER_S):
        raise click.ClickException(f"not all was written: {failed[:3]}")
    closed: list[int] = []
    client.close_session(lambda reply: closed.append(reply.error))
    settle([client], lambda: bool(closed), _ANSWER_S)
    client.shut()
