"""Run a real ZooKeeper for measurements and send it requests."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tests.ports import free_port
from zkmigrate.lab import provision
from zkmigrate.lab.load.session import Reply, Session
from zkmigrate.lab.wait import wait_until

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


def send(port: int, requests: Iterator[Any], in_flight: int, start_s: float = _ANSWER_S) -> None:
    """Send requests of ``kazoo.protocol.serialization`` in a session that is closed at the end.

    in_flight: the maximum number of unanswered requests. start_s: seconds that the server may take for its
    first answer. Raises ClickException if a request fails.
    """
    session = Session([f"127.0.0.1:{port}"], 40_000, lambda _event, **_fields: None)
    failed: list[str] = []

    def answered(reply: Reply) -> None:
        if reply.error:
            failed.append(reply.error)

    try:
        wait_until("the server's answer", lambda: None if session.connected else "a session", start_s)
        deadline = time.monotonic() + _SEND_S
        for request in requests:
            while session.in_flight >= in_flight and not failed and time.monotonic() < deadline:
                time.sleep(0.001)
            if failed or time.monotonic() >= deadline:
                raise click.ClickException(f"not all was written: {failed[:3]}")
            session.send(request, answered)
        if not session.wait_answered(_ANSWER_S) or failed:
            raise click.ClickException(f"not all was written: {failed[:3]}")
    finally:
        session.end()
