"""Measure the speed of this machine: how fast three ZooKeepers start at once, as in a cut-over."""

from __future__ import annotations

import contextlib
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from zkmigrate.lab import provision, render
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.fit import Speed
from zkmigrate.lab.readiness import mode_of
from zkmigrate.lab.spec import LabSpec
from zkmigrate.lab.wait import wait_until

_AT_ONCE, _TIMES, _WRITES = 3, 2, 20
_LIMIT_S = 180.0
_HERE = "127.0.0.1"


def measure(spec: LabSpec) -> Speed:
    """Measure ZooKeeper on this machine. Return the slower of two starts, and the faster of two writes.

    spec: names dest's ZooKeeper version, which is used. start_s: the seconds until three servers that start
    at once serve. round_trip_ms: the median of a write. A first start reads the jars, so that a cold disk
    does not count. Raises LabError if the servers do not start.
    """
    if shutil.which("java") is None:
        raise LabError("the program java is not on this machine; install the package openjdk-17-jre-headless")
    jars = provision.zookeeper_classpath(spec.dest_version)[0].parent
    flags = render.java_env(spec).split('"')[1].split()
    java = ["java", *flags, "-cp", f"{jars}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
    with _started(java, 1):
        pass
    seen: list[Speed] = []
    for _ in range(_TIMES):
        with _started(java, _AT_ONCE) as (took_s, port):
            seen.append(Speed(took_s, _write_ms(port)))
    return Speed(max(one.start_s for one in seen), min(one.round_trip_ms for one in seen))


@contextlib.contextmanager
def _started(java: list[str], count: int) -> Iterator[tuple[float, int]]:
    """Start standalone servers for the block. Yield the seconds until all serve, and one server's port."""
    with tempfile.TemporaryDirectory(prefix="zkm-speed-") as directory, contextlib.ExitStack() as ended:
        ports = _free_ports(count)
        servers: dict[Path, subprocess.Popen[bytes]] = {}
        began = time.monotonic()
        for port in ports:
            own = Path(directory) / str(port)
            own.mkdir()
            config = own / "zoo.cfg"
            config.write_text(
                f"dataDir={own}\nclientPortAddress={_HERE}\nclientPort={port}\n"
                "admin.enableServer=false\n4lw.commands.whitelist=srvr\n"
            )
            log = ended.enter_context((own / "log").open("wb"))
            server = subprocess.Popen([*java, str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            servers[own / "log"] = server
            ended.callback(server.wait)
            ended.callback(server.kill)

        def missing() -> str | None:
            for file, server in servers.items():
                if server.poll() is not None:
                    said = file.read_text(errors="replace").strip()[-500:] or "it printed nothing"
                    raise LabError(f"the ZooKeeper that measures this machine has ended. It printed: {said}")
            silent = [p for p in ports if mode_of(_HERE, p) is None]
            return f"an answer on {', '.join(str(port) for port in silent)}" if silent else None

        wait_until(f"start of {count} ZooKeepers to measure this machine", missing, _LIMIT_S, poll_s=0.02)
        yield time.monotonic() - began, ports[0]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind((_HERE, 0))
        return [int(one.getsockname()[1]) for one in taken]


def _write_ms(port: int) -> float:
    """Return the median time of a create of 100 bytes, in milliseconds."""
    client = KazooClient(hosts=f"{_HERE}:{port}", timeout=30)
    taken = []
    try:
        client.start(timeout=_LIMIT_S)
        for number in range(_WRITES):
            began = time.monotonic()
            client.create(f"/speed-{number}", b"x" * 100)
            taken.append((time.monotonic() - began) * 1000)
    except (KazooException, KazooTimeoutError) as error:
        raise LabError(f"the ZooKeeper that measures this machine does not answer: {error!r}") from error
    finally:
        client.stop()
        client.close()
    return statistics.median(taken)
