"""The lock of a run, local and on the dest hosts."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.unit.engine_world import eventually
from zkmigrate.errors import HostError, LockedError
from zkmigrate.hosts import zkm_host
from zkmigrate.runbook.engine import process
from zkmigrate.runbook.engine.lock import HostLock, LocalLock
from zkmigrate.runbook.model.change import Outcome
from zkmigrate.runbook.model.step import Way

HOSTS = ("d1", "d2", "d3")


@dataclass
class LockHost:
    """One host's lock as zkm-host keeps it."""

    fencing: int = 0
    owner: str = ""
    up: bool = True
    beats: list[int] = field(default_factory=list)

    def ask(self, words: tuple[str, ...], number: int) -> Outcome:
        if not self.up:
            raise HostError("no answer")
        _, _, what, *rest = words
        if what in ("take", "steal"):
            if what == "take" and self.owner not in ("", rest[0]):
                return Outcome(9, f"lock held by {self.owner}")
            self.owner, self.fencing = rest[0], max(self.fencing, number) + 1
            return Outcome(0, f"fencing {self.fencing}")
        if number < self.fencing:
            return Outcome(9, f"fenced off: the host has seen {self.fencing}")
        self.fencing = number
        if what == "beat":
            self.beats.append(number)
        else:
            self.owner = ""
        return Outcome(0, f"fencing {self.fencing}")


class Hosts(dict[str, LockHost]):
    def ask(self, host: str, words: tuple[str, ...], number: int) -> Outcome:
        return self[host].ask(words, number)

    def lock(self, owner: str, *, steal: bool = False, beat_s: float = 60.0) -> HostLock:
        return HostLock(
            HOSTS, owner, self.ask, 1, steal=steal, before=("preflight", "install"), beat_s=beat_s
        )


def beating(lock: HostLock) -> bool:
    """Whether its heartbeats go on."""
    return lock._beater is not None and lock._beater.is_alive()


def hosts(*fencing: int) -> Hosts:
    return Hosts({name: LockHost(n) for name, n in zip(HOSTS, fencing or (0, 0, 0), strict=True)})


def test_two_processes_on_one_machine_exclude_each_other(tmp_path: Path) -> None:
    first = LocalLock(tmp_path)
    with pytest.raises(LockedError, match="another zkmigrate process on this machine"):
        LocalLock(tmp_path)
    first.close()
    LocalLock(tmp_path).close()


def test_one_that_is_closed_leaves_neither_lock_nor_name(tmp_path: Path) -> None:
    lock = LocalLock(tmp_path, "resume")
    told = process.at_work(tmp_path)
    assert told is not None
    assert (told.pid, told.verb) == (os.getpid(), "resume")
    lock.leave()
    assert not (tmp_path / process.NAME).exists()
    with pytest.raises(LockedError):
        LocalLock(tmp_path)
    lock.close()
    LocalLock(tmp_path).close()
    assert process.at_work(tmp_path) is None


def test_one_that_cannot_tell_its_name_gives_the_lock_back(tmp_path: Path) -> None:
    (tmp_path / process.NAME).mkdir()
    with pytest.raises(OSError, match=process.NAME):
        LocalLock(tmp_path)
    (tmp_path / process.NAME).rmdir()
    LocalLock(tmp_path).close()


def test_who_holds_the_process_file_is_waited_for_and_not_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / process.NAME).touch()
    with open(tmp_path / process.NAME) as asker:
        fcntl.flock(asker, fcntl.LOCK_SH)
        soon = threading.Timer(0.2, fcntl.flock, (asker, fcntl.LOCK_UN))
        soon.start()
        LocalLock(tmp_path).close()
        soon.join()
        (tmp_path / process.NAME).touch()
    monkeypatch.setattr(process, "_ASKED_S", 0.1)
    with open(tmp_path / process.NAME) as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(LockedError, match=r"has held .*process for .* Next: find that process"):
            LocalLock(tmp_path)
    LocalLock(tmp_path).close()


def test_the_number_is_the_highest_and_is_carried_to_all() -> None:
    world = hosts(3, 9, 1)
    lock = world.lock("anna-op")
    assert lock.fencing("join", Way.FORWARD) == 10
    assert [h.fencing for h in world.values()] == [10, 10, 10]
    lock.close()
    assert [h.owner for h in world.values()] == ["", "", ""]


