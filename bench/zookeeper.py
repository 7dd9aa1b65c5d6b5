"""A real ZooKeeper to measure on."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit import sshd
from zkmigrate.lab import provision

VERSION = "3.5.8"


@contextmanager
def server(folder: Path, heap: str, snap_count: int) -> Iterator[int]:
    """A standalone ZooKeeper on loopback; its port. heap: as java takes it. snap_count: transactions between
    two snapshots, so that there is one with a log behind it."""
    port = sshd.free_port()
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
