"""Guards of zkm-host, one by one: the state that each is for, made directly, and what it does then."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.zkm_net import Dest, Host, eventually, lying, need_root, net


@pytest.fixture
def host(tmp_path: Path) -> Host:
    need_root()
    return Host(tmp_path, [])


@pytest.fixture
def dest(tmp_path: Path) -> Iterator[Dest]:
    with net() as made:
        host = Dest(tmp_path, made)
        host.stage()
        yield host


def stand(dest: Dest, phase: str, fence_until: int = 0, cut_until: int = 0) -> None:
    """The host's own record, as it stands in that phase."""
    (dest.directory / "phase").write_text(f"{phase} 1 1\n")
    (dest.directory / "lease").write_text(f"{fence_until} {cut_until} 0\n")


def fill(dest: Dest, kind: str) -> None:
    """The kernel's entries of that set, good for a long time."""
    tag = (dest.directory / "tag").read_text().strip()
    entries = {"fence": ("0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"), "cut": ("10.77.0.5", "fd77::5")}
    for entry in entries[kind]:
        name = f"ZKM-{tag}-{kind}{6 if ':' in entry else 4}"
        subprocess.run(dest.net.inside("dest", "ipset", "add", name, entry, "timeout", "900"), check=True)


NEVER = 10**12
"""A time that is far off, ms of uptime."""


def test_a_lock_from_before_a_reboot_is_as_old_as_the_boot_at_least(host: Host) -> None:
    """Uptime began anew, so the old heartbeat may seem to lie in the future."""
    host.state.mkdir()
    (host.state / "lock").write_text(f"run=other\nfencing=3\nowner=alice\nbeat={NEVER}\nboot=another\n")
    assert host.call("lock", "a", "take", "bob", "1", fencing=0).text == "fencing 4\n"


def test_an_operation_that_was_begun_is_not_forgotten_for_a_bad_argument(host: Host, tmp_path: Path) -> None:
    target = str(tmp_path / "f")
    assert host.put(target, b"one", operation="w").rc == 0
    host.forget_outcome("w")
    intent = (host.directory / "ops" / "w").read_text().split()
    assert host.call(*intent[:1], "w", *intent[1:], "dHdv").rc == 2
    assert host.call("op", "w").lines()[0] == " ".join(["verb", *intent])


@pytest.mark.parametrize("ended", ["by the clock", "by its mark"])
def test_a_fence_that_ended_is_neither_cut_nor_renewed(dest: Dest, ended: str) -> None:
    """The kernel may hold its entries a moment longer than the lease says."""
    dest.do("arm", dest.spec())
    fill(dest, "fence")
    stand(dest, "fenced", 1 if ended == "by the clock" else NEVER)
    if ended == "by its mark":
        (dest.directory / "lapsed").touch()
    assert "the fence lapsed" in dest.refused("cut", "60000")
    assert dest.call("renew", "60000", "60000").lines()[0] == "lapsed"
    assert dest.phase() == "fenced"


def test_a_host_whose_lease_lapsed_is_not_stopped_and_none_of_a_participant_observes(dest: Dest) -> None:
    dest.do("arm", dest.spec())
    stand(dest, "cut", NEVER, NEVER)
    (dest.directory / "lapsed").touch()
    assert "becoming an observer again" in dest.refused("stopped")
    (dest.directory / "lapsed").unlink()
    (dest.directory / "participant").touch()
    assert "has been a participant's" in dest.refused("started-observer")
    assert dest.phase() == "cut"
    (dest.directory / "participant").unlink()
    assert dest.do("stopped") == "stopped\n"


def test_a_fence_with_sockets_left_has_failed(dest: Dest) -> None:
    """`ss -K` is silent where the kernel cannot end a socket: what stays counts."""
    dest.armed()
    client = dest.net.connect("client", "10.77.0.1")
    real = dest.folder / "real-ss"
    lying(dest, ss=f'#!/bin/sh\ncase "$1" in *K*) ;; *) exec {real} "$@" ;; esac\n')
    assert "1 client sockets stay open after 0 kills" in dest.refused("fence", "60000", rc=5)
    assert client.poll() is None


SENDS = """
import socket
server = socket.create_server(("", 2888))
print("up", flush=True)
client, _ = server.accept()
client.settimeout(30)
input()
try:
    client.sendall(b"late")
    client.recv(1)
except OSError as error:
    print(type(error).__name__, flush=True)
"""
"""A leader of source: sends once it is told to, and says how the connection ended."""
READS = """
import socket
leader = socket.create_connection(("10.77.0.5", 2888))
print("up", flush=True)
input()
leader.setblocking(False)
try:
    print(leader.recv(9), flush=True)
except BlockingIOError:
    print("nothing", flush=True)
"""
"""The observer that is its learner: says what came once it is told to look."""


