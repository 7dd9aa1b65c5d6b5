"""Make an archive of the Java classes that Spark loads, by ``python -m zkmigrate.spark.archive``.

With the archive, a JVM maps these classes into memory. Without it, a JVM reads, checks and links each class
at every start. The archive fits only this Python environment's Spark and this machine's Java. A JVM ignores
an archive that does not fit.
"""

from __future__ import annotations

import os
import struct
import subprocess
import tempfile
import zlib
from pathlib import Path

import click

from zkmigrate.spark.request import Place, Request
from zkmigrate.spark.session import ARCHIVE, Bounds
from zkmigrate.spark.verb import analyze
from zkmigrate.zookeeper.data.chroot import Chroot

_JOBS = ("tenants", "writers", "quiet", "sessions")
_END_S = 1800.0
"""The time in seconds within which the JVM must write the archive. A fast machine needs about ten seconds."""


def _log() -> bytes:
    """Return a transaction log in which one session opens and creates a few znodes."""
    acl = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
    bodies = [(-10, struct.pack(">i", 6000))]
    for path in (b"/kafka", b"/kafka/a", b"/other"):
        named = struct.pack(">i", len(path)) + path + struct.pack(">i", 1) + b"d"
        bodies.append((1, named + acl + struct.pack(">?i", False, 1)))
    found = struct.pack(">4siq", b"ZKLG", 2, 0)
    for zxid, (kind, body) in enumerate(bodies, 1):
        record = struct.pack(">qiqqi", 1, zxid, zxid, 1_000_000_000_000 + 1000 * zxid, kind) + body
        found += struct.pack(">qi", zlib.adler32(record), len(record)) + record + b"B"
    return found


def _make_archive(archive: Path) -> None:
    """Run jobs in a JVM that writes the archive when it ends, and wait until the JVM has ended."""
    from pyspark import SparkContext

    with tempfile.TemporaryDirectory(prefix="zkmigrate-archive-") as folder:
        (Path(folder) / "log.1").write_bytes(_log())
        request = Request((Place("zk", folder),), chroot=Chroot("/kafka"))
        bounds = Bounds("local[1]", progress=False, java=f"-XX:ArchiveClassesAtExit={archive}")
        out = Path(folder) / "out"
        analyze(_JOBS, request, bounds, out, lambda _line: None, lambda _line: None, as_json=True)
    java: subprocess.Popen[bytes] = SparkContext._gateway.proc  # type: ignore[union-attr]
    assert java.stdin is not None
    java.stdin.close()
    java.wait(_END_S)  # raises subprocess.TimeoutExpired


def main() -> None:
    """Make the archive, or replace it."""
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    ARCHIVE.unlink(missing_ok=True)  # a JVM that uses an archive writes none
    new = ARCHIVE.with_name(f"{ARCHIVE.name}.{os.getpid()}")
    try:
        _make_archive(new)
        if not new.is_file():
            raise click.ClickException(f"Java did not write {new}. Needed: Java 17 or newer")
        new.replace(ARCHIVE)
    finally:
        new.unlink(missing_ok=True)
    click.echo(f"{ARCHIVE}: {ARCHIVE.stat().st_size >> 20} MB")


if __name__ == "__main__":
    main()
