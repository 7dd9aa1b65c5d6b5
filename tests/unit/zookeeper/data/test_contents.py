"""What the znodes of a subtree held, from a snapshot and the log behind it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.unit.zkdata_fixtures import (
    close_payload,
    create_payload,
    delete_payload,
    multi_payload,
    payload,
    set_payload,
    snapshot_of,
)  # fmt: skip
from tests.unit.zookeeper.disks.test_prove import BROKER, NEW, OLD, disk
from zkmigrate.zookeeper.data.contents import Content, contents
from zkmigrate.zookeeper.data.errors import CorruptError, NoDataError
from zkmigrate.zookeeper.data.reader import FileDirectory

TREE = {"/kafka": b"k", "/kafka/a": b"1", "/kafkaesque": b"x", "/other": b""}
LOG = [
    create_payload(OLD + 1, "/kafka/e", b"here", ephemeral=True, session=BROKER),
    set_payload(OLD + 2, "/kafka/a", b"2"),
    set_payload(OLD + 3, "/other", b"2"),
    delete_payload(OLD + 4, "/kafka/a"),
]


def read(folder: Path, upto: int = OLD + 4) -> list[Content]:
    directory = FileDirectory(folder / "version-2")
    return list(contents(directory, directory, root="/kafka", upto=upto))


def seen(found: list[Content]) -> list[tuple[int, str, bytes | None, bool]]:
    return [(one.zxid, one.path, one.data, one.there) for one in found]


BEGUN = [(OLD, "/kafka", b"k", True), (OLD, "/kafka/a", b"1", True)]
CHANGED = [
    (OLD + 1, "/kafka/e", b"here", True),
    (OLD + 2, "/kafka/a", b"2", True),
    (OLD + 4, "/kafka/a", None, False),
]


def test_the_snapshot_then_every_change(tmp_path: Path) -> None:
    found = read(disk(tmp_path / "d", LOG, snapshot=snapshot_of(TREE)))
    assert seen(found) == [*BEGUN, *CHANGED]
    assert [one.time_ms for one in found] == [0, 0, 1000, 1000, 1000]


@pytest.mark.parametrize("paths", [["/kafka/e"], []], ids=["3.6", "3.4"])
def test_a_session_that_ends_takes_its_ephemerals(paths: list[str], tmp_path: Path) -> None:
    folder = disk(tmp_path / "d", [*LOG, close_payload(NEW + 1, BROKER, paths)], snapshot=snapshot_of(TREE))
    assert seen(read(folder)) == [*BEGUN, *CHANGED, (NEW + 1, "/kafka/e", None, False)]


def test_an_ephemeral_that_was_deleted_does_not_go_twice(tmp_path: Path) -> None:
    gone = [delete_payload(OLD + 5, "/kafka/e"), close_payload(OLD + 6, BROKER, [])]
    folder = disk(tmp_path / "d", [*LOG, *gone], snapshot=snapshot_of(TREE))
    assert seen(read(folder))[-1] == (OLD + 5, "/kafka/e", None, False)


def test_a_multi_counts_unless_it_failed(tmp_path: Path) -> None:
    failed = payload(0, -1, struct.pack(">i", -101))
    one = multi_payload(OLD + 1, set_payload(0, "/kafka/a", b"m", 2))
    log = [one, multi_payload(OLD + 2, failed, failed)]
    found = read(disk(tmp_path / "d", log, snapshot=snapshot_of(TREE)), upto=OLD + 2)
    assert seen(found) == [*BEGUN, (OLD + 1, "/kafka/a", b"m", True)]


def test_a_log_from_the_first_transaction_needs_no_snapshot(tmp_path: Path) -> None:
    first = (1 << 32) | 1
    folder = disk(tmp_path / "d", [create_payload(first, "/kafka"), create_payload(first + 1, "/kafka/a")])
    for file in (folder / "version-2").glob("snapshot.*"):
        file.unlink()
    assert seen(read(folder, upto=first + 1)) == [
        (first, "/kafka", b"d", True),
        (first + 1, "/kafka/a", b"d", True),
    ]


def test_a_hole_is_named(tmp_path: Path) -> None:
    folder = disk(tmp_path / "d", [*LOG, set_payload(OLD + 6, "/other", b"3")], snapshot=snapshot_of(TREE))
    with pytest.raises(CorruptError, match="must be continuous"):
        read(folder)


def test_a_damaged_snapshot_counts_only_where_the_log_does_not_say_it_all(tmp_path: Path) -> None:
    cut = snapshot_of(TREE)[:-9]
    assert seen(read(disk(tmp_path / "whole", LOG, snapshot=cut))) == CHANGED
    with pytest.raises((CorruptError, NoDataError)):
        read(disk(tmp_path / "part", LOG[1:], snapshot=cut))
