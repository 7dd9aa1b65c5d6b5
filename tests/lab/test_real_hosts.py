"""`init` and `preflight` on hosts as operators set them up: one shape of systemd unit and of files a host."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from tests.lab.tool import asked
from zkmigrate.hosts.zkm_host import program as text_of_zkm_host
from zkmigrate.inventory.inventory import Inventory, load
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.render import SERVER_PROPERTIES, ZOO_CFG
from zkmigrate.lab.spec import KAFKA_PORT, LabSpec, Role

pytestmark = pytest.mark.lab

SPEC = LabSpec()
READ = {
    "source.config", "source.myid", "source.security", "source.running", "kafka.addresses", "kafka.config",
    "kafka.security", "kafka.started-with", "kafka.only-place", "kafka.log-dirs", "host.names",
}  # fmt: skip
"""The findings that depend on how hosts are set up; others tell how loaded this machine is."""
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
ZK = f'/usr/bin/java $JVMFLAGS -cp "/etc/zookeeper/conf:/opt/zookeeper/lib/*" {MAIN}'
KAFKA = '/usr/bin/java $KAFKA_JVM -cp "/etc/kafka:/opt/kafka/lib/*:/opt/kafka/policy/*" kafka.Kafka'
UNITS = {
    "source1": f"ExecStart=/bin/sh -c 'exec {ZK} conf/zoo.cfg'\nWorkingDirectory=/etc/zookeeper\n",
    "source2": f"EnvironmentFile=/etc/default/zk.conf\nExecStart=/bin/bash -euo pipefail -c \\\n"
    f"  'cd /var/lib; exec {ZK} \\\n    ${{ZOO_CFG}}'\n",
    "source3": 'ExecStart=/usr/bin/env A=b "C=d e" /usr/bin/java $JVMFLAGS \\\n'
    f"  -cp /etc/zookeeper/conf:/opt/zookeeper/lib/* \\\n  {MAIN} {ZOO_CFG}\n",
    "dest1": f"ExecStart=/bin/sh -c 'exec {ZK} conf/zoo.cfg'\nWorkingDirectory=/etc/zookeeper\n",
    "dest2": f"ExecStart=/usr/bin/flock -n /run/lock/zk /bin/bash -lc 'exec {ZK} {ZOO_CFG}'\n",
    "broker1": f"ExecStart=/bin/sh -c 'ulimit -c 0; exec {KAFKA} server.properties'\n"
    "WorkingDirectory=/etc/kafka\n",
    "broker2": "EnvironmentFile=/etc/default/kafka*\nExecStart=/bin/bash -c '\\\n"
    f"  {KAFKA} ${{CONFIG}} \\\n  --override num.io.threads=8; exit $$?'\n",
    "broker3": "ExecStart=/usr/bin/nice -n 1 /usr/bin/env -u HOME /usr/bin/java $KAFKA_JVM \\\n"
    "  -cp /etc/kafka:/opt/kafka/lib/*:/opt/kafka/policy/* kafka.Kafka ../etc/kafka/server.properties\n"
    "WorkingDirectory=/var\n",
}
"""What stands in a drop-in of a host's unit."""


def rewritten(lab: Lab, host: str, path: str, *changes: tuple[str, str]) -> None:
    """Change a file of a host by regular expressions, each of which has to fit; owner and mode stay."""
    file = lab.host(host).root / path.lstrip("/")
    text = file.read_text()
    for pattern, new in changes:
        text, count = re.subn(pattern, new, text, flags=re.MULTILINE)
        assert count, f"{host}:{path} has no {pattern}"
    file.write_text(text)


def drop_in(lab: Lab, host: str, text: str) -> None:
    """Let a host's unit start its server as this text says."""
    name = "kafka" if host.startswith("broker") else "zookeeper"
    folder = lab.host(host).root / f"etc/systemd/system/{name}.service.d"
    folder.mkdir(exist_ok=True)
    (folder / "shape.conf").write_text(f"[Service]\nExecStart=\n{text}")
    lab.exec(host, ["systemctl", "daemon-reload"])


def put(lab: Lab, host: str, path: str, text: str) -> None:
    """Write a file of a host that everybody may read."""
    (lab.host(host).root / path.lstrip("/")).write_text(text)


