"""One wave: nothing is sent before its intent is on disk, nor after the journal or its target is given up."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.engine_world import HOSTS, Tiny, eventually, inventory
from zkmigrate import deadline
from zkmigrate.errors import HostError, JournalError, LockedError, UsageError
from zkmigrate.runbook.engine import chain
from zkmigrate.runbook.engine.apply import FENCED_OFF, Wave
from zkmigrate.runbook.engine.events import ChangeEnded, Event
from zkmigrate.runbook.engine.history import Next
from zkmigrate.runbook.engine.journal import NAME, Journal
from zkmigrate.runbook.model.change import Change, Outcome, PutFile
from zkmigrate.runbook.model.entry import Entry
from zkmigrate.runbook.model.step import Way

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
WAIT_S = 20.0
FILES = (1, 2, 3)
ALL = len(HOSTS) * len(FILES)


@dataclass
class Disk:
    """What is durable is what the last fsync found. fails: the call that fails from its count on."""

    durable: bytes = b""
    fails: tuple[str, int] = ("", 0)
    calls: dict[str, int] = field(default_factory=lambda: {"write": 0, "fsync": 0})

    def write(self, fd: int, data: bytes) -> int:
        self._count("write")
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        self._count("fsync")
        self.durable = os.pread(fd, os.fstat(fd).st_size, 0)

    def _count(self, call: str) -> None:
        self.calls[call] += 1
        kind, number = self.fails
        if kind == call and self.calls[call] >= number:
            raise FULL

    def on_disk(self, kind: str) -> list[Entry]:
        return [entry for entry in chain.parse(self.durable).entries if entry.kind == kind]


@dataclass
class Desk:
    """One wave of three files on each host. answer: what a host says to a change."""

    run_dir: Path
    disk: Disk = field(default_factory=Disk)
    answer: Callable[[Change], Outcome] = lambda _change: Outcome(0)
    sent: list[str] = field(default_factory=list)
    at_send: list[int] = field(default_factory=list)
    hosts: tuple[str, ...] = HOSTS
    emit: Callable[[Event], None] = lambda _event: None
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.journal = Journal.create(self.run_dir, lambda: 0.0, self.disk)

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        assert fencing == 7
        self.at_send.append(len(self.disk.on_disk("intent")))
        self.sent.append(operation)
        return self.answer(change)

    def run(self, limits: Callable[[str], tuple[float, float]] | None = None) -> dict[str, str]:
        playbook = Tiny(self.run_dir).playbook
        stage = playbook.stages[1]
        at = Next(stage, stage.steps[0], Way.FORWARD)
        plans = {
            host: tuple(PutFile(host, f"/f{number}", b"x", "root:root") for number in FILES)
            for host in self.hosts
        }
        wave = Wave(self.journal, playbook, inventory(), self._apply, self.emit, lambda: self.now)
        return wave.run(at, plans, 7, *((limits,) if limits else ()))

    def journal_failed(self) -> bool:
        try:
            self.journal.refuse_after_failure()
        except JournalError:
            return True
        return False

    def outcomes(self) -> dict[str, list[str]]:
        """By operation, in the order of their lines."""
        said: dict[str, list[str]] = {}
        for entry in chain.parse((self.run_dir / NAME).read_bytes()).entries:
            if entry.kind == "outcome":
                said.setdefault(entry.body["operation"], []).append(entry.body["status"])
        return said


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "r")


def operation(host: str, number: int) -> str:
    return f"prepare.one.{host}.1.{number}"


def test_all_intents_are_on_disk_before_the_first_change_and_all_outcomes_at_the_end(desk: Desk) -> None:
    assert desk.run() == {}
    assert desk.at_send == [ALL] * ALL
    assert len(desk.disk.on_disk("outcome")) == ALL
    assert desk.disk.calls["fsync"] == 2, "one for all intents, one for all outcomes"


@pytest.mark.parametrize("fails", [("fsync", 1), ("write", 1), ("write", ALL)], ids=str)
def test_without_durable_intents_nothing_is_sent(desk: Desk, fails: tuple[str, int]) -> None:
    desk.disk.fails = fails
    with pytest.raises(JournalError, match=rf"cannot write .*{NAME}: No space left.*Next: free disk space"):
        desk.run()
    assert desk.sent == []


def test_once_an_outcome_cannot_be_written_no_target_is_sent_anything_more(desk: Desk) -> None:
    """The intents of the others are on disk, but what their hosts answer would be lost as well."""
    written = threading.Event()

    def answer(change: Change) -> Outcome:
        if change.where == "d1":
            assert written.wait(WAIT_S), "the outcomes of the others were never written"
            desk.disk.fails = ("write", 1)
        return Outcome(0)

    def emit(event: Event) -> None:
        if isinstance(event, ChangeEnded) and event.target != "d1" and event.operation.endswith(".1"):
            if len(desk.outcomes()) == 2:
                written.set()
            eventually("the journal fails", desk.journal_failed)

    desk.answer, desk.emit = answer, emit
    with pytest.raises(JournalError, match="No space left"):
        desk.run()
    assert sorted(desk.sent) == [operation(host, 1) for host in HOSTS]
    assert sorted(desk.outcomes()) == [operation("d2", 1), operation("d3", 1)]


def test_a_change_that_was_not_done_ends_its_target_and_no_other(desk: Desk) -> None:
    desk.answer = lambda change: Outcome(5, "no space") if change.where == "d2" else Outcome(0)
    assert desk.run() == {"d2": "rc 5: no space"}
    assert operation("d2", 2) not in desk.sent
    assert desk.outcomes()[operation("d2", 1)] == ["failed"]
    assert desk.outcomes()[operation("d2", 2)] == ["skipped"]
    assert desk.outcomes()[operation("d3", 2)] == ["done"]


def test_a_change_without_an_answer_ends_its_target(desk: Desk) -> None:
    def answer(change: Change) -> Outcome:
        if change.where == "d2":
            raise HostError("d2: the connection broke")
        return Outcome(0)

    desk.answer = answer
    assert desk.run() == {"d2": "not confirmed: d2: the connection broke"}
    assert operation("d2", 2) not in desk.sent
    assert desk.outcomes()[operation("d2", 1)] == ["unknown"]


def test_a_host_that_fences_this_operator_off_ends_the_run(desk: Desk) -> None:
    desk.answer = lambda change: Outcome(FENCED_OFF if change.where == "d3" else 0, "fenced off: 8")
    with pytest.raises(LockedError, match="d3 refuses this operator: rc 9: fenced off: 8"):
        desk.run()
    assert len(desk.disk.on_disk("outcome")) == ALL, "what was done is on disk all the same"


def test_a_target_that_was_given_up_is_sent_nothing_more_and_says_nothing_more(desk: Desk) -> None:
    over = threading.Event()
    abandoned: list[threading.Thread] = []

    def answer(change: Change) -> Outcome:
        if isinstance(change, PutFile) and (change.host, change.path) == ("d2", "/f2"):
            abandoned.append(threading.current_thread())
            assert over.wait(WAIT_S), "the wave never gave it up"
        return Outcome(0)

    desk.answer = answer
    clock = threading.Thread(target=_pass_time, args=(desk, over), daemon=True)
    clock.start()
    try:
        failures = desk.run(lambda _verb: (5.0, 60.0))
    finally:
        over.set()
    assert failures == {"d2": "not confirmed: d2: no answer yet, although most other targets have answered"}
    for thread in (clock, *abandoned):
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert desk.sent.count(operation("d2", 2)) == 1
    assert operation("d2", 3) not in desk.sent
    said = desk.outcomes()
    assert [said[operation("d2", n)] for n in FILES] == [["done"], ["unknown"], ["skipped"]]


def _pass_time(desk: Desk, over: threading.Event) -> None:
    """A second of the wave's clock for each hundredth of a real one, until the wave is over."""
    while not over.wait(0.01):
        desk.now += 1.0


@pytest.mark.parametrize(
    ("host", "why"),
    [("s1", "source is read-only"), ("x9", "a host that is not in the inventory is read-only")],
)
def test_what_the_playbook_does_not_change_is_refused_before_anything_is_written(
    desk: Desk, host: str, why: str
) -> None:
    desk.hosts = ("d1", host)
    with pytest.raises(UsageError, match=f"^nothing was sent to {host}, because {why}: "):
        desk.run()
    desk.journal.sync()
    assert (desk.sent, desk.disk.on_disk("intent")) == ([], [])


def test_a_change_in_a_window_has_its_own_limit(desk: Desk) -> None:
    left: list[float] = []

    def answer(_change: Change) -> Outcome:
        left.append(deadline.remaining(100.0))
        return Outcome(0)

    desk.answer = answer
    assert desk.run(lambda verb: (5.0 if verb else 9.0, 60.0)) == {}
    assert left == [5.0] * ALL
