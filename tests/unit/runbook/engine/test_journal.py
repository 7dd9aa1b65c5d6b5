"""The journal's promises: durable intents, torn tails cut, damage named."""

from __future__ import annotations

import base64
import errno
import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.engine_world import PointDisk, Points
from zkmigrate.errors import JournalError
from zkmigrate.kafka.changes import (
    KAFKA,
    AlterBrokerConfig,
    AlterTopicConfig,
    CancelReassignment,
    ElectLeaders,
    PlaceReplica,
    ReassignPartition,
)
from zkmigrate.runbook.engine import chain, journal
from zkmigrate.runbook.engine.codec import decode_change, decode_finding, encode_change, encode_finding
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.journal import BEGUN, NAME, Journal
from zkmigrate.runbook.model.change import (
    Change,
    Cut,
    Go,
    HostVerb,
    MoveAside,
    PutFile,
    Restore,
    Seal,
    SetService,
)
from zkmigrate.runbook.model.entry import Entry
from zkmigrate.runbook.model.finding import claim
from zkmigrate.runbook.model.step import Way

CHANGES: tuple[Change, ...] = (
    PutFile("d1", "/etc/zoo.cfg", bytes(range(256)), "zookeeper:zookeeper", "0640"),
    PutFile("d1", "/empty", b"", "root:root"),
    MoveAside("d1", "/var/lib/zookeeper/version-2"),
    Restore("d1", "join.join.d1.1.1", "/etc/zoo.cfg"),
    SetService("d1", "zookeeper.service", "kill", ("kill=/opt/zk kill", "ports=2181")),
    Cut("d1", 2000),
    Seal("d1", "boot", "stamp"),
    Go("d1", "first", ("192.0.2.1:2181", "192.0.2.2:2181"), 2, 5000),
    HostVerb("d1", "started-observer"),
    ElectLeaders(KAFKA),
    AlterTopicConfig(KAFKA, "t", "retention.ms", "1", None),
    AlterTopicConfig(KAFKA, "t", "retention.ms", None, "1"),
    AlterBrokerConfig(KAFKA, 1, "leader.replication.throttled.rate", "1", None),
    ReassignPartition(KAFKA, "t", 0, (2, 3), (1, 3)),
    CancelReassignment(KAFKA, "t", 0, (2, 3)),
    PlaceReplica(KAFKA, 2, "t", 0, "/d2", "/d1"),
    ElectLeaders(KAFKA, (("t", 0), ("u", 1))),
)


EARLIER = sorted(Path("tests/recorded/journal").glob("*.jsonl"))
"""The first lines of journals of two earlier versions."""


def wall() -> float:
    return 1_700_000_000.25


