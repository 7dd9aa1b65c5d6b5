"""How fast the newest transaction is found: ``python -m bench.zxid_tail``.

A real server writes two logs: large writes of 1 to 100 kB, and small ones as Kafka makes them. Then, round
after round on the same files: ZooKeeper's own LogFormatter, which prints every record and ends with the
newest; a plain walk over all records; the tail as a call, and as the command a shell starts; and the tail
over an SFTP connection that is open, through a real sshd. All have to name the same zxid.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench.spread import shown, spread
from bench.zookeeper import VERSION, server
from tests.unit import sshd
from zkmigrate.lab import provision
from zkmigrate.lab.load import zkmessages as messages
from zkmigrate.lab.load.zkclient import Client
from zkmigrate.lab.load.zkloop import settle, turn
from zkmigrate.zookeeper.data.logdir import log_files, walk
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.disks.location import Place, open_disks

IN_FLIGHT = 200
NO_SNAPSHOT = 1_000_000_000
"""Transactions between two snapshots: the server takes none, so that it writes one log."""

CREATE, SET = 1, 5
_START_S, _WRITE_S, _STOCK_S = 60.0, 1800.0, 1800.0
_ZXID = re.compile(rb"zxid (0x[0-9a-f]+)")


@dataclass(frozen=True)
class Writes:
    """What a server is given to log: so many megabytes in writes of this many bytes, on this many znodes."""

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
    left = int(writes.megabytes * 1e6 * scale)
    with server(folder, "512m", NO_SNAPSHOT) as port:
        client = Client([("127.0.0.1", port)], 40_000, lambda _event, _fields: None)
        if not settle([client], lambda: client.connected, _START_S):
            raise click.ClickException(f"the server did not answer, see {folder / 'server.log'}")
        failed: list[int] = []

        def answered(reply: messages.Reply) -> None:
            if reply.error:
                failed.append(reply.error)

        for n in range(writes.znodes):
            client.submit(CREATE, messages.create_request(f"/n{n}", b"", 0), answered)
        deadline, sent = time.monotonic() + _WRITE_S, 0
        while left > 0 and not failed and time.monotonic() < deadline:
            while client.connected and client.in_flight < IN_FLIGHT and left > 0:
                body = bodies[sent % len(bodies)]
                client.submit(SET, messages.set_request(f"/n{sent % writes.znodes}", body), answered)
                sent, left = sent + 1, left - len(body)
            turn([client], time.monotonic_ns() + 50_000_000)
        if failed or left > 0 or not settle([client], lambda: not client.in_flight, _START_S):
            raise click.ClickException(f"not all was written: {failed[:3]}, {left} bytes left")
        client.shut()
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


def timed(call: Callable[[], int], times: int = 1) -> tuple[int, float]:
    """The zxid, and the seconds of one call."""
    began = time.perf_counter()
    for _ in range(times):
        zxid = call()
    return zxid, (time.perf_counter() - began) / times


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

        ways: dict[str, tuple[Callable[[], int], int]] = {
            "LogFormatter": (lambda: stock(folder / log.name), 1),
            "walk": (walked, 1),
            "tail": (lambda: newest(directory).zxid, 20),
            "tail, as a command": (command, 1),
            "tail over SFTP": (distant, 5),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            zxids = set()
            for name, (call, times) in ways.items():
                zxid, took = timed(call, times)
                zxids.add(zxid)
                seconds[name].append(took)
            if len(zxids) != 1:
                raise click.ClickException(f"they name different transactions: {sorted(map(hex, zxids))}")
    tail = newest(directory)
    return {
        "log_bytes": tail.end,
        "records": tail.zxid,
        "bytes_read": tail.bytes_read,
        "reads": tail.reads,
        "seconds": {name: spread(figures) for name, figures in seconds.items()},
        "times_faster": {
            name: spread([s / mine for s, mine in zip(seconds["LogFormatter"], figures, strict=True)])
            for name, figures in seconds.items()
            if name != "LogFormatter"
        },
        "raw": seconds,
    }


@click.command()
@click.option("--rounds", default=5, show_default=True, help="How often each way is timed.")
@click.option("--scale", default=1.0, show_default=True, help="Of the logs' sizes, to try the program.")
@click.option("--out", type=click.Path(path_type=Path), help="A JSON file for the figures.")
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
                for name, seconds in raw.items():
                    click.echo(shown(f"  {name}", [s * 1000 for s in seconds], "ms"))
                for name, ratio in figures["times_faster"].items():
                    click.echo(
                        f"  {name}: {ratio['median']:.0f} times faster than LogFormatter "
                        f"({ratio['least']:.0f} to {ratio['most']:.0f})"
                    )
                shutil.rmtree(directory.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
