"""Compare ways to find the largest zxid of a subtree: ``python -m bench.subtree``.

A real server gets trees of 1,000, 50,000 and 500,000 znodes, shaped as topics with partitions. Then three
ways take turns on the same tree:

- kazoo, which requests one znode after the other;
- the walk over the wire with windows of several widths;
- the newest snapshot with the log after it, from the server's files while it runs.

All must find the same znodes and the same three zxids.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Create, SetData
from kazoo.security import OPEN_ACL_UNSAFE

from bench.spread import compared, in_turn, out_option, save, show_compared
from bench.zookeeper import send, server
from zkmigrate.zookeeper.clients.login import OPEN
from zkmigrate.zookeeper.clients.session import Limits
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.snapname import snapshot_files
from zkmigrate.zookeeper.data.subtree import Extent
from zkmigrate.zookeeper.disks.location import Disks, Place
from zkmigrate.zookeeper.disks.subtree import Answer, from_disk, from_server

ROOT = "/kafka"
SIZES = (1_000, 50_000, 500_000)
WINDOWS = (1, 10, 100, 500)
IN_FLIGHT = 500
LARGE = 500_000
"""From this number of znodes on kazoo takes minutes, so its number of rounds is set apart."""

PEER = "kazoo, one by one"
_PER_TOPIC = 99  # znodes below a topic
DATA = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2,3]}'
_RECORD = 2 << 20

Found = tuple[int, tuple[int, str], tuple[int, str], tuple[int, str]]
"""The number of znodes, and the largest czxid, mzxid and pzxid, each with its path."""


def paths(znodes: int) -> Iterator[str]:
    """Yield this many paths, parents first: the root, then topics with their partitions' states."""
    yield ROOT
    topic = ""
    for n in range(znodes - 1):
        if n % (_PER_TOPIC + 1) == 0:
            topic = f"{ROOT}/topic-{n // (_PER_TOPIC + 1):06d}"
            yield topic
        else:
            yield f"{topic}/partition-{n % (_PER_TOPIC + 1):03d}"


def fill(port: int, znodes: int) -> None:
    """Create the znodes with many requests in flight, then write one in a hundred once more."""

    def requests() -> Iterator[Create | SetData]:
        for path in paths(znodes):
            yield Create(path, DATA, OPEN_ACL_UNSAFE, 0)
        for n, path in enumerate(paths(znodes)):
            if n % 100 == 50:
                yield SetData(path, DATA, -1)

    send(port, requests(), IN_FLIGHT)


def by_kazoo(client: KazooClient) -> Found:
    """Walk the tree plainly: one request, its answer, the next request."""
    extent = Extent()
    left = [ROOT]
    while left:
        path = left.pop()
        names, stat = client.get_children(path, include_data=True)
        extent.take(path, stat.czxid, stat.mzxid, stat.pzxid)
        left += [f"{path}/{name}" for name in names]
    return found(extent)


def found(extent: Extent) -> Found:
    czxid, mzxid, pzxid = ((each.zxid, each.path) for each in (extent.czxid, extent.mzxid, extent.pzxid))
    return extent.znodes, czxid, mzxid, pzxid


def silent(_line: str) -> None:
    """Discard progress of the walk."""


def measured(port: int, folder: Path, znodes: int, rounds: int, peer_rounds: int) -> dict[str, Any]:
    """Measure every way on one tree, round after round; the peer in the first `peer_rounds` of them."""
    at = [Server("127.0.0.1", port)]

    def over_the_wire(window: int) -> Callable[[], Found]:
        return lambda: whole(from_server(at, Chroot(ROOT), window, Limits(), OPEN, silent))

    def whole(answer: Answer) -> Found:
        if answer.denied or answer.gone or answer.begin != answer.end:
            raise click.ClickException(f"the tree changed under the walk: {answer.begin:x} to {answer.end:x}")
        return found(answer.extent)

    def read() -> Answer:
        return from_disk(Disks(None), Place("", str(folder)), None, Chroot(ROOT), _RECORD, silent)

    client = KazooClient(f"127.0.0.1:{port}", timeout=30.0)
    client.start()
    ways: dict[str, Callable[[], Found]] = {PEER: lambda: by_kazoo(client)}
    ways |= {f"window of {window}": over_the_wire(window) for window in WINDOWS}
    ways["snapshot and log"] = lambda: whole(read())
    try:
        seconds, answer = in_turn(ways, rounds, limited={PEER: peer_rounds})
    finally:
        client.stop()
        client.close()
    if answer[0] != znodes:
        raise click.ClickException(f"they find {answer[0]} znodes of {znodes}")
    newest_snapshot = snapshot_files(FileDirectory(folder / "version-2"))[0]
    replayed = read().end - newest_snapshot.zxid
    return {"znodes": znodes, "replayed": replayed, **compared(seconds, PEER), "raw": seconds}


@click.command()
@click.option("--znodes", multiple=True, type=click.IntRange(2), help=f"Sizes of the trees; else {SIZES}.")
@click.option("--rounds", default=3, show_default=True, help="How often each way is timed.")
@click.option(
    "--peer-rounds", type=click.IntRange(1), help=f"Of kazoo; else as --rounds, 1 from {LARGE} znodes on."
)
@click.option(
    "--heap", default="2g", show_default=True, help="Of the server; 500,000 znodes need some 400 MB."
)
@out_option
def main(znodes: tuple[int, ...], rounds: int, peer_rounds: int | None, heap: str, out: Path | None) -> None:
    """Find the largest zxid of real trees in several ways."""
    results: dict[str, Any] = {}
    for size in znodes or SIZES:
        folder = Path(tempfile.mkdtemp(prefix="subtree-"))
        try:
            # A snapshot is due after half to all of snapCount: so there is one, with a log after it.
            with server(folder, heap, max(100, size * 2 // 3)) as port:
                began = time.monotonic()
                fill(port, size)
                click.echo(f"{size} znodes, written in {time.monotonic() - began:.1f} s", err=True)
                of_peer = min(rounds, peer_rounds or (1 if size >= LARGE else rounds))
                figures = measured(port, folder, size, rounds, of_peer)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        raw = figures.pop("raw")
        results[str(size)] = figures
        click.echo(f"{size} znodes; {figures['replayed']} transactions behind the newest snapshot")
        show_compared(raw, PEER, 1)
    save(out, results)


if __name__ == "__main__":
    main()
