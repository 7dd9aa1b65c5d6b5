"""The hold file: nobody's hold is lost to another's, and no file in its place fails or stops the run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from zkmigrate.errors import LockedError
from zkmigrate.runbook.engine import run_file
from zkmigrate.runbook.engine.hold_file import NAME, RELEASED, Hold, HoldFile

ANN = Hold(at="roll", why="lunch", by="ann@ops", place="pts/1", since=5.0)
BERT = Hold(at="", why="wait", by="bert@ops", since=6.0)


@pytest.fixture
def file(tmp_path: Path) -> HoldFile:
    return HoldFile(tmp_path)


def wanted(file: HoldFile) -> Hold:
    hold = file.wanted()
    assert hold is not None
    return hold


def test_what_is_placed_is_wanted_until_it_is_answered(file: HoldFile, tmp_path: Path) -> None:
    assert file.wanted() is None
    assert file.place(ANN) is None
    hold = wanted(file)
    assert (hold.body(), hold.wrong) == (ANN.body(), "")
    assert sorted(hold.body()) == ["at", "by", "place", "since", "why"]
    assert hold.words() == "ann@ops: lunch"
    assert hold.mark
    assert (tmp_path / NAME).stat().st_mode & 0o077 == 0
    file.answered()
    file.answered()
    assert file.wanted() is None
    assert list(tmp_path.iterdir()) == []


def test_the_hold_of_somebody_else_or_one_that_does_not_read_is_not_replaced(
    file: HoldFile, tmp_path: Path
) -> None:
    file.place(ANN)
    with pytest.raises(LockedError, match="ann@ops: lunch"):
        file.place(BERT)
    assert wanted(file).by == "ann@ops"
    (tmp_path / NAME).write_text("{")
    with pytest.raises(LockedError, match="cannot be read: not JSON"):
        file.place(ANN)


def test_ones_own_hold_is_replaced_and_told_apart(file: HoldFile) -> None:
    file.place(ANN)
    first = wanted(file)
    assert file.place(Hold(by="ann@ops", why="later", since=9.0)) == first
    assert (wanted(file).why, wanted(file).mark != first.mark) == ("later", True)


def test_one_that_comes_in_between_is_not_overwritten(
    file: HoldFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = run_file.write

    def late(path: Path, body: dict[str, object]) -> None:
        write(path, body)
        write(tmp_path / NAME, ANN.body())

    monkeypatch.setattr(run_file, "write", late)
    with pytest.raises(LockedError, match="somebody else has just made a hold"):
        file.place(BERT)
    assert wanted(file).by == "ann@ops"
    assert [p.name for p in tmp_path.iterdir()] == [NAME]


def test_a_release_says_who_it_was_and_takes_the_hold_away(file: HoldFile) -> None:
    assert file.released_by() == ""
    file.place(ANN)
    released = file.release("bert@ops", "pts/2", 8.0)
    assert released is not None
    assert released.by == "ann@ops"
    assert file.wanted() is None
    assert file.released_by() == "bert@ops"
    assert file.release("bert@ops", "", 9.0) is None


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (b"[1]", "not a JSON object"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"why":1}', "it has a value of another type than text"),
        (b'{"since":-1}', "its time is not a number of seconds"),
        (b'{"since":true}', "its time is not a number of seconds"),
        (b'{"since":NaN}', "not JSON"),
        (b'{"since":1e999}', "not JSON"),
        (b"[" * 60_000, "not JSON"),
        (b'{"why":"' + b"x" * (1 << 17) + b'"}', "not JSON"),
    ],
)
def test_a_file_that_does_not_read_is_a_hold_that_says_so(
    file: HoldFile, tmp_path: Path, body: bytes, wrong: str
) -> None:
    (tmp_path / NAME).write_bytes(body)
    (tmp_path / RELEASED).write_bytes(body)
    hold = wanted(file)
    assert (hold.wrong, hold.at) == (wrong, "")
    assert hold.body()["wrong"] == wrong
    assert hold.words() == f"the hold file cannot be read: {wrong}"
    assert file.released_by() == ""


@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir], ids=["a pipe", "a directory"])
def test_what_is_no_file_is_not_waited_for(
    file: HoldFile, tmp_path: Path, made: Callable[[Path], None]
) -> None:
    made(tmp_path / NAME)
    made(tmp_path / RELEASED)
    assert wanted(file).wrong == "not a plain file"
    assert file.released_by() == ""
    file.answered()


def test_a_link_is_not_followed(file: HoldFile, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text('{"why":"x"}')
    (tmp_path / NAME).symlink_to("elsewhere")
    (tmp_path / RELEASED).symlink_to("elsewhere")
    assert wanted(file).wrong == "not a plain file"
    assert file.released_by() == ""


def test_an_empty_file_is_its_owners_hold_at_the_next_place(file: HoldFile, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(" \n")
    hold = wanted(file)
    assert (hold.at, hold.why, hold.wrong) == ("", "", "")
    assert hold.words() == hold.by != ""


def test_words_from_a_file_are_one_short_line(file: HoldFile, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"why":"a\\nb\\u001b[31m' + "x" * 500 + '","by":"ann@ops"}')
    hold = wanted(file)
    assert hold.why.startswith("a b [31mx")
    assert len(hold.why) == 200


def test_one_without_a_name_is_its_owners_and_one_that_does_not_read_is_replaced_by_nobody(
    file: HoldFile, tmp_path: Path
) -> None:
    (tmp_path / NAME).write_text('{"why":"x","by":""}')
    owner = wanted(file).by
    assert owner
    assert file.place(Hold(by=owner, why="later")) is not None
    (tmp_path / NAME).write_text("{")
    with pytest.raises(LockedError, match="not JSON"):
        file.place(Hold(by=owner))
