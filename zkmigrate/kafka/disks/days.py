"""What ``collect --broker-dirs`` keeps of a broker: the rows of all its segments in OUT/NAME/DAY.parquet, and
what an unfinished run has read in OUT/NAME/segments.part."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from zkmigrate.kafka.disks.segments import Segment
from zkmigrate.zookeeper.disks.manifest import DAY, PART, Entry, Manifest

Key: TypeAlias = tuple[str, str, str]
"""A segment: its directory, folder and file."""

_COLUMNS = (
    "dir", "folder", "file", "bytes", "modified", "first_timestamp", "last_timestamp", "evidence",
    "record_bytes", "next_offset", "rest", "corrupt",
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """A segment as it was read. size, modified_ms: of its log then."""

    size: int
    modified_ms: int | None
    segment: Segment


def newest(manifest: Manifest) -> dict[str, Entry]:
    """The newest day of each broker, by name."""
    return {server: entry for (server, name), entry in sorted(manifest.files.items()) if DAY.fullmatch(name)}


def read_day(path: Path) -> dict[Key, Seen]:
    """The segments of a day that were read without an error. Raises OSError or ValueError for a file that is
    not such a day."""
    try:
        table = pq.read_table(path, columns=list(_COLUMNS))
        columns = [_values(table.column(name)) for name in _COLUMNS]
    except (pa.ArrowException, KeyError) as error:
        raise ValueError(str(error)) from error
    found: dict[Key, Seen] = {}
    for row in zip(*columns, strict=True):
        folder, file, size, modified, first, last, evidence, end, after, rest, corrupt = row[1:]
        if file is not None and corrupt is None:
            # A time of the file counts as the records': a segment is only taken from here if its file has it.
            segment = Segment(_ms(first), _ms(last), evidence or "", end, after, rest or "")
            found[row[0], folder, file] = Seen(size, _ms(modified), segment)
    return found


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Times as microseconds."""
    return list((column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist())


def _ms(micros: int | None) -> int | None:
    return None if micros is None else micros // 1000


class Journal:
    """The segments that an unfinished run has read, a line each."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"segments{PART}"

    def load(self) -> dict[Key, Seen]:
        """Of an earlier run, without a line that a crash cut off."""
        found: dict[Key, Seen] = {}
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        for line in lines:
            try:
                one = json.loads(line)
                seen = Seen(one["size"], one["modified_ms"], Segment(**one["segment"]))
                found[one["dir"], one["folder"], one["file"]] = seen
            except (ValueError, KeyError, TypeError):
                continue
        return found

    @contextmanager
    def adding(self) -> Iterator[Callable[[Key, Seen], None]]:
        """A function that adds one, for the block."""
        with self._path.open("a", encoding="ascii", buffering=1) as file:
            file.write("\n")  # behind a line that a crash cut off

            def add(key: Key, seen: Seen) -> None:
                file.write(
                    json.dumps(dict(zip(("dir", "folder", "file"), key, strict=True)) | asdict(seen)) + "\n"
                )

            yield add

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
