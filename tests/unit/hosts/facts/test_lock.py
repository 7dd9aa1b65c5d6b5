"""Who holds the lock, as ``status`` tells it, from the file that the real zkm-host writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.unit.preflight_world import healthy, inventory
from tests.unit.zkm_net import Host, need_root
from zkmigrate.hosts.facts.lock import FILE, host_lock
from zkmigrate.hosts.facts.status import host_status
from zkmigrate.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runs import run_status


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


def test_a_heartbeat_that_finds_no_lock_was_not_taken_over(host: Host) -> None:
    """As where zkm-host is on its way off the host: 9 would end a run that has done all it had to."""
    assert host.call("lock", "a", "take", "alice", "60000", fencing=0).rc == 0
    host.fencing = 1
    assert host.call("lock", "b", "beat").rc == 0
    (host.state / "lock").unlink()
    answer = host.call("lock", "c", "beat")
    assert (answer.rc, "nobody holds the lock of this host" in answer.text) == (3, True)


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
