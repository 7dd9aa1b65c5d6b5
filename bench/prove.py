"""Time and memory of the comparison of two subtrees: ``python -m bench.prove``.

``zkmigrate prove digest`` compares two directories with the same snapshot of N znodes and 200 transactions
behind it. So does a program that holds both trees and compares them znode by znode, as the run does before
the window. Each is its own process; the kernel counts its time and peak memory. The znodes have 100 bytes of
data.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bench.spread import out_option, save, shown, spread

SIZES = (50_000, 1_000_000)
LARGEST_PLAIN = 1_000_000
"""The plain way holds both trees: 2 GB and more for this many."""

SEALED_AT = 1 << 32
CHROOT = "/kafka"
_PER_TOPIC = 100
_SET = 5
_PLAIN = """
import sys
from pathlib import Path
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.tree import diff, load_tree
one, other = (load_tree(FileDirectory(Path(d) / "version-2"), chroot="/kafka") for d in sys.argv[1:])
sys.exit(1 if diff(one, other) else 0)
"""


def znodes(count: int) -> Iterator[str]:
    """The paths of the chroot and of ``count - 1`` topics and partitions below it."""
    yield CHROOT
    for n in range(count - 1):
        topic = f"{CHROOT}/topic-{n // _PER_TOPIC:07d}"
        yield topic if n % _PER_TOPIC == 0 else f"{topic}/{n % _PER_TOPIC:02d}"


def write_directory(folder: Path, count: int) -> None:
    """A ``version-2`` with a sealed snapshot and a log of setData behind it."""
    inside = folder / "version-2"
    inside.mkdir(parents=True)
    stat = struct.pack(">qqqqiiiqq", 5, 5, 1000, 1000, 0, 0, 0, 0, 5)
    data = struct.pack(">i", 100) + b"x" * 100
    with (inside / f"snapshot.{SEALED_AT:x}").open("wb") as file:
        summed = 1

        def put(block: bytes) -> None:
            nonlocal summed
            summed = zlib.adler32(block, summed)
            file.write(block)

        put(struct.pack(">4siqii", b"ZKSN", 2, -1, 0, 0))
        put(struct.pack(">i", 0) + struct.pack(">i", 0) + struct.pack(">q", -1) + stat)
        for path in znodes(count):
            name = path.encode()
            put(struct.pack(">i", len(name)) + name + data + struct.pack(">q", -1) + stat)
        put(struct.pack(">i", 1) + b"/")
        file.write(struct.pack(">q", summed) + struct.pack(">i", 1) + b"/")
    records = b""
    for n in range(1, 201):
        name = f"{CHROOT}/topic-{n % max(1, count // _PER_TOPIC):07d}".encode()
        body = struct.pack(">i", len(name)) + name + data + struct.pack(">i", n)
        payload = struct.pack(">qiqqi", 7, n, SEALED_AT + n, 2000 + n, _SET) + body
        records += struct.pack(">qi", zlib.adler32(payload), len(payload)) + payload + b"B"
    header = b"ZKLG" + struct.pack(">iq", 2, 0)
    (inside / f"log.{SEALED_AT + 1:x}").write_bytes(header + records)


def run_measured(argv: list[str]) -> tuple[float, float]:
    """Seconds and peak memory in MB of a process that has to end with 0. Raises ClickException."""
    began = time.monotonic()
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        files = [(os.POSIX_SPAWN_DUP2, nothing, 0), (os.POSIX_SPAWN_DUP2, nothing, 1)]
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=files)
        _, status, used = os.wait4(pid, 0)
    finally:
        os.close(nothing)
    if code := os.waitstatus_to_exitcode(status):
        raise click.ClickException(f"{' '.join(argv[:4])} ended with {code}")
    return time.monotonic() - began, used.ru_maxrss / 1024


@click.command()
@click.option("--znodes", "sizes", multiple=True, type=int, help="Of each tree; may be given again.")
@click.option("--rounds", default=3, show_default=True, help="Of each way, in turn.")
@out_option
def main(sizes: tuple[int, ...], rounds: int, out: Path | None) -> None:
    """Compare two equal trees in both ways, and print time and memory."""
    results: list[dict[str, Any]] = []
    for count in sizes or SIZES:
        with tempfile.TemporaryDirectory(prefix="zkm-bench-prove-") as directory:
            sides = [Path(directory) / name for name in ("source", "dest")]
            for side in sides:
                write_directory(side, count)
            one, other = map(str, sides)
            ways = {
                "prove": [
                    sys.executable, "-m", "zkmigrate", "prove", "digest", "--source-dir", one,
                    "--dest-dir", other, "--chroot", CHROOT,
                ],
            }  # fmt: skip
            if count <= LARGEST_PLAIN:
                ways["both trees held"] = [sys.executable, "-c", _PLAIN, one, other]
            figures: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, argv in ways.items():
                    figures[way].append(run_measured(argv))
        click.echo(f"{count} znodes, {rounds} rounds")
        body: dict[str, Any] = {"znodes": count}
        for way, found in figures.items():
            seconds, memory = [s for s, _ in found], [m for _, m in found]
            click.echo(shown(way, seconds))
            click.echo(shown(f"{way}: memory", memory, "MB"))
            body[way] = {"seconds": spread(seconds), "memory_mb": spread(memory)}
        results.append(body)
    save(out, results)


if __name__ == "__main__":
    main()