def test_who_keeps_no_lock_but_has_seen_a_number_is_heard_before_it_is_given() -> None:
    """Gateways remember the number of a run whose mirror hosts have lost theirs with zkm-host."""
    world = hosts()
    lock = HostLock(HOSTS, "anna-op", world.ask, 1, beat_s=60.0, least=lambda: 7)
    assert lock.fencing("switch", Way.FORWARD) == 8
    assert [h.fencing for h in world.values()] == [8, 8, 8]


def test_before_the_program_is_installed_only_the_local_lock_exists() -> None:
    world = hosts()
    lock = world.lock("anna-op")
    assert lock.fencing("preflight", Way.FORWARD) == lock.fencing("install", Way.FORWARD) == 0
    assert [h.owner for h in world.values()] == ["", "", ""]
    assert lock.fencing("install", Way.BACK) == 1, "uninstalling must carry a number that the hosts accept"


def test_the_move_takes_it_where_the_program_is_there(tmp_path: Path) -> None:
    world = hosts()
    lock = HostLock(HOSTS, "anna-op", world.ask, 1, before=PLAYBOOK.unlocked, beat_s=60.0)
    held = {stage.id: lock.fencing(stage.id, Way.FORWARD) for stage in PLAYBOOK.stages}
    assert [stage for stage, number in held.items() if not number] == ["preflight", "install"]


def test_walking_install_back_needs_no_host_that_is_uninstalled_already() -> None:
    world = hosts(4, 4, 4)
    world["d1"].up = world["d2"].up = False
    assert world.lock("anna-op").fencing("install", Way.BACK) == 5


def test_an_uninstalled_install_takes_no_lock_and_beats_no_host() -> None:
    world = hosts(4, 4, 4)
    for host in world.values():
        host.up = False
    lock = world.lock("anna-op")
    assert (lock.fencing("install", Way.BACK), lock.held) == (0, ())
    assert beating(lock) is False


@pytest.mark.parametrize("up", [(), ("d2",)], ids=["nobody else answers", "a minority gives it"])
def test_walking_install_back_stops_at_another_operator(up: tuple[str, ...]) -> None:
    world = hosts()
    world["d1"].owner = "anna-op"
    for name in ("d2", "d3"):
        world[name].up = name in up
    with pytest.raises(LockedError, match="d1 keeps the lock for another process"):
        world.lock("bert-op").fencing("install", Way.BACK)
    assert [h.owner for h in world.values()] == ["anna-op", "", ""]


def test_walking_install_back_goes_on_with_a_majority() -> None:
    world = hosts()
    world["d1"].owner = "anna-op"
    assert world.lock("bert-op").fencing("install", Way.BACK) == 1


def test_without_witnesses_only_this_machine_has_a_lock() -> None:
    lock = HostLock((), "anna-op", hosts().ask, 1, beat_s=60.0)
    assert lock.fencing("join", Way.FORWARD) == 0
    assert beating(lock) is False


def test_a_second_operator_is_refused_and_leaves_nothing_taken() -> None:
    world = hosts()
    world["d1"].owner = world["d2"].owner = "anna-op"
    other = world.lock("bert-op")
    with pytest.raises(LockedError, match=r"keeps the lock for another process: lock held by anna-op"):
        other.fencing("join", Way.FORWARD)
    assert [h.owner for h in world.values()] == ["anna-op", "anna-op", ""]
    other.close()


def test_without_a_majority_nothing_is_done_and_the_hosts_are_named() -> None:
    world = hosts()
    world["d2"].up = world["d3"].up = False
    with pytest.raises(HostError, match=r"no majority.*d2: no answer; d3: no answer"):
        world.lock("anna-op").fencing("join", Way.FORWARD)
    assert world["d1"].owner == ""


def test_a_minority_that_is_away_does_not_stop_the_run() -> None:
    world = hosts()
    world["d3"].up = False
    lock = world.lock("anna-op")
    assert lock.fencing("join", Way.FORWARD) == 1
    assert lock.held == ("d1", "d2")
    lock.close()


def test_stealing_fences_the_old_operator_off() -> None:
    world = hosts()
    old = world.lock("anna-op", beat_s=0.01)
    assert old.fencing("join", Way.FORWARD) == 1
    new = world.lock("bert-op", steal=True)
    assert new.fencing("join", Way.FORWARD) == 2
    eventually("the old operator's heartbeat is refused", lambda: old.lost)
    with pytest.raises(LockedError, match=r"was taken over: fenced off.*--steal"):
        old.fencing("join", Way.FORWARD)
    old.close()
    assert [h.owner for h in world.values()] == ["bert-op"] * 3, "a stale operator gives nothing back"
    new.close()


