"""How far a stream of live logs has come, and what a micro-batch reads: without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.unit.zkdata_fixtures import build_log, create_payload, log_from, record
from zkmigrate.errors import UsageError
from zkmigrate.spark.sources import following
from zkmigrate.spark.sources.columns import Wanted
from zkmigrate.spark.sources.following import Mark, RemovedLog, StreamOptions
from zkmigrate.spark.sources.txnlog import Options, rows
from zkmigrate.zookeeper.data.errors import CorruptError, CursorError, ZkDataError
from zkmigrate.zookeeper.data.txnlog import FILE_HEADER_SIZE

PADDING = bytes(70_000)


class World:
    """Directories of servers, and a stream that follows them."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder = folder
        self.stream = replace(StreamOptions(Options((str(folder / "zk*"),))), **options)  # type: ignore[arg-type]
        self.marks: dict[str, Mark] | None = None
        self.seen: list[int] = []

    def write(self, name: str, content: bytes, server: str = "zk1") -> Path:
        path = self.folder / server / "version-2" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def grow(self, path: Path, more: bytes) -> None:
        """As the server does: over the zeros that it keeps behind its records."""
        written = path.read_bytes().rstrip(b"\0")
        path.write_bytes(written.ljust(FILE_HEADER_SIZE, b"\0") + more + PADDING)

    def permit(self) -> None:
        self.stream = replace(self.stream, options=replace(self.stream.options, permissive=True))

    def batch(self, limit: int | None = None) -> list[int | str]:
        """The zxids of one micro-batch, and why rows are corrupt. Its end goes through JSON."""
        logs = following.list_logs(self.stream.options)
        if self.marks is None:
            self.marks = following.initial_marks(logs, self.stream)
        end = through_json(following.next_marks(self.marks, logs, limit, self.stream))
        found = self.read(self.marks, end)
        self.marks = end
        self.seen += [one for one in found if isinstance(one, int)]
        return found

    def read(self, start: Mapping[str, Mark], end: Mapping[str, Mark]) -> list[int | str]:
        found: list[int | str] = []
        for one in following.plan(start, end, following.list_logs(self.stream.options), self.stream.options):
            if isinstance(one, RemovedLog):
                found.append(one.value["corrupt"])
                continue
            for portion in one.portions:
                for table in rows(portion, Wanted(), self.stream.options):
                    columns = table.column("zxid").to_pylist(), table.column("corrupt").to_pylist()
                    found += [why or zxid for zxid, why in zip(*columns, strict=True)]
        return found

    @property
    def mark(self) -> Mark:
        assert self.marks is not None
        return self.marks[str(self.folder / "zk1" / "version-2")]


