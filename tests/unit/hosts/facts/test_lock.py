"""Who holds the lock, as ``status`` tells it, from the file that the real zkm-host writes."""

from __future__ import annotations

import fcntl
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.unit.preflight_world import healthy, inventory
from tests.unit.zkm_net import Host, eventually, need_root
from zkmigrate.hosts.facts.lock import FILE, host_lock
from zkmigrate.hosts.facts.status import host_status
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.runs import run_status


@pytest.fixture
def host(tmp_path: Path) -> Host:
    need_root()
    return Host(tmp_path, [])


def told(lock: Reading[bytes]) -> str:
    world = healthy()
    world.files["dest1", FILE] = lock
    said = run_status.of_hosts(world, PLAYBOOK, inventory())["dest1"]
    return str(said["lock"])


def test_the_file_of_the_host_names_owner_run_and_heartbeat_until_it_is_given_up(host: Host) -> None:
    assert host.call("lock", "a", "take", "alice", "60000", fencing=0).rc == 0
    world = healthy()
    world.files["dest1", FILE] = Seen((host.state / "lock").read_bytes())
    held = host_lock(world, "dest1")
    assert isinstance(held, Seen)
    assert (held.value.owner, held.value.run) == ("alice", "run-1")
    assert held.value.beat_s > 0
    assert told(Seen((host.state / "lock").read_bytes())) == "alice for run run-1 (before its last boot)"
    host.fencing = 1
    assert host.call("lock", "b", "release").rc == 0
    assert told(Seen((host.state / "lock").read_bytes())) == "free"


@pytest.mark.parametrize("word", ["beat", "release"])
@pytest.mark.parametrize("gone", ["lock", ".lock.turn", "directory"])
def test_a_heartbeat_that_comes_while_the_lock_is_removed_makes_nothing(
    host: Host, word: str, gone: str
) -> None:
    """zkm-host is on its way off the host: 9 would end a run that has done all, and a file made now stays."""
    assert host.call("lock", "a", "take", "alice", "60000", fencing=0).rc == 0
    host.fencing = 1
    assert host.call("lock", "b", "beat").rc == 0
    if gone == "directory":
        shutil.rmtree(host.state)
    else:
        (host.state / "lock").unlink()
        (host.state / gone).unlink(missing_ok=True)
    before = sorted(host.folder.rglob("*"))
    answer = host.call("lock", "c", word, fencing=2)
    assert (answer.rc, "nobody holds the lock of this host" in answer.text) == (3, True)
    assert sorted(host.folder.rglob("*")) == before


def test_a_heartbeat_waits_for_the_uninstall_and_finds_nothing(host: Host) -> None:
    assert host.call("lock", "a", "take", "alice", "60000", fencing=0).rc == 0
    host.fencing = 1
    with (host.state / ".lock.turn").open() as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(host.call, "lock", "b", "beat")
            eventually(
                "the heartbeat waits for its turn", lambda: waits_for_a_lock(host.state / ".lock.turn")
            )
            shutil.rmtree(host.state)
            fcntl.flock(turn, fcntl.LOCK_UN)
            assert answer.result(60.0).rc == 3
    assert not host.state.exists()


def waits_for_a_lock(path: Path) -> bool:
    """Whether a process waits for the lock of a file; ``/proc/locks`` marks it with ``->``."""
    inode = f":{path.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_a_heartbeat_carries_a_higher_fencing_number_and_refuses_a_lower_one(host: Host) -> None:
    assert host.call("lock", "a", "take", "alice", "60000", fencing=0).rc == 0
    assert host.call("lock", "b", "beat", fencing=3).rc == 0
    assert "fencing=3\n" in (host.state / "lock").read_text()
    old = host.call("lock", "c", "beat", fencing=2)
    assert (old.rc, "the host has seen 3" in old.text) == (9, True)


def test_a_heartbeat_of_this_boot_has_an_age() -> None:
    status = host_status(healthy(), "dest1")
    assert isinstance(status, Seen)
    beat, boot = round((status.value.uptime_s - 7) * 1000), status.value.boot_id
    lock = f"run=r1\nfencing=3\nowner=ops-desk\nbeat={beat}\nboot={boot}\n"
    assert told(Seen(lock.encode())) == "ops-desk for run r1 (heartbeat 7 s ago)"


@pytest.mark.parametrize(
    ("lock", "words"),
    [
        (Absent(), "free"),
        (Unknown("timeout", "no answer"), "unknown: "),
        (Seen(b"run=r1\nowner=x\n"), "unknown: "),
        (Seen(b"run=r1\nowner=x\nbeat=soon\nboot=b\n"), "unknown: "),
    ],
)
def test_a_lock_that_nobody_took_is_free_and_one_that_cannot_be_read_unknown(
    lock: Reading[bytes], words: str
) -> None:
    assert told(lock).startswith(words)
