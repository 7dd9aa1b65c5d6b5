"""A lab with all kinds of security, built by the verb: who is let in, what is kept, and what is refused."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionClosedError, NoAuthError
from ruamel.yaml import YAML

from tests.lab.dest_hosts import write
from zkmigrate.inventory.inventory import load
from zkmigrate.lab import canary_topic, readiness
from zkmigrate.lab.baseline import baseline
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.kafka_login import PLAINTEXT
from zkmigrate.lab.kafka_metadata import metadata_problem
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.config import MOVE_KINDS
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.login import Login
from zkmigrate.lab.render import ZOO_CFG, ZOOKEEPER_DATA
from zkmigrate.lab.spec import SECURE_PORT, Role
from zkmigrate.lab.wait import wait_until

pytestmark = pytest.mark.lab

KINDS = "quorum-sasl,quorum-tls,sasl,tls,acl,kafka-tls,kafka-sasl,kafka-acl"
VERSIONS = ("--source", "3.8.4", "--dest", "3.9.5", "--kafka", "3.9.1")
TOPICS = "/kafka/brokers/topics"
CLAIMS = (
    "lost",
    "duplicated",
    "cut_back",
    "acked_creates_missing",
    "raw_sessions_lost",
    "other_tenant_unharmed",
)


def verb(*words: str) -> str:
    """What a verb of the lab prints, as a user types it."""
    argv = [sys.executable, "-m", "zkmigrate.lab", *words]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=300, check=True).stdout.strip()


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    made = verb("up", "--security", KINDS, *VERSIONS)
    try:
        yield Lab.load(made)
    finally:
        verb("down", "--lab", made)


@pytest.fixture(scope="module")
def inventory(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("inventory") / "migration.yml"
    verb("inventory", "--lab", lab.id, str(file))
    read = load(file)
    kafka, zookeeper = read.kafka.client, read.zookeeper.client
    assert kafka is not None
    assert (kafka.protocol, kafka.user) == ("SASL_SSL", "operator")
    assert zookeeper is not None
    assert zookeeper.sasl is not None
    assert zookeeper.digest is not None
    assert zookeeper.tls is not None
    assert (zookeeper.sasl.user, zookeeper.digest.user) == ("operator", "super")
    body: dict[str, Any] = YAML(typ="safe").load(file)
    return body


@contextmanager
def connected(login: Login, address: str) -> Iterator[KazooClient]:
    client = login.client(f"{address}:{SECURE_PORT}")
    try:
        client.start(timeout=60)
        yield client
    finally:
        client.stop()
        client.close()


def join(lab: Lab, settings: dict[str, str]) -> None:
    """Start dest as observers of source, with the settings of the inventory."""
    source, dest = lab.role(Role.SOURCE), lab.role(Role.DEST)
    lines = [f"{key}={value}" for key, value in settings.items()]
    lines += [f"secureClientPort={SECURE_PORT}", f"dataDir={ZOOKEEPER_DATA}", "peerType=observer"]
    lines += [f"server.{host.myid}={host.address}:2888:3888" for host in source]
    lines += [f"server.{host.myid}={host.address}:2888:3888:observer" for host in dest]
    for host in dest:
        write(lab, host.name, f"{ZOOKEEPER_DATA}/myid", "0644", f"{host.myid}\n")
        write(lab, host.name, ZOO_CFG, "0644", "\n".join(lines) + "\n")
        lab.exec(host.name, ["systemctl", "start", "zookeeper.service"])

    def missing() -> str | None:
        modes = lab.zookeeper_modes(lab.names(Role.DEST))
        return None if set(modes.values()) == {"observer"} else str(modes)

    wait_until("dest observes", missing, 120)


def test_brokers_and_load_log_in_and_all_that_was_acknowledged_is_there(
    lab: Lab, inventory: dict[str, Any], tmp_path: Path
) -> None:
    join(lab, inventory["dest"]["settings"])
    runner = runner_for(lab, tmp_path / "load")
    runner.start(MOVE_KINDS)
    runner.wait_flowing(MOVE_KINDS, 120)
    time.sleep(2)
    seen = baseline(lab)
    assert len(seen["sessions"]) >= 3, "the raw clients"
    assert len(seen["ephemerals"]) == 4, "the brokers and their controller"
    assert runner.finish() == []
    verdict = judge(load_history(runner.directory))
    assert {id: verdict[id].held.value for id in CLAIMS} == dict.fromkeys(CLAIMS, "yes")
    with lab.zookeeper(Role.DEST) as client:
        broker = {
            f"{acl.id.scheme}:{acl.id.id}:{acl.perms}" for acl in client.get_acls(f"{TOPICS}/load-a")[0]
        }
        tenant = {acl.id.scheme for acl in client.get_acls("/other/counters/c-1")[0]}
    assert broker == {"sasl:kafka:31", "x509:CN=kafka:31", "world:anyone:1"}
    assert tenant == {"sasl", "x509", "digest"}


def test_nobody_gets_in_without_what_the_lab_asks_for(lab: Lab, tmp_path: Path) -> None:
    """No certificate: no connection. No user, or a wrong password: no rights."""
    address, whole = lab.host("source1").address, lab.login()
    wrong = tmp_path / "wrong"
    wrong.touch(0o600)
    wrong.write_text("wrong\n")
    with lab.operator():
        assert readiness.four_letter_word(address, "srvr") is None
        assert readiness.four_letter_word(address, "srvr", SECURE_PORT, timeout_s=1) is None
        stranger = ssl.create_default_context(cafile=whole.ca)
        assert readiness.four_letter_word(address, "srvr", SECURE_PORT, tls=stranger) is None
        assert "Mode: " in (lab.word(address, "srvr") or "")
        with connected(replace(whole, sasl_user="", digest_user=""), address) as nameless:
            for path in ("/kafka/config/users", "/other/counters/c-1"):
                with pytest.raises(NoAuthError):
                    nameless.get(path)
            with pytest.raises(NoAuthError):
                nameless.set(f"{TOPICS}/load-a", b"{}")
        with (
            connected(replace(whole, sasl_password=str(wrong)), address) as refused,
            pytest.raises((AuthFailedError, ConnectionClosedError)),
        ):
            refused.get("/kafka")


def test_brokers_let_in_who_logs_in_and_keep_users_and_acls_in_zookeeper(lab: Lab, tmp_path: Path) -> None:
    bootstrap, login = f"{lab.host('broker1').address}:9092", lab.kafka_login()
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong\n")
    with lab.operator():
        for stranger in (PLAINTEXT, replace(login, password=str(wrong))):
            assert metadata_problem(bootstrap, 3, stranger) is not None
        wait_until("metadata of all brokers", lambda: metadata_problem(bootstrap, 3, login), 60)
    assert canary_topic.make(lab) == canary_topic.TOPIC
    with lab.zookeeper() as client:
        assert sorted(client.get_children("/kafka/config/users")) == ["client", "operator"]
        assert "User:client" in client.get("/kafka/kafka-acl/Topic/*")[0].decode()


def test_servers_speak_tls_to_each_other(lab: Lab) -> None:
    context = ssl.create_default_context(cafile=lab.login().ca)
    context.load_cert_chain(lab.login().certificate, lab.login().key)
    for name in ("source1", "dest1"):
        address = lab.host(name).address
        with (
            lab.operator(),
            socket.create_connection((address, 3888), 5) as plain,
            context.wrap_socket(plain, server_hostname=address) as connection,
        ):
            assert str(connection.version()).startswith("TLSv1.")
        logged = lab.exec(name, ["journalctl", "-u", "zookeeper", "--no-pager", "-o", "cat"]).stdout
        assert "Successfully completed the authentication using SASL" in logged


def test_secrets_are_in_files_alone(lab: Lab, inventory: dict[str, Any]) -> None:
    folder = Path(lab.login().ca).parent
    secrets = {path.name: path.read_bytes().strip() for path in folder.glob("*.password")}
    assert len(secrets) == 6
    visible = {"the inventory": str(inventory).encode()}
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                visible[str(process / name)] = (process / name).read_bytes()
            except OSError:
                continue  # it has ended
    for host in lab.hosts.values():
        visible[host.name] = lab.exec(host.name, ["journalctl", "--no-pager", "-o", "cat"]).stdout.encode()
    assert [
        (place, name) for place, text in visible.items() for name, one in secrets.items() if one in text
    ] == []