def test_one_who_was_taken_over_asks_nothing_more_of_any_host() -> None:
    """Hosts that he still holds may be the next operator's by the time his word arrives."""
    world = hosts()
    asked: list[str] = []
    answer = world["d1"].ask

    def told(words: tuple[str, ...], number: int) -> Outcome:
        asked.append(words[2])
        return answer(words, number)

    world["d1"].ask = told  # type: ignore[method-assign]
    old = world.lock("anna-op", beat_s=0.01)
    assert old.fencing("join", Way.FORWARD) == 1
    new = HostLock(("d2", "d3"), "bert-op", world.ask, 2, steal=True, beat_s=60.0)
    new.fencing("join", Way.FORWARD)
    eventually("the old operator's heartbeat is refused", lambda: old.lost)
    eventually("its heartbeats end", lambda: not beating(old))
    old.close()
    assert "release" not in asked
    new.close()


def test_closing_ends_the_heartbeats_before_the_lock_is_given_back() -> None:
    """A beat behind the release would tell a host that somebody still works."""
    world, order = hosts(), []
    answer = world["d1"].ask
    begun = threading.Event()

    def slow(words: tuple[str, ...], number: int) -> Outcome:
        if words[2] == "beat" and world["d1"].beats:
            begun.set()
            threading.Event().wait(0.3)
        order.append(words[2])
        return answer(words, number)

    world["d1"].ask = slow  # type: ignore[method-assign]
    lock = world.lock("anna-op", beat_s=1.0)
    assert lock.fencing("join", Way.FORWARD) == 1
    assert begun.wait(20.0), "no heartbeat came"
    lock.close()
    assert order[-2:] == ["beat", "release"]
    assert beating(lock) is False


def test_one_beat_without_an_answer_does_not_end_the_heartbeats() -> None:
    world = hosts()
    lock = world.lock("anna-op", beat_s=0.01)
    assert lock.fencing("join", Way.FORWARD) == 1
    world["d1"].up = False
    count = len(world["d2"].beats)
    eventually("the others are beaten on", lambda: len(world["d2"].beats) > count + 3)
    assert lock.lost is False
    lock.close()


def test_a_host_whose_program_is_being_removed_does_not_end_the_run() -> None:
    world = hosts()
    lock = world.lock("anna-op", beat_s=0.01)
    assert lock.fencing("finalize", Way.FORWARD) == 1
    beats = [0]

    def removed(words: tuple[str, ...], _number: int) -> Outcome:
        beats[0] += words[2] == "beat"
        return Outcome(3, "nobody holds the lock of this host")

    world["d2"].ask = removed  # type: ignore[method-assign, assignment]
    eventually("heartbeats come", lambda: beats[0] >= 3)
    assert (lock.lost, lock.fencing("finalize", Way.FORWARD)) == (False, 1)
    lock.close()


class RealHosts:
    """The real zkm-host on three state directories of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def ask(self, host: str, words: tuple[str, ...], number: int) -> Outcome:
        command = ["sh", "-s", "--", "--run", "lock-1", "--as", str(number), *words]
        state = {"ZKM_STATE": str(self._root / host), "PATH": os.environ["PATH"]}
        done = subprocess.run(command, input=zkm_host.program(), env=state, capture_output=True, check=False)
        return Outcome(done.returncode, (done.stdout + done.stderr).decode())


def test_the_real_program_keeps_this_lock(tmp_path: Path) -> None:
    world = RealHosts(tmp_path)
    for host in HOSTS:
        (tmp_path / host / "lock-1").mkdir(parents=True)
        (tmp_path / host / "lock-1" / "policy").write_text("lock\n")
    first = HostLock(HOSTS, "anna@op", world.ask, 1, beat_s=60.0)
    assert first.fencing("join", Way.FORWARD) == 1
    second = HostLock(HOSTS, "bert@op", world.ask, 2, beat_s=60.0)
    with pytest.raises(LockedError, match="lock held by anna-op for run lock-1"):
        second.fencing("join", Way.FORWARD)
    thief = HostLock(HOSTS, "bert@op", world.ask, 3, steal=True, beat_s=0.05)
    assert thief.fencing("join", Way.FORWARD) == 2
    assert world.ask("d1", ("lock", "lock.beat.1", "beat"), 1).rc == 9
    thief.close()
    again = HostLock(HOSTS, "anna@op", world.ask, 4, beat_s=60.0)
    assert again.fencing("join", Way.FORWARD) == 3
    again.close()
