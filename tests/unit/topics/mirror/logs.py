"""Logs on disk for tests, and what a read_committed consumer sees of them, told record by record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path

from tests.unit.topics.mirror.batches import sent
from zkmigrate.topics.mirror.clients.codecs import KafkaCodecs
from zkmigrate.topics.mirror.rules import records
from zkmigrate.topics.mirror.rules.batch import Batch
from zkmigrate.topics.mirror.rules.difference import Read, named
from zkmigrate.topics.mirror.rules.records import Record, varint, write

CODECS = KafkaCodecs()


def told(batches: Sequence[Batch]) -> tuple[list[Read], int]:
    """The committed records and the last stable offset: a transaction's wait for its marker."""
    seen: list[Read] = []
    waiting: dict[int, list[Read]] = {}
    begun: dict[int, int] = {}
    for batch in batches:
        found = list(records.seen(batch, CODECS))
        if batch.control:
            begun.pop(batch.producer_id, None)
            held = waiting.pop(batch.producer_id, [])
            seen += [] if records.aborts(batch, CODECS) else held
        elif batch.transactional:
            begun.setdefault(batch.producer_id, batch.base_offset)
            waiting.setdefault(batch.producer_id, []).extend(found)
        else:
            seen += found
    stable = min([batches[-1].next_offset if batches else 0, *begun.values()])
    return sorted(one for one in seen if one[0] < stable), stable


def first_difference(source: Sequence[Read], target: Sequence[Read]) -> tuple[int, str]:
    """How many records are equal, and the first difference; empty without one."""
    pairs = enumerate(zip_longest(source, target))
    found = next(((n, named(*pair)) for n, pair in pairs if pair[0] != pair[1]), None)
    return found or (len(source), "")


def body(key: bytes | None, value: bytes | None, headers: Mapping[str, bytes]) -> bytes:
    """Of a record, as on the wire."""
    out = _field(key) + _field(value) + varint(len(headers))
    return out + b"".join(_field(name.encode()) + _field(told) for name, told in headers.items())


def _field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def holding(reads: Sequence[Read], codec: int = 0) -> Batch:
    """A batch with exactly these records, at least one."""
    first, ms, _ = reads[0]
    made = [Record(0, at_ms - ms, at - first, one) for at, at_ms, one in reads]
    codec, payload = CODECS.pack(codec, write(made))
    most = max(at_ms for _, at_ms, _ in reads)
    return Batch(first, 0, codec, made[-1].delta, ms, most, -1, -1, -1, len(made), payload)


def segments(batches: Sequence[Batch], cuts: Sequence[int] = ()) -> dict[str, bytes]:
    """The files of a log that begins a new one before each of these batches, by name."""
    bounds = sorted({0, *(cut for cut in cuts if 0 < cut < len(batches)), len(batches)})
    parts = [batches[one:other] for one, other in pairwise(bounds)]
    return {f"{part[0].base_offset:020}.log": sent(*part) for part in parts}


def put(
    folder: Path,
    partitions: Mapping[str, Mapping[str, bytes]],
    starts: Mapping[str, int] = {},
    watermarks: Mapping[str, int] = {},
) -> str:
    """A broker's log directory. partitions: the files of each folder; starts, watermarks: its checkpoints, by
    folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.properties").write_text("broker.id=1\n")
    for name, files in partitions.items():
        (folder / name).mkdir(exist_ok=True)
        for file, data in files.items():
            (folder / name / file).write_bytes(data)
    checkpoints = {"log-start-offset-checkpoint": starts, "replication-offset-checkpoint": watermarks}
    for file, offsets in checkpoints.items():
        lines = [f"{name.replace('-', ' ')} {offset}\n" for name, offset in offsets.items()]
        (folder / file).write_text(f"0\n{len(lines)}\n{''.join(lines)}")
    return str(folder)
