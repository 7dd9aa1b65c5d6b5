from __future__ import annotations

import subprocess

import pytest

from zkmigrate.lab import render, service
from zkmigrate.lab.network import link_address
from zkmigrate.lab.render import HostFile
from zkmigrate.lab.spec import HostPlan, LabSpec, Role, hosts_of


def host(name: str, spec: LabSpec | None = None) -> HostPlan:
    return next(plan for plan in hosts_of(spec or LabSpec()) if plan.name == name)


def files(name: str, spec: LabSpec | None = None) -> dict[str, HostFile]:
    chosen = spec or LabSpec()
    return {
        file.path: file for file in render.host_files(chosen, host(name, chosen), "HOSTKEY", "ssh-ed25519 X")
    }


def test_source_runs_zookeeper_at_boot_and_dest_is_empty() -> None:
    wanted = "/etc/systemd/system/multi-user.target.wants/zookeeper.service"
    source, dest = files("source2"), files("dest2")
    assert source[render.ZOO_CFG].content == render.source_zoo_cfg(LabSpec())
    assert source["/var/lib/zookeeper/myid"].content == "2\n"
    assert source[wanted].link == "/etc/systemd/system/zookeeper.service"
    assert "/etc/systemd/system/zookeeper.service" in dest
    assert not {render.ZOO_CFG, "/var/lib/zookeeper/myid", wanted} & set(dest)


def test_the_operator_may_read_on_source_and_has_sudo_only_elsewhere() -> None:
    assert "/etc/sudoers.d/ops" not in files("source1")
    for name in ("dest1", "broker1"):
        assert files(name)["/etc/sudoers.d/ops"].content == "ops ALL=(ALL) NOPASSWD: ALL\n"
    assert "zookeeper:x:880:ops\n" in render.account_lines(host("source1"))["/etc/group"]
    assert "zookeeper:x:880:\n" in render.account_lines(host("dest1"))["/etc/group"]
    source = files("source1")
    assert source[render.ZOOKEEPER_DATA].mode == source["/etc/zookeeper/conf"].mode == 0o750
    assert source[render.ZOO_CFG].mode == 0o640
    assert "UMask=0027\n" in str(source[f"{render.UNITS}/zookeeper.service"].content)


@pytest.mark.parametrize("name", ["source1", "dest1", "broker1", "client1"])
def test_directories_come_before_what_is_in_them(name: str) -> None:
    listed = list(files(name).values())
    seen: list[str] = []
    for file in listed:
        if file.content is None and file.link is None:
            assert not any(path.startswith(file.path + "/") for path in seen), file.path
        seen.append(file.path)
    assert len(seen) == len(set(seen))


def test_private_keys_are_private() -> None:
    made = files("dest1")
    assert made["/etc/ssh/ssh_host_ed25519_key"].mode == 0o600
    assert made["/home/ops/.ssh"].mode == 0o700
    assert made["/home/ops/.ssh/authorized_keys"].content == "ssh-ed25519 X"


def test_broker_config_names_source_and_the_chroot() -> None:
    spec = LabSpec(chroot="/tenants/kafka", session_timeout_ms=6000)
    text = files("broker3", spec)[render.SERVER_PROPERTIES].content
    assert text is not None
    seen = dict(line.split("=", 1) for line in text.splitlines())
    assert seen["broker.id"] == "3"
    assert seen["broker.rack"] == "r3"
    assert seen["zookeeper.connect"] == "10.71.0.11:2181,10.71.0.12:2181,10.71.0.13:2181/tenants/kafka"
    assert seen["zookeeper.session.timeout.ms"] == "6000"
    stock = ("min.insync", "replication.factor", "min.isr", "num.replica", "unclean", "message.", "default.")
    assert [key for key in seen if any(word in key for word in stock)] == []


def test_link_address_follows_from_the_address() -> None:
    assert link_address("10.71.0.31") == "02:00:0a:47:00:1f"
    addresses = [link_address(plan.address) for plan in hosts_of(LabSpec(dest_count=5))]
    assert len(set(addresses)) == len(addresses)


def test_without_units_dest_and_brokers_have_a_script_and_source_keeps_its_unit() -> None:
    spec = LabSpec(service="commands")
    for name, server in (("dest1", "zookeeper"), ("broker1", "kafka")):
        there = files(name, spec)
        assert f"{render.UNITS}/{server}.service" not in there
        script = there[f"/opt/{server}/service"]
        assert script.mode == 0o755
        text = str(script.content)
        assert f"runuser -u {server} -- " in text
        assert f"3>/run/{server}.pid &\n    until [ -s /run/{server}.pid ]" in text
        assert ("zkm-host guard || exit 1" in text) is (name == "dest1")
        assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    assert f"{render.UNITS}/zookeeper.service" in files("source1", spec)
    assert "/opt/zookeeper/service" not in files("source1", spec)
    assert "/opt/zookeeper/service" not in files("dest1")


def test_the_lab_starts_a_script_in_a_cgroup_of_the_host_and_its_stop_waits() -> None:
    """A JVM that `nsenter` started in a cgroup from outside died as it looked for its own."""
    spec = LabSpec(service="commands")
    start = service.control_command(spec, Role.DEST, "start")
    assert start[0] == "systemd-run"
    assert start[-2:] == ["/opt/zookeeper/service", "start"]
    assert "while /opt/zookeeper/service status" in service.control_command(spec, Role.DEST, "stop")[-1]
    assert service.control_command(spec, Role.SOURCE, "stop") == ["systemctl", "stop", "zookeeper"]
    assert service.control_command(LabSpec(), Role.BROKER, "start") == ["systemctl", "start", "kafka"]


def test_a_shared_machine_has_the_files_of_both_hosts_and_sudo() -> None:
    spec = LabSpec(shared="source-brokers")
    shared, alone = files("source1", spec), files("source1")
    broker = files("broker1")
    assert alone.keys() | broker.keys() == shared.keys()
    assert shared["/etc/sudoers.d/ops"] == broker["/etc/sudoers.d/ops"]
    assert shared["/etc/hostname"].content == "source1\n"
    assert "listeners=PLAINTEXT://10.71.0.11:9092\n" in str(shared[render.SERVER_PROPERTIES].content)
