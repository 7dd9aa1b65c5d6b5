"""A lab with all kinds of security, built by the verb: who is let in, what is kept, and what is refused."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.protocol.states import KeeperState
from ruamel.yaml import YAML

from tests.lab import delegation_token, tool
from tests.lab.sessions import lost_since
from zkmigrate.inventory.inventory import load
from zkmigrate.lab import canary_topic, planted, readiness
from zkmigrate.lab.baseline import baseline
from zkmigrate.lab.credentials import TENANT
from zkmigrate.lab.demo import TRIES, next_try
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.judge import Policy, judge, load_history
from zkmigrate.lab.kafka_login import PLAINTEXT
from zkmigrate.lab.kafka_metadata import metadata_problem
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.login import Login
from zkmigrate.lab.planted import Search, secrets_of
from zkmigrate.lab.spec import SECURE_PORT, Role
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.finding import Held

pytestmark = pytest.mark.lab

KINDS = "quorum-sasl,quorum-tls,sasl,tls,acl,kafka-tls,kafka-sasl,kafka-acl"
RUN = "secured"
VERSIONS = ("--source", "3.8.4", "--dest", "3.9.5", "--kafka", "3.9.1")
SESSION_MS = 60_000
SESSIONS = ("--session-timeout-ms", str(SESSION_MS), "--tick-time-ms", "3000")
TOPICS = "/kafka/brokers/topics"
SERVERS_OWN = {(f"{kind} of java", "digest of super") for kind in (planted.ARGUMENTS, planted.ENVIRONMENTS)}
"""Where a ZooKeeper server needs one: superDigest is one of its Java options."""
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
    made = verb("up", "--security", KINDS, *VERSIONS, *SESSIONS)
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


def refusal_missing(states: list[KeeperState]) -> str | None:
    """The states that a client had without a refusal; None if the server has refused its login."""
    return None if KeeperState.AUTH_FAILED in states else f"only {states}"


@dataclass
class Night:
    """The secured lab with the operator's directory: the move, and what it must keep."""

    lab: Lab
    directory: Path

    def tool(self, verb: str, *options: str) -> str:
        """Run a verb to its end; all that it said. A window that turns back is tried twice more.

        A host or a broker on a busy machine may answer later than the limits in the window. The run is right
        to turn back then, and the operator begins that stage again, as in the demo.
        """
        said = ""
        for tried in range(1, TRIES + 1):
            process = tool.started(self.lab, self.directory, RUN, verb if tried == 1 else "run", *options)
            this, _ = process.communicate(timeout=600)
            print(this)
            said += this
            if next_try(process.returncode, tried) != "run":
                break
        assert process.returncode == 0, said[-4000:]
        return said


@pytest.fixture(scope="module")
def night(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Night:
    directory = tmp_path_factory.mktemp("night")
    write_inventory(lab, directory / "migration.yml", canary_topic=canary_topic.make(lab))
    return Night(lab, directory)


def test_a_cluster_with_every_kind_of_security_moves(night: Night, tmp_path: Path) -> None:
    """Nothing is lost, sessions and their owners' rights are kept, and nothing written holds a secret."""
    search = Search(secrets_of(night.lab))
    with search.during(night.lab):
        said = moved(night, tmp_path)
    search.text(planted.OUTPUT, "the output", said.encode())
    search.folder(planted.DIRECTORY, night.directory)
    claim = search.claim(night.lab)
    print(claim.value)
    assert claim.held is Held.YES, claim.detail


def moved(night: Night, tmp_path: Path) -> str:
    """Move the cluster under load; all that the tool said."""
    lab = night.lab
    load = runner_for(
        lab, tmp_path / "load", produce_rate=30.0, metadata_rate=0.5, raw_rate=12.0, tenant_rate=12.0
    )
    load.start(("producer", "consumer", "metadata", "tenant"))
    load.wait_flowing(("producer", "consumer", "tenant"), 120)
    token = delegation_token.create(lab, tmp_path)
    said = night.tool("run", "--until", "join")
    load.start(("raw",))
    load.wait_flowing(("raw",), 120)
    said += night.tool("resume", "--until", "roll")
    before = baseline(lab)
    assert len(before["sessions"]) >= 6, "brokers and raw clients"
    said += night.tool("resume", "--until", "cutover")
    load.wait_flowing(("producer", "consumer", "raw"), 120, since_ns=time.monotonic_ns())
    after = baseline(lab)
    assert lost_since(before, after) == []
    assert set(before["sessions"]) <= set(after["sessions"])
    assert load.finish() == []
    # A busy machine answers late; a client of source that waits as long as its session lasts is harmed.
    verdict = judge(load_history(load.directory), Policy(tenant_gap_limit_s=SESSION_MS / 1000))
    assert [verdict[id] for id in CLAIMS if verdict[id].held is not Held.YES] == []
    with lab.zookeeper(Role.DEST) as client:
        broker = {
            f"{acl.id.scheme}:{acl.id.id}:{acl.perms}" for acl in client.get_acls(f"{TOPICS}/load-a")[0]
        }
        tenant = {acl.id.scheme for acl in client.get_acls("/other/counters/c-1")[0]}
    assert broker == {"sasl:kafka:31", "x509:CN=kafka:31", "world:anyone:1"}
    assert tenant == {"sasl", "x509", "digest"}
    with lab.operator(), connected(lab.login(TENANT), lab.host("dest1").address) as owner:
        owner.set("/other/counters/c-1", b"0")
        owner.delete("/other/counters/c-1")
    bootstrap = f"{lab.host('broker1').address}:9092"
    with lab.operator():
        assert metadata_problem(bootstrap, 3, lab.kafka_login()) is None, "a SCRAM user, as before"
    assert delegation_token.logs_in(lab, tmp_path, token), "a delegation token, as before"
    assert not delegation_token.logs_in(lab, tmp_path, token.other())
    return said


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
        refused = replace(whole, sasl_password=str(wrong)).client(f"{address}:{SECURE_PORT}")
        states: list[KeeperState] = []
        refused.add_listener(lambda _state: states.append(refused.client_state))
        try:
            refused.start_async()
            wait_until("refusal of a wrong password", lambda: refusal_missing(states), 60)
        finally:
            refused.stop()
            refused.close()


def test_brokers_let_in_who_logs_in_and_keep_users_and_acls_in_zookeeper(lab: Lab, tmp_path: Path) -> None:
    bootstrap, login = f"{lab.host('broker1').address}:9092", lab.kafka_login()
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong\n")
    with lab.operator():
        for stranger in (PLAINTEXT, replace(login, password=str(wrong))):
            assert metadata_problem(bootstrap, 3, stranger) is not None
        wait_until("metadata of all brokers", lambda: metadata_problem(bootstrap, 3, login), 60)
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
    search = Search(secrets_of(lab))
    search.text(planted.OUTPUT, "the inventory", str(inventory).encode())
    search.processes()
    assert search.found - SERVERS_OWN == set()
