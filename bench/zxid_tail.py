"""How fast the newest transaction is found: ``python -m bench.zxid_tail``.

A real server writes two logs: large writes of 1 to 100 kB, and small ones as Kafka makes them. Then, round
after round on the same files: ZooKeeper's own LogFormatter, which prints every record and ends with the
newest; a plain walk over all records; the tail as a call, and as the command a shell starts; and the tail
over an SFTP connection that is open, through a real sshd. All must name the same zxid.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench.spread import compared, in_turn, out_option, save, show_compared
from bench.zookeeper import VERSION, send, server
from tests.unit import sshd
from zkmigrate.lab import provision
from zkmigrate.lab.load import zkmessages as messages
from zkmigrate.zookeeper.data.logdir import log_files, walk
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.disks.location import Place, open_disks

PEER = "LogFormatter"
IN_FLIGHT = 200
NO_SNAPSHOT = 1_000_000_000
"""Transactions between two snapshots: the server takes none, so that it writes one log."""

CREATE, SET = 1, 5
_STOCK_S = 1800.0
_ZXID = re.compile(rb"zxid (0x[0-9a-f]+)")


@dataclass(frozen=True)
class Writes:
    """Writes for a server to log: so many megabytes, in writes of ``least`` to ``most`` bytes, on so many
    znodes."""

    name: str
    megabytes: int
    least: int
    most: int
    znodes: int = 50


WRITES = (Writes("large", 500, 1_000, 100_000), Writes("small", 150, 60, 250))


def written(writes: Writes, folder: Path, scale: float) -> Path:
    """Let a server log the writes; its ``version-2``. scale: of the megabytes."""
    folder.mkdir()
    chance = random.Random(1)
    bodies = [chance.randbytes(chance.randint(writes.least, writes.most)) for _ in range(200)]

    def requests() -> Iterator[tuple[int, bytes]]:
        for n in range(writes.znodes):
            yield CREATE, messages.create_request(f"/n{n}", b"", 0)
        left, sent = int(writes.megabytes * 1e6 * scale), 0
        while left > 0:
            body = bodies[sent % len(bodies)]
            yield SET, messages.set_request(f"/n{sent % writes.znodes}", body)
            sent, left = sent + 1, left - len(body)

    with server(folder, "512m", NO_SNAPSHOT) as port:
        send(port, requests(), IN_FLIGHT)
    return folder / "version-2"


def stock(log: Path) -> int:
    """The zxid of the last record that LogFormatter prints."""
    jars = ":".join(map(str, provision.zookeeper_classpath(VERSION)))
    argv = ["java", "-cp", jars, "org.apache.zookeeper.server.LogFormatter", str(log)]
    found = b""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = line if b" zxid " in line else found
        process.wait(_STOCK_S)
    match = _ZXID.search(found)
    if match is None:
        raise click.ClickException(f"LogFormatter named no zxid in {log}")
    return int(match[1], 16)


def measured(folder: Path, rounds: int, daemon: sshd.Sshd) -> dict[str, Any]:
    """Every way on one directory, round after round."""
    directory = FileDirectory(folder)
    (log,) = (file for file in log_files(directory) if file.size > 0)

    def command() -> int:
        argv = [sys.executable, "-m", "zkmigrate", "zxid", "tail", str(folder), "--json"]
        return int(json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)["zxid"], 16)

    def walked() -> int:
        *_, last = (record.zxid for record in walk(directory))
        return last

    ssh = sshd.inventory(daemon).ssh
    with open_disks(ssh) as disks:
        place = Place("127.0.0.1", str(folder))
        disks.directory(place)  # the connection is open from here on

        def distant() -> int:
            return newest(disks.directory(place)).zxid

        ways: dict[str, Callable[[], int]] = {
            PEER: lambda: stock(folder / log.name),
            "walk": walked,
            "tail": lambda: newest(directory).zxid,
            "tail, as a command": command,
            "tail over SFTP": distant,
        }
        seconds, _ = in_turn(ways, rounds, repeat={"tail": 20, "tail over SFTP": 5})
    tail = newest(directory)
    return {
        "log_bytes": tail.end,
        "records": tail.zxid,
        "bytes_read": tail.bytes_read,
        "reads": tail.reads,
        **compared(seconds, PEER),
        "raw": seconds,
    }


@click.command()
@click.option("--rounds", default=5, show_default=True, help="How often each way is timed.")
@click.option("--scale", default=1.0, show_default=True, help="Of the logs' sizes, to try the program.")
@out_option
def main(rounds: int, scale: float, out: Path | None) -> None:
    """Find the newest transaction of two real logs in five ways."""
    folder = Path(tempfile.mkdtemp(prefix="zxid-tail-"))
    found: dict[str, Any] = {}
    try:
        (folder / "sshd").mkdir()
        with sshd.running(folder / "sshd") as daemon:
            for writes in WRITES:
                click.echo(f"{writes.name}: a server writes {writes.megabytes * scale:g} MB", err=True)
                directory = written(writes, folder / writes.name, scale)
                found[writes.name] = figures = measured(directory, rounds, daemon)
                raw = figures.pop("raw")
                size = f"{figures['log_bytes'] / 1e6:.0f} MB, {figures['records']} records"
                cost = f"the tail reads {figures['bytes_read']} bytes in {figures['reads']} reads"
                click.echo(f"{writes.name}: {size}; {cost}")
                show_compared(raw, PEER, 0)
                shutil.rmtree(directory.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    save(out, found)


if __name__ == "__main__":
    main()