def through_json(marks: Mapping[str, Mark]) -> dict[str, Mark]:
    text = json.dumps({folder: asdict(mark) for folder, mark in marks.items()})
    return {folder: Mark(**fields) for folder, fields in json.loads(text).items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def created(*zxids: int) -> bytes:
    return b"".join(record(create_payload(zxid, f"/kafka/n{zxid}")) for zxid in zxids)


# --- growing and rolling


def test_a_growing_log_is_read_to_its_last_whole_record(world: World) -> None:
    path = world.write("log.1", build_log(1, 3) + PADDING)
    assert world.batch() == [1, 2, 3]
    assert world.batch() == []
    torn = created(4)
    for cut in (3, 11, 12, 40, len(torn) - 1):
        world.grow(path, torn[:cut])
        assert world.batch() == []
        path.write_bytes(build_log(1, 3) + PADDING)
    world.grow(path, torn + created(5)[:-1])
    assert world.batch() == [4]
    path.write_bytes(build_log(1, 5) + PADDING)
    assert world.batch() == [5]


def test_a_log_that_ends_without_zeros(world: World) -> None:
    path = world.write("log.1", build_log(1, 3)[:-5])
    assert world.batch() == [1, 2]
    path.write_bytes(build_log(1, 3))
    assert world.batch() == [3]


def test_the_next_log_is_gone_on_to_when_it_is_there(world: World) -> None:
    path = world.write("log.1", build_log(1, 2) + PADDING)
    assert world.batch() == [1, 2]
    world.grow(path, created(3))
    new = world.write("log.4", b"")
    assert world.batch() == [3]
    assert world.mark.file == "log.1"
    new.write_bytes(log_from([]) + PADDING)
    assert world.batch() == []
    assert world.mark == Mark("log.4", FILE_HEADER_SIZE, 3)
    world.grow(new, created(4))
    assert world.batch() == [4]


def test_a_torn_end_stays_unread_when_the_server_begins_a_new_log(world: World) -> None:
    world.write("log.1", build_log(1, 2) + created(3)[:-4])
    assert world.batch() == [1, 2]
    world.write("log.3", build_log(3, 2) + PADDING)
    assert world.batch() == [3, 4]


def test_several_logs_at_once_and_from_the_end(world: World) -> None:
    for first in (1, 11, 21):
        world.write(f"log.{first:x}", build_log(first, 10) + PADDING)
    latest = World(world.folder, latest=True)
    assert world.batch() == list(range(1, 31))
    assert latest.batch() == []
    assert latest.mark == world.mark
    world.grow(world.folder / "zk1/version-2/log.15", created(31))
    assert world.batch() == latest.batch() == [31]


def test_a_server_that_comes_later_is_read_from_its_beginning(world: World) -> None:
    world.write("log.1", build_log(1, 2))
    assert world.batch() == [1, 2]
    world.write("log.1", build_log(1, 2), "zk2")
    assert world.batch() == []
    assert world.batch() == [1, 2]
    assert world.batch() == []


# --- micro-batches


@pytest.mark.parametrize("limit", [1, 70, 500, 3000, 10**9])
def test_a_limit_cuts_between_records_and_every_one_is_read_once(limit: int, world: World) -> None:
    for server in ("zk1", "zk2"):
        for first in (1, 41):
            world.write(f"log.{first:x}", build_log(first, 40) + PADDING, server)
    longest = len(created(80))
    sizes = []
    while len(world.seen) < 160:
        before = dict(world.marks or {})
        found = world.batch(limit)
        assert found or before != world.marks
        sizes.append(len(found))
        assert len(found) * len(created(1)) <= limit + 2 * longest
    assert sorted(world.seen) == sorted([*range(1, 81), *range(1, 81)])
    assert world.batch(limit) == []
    assert len(sizes) > 1 or limit == 10**9


def test_a_micro_batch_is_the_same_when_it_is_read_again(world: World) -> None:
    path = world.write("log.1", build_log(1, 5) + PADDING)
    start = following.initial_marks(following.list_logs(world.stream.options), world.stream)
    end = following.next_marks(start, following.list_logs(world.stream.options), None, world.stream)
    world.grow(path, created(6))
    world.write("log.7", build_log(7, 3))
    assert world.read(start, end) == [1, 2, 3, 4, 5]
    again = following.next_marks(end, following.list_logs(world.stream.options), None, world.stream)
    assert world.read(end, again) == [6, 7, 8, 9]


def test_a_long_range_is_split(world: World) -> None:
    made = [create_payload(zxid, f"/kafka/{zxid}", bytes(3000)) for zxid in range(1, 3001)]
    world.write("log.1", log_from(made) + PADDING)
    world.stream = replace(world.stream, options=replace(world.stream.options, split=1 << 20))
    assert world.batch(1000) == [1]
    start = world.marks
    assert start is not None
    logs = following.list_logs(world.stream.options)
    end = following.next_marks(start, logs, None, world.stream)
    assert len(following.plan(start, end, logs, world.stream.options)) > 2
    assert world.read(start, end) == list(range(2, 3001))


def test_what_is_written_after_the_freeze_waits(world: World) -> None:
    path = world.write("log.1", build_log(1, 5) + PADDING)
    assert world.batch(1) == [1]
    start = world.marks
    assert start is not None
    logs = following.freeze(start, following.list_logs(world.stream.options), world.stream.options)
    world.grow(path, created(6))
    world.write("log.7", build_log(7, 3))
    end = following.next_marks(start, logs, None, world.stream)
    assert world.read(start, end) == [2, 3, 4, 5]
    assert following.next_marks(end, logs, None, world.stream) == end


# --- what is gone, and damage


def test_a_log_that_was_purged_is_told_with_its_zxids(world: World) -> None:
    path = world.write("log.1", build_log(1, 4) + PADDING)
    assert world.batch(60) == [1]
    world.write("log.5", build_log(5, 2))
    path.unlink()
    with pytest.raises(CursorError, match=r"log\.1 at offset \d+: .*missing are 0x2 to 0x4; log\.5 is the"):
        world.batch()
    world.permit()
    told, *rest = world.batch()
    assert "missing are 0x2 to 0x4" in str(told)
    assert rest == [5, 6]
    assert world.batch() == []


def test_a_log_that_was_read_to_its_end_is_not_missed(world: World) -> None:
    path = world.write("log.1", build_log(1, 4) + PADDING)
    assert world.batch() == [1, 2, 3, 4]
    world.write("log.5", build_log(5, 2))
    path.unlink()
    assert world.batch() == [5, 6]


def test_a_later_epoch_does_not_tell_how_a_purged_log_ended(world: World) -> None:
    path = world.write("log.1", build_log(1, 4) + PADDING)
    assert world.batch() == [1, 2, 3, 4]
    world.write("log.200000001", build_log(0x200000001, 2))
    path.unlink()
    with pytest.raises(CursorError, match="missing are 0x5 to 0x200000000"):
        world.batch()


def test_a_purge_between_planning_and_reading(world: World) -> None:
    paths = [world.write(f"log.{n:x}", build_log(n, 10)) for n in (1, 11, 21)]
    start = following.initial_marks(following.list_logs(world.stream.options), world.stream)
    end = following.next_marks(start, following.list_logs(world.stream.options), None, world.stream)
    paths[0].unlink()
    paths[1].unlink()
    with pytest.raises(CursorError, match="missing are 0x1 to 0x14"):
        world.read(start, end)
    world.permit()
    assert world.read(start, end)[1:] == list(range(21, 31))
    paths[2].unlink()
    world.write("log.29", build_log(41, 2))
    (told,) = world.read(start, end)
    assert "missing are 0x1 to 0x1e; log.29 is the oldest log left" in str(told)


def test_all_logs_are_gone(world: World) -> None:
    world.write("log.1", build_log(1, 4), "zk2")
    path = world.write("log.1", build_log(1, 4))
    world.batch()
    path.unlink()
    with pytest.raises(CursorError, match="missing are 0x5 and later; no later log is left"):
        world.batch()


def test_a_log_that_was_cut_behind_what_was_read(world: World) -> None:
    path = world.write("log.1", build_log(1, 4))
    assert world.batch() == [1, 2, 3, 4]
    path.write_bytes(build_log(1, 2))
    with pytest.raises(CursorError, match="it was cut since"):
        world.batch()
    path.write_bytes(build_log(1, 2) + PADDING)
    with pytest.raises(CursorError, match="no record ends where the cursor stands"):
        world.batch()
    path.write_bytes(build_log(1, 4))
    world.write("log.3", build_log(3, 1))
    with pytest.raises(CursorError, match=r"log\.3 comes behind it"):
        world.batch()


def test_damage_is_no_end(world: World) -> None:
    content = bytearray(build_log(1, 6))
    content[content.index(b"/kafka/n3")] ^= 1
    path = world.write("log.1", bytes(content) + PADDING)
    assert world.batch() == [1, 2]
    with pytest.raises(CorruptError, match=r"log\.1 at offset \d+: the record's checksum does not match"):
        world.batch()
    world.permit()
    told, *rest = world.batch()
    assert "checksum does not match" in str(told)
    assert rest == [4, 5, 6]
    world.grow(path, created(7))
    assert world.batch() == [7]


@pytest.mark.parametrize("limit", [None, 1, 100])
def test_damage_in_a_finished_log(limit: int | None, world: World) -> None:
    content = bytearray(build_log(1, 6))
    content[content.index(b"/kafka/n3")] ^= 1
    world.write("log.1", bytes(content))
    world.write("log.7", build_log(7, 2))
    world.permit()
    found: list[int | str] = []
    for _ in range(12):
        found += world.batch(limit)
    assert [one for one in found if isinstance(one, int)] == [1, 2, 4, 5, 6, 7, 8]
    assert len(found) == 8


def test_a_file_that_is_no_log(world: World) -> None:
    world.write("log.1", b"no log of ZooKeeper")
    with pytest.raises(ZkDataError, match=r"log\.1 at offset 0: starts with"):
        world.batch()


# --- what is asked


def test_options() -> None:
    found = following.parse_stream_options(
        {"path": "/x", "STARTINGOFFSET": "latest", "maxBytesPerTrigger": "5", "data": "true"}
    )
    assert found == StreamOptions(Options(("/x",), wanted=Wanted(data=True)), latest=True, max_bytes=5)
    for bad in ({"startingOffset": "1"}, {"maxBytesPerTrigger": "1m"}, {"startOffset": "latest"}):
        with pytest.raises(UsageError):
            following.parse_stream_options({"path": "/x", **bad})


def test_paths_are_whole_in_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.write("log.1", build_log(1, 2), "zk-ä 1")
    monkeypatch.chdir(tmp_path)
    found = following.list_logs(Options(("zk-ä 1",)))
    assert list(found) == [os.fspath(tmp_path / "zk-ä 1" / "version-2")]
    assert [log.file.server for log in found[next(iter(found))]] == ["zk-ä 1"]
