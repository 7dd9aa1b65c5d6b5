"""The lab itself, on real hosts: what other lab tests take for granted."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from tests.lab import no_trace
from zkmigrate.lab import capture_answers, fault, readiness
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.kafka_metadata import metadata_problem
from zkmigrate.lab.lab import Lab, sweep
from zkmigrate.lab.load.target import config_for
from zkmigrate.lab.spec import LabSpec, Role
from zkmigrate.lab.wait import wait_until

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.up(LabSpec(tree_size=1000, data_disk_mb=256), print) as made:
        yield made


def mode(lab: Lab, host: str) -> str | None:
    with lab.operator():
        return readiness.server_mode(readiness.four_letter_word(lab.host(host).address, "srvr"))


def reaches(lab: Lab, host: str, other: str) -> bool:
    return lab.exec(host, ["nc", "-z", "-w1", lab.host(other).address, "22"], check=False).returncode == 0


def wait_reaches(lab: Lab, host: str, other: str) -> None:
    """After a partition the first tries may still wait for an answer to ARP."""
    wait_until(f"{host} reaches {other}", lambda: None if reaches(lab, host, other) else "an answer", 120)


def lab_fault(lab: Lab, *words: str) -> None:
    """One ``lab fault`` command, as a user types it."""
    subprocess.run([sys.executable, "-m", "zkmigrate.lab", "fault", *words, "--lab", lab.id], check=True)


def boot_id(lab: Lab, host: str) -> str:
    return lab.exec(host, ["cat", "/proc/sys/kernel/random/boot_id"]).stdout


def watch_for_a_clean_stop(lab: Lab, host: str) -> None:
    """Starts a service that leaves a file when it is asked to end."""
    script = 'trap "echo asked > /var/lib/witness; exit" TERM; touch /run/witness; sleep infinity & wait'
    lab.exec(host, ["rm", "-f", "/var/lib/witness"])
    lab.exec(host, ["systemd-run", "--quiet", "--unit=witness", "sh", "-c", script])

    def missing() -> str | None:
        there = lab.exec(host, ["test", "-e", "/run/witness"], check=False).returncode == 0
        return None if there else "/run/witness"

    wait_until(f"the witness on {host} waits", missing, 120)


def test_every_host_is_a_machine_of_its_own(lab: Lab) -> None:
    for host in lab.hosts.values():
        assert lab.exec(host.name, ["hostname"]).stdout == f"{host.name}\n"
        assert lab.exec(host.name, ["systemctl", "is-system-running", "--wait"]).stdout == "running\n"
    boots = {lab.exec(name, ["cat", "/proc/sys/kernel/random/boot_id"]).stdout for name in lab.hosts}
    assert len(boots) == len(lab.hosts)


def test_source_serves_dest_is_empty_and_brokers_are_registered(lab: Lab) -> None:
    states = lab.status()["hosts"]
    assert sorted(states[f"source{n}"]["mode"] for n in (1, 2, 3)) == ["follower", "follower", "leader"]
    for host in lab.role(Role.DEST):
        assert states[host.name]["unit_state"] == "inactive"
        assert lab.exec(host.name, ["find", "/var/lib/zookeeper", "-mindepth", "1"]).stdout == ""
        assert not (host.root / "etc/zookeeper/conf/zoo.cfg").exists()
    with lab.zookeeper() as client:
        assert sorted(client.get_children("/kafka/brokers/ids")) == ["1", "2", "3"]
        racks = [json.loads(client.get(f"/kafka/brokers/ids/{n}")[0])["rack"] for n in (1, 2, 3)]
        assert racks == ["r1", "r2", "r3"]
        assert len(client.get_children("/filler")) == 1000


def test_ssh_verifies_host_keys_and_gives_sudo_except_on_source(lab: Lab) -> None:
    sudo = {}
    for host in lab.hosts.values():
        client = paramiko.SSHClient()
        client.load_host_keys(str(lab.known_hosts))
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        with lab.operator():
            client.connect(
                host.address, username=lab.user, key_filename=str(lab.private_key), allow_agent=False
            )
        try:
            assert client.exec_command("id -un")[1].read() == b"ops\n"
            sudo[host.name] = client.exec_command("sudo -n id -un")[1].read() == b"root\n"
            if host.role is Role.SOURCE:
                read = client.exec_command("cat /var/lib/zookeeper/myid /etc/zookeeper/conf/zoo.cfg")[
                    1
                ].read()
                assert read.startswith(f"{host.myid}\n".encode())
                assert b"dataDir=/var/lib/zookeeper\n" in read
                logs = client.exec_command("head -c4 /var/lib/zookeeper/version-2/log.*")[1].read()
                assert b"ZKLG" in logs
        finally:
            client.close()
    assert {name for name, granted in sudo.items() if not granted} == {"source1", "source2", "source3"}


def test_the_operator_thread_moves_in_and_out(lab: Lab) -> None:
    here = Path("/proc/thread-self/ns/net").readlink()
    with lab.operator():
        assert Path("/proc/thread-self/ns/net").readlink() != here
        address = [item[4][0] for item in socket.getaddrinfo("10.71.0.2", 0, type=socket.SOCK_STREAM)]
        with socket.socket() as bound:
            bound.bind((address[0], 0))
    assert Path("/proc/thread-self/ns/net").readlink() == here
    with socket.socket() as outside, pytest.raises(OSError, match="Cannot assign"):
        outside.bind(("10.71.0.2", 0))


def test_topics_wait_until_every_broker_knows_all_brokers(lab: Lab) -> None:
    """Registered is not enough: the controller, which creates topics, may not have heard of a broker yet."""
    bootstrap = config_for(lab.spec).bootstrap
    with lab.operator():
        wait_until("metadata of all brokers", lambda: metadata_problem(bootstrap, 3), 180)
        assert "3 of 4 brokers" in (metadata_problem(bootstrap, 4) or "")
        nobody = "10.71.0.31:1"
        assert (metadata_problem(f"{bootstrap},{nobody}", 3) or "").startswith(nobody)


def test_nothing_of_the_lab_is_in_the_base_namespace(lab: Lab) -> None:
    names = subprocess.run(["ip", "-json", "link"], capture_output=True, check=True).stdout
    seen = {link["ifname"] for link in json.loads(names)}
    assert not seen & ({"br0", "op"} | set(lab.hosts))


def test_kill_and_start(lab: Lab) -> None:
    fault.kill(lab, "source1")
    assert mode(lab, "source1") is None
    fault.start(lab, "source1")
    lab.wait_for_quorum(Role.SOURCE)


def test_pause_and_resume(lab: Lab) -> None:
    fault.pause(lab, "source1")
    with lab.operator():
        assert readiness.four_letter_word(lab.host("source1").address, "ruok", timeout_s=0.5) is None
    fault.resume(lab, "source1")
    lab.wait_for_quorum(Role.SOURCE)


def test_a_fault_on_a_server_that_does_not_run_is_refused(lab: Lab) -> None:
    with pytest.raises(LabError, match=r"zookeeper\.service does not run on dest1"):
        fault.kill(lab, "dest1")
    with pytest.raises(LabError, match="client1 runs no server"):
        fault.pause(lab, "client1")
    with pytest.raises(LabError, match="has no host 'dest9'"):
        fault.partition(lab, "dest9")


def test_partition_of_two_hosts_and_of_one_from_all(lab: Lab) -> None:
    fault.partition(lab, "dest1", "dest2")
    assert not reaches(lab, "dest1", "dest2")
    assert not reaches(lab, "dest2", "dest1")
    wait_reaches(lab, "dest1", "dest3")
    fault.heal(lab, "dest1", "dest2")
    wait_reaches(lab, "dest1", "dest2")
    fault.partition(lab, "dest1")
    assert not reaches(lab, "dest1", "dest3")
    assert not reaches(lab, "broker1", "dest1")
    fault.heal(lab, "dest1")
    wait_reaches(lab, "broker1", "dest1")


def test_operator_cut_leaves_the_hosts_connected(lab: Lab) -> None:
    fault.operator_cut(lab)
    try:
        assert mode(lab, "source2") is None
        wait_reaches(lab, "broker1", "source2")
    finally:
        fault.operator_restore(lab)
    lab.wait_for_quorum(Role.SOURCE)


def test_reboot_loses_rules_and_sets_and_starts_enabled_units(lab: Lab) -> None:
    for command in (
        ["ipset", "create", "kept", "hash:ip"],
        ["iptables", "-N", "OURS"],
        ["iptables", "-A", "OURS", "-m", "set", "--match-set", "kept", "src", "-j", "DROP"],
    ):
        lab.exec("source1", command)
    watch_for_a_clean_stop(lab, "source1")
    before = boot_id(lab, "source1")
    fault.reboot(lab, "source1")
    assert boot_id(lab, "source1") != before
    assert lab.exec("source1", ["cat", "/var/lib/witness"]).stdout == "asked\n"
    assert "OURS" not in lab.exec("source1", ["iptables-save"]).stdout
    assert lab.exec("source1", ["ipset", "list"]).stdout == ""
    lab.wait_for_quorum(Role.SOURCE)


def test_a_hard_reboot_asks_no_service_to_end(lab: Lab) -> None:
    watch_for_a_clean_stop(lab, "source3")
    before = boot_id(lab, "source3")
    lab_fault(lab, "reboot", "--hard", "source3")
    assert boot_id(lab, "source3") != before
    assert lab.exec("source3", ["test", "-e", "/var/lib/witness"], check=False).returncode == 1
    lab.wait_for_quorum(Role.SOURCE)


def test_a_host_without_power_stays_off_until_it_has_it_again(lab: Lab) -> None:
    lab.exec("dest2", ["sh", "-c", "echo written > /var/lib/zookeeper/kept; ipset create kept hash:ip"])
    before = boot_id(lab, "dest2")
    lab_fault(lab, "power-cut", "dest2")
    assert lab.host("dest2").pid == 0
    assert not reaches(lab, "dest1", "dest2")
    with pytest.raises(LabError, match=rf"dest2 of lab {lab.id} is down"):
        lab.exec("dest2", ["true"])
    lab_fault(lab, "power-on", "dest2")
    assert boot_id(lab, "dest2") != before
    assert lab.exec("dest2", ["cat", "/var/lib/zookeeper/kept"]).stdout == "written\n"
    assert lab.exec("dest2", ["ipset", "list"]).stdout == ""
    wait_reaches(lab, "dest1", "dest2")
    lab.exec("dest2", ["rm", "/var/lib/zookeeper/kept"])


def test_rules_removed_keeps_the_sets(lab: Lab) -> None:
    lab.exec("dest1", ["ipset", "create", "kept", "hash:ip"])
    lab.exec("dest1", ["iptables", "-N", "OURS"])
    lab.exec("dest1", ["iptables", "-I", "INPUT", "-j", "OURS"])
    fault.rules_removed(lab, "dest1")
    assert "OURS" not in lab.exec("dest1", ["iptables-save"]).stdout
    assert "Name: kept" in lab.exec("dest1", ["ipset", "list"]).stdout
    lab.exec("dest1", ["ipset", "destroy", "kept"])


def test_a_wrong_clock_is_seen_by_the_operator(lab: Lab) -> None:
    def skew_s() -> float:
        there, here = (
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
            for command in (lab.ssh_command("dest2", ["date +%s"]), ["date", "+%s"])
        )
        return int(there) - int(here)

    fault.clock(lab, "dest2", 300)
    assert 290 < skew_s() < 310
    fault.clock_restore(lab, "dest2")
    assert -10 < skew_s() < 10


def test_a_slow_disk_delays_each_fsync(lab: Lab) -> None:
    fault.slow_disk(lab, "source1", 1100)
    lab.wait_for_quorum(Role.SOURCE)

    def warned() -> str | None:
        with lab.zookeeper() as client:
            client.set("/filler/0000000", b"slow")
        text = lab.exec("source1", ["journalctl", "--no-pager", "--unit=zookeeper"]).stdout
        return None if "fsync-ing the write ahead log" in text else "ZooKeeper's warning of a slow fsync"

    wait_until("slow fsync noticed", warned, 120)
    fault.slow_disk_restore(lab, "source1")
    lab.wait_for_quorum(Role.SOURCE)


def test_a_full_disk_refuses_a_single_block_and_is_freed(lab: Lab) -> None:
    write = ["dd", "if=/dev/zero", "of=/var/lib/zookeeper/one", "bs=1k", "count=1", "conv=fsync"]
    fault.disk_full(lab, "dest3")
    refused = lab.exec("dest3", write, check=False)
    assert "No space left on device" in refused.stderr
    fault.disk_free(lab, "dest3")
    lab.exec("dest3", write)
    lab.exec("dest3", ["rm", "/var/lib/zookeeper/one"])


def test_recording_holds_what_the_servers_answered(lab: Lab, tmp_path: Path) -> None:
    capture_answers.record(lab, tmp_path / "out")
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    assert set(manifest["hosts"]) == set(lab.hosts)
    assert manifest["hosts"]["source1"]["version"] == "zookeeper 3.5.8"
    source = tmp_path / "out/source1"
    assert (source / "word-ruok.txt").read_text() == "imok"
    assert "zk_server_state" in (source / "word-mntr.txt").read_text()
    assert (source / "files/etc/zookeeper/conf/zoo.cfg").read_text().startswith("tickTime=2000\n")
    assert list(source.glob("files/var/lib/zookeeper/version-2/snapshot.*.gz"))
    assert "cluster.id=" in (tmp_path / "out/broker1/files/var/lib/kafka/meta.properties").read_text()
    with pytest.raises(LabError, match="not empty"):
        capture_answers.record(lab, tmp_path / "out")


def test_a_killed_builder_is_swept_and_the_living_lab_is_not(lab: Lab) -> None:
    program = textwrap.dedent(
        """
        from zkmigrate.lab.lab import Lab
        from zkmigrate.lab.spec import LabSpec
        Lab.up(LabSpec(), lambda line: print(line, flush=True))
        """
    )
    builder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert builder.stdout is not None
    lab_id = next(line for line in builder.stdout if line.startswith("lab ")).split()[1].rstrip(":")
    assert any(line.startswith("boot: ") for line in builder.stdout)
    os.kill(builder.pid, signal.SIGKILL)
    builder.wait()
    builder.stdout.close()
    assert no_trace.traces(lab_id)
    assert sweep(print) == [lab_id]
    assert no_trace.traces(lab_id) == []
    assert lab.status()["ready"]
    lab.wait_for_quorum(Role.SOURCE)


def test_ctrl_c_while_building_takes_everything_down(lab: Lab) -> None:
    command = [sys.executable, "-m", "zkmigrate.lab", "up"]
    builder = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert builder.stderr is not None
    lab_id = next(line for line in builder.stderr if line.startswith("lab ")).split()[1].rstrip(":")
    assert lab_id != lab.id
    assert any(line.startswith("disks: ") for line in builder.stderr)
    builder.send_signal(signal.SIGINT)
    builder.stderr.read()
    builder.stderr.close()
    assert builder.wait() != 0
    assert no_trace.traces(lab_id) == []
