"""A journal that was restored from a backup, beside the longer copies that hosts keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkmigrate.errors import JournalError
from zkmigrate.runbook.engine import chain, held_copies
from zkmigrate.runbook.engine.held_copies import beyond, longest
from zkmigrate.runbook.engine.journal import NAME, Journal


class Copy:
    """A host's file."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked: list[tuple[int, int]] = []

    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        self.asked.append((offset, length))
        return self.content[offset : offset + length]


def written(directory: Path, *texts: str) -> bytes:
    """A journal with these notes."""
    book = Journal.create(directory, lambda: 1.0)
    book.append("begin", {"run": "run", "name": "", "playbook": "p", "inventory": "i", "plan": ""})
    for text in texts:
        book.append("note", {"text": text})
    book.close()
    return (directory / NAME).read_bytes()


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    return written(tmp_path / "whole", "one", "two", "three")


JOURNAL = Path("runs", "r", NAME)


def lines(content: bytes, count: int) -> bytes:
    return b"".join(content.splitlines(keepends=True)[:count])


def joined(content: bytes, **copies: bytes) -> bytes:
    return longest(JOURNAL, content, {host: beyond(content, Copy(copy)) for host, copy in copies.items()})


def test_lines_that_only_copies_have_are_taken_from_the_longest(whole: bytes) -> None:
    for kept in range(1, 4):
        ours = lines(whole, kept)
        for torn in (
            b"",
            whole[len(ours) : len(ours) + 9],
            whole[len(ours) : len(lines(whole, kept + 1)) - 1],
        ):
            assert joined(ours + torn, a=lines(whole, 1), b=whole, c=lines(whole, 3)) == whole
        half = whole[:-5]
        assert joined(ours, a=half) == lines(whole, 3), "the torn line of a copy is not taken"


def test_shorter_copies_and_none_change_nothing(whole: bytes) -> None:
    torn = whole + b'{"at":'
    assert joined(whole) == joined(whole, a=lines(whole, 2), b=whole[:-7], c=whole) == whole
    assert joined(torn, a=whole, b=lines(whole, 1)) == torn


def test_a_copy_with_other_lines_is_refused_by_name(whole: bytes, tmp_path: Path) -> None:
    other = written(tmp_path / "other", "one", "elsewhere", "and on", "and on")
    for ours in (whole, lines(whole, 3)):
        for copy in (other, lines(other, 3)):
            with pytest.raises(JournalError, match=r"the copy on b has other lines\. Nothing was changed"):
                joined(ours, a=whole, b=copy)
    with pytest.raises(JournalError, match="the copy on b has other lines"):
        joined(lines(whole, 2), a=whole, b=lines(other, 3))


def test_a_last_line_without_its_end_is_not_given_up_for_another(whole: bytes, tmp_path: Path) -> None:
    other = written(tmp_path / "other", "one", "elsewhere")
    with pytest.raises(JournalError, match="has other lines"):
        joined(lines(whole, 3)[:-1], a=other)


def test_a_recovered_journal_passes_copies_with_other_lines(whole: bytes, tmp_path: Path) -> None:
    directory = tmp_path / "recovered"
    directory.mkdir(mode=0o700)
    Journal.recover(directory, lambda: 5.0, copies=[lines(whole, 2)]).close()
    ours = (directory / NAME).read_bytes()
    assert joined(ours, a=whole, b=lines(whole, 2)) == ours


def test_a_damaged_journal_is_told_as_such(whole: bytes) -> None:
    damaged = lines(whole, 1) + b"x" + lines(whole, 3)[len(lines(whole, 1)) + 1 :]
    with pytest.raises(JournalError, match="journal line 2"):
        joined(damaged, a=whole)


def test_only_the_end_is_read(monkeypatch: pytest.MonkeyPatch, whole: bytes) -> None:
    monkeypatch.setattr(held_copies, "_TAIL", 300)
    ours, copy = lines(whole, 3), Copy(whole)
    assert beyond(ours, copy) == whole[len(ours) :]
    assert copy.asked == [(len(ours) - 300, len(whole) - len(ours) + 300)]


def test_the_file_is_extended_durably(whole: bytes, tmp_path: Path) -> None:
    directory = tmp_path / "short"
    ours = written(directory, "one")
    torn = ours + b'{"at"'
    (directory / NAME).write_bytes(torn)
    Journal.extend(directory, torn, joined(torn, a=whole)) if joined(torn, a=whole) != torn else None
    book = Journal.open(directory, lambda: 1.0)
    book.close()
    assert (directory / NAME).read_bytes() == whole
    assert len(chain.parse(whole).entries) == 4