def written(run_dir: Path, lines: int = 8) -> bytes:
    """A journal with ``lines`` lines, intents with their outcomes among them."""
    book = Journal.create(run_dir, wall)
    book.append("begin", {"run": "r-1", "name": "", "playbook": "p", "inventory": "i", "plan": "q"})
    for number in range(1, lines):
        operation = f"s.t.d1.{(number + 1) // 2}.1"
        if number % 2:
            change = encode_change(PutFile("d1", "/f", b"x" * number, "root:root"))
            body = {"stage": "s", "step": "t", "target": "d1", "way": "forward", "leg": (number + 1) // 2}
            book.append("intent", {**body, "operation": operation, "change": change, "mono": 1.0})
        else:
            book.append("outcome", {"operation": operation, "status": "done", "rc": 0, "output": "ü"})
    book.close()
    return (run_dir / NAME).read_bytes()


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("pack", [False, True])
def test_every_change_survives_the_journal(change: Change, pack: bool) -> None:
    assert decode_change(encode_change(change, pack=pack)) == change


def test_files_stand_compressed_in_the_journal_and_as_they_are_in_a_plan() -> None:
    change = PutFile("d1", "/etc/zoo.cfg", b"clientPort=2181\n" * 200, "root:root")
    assert len(encode_change(change, pack=True)["content"]["zlib"]) < 100
    assert base64.b64decode(encode_change(change)["content"]["base64"]) == change.content


@pytest.mark.parametrize("content", [{}, {"zlib": "!"}, {"zlib": "eA=="}, {"zlib": None}, {"base64": "!"}])
def test_a_file_that_cannot_be_read_is_refused(content: dict[str, object]) -> None:
    body = encode_change(PutFile("d1", "/etc/zoo.cfg", b"", "root:root"))
    with pytest.raises(JournalError, match="content that cannot be read"):
        decode_change({**body, "content": content})


def test_a_change_of_another_version_is_refused_by_name() -> None:
    with pytest.raises(JournalError, match="of type Teleport"):
        decode_change({"type": "Teleport", "host": "d1"})
    with pytest.raises(JournalError, match="other fields"):
        decode_change({"type": "Cut", "host": "d1", "hours": 3})


def test_findings_survive_the_journal() -> None:
    finding = claim("a.b", "so it is", None, seen="x", needed="y", moves=("do z",), target="d1")
    assert decode_finding(encode_finding(finding)) == finding
    with pytest.raises(JournalError, match="cannot read"):
        decode_finding({**encode_finding(finding), "held": "perhaps"})


def test_what_is_appended_is_read_back_and_private(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "r-1"
    written(run_dir)
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE((run_dir / NAME).stat().st_mode) == 0o600
    history = journal.read(run_dir)
    assert (history.run, history.leg) == ("r-1", 4)
    applied = history.applied("s.t", "d1")
    assert [a.operation for a in applied] == [f"s.t.d1.{n}.1" for n in (1, 2, 3, 4)]
    assert [a.confirmed for a in applied] == [True, True, True, False]
    assert isinstance(applied[2].change, PutFile)
    assert applied[2].change.content == b"x" * 5


def test_a_run_that_has_begun_is_not_begun_again(tmp_path: Path) -> None:
    written(tmp_path / "r")
    with pytest.raises(JournalError, match="has begun"):
        Journal.create(tmp_path / "r", wall)


def test_reading_needs_no_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "r")
    real = os.open

    def read_only(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    assert journal.read(tmp_path / "r").run == "r-1"
    with pytest.raises(JournalError, match=r"Read-only file system\. Next: fix that on this machine"):
        Journal.open(tmp_path / "r", wall)


def test_a_directory_or_journal_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = tmp_path / "r"
    written(run_dir)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(JournalError, match=f"and owner {owner}; needed: mode 0700, owner {owner + 1}"):
        journal.parsed(run_dir)
    with pytest.raises(JournalError, match=f"and owner {owner}; needed: mode 0700, owner {owner + 1}"):
        journal.kept_lines(run_dir)
    monkeypatch.setattr(journal, "_own_directory", lambda _path, create: None)
    with pytest.raises(JournalError, match="not a private file"):
        journal.parsed(run_dir)


@pytest.mark.parametrize("made", [os.mkfifo, Path.mkdir], ids=["a pipe", "a directory"])
def test_what_is_no_file_is_refused_and_not_waited_for(
    tmp_path: Path, made: Callable[[Path, int], None]
) -> None:
    run_dir = tmp_path / "r"
    run_dir.mkdir(mode=0o700)
    made(run_dir / NAME, 0o600)
    for reads in (journal.parsed, journal.kept_lines, lambda path: Journal.open(path, wall)):
        with pytest.raises(JournalError, match=r"not a private file|Is a directory"):
            reads(run_dir)


def test_looking_for_a_run_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="no run directory"):
        journal.read(tmp_path / "r")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", [0, 40], ids=["nothing", "a torn first line"])
def test_a_journal_that_was_emptied_is_missed_and_can_be_recovered(tmp_path: Path, left: int) -> None:
    run_dir = tmp_path / "r"
    data = written(run_dir)
    (run_dir / BEGUN).touch()
    (run_dir / NAME).write_bytes(data[:left])
    for reads in (journal.read, lambda path: Journal.open(path, wall)):
        with pytest.raises(
            JournalError, match=r"line 1 is missing, though this run has begun; no line(?s:.*)lost"
        ):
            reads(run_dir)
    assert (run_dir / NAME).read_bytes() == data[:left]
    Journal.recover(run_dir, wall, copies=[data]).close()
    assert journal.read(run_dir).run == "r-1"


@pytest.mark.parametrize("lines", [1, 8])
def test_a_journal_that_is_written_while_it_is_read_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """The mark then names lines that were not there yet."""
    run_dir = tmp_path / "r"
    data = written(run_dir, lines)
    (run_dir / NAME).write_bytes(data if lines > 1 else b"")
    real = chain.parse

    def writes_meanwhile(content: bytes) -> chain.Parsed:
        (run_dir / NAME).write_bytes(data)
        (run_dir / BEGUN).write_bytes(b"%-19d\n" % (lines + 1 if lines > 1 else 1))
        return real(content)

    monkeypatch.setattr(chain, "parse", writes_meanwhile)
    for reads in (lambda path: Journal.open(path, wall).close(), journal.read):
        reads(run_dir)
        (run_dir / BEGUN).unlink()


def test_a_run_that_died_before_its_first_line_begins(tmp_path: Path) -> None:
    Journal.create(tmp_path / "r", wall).close()
    book = Journal.open(tmp_path / "r", wall)
    assert book.history.run == ""
    book.close()


def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files and directories that are made durable from now on, by their names."""
    names: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        names.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


def test_lines_files_and_their_names_are_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = synced(monkeypatch)
    book = Journal.create(tmp_path / "r", wall)
    assert names == ["r"], "a new file's name is in its directory"
    names.clear()
    book.append("note", {"text": "later"}, sync=False)
    assert names == []
    book.append("note", {"text": "now"})
    assert names == [NAME]
    names.clear()
    path = book.keep("way-back.json", "{}")
    assert path.read_text() == "{}"
    assert names[-1] == "r"
    assert len(names) == 2
    book.close()


def test_after_a_failed_write_no_line_is_written_even_if_there_is_room_again(tmp_path: Path) -> None:
    points = Points(2, OSError(errno.EIO, "Input/output error"), ("write",))
    book = Journal.create(tmp_path / "r", wall, PointDisk(points))
    book.append("note", {"text": "1"})
    before = (tmp_path / "r" / NAME).read_bytes()
    for _ in range(2):
        with pytest.raises(JournalError, match=rf"cannot write .*r/{NAME}: Input/output error\..* Next: "):
            book.append("note", {"text": "2"}, sync=False)
    with pytest.raises(JournalError, match="Input/output error"):
        book.sync()
    with pytest.raises(JournalError, match="Input/output error"):
        book.refuse_after_failure()
    assert (tmp_path / "r" / NAME).read_bytes() == before
    assert book.history.entries == 1
    book.close()


def test_after_a_failed_fsync_none_is_tried_again(tmp_path: Path) -> None:
    """The second one would say yes, although what the first one could not write is gone."""
    points = Points(1, OSError(errno.EIO, "Input/output error"), ("fsync",))
    book = Journal.create(tmp_path / "r", wall, PointDisk(points))
    for _ in range(2):
        with pytest.raises(JournalError, match="Input/output error"):
            book.append("note", {"text": "1"})
        with pytest.raises(JournalError, match="Input/output error"):
            book.sync()
    assert points.seen == 1
    book.close()


def test_a_line_that_was_half_written_is_taken_away_at_once(tmp_path: Path) -> None:
    points = Points(2, OSError(errno.ENOSPC, "No space left on device"), ("write-half",))
    book = Journal.create(tmp_path / "r", wall, PointDisk(points))
    book.append("note", {"text": "1"})
    before = (tmp_path / "r" / NAME).read_bytes()
    with pytest.raises(JournalError, match="No space left"):
        book.append("note", {"text": "2"})
    assert (tmp_path / "r" / NAME).read_bytes() == before
    book.close()


def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    book = Journal.create(tmp_path / "r", wall)
    book.close()
    book.close()
    with pytest.raises(JournalError, match="is closed"):
        book.append("note", {"text": "x"})


def test_links_and_open_modes_are_refused(tmp_path: Path) -> None:
    run_dir = tmp_path / "r"
    written(run_dir)
    (tmp_path / "link").symlink_to(run_dir)
    with pytest.raises(JournalError, match="not a directory"):
        Journal.open(tmp_path / "link", wall)
    (run_dir / NAME).chmod(0o640)
    with pytest.raises(JournalError, match="not a private file"):
        Journal.open(run_dir, wall)
    (run_dir / NAME).rename(tmp_path / "elsewhere")
    (run_dir / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalError, match="cannot open"):
        Journal.open(run_dir, wall)
    run_dir.chmod(0o755)
    with pytest.raises(JournalError, match="needed: mode 0700"):
        Journal.open(run_dir, wall)


def test_a_journal_cut_at_any_byte_of_its_last_three_lines_goes_on(tmp_path: Path) -> None:
    run_dir = tmp_path / "r"
    data = written(run_dir)
    lines = data.splitlines(keepends=True)
    start = len(b"".join(lines[:-3]))
    for size in range(start, len(data)):
        (run_dir / NAME).write_bytes(data[:size])
        whole = data[:size].count(b"\n") + (data[size : size + 1] == b"\n")
        book = Journal.open(run_dir, wall)
        torn = not data[:size].endswith(b"\n") and data[size : size + 1] != b"\n"
        assert book.history.entries >= whole
        book.append("note", {"text": "goes on"})
        book.close()
        parsed = chain.parse((run_dir / NAME).read_bytes())
        assert parsed.damage == ""
        assert [e.kind for e in parsed.entries[:whole]] == [e.kind for e in chain.parse(data).entries[:whole]]
        assert any("torn" in str(e.body.get("text")) for e in parsed.entries) == torn


def test_every_single_bit_flip_is_detected_or_harmless(tmp_path: Path) -> None:
    data = written(tmp_path / "r", lines=6)
    true = chain.parse(data).entries
    dice = random.Random(7)
    for _ in range(10_000):
        place, bit = dice.randrange(len(data)), dice.randrange(8)
        flipped = bytearray(data)
        flipped[place] ^= 1 << bit
        parsed = chain.parse(bytes(flipped))
        assert parsed.damage or parsed.entries == true
        assert parsed.entries == true[: len(parsed.entries)]


@pytest.mark.parametrize("earlier", EARLIER, ids=lambda path: path.stem)
def test_a_journal_of_an_earlier_version_is_refused_by_name_and_stays(tmp_path: Path, earlier: Path) -> None:
    run_dir = tmp_path / "r"
    run_dir.mkdir(mode=0o700)
    shutil.copyfile(earlier, run_dir / NAME)
    (run_dir / NAME).chmod(0o600)
    said = r"journal of run r was written by an earlier version.* finish the run with the version that "
    for reads in (
        journal.read,
        lambda path: Journal.open(path, wall),
        lambda path: Journal.recover(path, wall),
    ):
        with pytest.raises(JournalError, match=said):
            reads(run_dir)
    assert (run_dir / NAME).read_bytes() == earlier.read_bytes()
    (run_dir / NAME).unlink()
    with pytest.raises(JournalError, match=said):
        Journal.recover(run_dir, wall, copies=[earlier.read_bytes()])
    assert list(run_dir.iterdir()) == []


def test_damage_names_the_line_and_what_is_possible(tmp_path: Path) -> None:
    run_dir = tmp_path / "r"
    data = bytearray(written(run_dir))
    third = bytes(data).split(b"\n")[2]
    data[data.index(third) + 40] ^= 1
    (run_dir / NAME).write_bytes(bytes(data))
    with pytest.raises(JournalError, match=r"line 3 .*lines 1 to 2 are intact(?s:.*)--journal-lost"):
        Journal.open(run_dir, wall)
    assert (run_dir / NAME).read_bytes() == bytes(data)


def test_lines_that_are_swapped_repeated_or_missing_break_the_chain(tmp_path: Path) -> None:
    lines = written(tmp_path / "r").splitlines(keepends=True)
    for broken in (
        [lines[0], lines[2], lines[1], *lines[3:]],
        [*lines[:3], lines[2], *lines[3:]],
        [*lines[:2], *lines[3:]],
    ):
        assert "chain" in chain.parse(b"".join(broken)).damage


def test_recovering_keeps_the_intact_lines_and_never_repeats_an_operation_id(tmp_path: Path) -> None:
    run_dir = tmp_path / "r"
    data = written(run_dir)
    lines = data.splitlines(keepends=True)
    (run_dir / NAME).write_bytes(b"".join([*lines[:3], b"rubbish\n", *lines[4:]]))
    book = Journal.recover(run_dir, wall)
    assert book.history.lost
    assert book.history.way is Way.FORWARD
    assert [a.operation for a in book.history.applied("s.t", "d1")] == ["s.t.d1.1.1"]
    assert book.history.leg == int(wall())
    book.close()
    assert (run_dir / "journal.damaged-1.jsonl").exists()
    assert journal.read(run_dir).entries == 4


@pytest.mark.parametrize("kind", ["write", "write-half", "fsync"])
def test_a_recovery_that_fails_leaves_the_old_file_and_can_be_repeated(tmp_path: Path, kind: str) -> None:
    """A beginning of the new file in the old one's place would read as a whole journal."""
    lines = written(tmp_path / "r").splitlines(keepends=True)
    damaged = b"".join([*lines[:5], b"rubbish\n"])
    failed = 0
    for number in range(1, 8):
        run_dir = tmp_path / f"{kind}-{number}"
        written(run_dir)
        (run_dir / NAME).write_bytes(damaged)
        points = Points(number, OSError(errno.ENOSPC, "No space left on device"), (kind,))
        try:
            Journal.recover(run_dir, wall, PointDisk(points)).close()
        except JournalError as error:
            failed += 1
            assert "No space left" in str(error)  # noqa: PT017
            assert (run_dir / NAME).read_bytes() == damaged
            with pytest.raises(JournalError, match="lines 1 to 5 are intact"):
                journal.read(run_dir)
            Journal.recover(run_dir, wall).close()
        history = journal.read(run_dir)
        assert (history.lost, history.entries) == (True, 6)
        assert (run_dir / "journal.damaged-1.jsonl").read_bytes() == damaged
        assert sorted(p.name for p in run_dir.iterdir()) == ["journal.damaged-1.jsonl", NAME]
    assert failed == (1 if kind == "fsync" else 6), "one sync; five lines and the note"


def test_a_recovery_is_on_disk_before_it_takes_the_journals_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "r")
    names = synced(monkeypatch)
    real = Path.replace

    def replace(path: Path, other: Path) -> Path:
        names.append("replace")
        return real(path, other)

    monkeypatch.setattr(Path, "replace", replace)
    book = Journal.recover(tmp_path / "r", wall)
    assert names == ["journal.recovered.jsonl", "replace", "r"]
    book.append("note", {"text": "goes on"})
    book.close()
    assert journal.read(tmp_path / "r").entries == 10