def test_what_source_sends_on_a_connection_that_was_not_ended_does_not_come_in(dest: Dest) -> None:
    """The rules are there before `ss -K` ends connections: what leaves a port of ZooKeeper counts as well."""
    dest.armed(cut="zookeeper", cut_ports="2181,2888,3888")
    ends = []
    for name, code in (("source", SENDS), ("dest", READS)):
        argv = dest.net.inside(name, "python3", "-c", code)
        end = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        dest.net.children.append(end)
        assert end.stdout is not None
        assert end.stdout.readline() == "up\n"
        ends.append(end)
    fill(dest, "cut")
    said = [end.communicate("go\n", 60)[0] for end in ends]
    assert said == ["ConnectionResetError\n", "nothing\n"]


def test_a_lease_that_ends_while_it_is_sealed_is_not_sealed(dest: Dest) -> None:
    dest.do("arm", dest.spec())
    for kind in ("fence", "cut"):
        fill(dest, kind)
    stand(dest, "stopped", 150_000, 150_000)
    stamp = dest.call("stamp").values()
    clock, real = dest.folder / "lying-uptime", dest.folder / "real-ipset"
    late = f'[ "$1" != restore ] || echo 200.00 1.00 >{shlex.quote(str(clock))}'
    lying(dest, uptime="100.00 1.00\n", ipset=f'#!/bin/sh\n{late}\nexec {real} "$@"\n')
    said = dest.refused("seal", stamp["boot_id"], stamp["stamp"])
    assert "the lease ended while it was sealed" in said
    assert dest.phase() == "stopped"
    clock.write_text("100.00 1.00\n")
    (dest.folder / "lying-ipset").write_text(f'#!/bin/sh\nexec {real} "$@"\n')
    assert dest.do("seal", stamp["boot_id"], stamp["stamp"]) == "sealed\n"


def test_the_phase_says_open_before_the_door_is(dest: Dest) -> None:
    """A host that dies in between must not be taken for one that can still go back."""
    dest.do("arm", dest.spec())
    stand(dest, "checked")
    seen, real = dest.folder / "seen", dest.folder / "real-ipset"
    look = f'case "$*" in *flush*) cat {dest.directory}/phase >>{seen} ;; esac'
    lying(dest, ipset=f'#!/bin/sh\n{look}\nexec {real} "$@"\n')
    dest.do("open")
    assert {line.split()[0] for line in seen.read_text().splitlines()} == {"open"}


def test_the_image_is_that_of_the_observer_also_after_a_second_go(dest: Dest) -> None:
    dest.stopped()
    before = dest.tree()
    dest.seal()
    for _ in range(2):
        dest.go()
        eventually("the participant serves", lambda: dest.phase() == "started")
        dest.do("halt")
    assert dest.tree() != before
    dest.do("image", "restore")
    assert dest.tree() == before


LEADER = """
import socket, sys
listener = socket.create_server(("10.77.0.2", 2181))
while True:
    client, _ = listener.accept()
    client.recv(4)
    client.sendall(b"Mode: leader\\nzk_server_state\\tleader\\nzk_synced_followers\\t1\\n")
    client.close()
    open(sys.argv[1], "a").write("asked\\n")
"""


def test_the_rest_does_not_start_beside_a_leader_of_too_few(dest: Dest) -> None:
    dest.sealed()
    asked = dest.folder / "asked"
    asked.touch()
    leader = dest.net.inside("peer", "python3", "-c", LEADER, str(asked))
    dest.net.children.append(subprocess.Popen(leader, stdout=subprocess.PIPE, text=True))
    dest.do("go", "rest", "10.77.0.2:2181", "3", "60000")
    eventually("it has asked again and again", lambda: asked.read_text().count("asked") > 3)
    assert dest.phase() == "go"
    assert "place reached" not in (dest.directory / "finish.log").read_text()
    dest.do("halt")


def test_a_leader_without_its_majority_does_not_open_by_itself(dest: Dest) -> None:
    dest.sealed()
    dest.do("go", "first", "10.77.0.1:2181", "4", "1")  # the leader here has two followers
    eventually("it looks", lambda: "no quorum seen" in dest.call("phase").values()["finisher"])
    assert dest.phase() == "started"
    assert dest.net.reaches("client", "10.77.0.1") == "ConnectionRefusedError"
    dest.do("halt")
