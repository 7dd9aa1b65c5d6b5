"""Kafka's segments, built byte by byte; and a broker's real directory, as it was recorded."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent.parent / "recorded" / "kafka" / "log-dir"


def batch(
    offset: int,
    first_ms: int,
    last_ms: int | None = None,
    records: int = 1,
    size: int = 100,
    attributes: int = 0,
) -> bytes:
    """A record batch of format 2 of `size` bytes in all; its records are noise."""
    last = first_ms if last_ms is None else last_ms
    body = struct.pack(">ibIhiqqqhii", 0, 2, 7, attributes, records - 1, first_ms, last, -1, -1, -1, records)
    body = body.ljust(size - 12, b"\xa5")
    return struct.pack(">qi", offset, len(body)) + body


def message(offset: int, magic: int, time_ms: int = -1, size: int = 60) -> bytes:
    """A message of format 0 or 1."""
    body = struct.pack(">Ibb", 7, magic, 0) + (struct.pack(">q", time_ms) if magic else b"")
    body = body.ljust(size - 12, b"\xa5")
    return struct.pack(">qi", offset, len(body)) + body


def index(*entries: tuple[int, int]) -> bytes:
    """An offset index: (relative offset, position)."""
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def timeindex(*entries: tuple[int, int]) -> bytes:
    """A time index: (newest millisecond so far, relative offset)."""
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


def put(folder: Path, base: int, log: bytes, positions: bytes = b"", times: bytes = b"") -> None:
    """A segment with its indexes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{base:020}.log").write_bytes(log)
    (folder / f"{base:020}.index").write_bytes(positions)
    (folder / f"{base:020}.timeindex").write_bytes(times)


def unpack(target: Path) -> dict[str, Any]:
    """The recorded directory; what Kafka's own DumpLogSegments read in each segment."""
    for file in RECORDED.rglob("*.gz"):
        here = target / file.relative_to(RECORDED).with_suffix("")
        here.parent.mkdir(parents=True, exist_ok=True)
        here.write_bytes(gzip.decompress(file.read_bytes()))
    told: dict[str, Any] = json.loads((RECORDED / "expected.json").read_text())
    return told
