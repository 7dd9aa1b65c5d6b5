"""Which files of a server's disk a drill copies: with them the state is the same as with all."""

from __future__ import annotations

import pytest

from tests.drills.disks import loaded_from
from tests.memory_files import BytesDirectory
from tests.unit.zkdata_fixtures import VERSIONS, recorded_files
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.snapname import snapshot_files
from zkmigrate.zookeeper.data.tree import Tree, diff, load_tree


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["standalone", "observer"])
def test_what_is_copied_of_a_disk_holds_the_same_state(version: str, kind: str) -> None:
    files = recorded_files(version, kind)
    same_state(files, files)


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_a_newest_snapshot_that_is_half_written_is_done_without(version: str) -> None:
    """3.4.14 has no second snapshot to fall back on."""
    files = recorded_files(version, "standalone")
    newest = snapshot_files(BytesDirectory(files))[0].name
    assert same_state(files | {newest: files[newest][:-20]}, files).snapshot != newest


def same_state(files: dict[str, bytes], whole: dict[str, bytes]) -> Tree:
    """The tree that what is copied of ``files`` becomes: it must be the one of ``whole``."""
    copied = {name: files[name] for name in loaded_from(BytesDirectory(files))}
    right, left = (load_tree(BytesDirectory(each), chroot=Chroot("/kafka")) for each in (copied, whole))
    assert (left.zxid, left.sessions, left.owners) == (right.zxid, right.sessions, right.owners)
    assert left.nodes
    assert diff(left, right) == ()
    return right


def test_a_disk_without_a_snapshot_to_fall_back_on_is_copied_from_its_first_log_on() -> None:
    files = dict.fromkeys(("log.1", "log.5", "snapshot.7", "log.9", "acceptedEpoch"), b"x")
    assert loaded_from(BytesDirectory(files)) == ["snapshot.7", "log.1", "log.5", "log.9"]
    assert loaded_from(BytesDirectory(files | {"snapshot.9": b"x"})) == [
        "snapshot.9", "snapshot.7", "log.5", "log.9",
    ]  # fmt: skip