def shape(lab: Lab) -> None:
    """Give each host its shape, and start its server anew with it."""
    brokers = [f"{host.address}:{KAFKA_PORT}" for host in lab.role(Role.BROKER)]
    with lab.operator(), closing(KafkaAdminClient(bootstrap_servers=brokers)) as client:
        client.create_topics([NewTopic("held", 3, 3)], timeout_ms=60_000)
    at = {host.name: host.address for host in lab.hosts.values()}
    rewritten(lab, "source1", ZOO_CFG, (rf"^server\.1={at['source1']}:", "server.1=0.0.0.0:"))
    put(lab, "source2", "/etc/default/zk.conf", f"# ours\nZOO_CFG='{ZOO_CFG}'\n")
    with (lab.host("source2").root / "etc/hosts").open("a") as hosts:
        hosts.write(f"{at['source1']} zk1.inside zk1\n{at['source2']} zk2.inside\n")
    names = {1: "ZK1.inside", 2: "zk2.inside", 3: "Source3"}
    lines = [(rf"^server\.{n}={at[f'source{n}']}:", f"server.{n}={name}:") for n, name in names.items()]
    rewritten(lab, "source2", ZOO_CFG, ("^dataDir=.*", "dataDir=zookeeper"), *lines)
    rewritten(lab, "source3", ZOO_CFG, (r"(?<=\d):", r"\\:"))
    rewritten(lab, "broker1", SERVER_PROPERTIES, (r"^broker\.id=.*\n", ""))
    put(lab, "broker2", "/etc/default/kafka-conf", f"CONFIG={SERVER_PROPERTIES}\n")
    to = "zookeeper.connect=SOURCE1:2181,source2:2181,[::ffff:10.71.0.13]:2181/"
    assert at["source3"] == "10.71.0.13"
    rewritten(lab, "broker2", SERVER_PROPERTIES, (r"^zookeeper\.connect=[^/]*/", to))
    rewritten(lab, "broker3", SERVER_PROPERTIES, (r"^log\.dirs=/var/", "log.dirs="), (r"(?<=\d):", r"\\:"))
    for host in ("broker1", "broker2", "broker3"):
        more = "listener.security.protocol.map=INSIDE:PLAINTEXT\ninter.broker.listener.name=INSIDE\n"
        rewritten(lab, host, SERVER_PROPERTIES, ("^listeners=PLAINTEXT", f"{more}listeners=INSIDE"))
    for host, text in UNITS.items():
        drop_in(lab, host, text)
    with ThreadPoolExecutor(3) as pool:
        for role, name in ((Role.SOURCE, "zookeeper"), (Role.BROKER, "kafka")):
            command = ["systemctl", "restart", name]
            list(pool.map(lambda host: lab.exec(host, command, timeout_s=180), lab.names(role)))  # noqa: B023
            if role is Role.SOURCE:
                lab.wait_for_quorum("source")
    lab.wait_for_brokers()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.up(SPEC, print) as made:
        shape(made)
        yield made


def begun(lab: Lab, path: Path) -> tuple[str, Inventory]:
    """What `init` writes when it is told one source server and the dest hosts."""
    dest = ",".join(host.address for host in lab.role(Role.DEST))
    argv = [sys.executable, "-m", "zkmigrate", "init", "--source", lab.host("source2").address]
    argv += ["--dest", dest, "--ssh-user", lab.user, "--ssh-key", str(lab.private_key)]
    argv += ["--known-hosts", str(lab.known_hosts), "--out", str(path)]
    done = subprocess.run(
        lab.operator_command(argv), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    text = path.read_text() if path.exists() else ""
    print(done.stdout, done.stderr, text, sep="\n")
    assert done.returncode == 0
    return text, load(path)


def judged(lab: Lab, path: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """What `preflight` says of the host's files, units and names: id and target → whether it holds, and what
    was seen."""
    done = asked(lab, path, "preflight", "--json", timeout_s=300)
    findings = json.loads(done.stdout)["findings"]
    return {(one["id"], one["target"]): (one["held"], one["seen"]) for one in findings if one["id"] in READ}


def test_init_and_preflight_read_every_shape(lab: Lab, tmp_path: Path) -> None:
    wanted = load(write_inventory(lab, tmp_path / "wanted.yml"))
    text, found = begun(lab, tmp_path / "migration.yml")
    assert (found.source, found.kafka) == (wanted.source, wanted.kafka)
    assert (found.dest.hosts, found.dest.data_dir) == (wanted.dest.hosts, wanted.dest.data_dir)
    assert found.dest.config == ZOO_CFG
    assert " BUT " not in text

    judgements = judged(lab, tmp_path / "migration.yml")
    assert {id for id, _ in judgements} == READ
    assert {key: seen for key, (held, seen) in judgements.items() if held != "yes"} == {}


def test_the_logs_of_a_broker_below_its_units_shell_are_counted(lab: Lab) -> None:
    """As the roll asks for them while such a broker starts."""
    program = text_of_zkm_host().decode()
    words = ["sh", "-s", "--", "--run", "looks", "recovery", "kafka.service"]
    read = {host: lab.exec(host, words, stdin=program).stdout for host in lab.names(Role.BROKER)}
    assert set(read.values()) == {"logs=3 of=3 segments=0\n"}


def test_what_is_wrong_behind_a_shell_or_a_name_is_found(lab: Lab, tmp_path: Path) -> None:
    """No server is started anew: what would happen at the next start is read from files."""
    path = write_inventory(lab, tmp_path / "migration.yml")
    put(lab, "broker1", "/opt/render.sh", "#!/bin/sh\necho zookeeper.connect=x >>/etc/kafka/x\n")
    drop_in(lab, "broker1", UNITS["broker1"].replace("ulimit -c 0", ". /opt/render.sh"))
    drop_in(lab, "broker2", UNITS["broker2"].replace("/usr/bin/java", "$(cat /etc/java)"))
    rewritten(lab, "broker3", SERVER_PROPERTIES, (r"^(zookeeper\.connect=)[^/]*/", r"\1zk.nowhere\\:2181/"))
    rewritten(
        lab,
        "source2",
        ZOO_CFG,
        (r"^server\.1=ZK1", "server.1=zk9"),
        (r"^server\.3=.*:2", "server.3=source1:2"),
    )
    found = judged(lab, path)
    assert found["kafka.only-place", "broker1"] == ("no", "/opt/render.sh:2")
    held, seen = found["kafka.only-place", "broker2"]
    assert held == "unknown"
    assert "cannot determine which file" in seen
    assert found["kafka.only-place", "broker3"][0] == "yes"
    held, seen = found["kafka.config", "broker3"]
    assert held == "unknown"
    assert "zk.nowhere does not resolve on broker3" in seen
    held, seen = found["source.config", "source2"]
    assert held == "no"
    assert "server.1: zk9.inside does not resolve on source2" in seen
    assert f"server.3 is source1, in the inventory {lab.host('source3').address}" in seen
