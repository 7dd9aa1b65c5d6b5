"""Files that belong together: all of them, or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zkmigrate.errors import UsageError
from zkmigrate.runbook.engine.files import write_all


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_all_are_written_whole(tmp_path: Path) -> None:
    write_all({tmp_path / "a": "one\n", tmp_path / "b": "two\n"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"one\n", "b": b"two\n"}


def test_one_file_in_the_way_and_none_is_written(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    with pytest.raises(UsageError, match="b already exists and was not replaced"):
        write_all({tmp_path / "a": "one", tmp_path / "b": "two"})
    assert names(tmp_path) == ["b"]
    assert (tmp_path / "b").read_text() == "mine"


def test_force_replaces_and_takes_an_earlier_plans_files_away(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    (tmp_path / "old").write_text("earlier")
    with pytest.raises(UsageError, match="old belongs to an earlier plan"):
        write_all({tmp_path / "a": "one"}, [tmp_path / "old"])
    assert names(tmp_path) == ["b", "old"]
    write_all({tmp_path / "a": "one", tmp_path / "b": "two"}, [tmp_path / "old"], force=True)
    assert names(tmp_path) == ["a", "b"]
    assert (tmp_path / "b").read_text() == "two"


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def full(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_all({tmp_path / "a": "one", tmp_path / "b": "two"})
    assert names(tmp_path) == []


def test_a_file_that_appears_meanwhile_is_kept_and_nothing_else_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def appears(fd: int) -> None:
        (tmp_path / "b").write_text("mine")

    monkeypatch.setattr(os, "fsync", appears)
    with pytest.raises(UsageError, match="b was created meanwhile by another process"):
        write_all({tmp_path / "a": "one", tmp_path / "b": "two"})
    assert names(tmp_path) == ["b"]
    assert (tmp_path / "b").read_text() == "mine"


def test_a_link_that_leads_nowhere_is_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("nowhere")
    with pytest.raises(UsageError, match="a already exists"):
        write_all({tmp_path / "a": "one"})
    assert (tmp_path / "a").is_symlink()
    assert names(tmp_path) == ["a"]


def test_a_directory_is_no_file_by_force_either(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(UsageError, match="a is a directory; needed: the name of a file"):
        write_all({tmp_path / "a": "one"}, force=True)
    assert names(tmp_path) == ["a"]


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no directory"):
        write_all({tmp_path / "none" / "a": "one"})