@pytest.mark.parametrize("kinds", [("write",), ("write-half",), ("fsync",)])
@pytest.mark.parametrize("number", range(1, 7))
def test_a_full_disk_refuses_everything_from_then_on(
    tmp_path: Path, kinds: tuple[str, ...], number: int
) -> None:
    points = Points(number, OSError(errno.ENOSPC, "No space left on device"), kinds)
    book = Journal.create(tmp_path / "r", wall, PointDisk(points))
    done = number - 1
    for line in range(done):
        book.append("note", {"text": f"line {line}"})
    with pytest.raises(JournalError, match="No space left"):
        book.append("note", {"text": f"line {done}"})
    with pytest.raises(JournalError, match="No space left"):
        book.append("note", {"text": "later"})
    book.close()
    kept = chain.parse((tmp_path / "r" / NAME).read_bytes())
    assert kept.damage == ""
    assert [e.body["text"] for e in kept.entries][:done] == [f"line {n}" for n in range(done)]


def test_a_whole_last_line_without_its_newline_is_kept(tmp_path: Path) -> None:
    run_dir = tmp_path / "r"
    data = written(run_dir)
    (run_dir / NAME).write_bytes(data[:-1])
    book = Journal.open(run_dir, wall)
    book.append("note", {"text": "next"})
    book.close()
    assert (run_dir / NAME).read_bytes().startswith(data)
    assert journal.read(run_dir).entries == 9


