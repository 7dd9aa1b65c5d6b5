"""Labs whose brokers share machines with ZooKeeper servers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.lab import no_trace
from zkmigrate.lab.lab import Lab

pytestmark = pytest.mark.lab


def command(*words: str) -> str:
    """Run one command of the lab as a user types it, and return its output."""
    argv = [sys.executable, "-m", "zkmigrate.lab", *words]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout


@pytest.mark.parametrize(("shared", "below"), [("source-brokers", "source"), ("dest-brokers", "dest")])
def test_a_broker_and_a_zookeeper_server_are_on_one_machine(shared: str, below: str) -> None:
    up = json.loads(command("up", "--shared", shared, "--json"))
    lab = Lab.load(up["id"])
    try:
        hosts, both = up["hosts"], ("broker1", f"{below}1")
        assert [hosts[f"broker{n}"]["address"] for n in (1, 2, 3)] == [
            hosts[f"{below}{n}"]["address"] for n in (1, 2, 3)
        ]
        assert {hosts[f"broker{n}"]["unit_state"] for n in (1, 2, 3)} == {"active"}
        boots = {lab.exec(host, ["cat", "/proc/sys/kernel/random/boot_id"]).stdout for host in both}
        assert len(boots) == 1
        known = {
            host: line.split()[-1]
            for line in lab.known_hosts.read_text().splitlines()
            for host in line.split()[0].split(",")
        }
        assert known["broker1"] == known[f"{below}1"]
        assert command("ssh", "broker1", "--lab", lab.id, "sudo", "-n", "hostname") == f"{below}1\n"

        command("fault", "kill", "broker1", "--lab", lab.id)
        seen = json.loads(command("status", "--lab", lab.id, "--json"))["hosts"]
        assert seen["broker1"]["unit_state"] == "failed"
        assert seen[f"{below}1"]["unit_state"] == hosts[f"{below}1"]["unit_state"]

        command("fault", "partition", "broker2", "client1", "--lab", lab.id)
        reach = ["nc", "-z", "-w1", lab.host(f"{below}2").address, "22"]
        assert lab.exec("client1", reach, check=False).returncode == 1
        command("fault", "power-cut", "broker1", "--lab", lab.id)
        assert lab.host(f"{below}1").pid == lab.host("broker1").pid == 0
        command("fault", "power-on", f"{below}1", "--lab", lab.id)
        assert lab.host("broker1").pid == lab.host(f"{below}1").pid > 0
    finally:
        command("down", "--lab", lab.id)
    assert no_trace.traces(lab.id) == []