class Name(str):
    """A target's name that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


def test_a_question_about_one_target_does_not_ask_all_others() -> None:
    history = History()
    change = encode_change(PutFile("d1", "/f", b"x", "root:root"))
    of_all = {"stage": "s", "step": "t", "way": "forward", "change": change, "mono": 1.0}
    for number in range(2000):
        body = {**of_all, "target": Name(f"t{number}"), "leg": number, "operation": f"o{number}"}
        history.fold(Entry(number + 1, 1.0, "intent", body, ""))
    Name.compared = 0
    (applied,) = history.applied("s.t", Name("t7"))
    assert applied.operation == "o7"
    assert len(history.unrestored("s.t")) == len(history.touched("s.t")) == 2000
    assert Name.compared < 100


def test_a_broker_that_was_retired_has_nothing_to_be_put_back() -> None:
    history = History()
    change = encode_change(PutFile("b1", "/f", b"x", "root:root"))
    sent = {"stage": "s", "step": "t", "target": "b1", "way": "forward", "leg": 1, "operation": "o"}
    history.fold(Entry(1, 1.0, "intent", {**sent, "change": change, "mono": 1.0}, ""))
    assert (history.has_touched("s.t"), history.unrestored("s.t")) == (True, frozenset({"b1"}))
    gone = {"host": "b1", "id": 1, "addresses": [], "by": "me", "reason": "burnt"}
    history.fold(Entry(2, 1.0, "retired", gone, ""))
    assert (history.has_touched("s.t"), history.unrestored("s.t")) == (False, frozenset())
