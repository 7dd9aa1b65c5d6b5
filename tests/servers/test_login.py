"""zkmigrate's clients log in to real servers with TLS and SASL, and nothing shows the passwords."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, NewTopic, ScramMechanism, UserScramCredentialUpsertion
from kazoo.client import KazooClient
from kazoo.security import ACL, Id

from tests.ports import free_port
from tests.servers import secured
from tests.servers.brokers import ALONE, Broker, serve
from tests.servers.ensembles import Member, serving
from tests.servers.process import ADDRESS
from tests.servers.secured import KAFKA, PLANTED, SASL, SUPER, Certificates
from zkmigrate.inventory.inventory import Inventory, load
from zkmigrate.zookeeper.clients.ensemble import connect
from zkmigrate.zookeeper.clients.login import credentials_of
from zkmigrate.zookeeper.clients.subtree import Server

LIMIT_S = 180
LOGINS = (
    "sasl: {user: tool, password: {file: kept/sasl}}",
    "digest: {user: super, password: {env: ZKM_TEST_SUPER}}",
)
SHORT = ("--force", "--minutes", "0.01")
STRAY = "/kafka/config/topics/stray"


@dataclass(frozen=True)
class Site:
    """The servers, and the folder of the operator."""

    folder: Path
    own: Certificates
    zookeeper: Member
    secure: int
    broker: Broker
    doors: dict[str, str]
    cluster_id: str

    def inventory(self, name: str, client: str, more: str = "") -> Path:
        """A file whose brokers listen at one door. client: ``kafka.client``, or empty."""
        door = self.doors.get(name, self.broker.address)
        file = self.folder / f"{name}.yml"
        file.write_text(
            f"version: 1\nname: login\n{self.zookeeper_section(*LOGINS)}"
            f"kafka:\n  cluster_id: {self.cluster_id}\n"
            f"  brokers: [{{name: broker1, address: {ADDRESS}, port: {door.rpartition(':')[2]}, id: 1}}]\n"
            + (f"  client: {client}\n" if client else "")
            + more
        )
        return file

    def zookeeper_section(self, *logins: str) -> str:
        mine = f"certificate: {self.own.certificate('tool')}, key: {self.own.key('tool')}"
        tls = f"tls: {{ca: {self.own.authority}, {mine}}}"
        return "".join(f"    {one}\n" for one in ("zookeeper:\n  client:", tls, *logins)).lstrip()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder, servers = tmp_path_factory.mktemp("operator"), tmp_path_factory.mktemp("servers")
    own = Certificates(tmp_path_factory.mktemp("certificates"))
    own.write("server", "tool")
    member, secure = Member(1, servers / "zk"), free_port()
    member.folder.mkdir()
    doors = {name: f"{ADDRESS}:{free_port()}" for name in ("SASL_SSL", "SASL_PLAINTEXT", "SSL")}
    lines, options = secured.zookeeper(servers, secure, own)
    listeners, settings = secured.kafka(doors, own)
    broker = Broker("3.9.1", ALONE + settings, listeners=listeners)
    (folder / "kept").mkdir()
    for name, password in (("sasl", SASL), ("kafka", KAFKA)):
        (folder / "kept" / name).write_text(f"{password}\n", encoding="utf-8")
        (folder / "kept" / name).chmod(0o600)
    with ExitStack() as stack:
        stack.enter_context(serving("3.5.8", member, options=options, settings=lines))
        stack.enter_context(serve(servers, member.port, broker))
        admin = KafkaAdminClient(bootstrap_servers=[broker.address])
        admin.create_topics([NewTopic("a", 2, 1)])
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("tool", mechanism, KAFKA)])
        admin.close()
        yield Site(folder, own, member, secure, broker, doors, _cluster_id(member))


def _cluster_id(member: Member) -> str:
    with connect("ZooKeeper", [Server(ADDRESS, member.port)]) as client:
        found: str = json.loads(client.get("/kafka/cluster/id")[0])["id"]
        return found


class Children:
    """Every argument and every variable of the processes that one process started, as /proc showed them."""

    def __init__(self, pid: int) -> None:
        self.seen: dict[int, bytes] = {}
        self._pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Children:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.002):
            self._look(self._pid)

    def _look(self, pid: int) -> None:
        with suppress(OSError):  # processes end meanwhile
            for listed in list(Path(f"/proc/{pid}/task").glob("*/children")):
                for child in map(int, listed.read_text().split()):
                    self._look_at(pid, child)
                    self._look(child)

    def _look_at(self, parent: int, child: int) -> None:
        words = Path(f"/proc/{child}/cmdline").read_bytes()
        # Until it becomes another program, a child shows the variables that its parent got.
        if words != Path(f"/proc/{parent}/cmdline").read_bytes():
            text = words + Path(f"/proc/{child}/environ").read_bytes()
            self.seen[child] = self.seen.get(child, b"") + text


STARTED: list[bytes] = []
"""What was seen of the children of all verbs so far."""


def zkmigrate(site: Site, *words: str) -> tuple[int, str]:
    """Code and output of a verb. No child of it may have been given a password."""
    process = subprocess.Popen(
        [sys.executable, "-m", "zkmigrate", *words],
        cwd=site.folder,
        env={**os.environ, "ZKMIGRATE_RUNS": str(site.folder / "runs"), "ZKM_TEST_SUPER": SUPER},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with Children(process.pid) as children:
        output, _ = process.communicate(timeout=LIMIT_S)
    STARTED.extend(children.seen.values())
    for text in (output.encode(), *children.seen.values()):
        assert found(text) == []
    return process.returncode, output


def found(text: bytes) -> list[str]:
    """The planted passwords in a text."""
    return [one for one in PLANTED if one.encode() in text or json.dumps(one)[1:-1].encode() in text]


CLIENTS = {
    "SASL_SSL": "{protocol: SASL_SSL, mechanism: PLAIN, user: tool, ca: CA, "
    "password: {command: [cat, kept/kafka]}}",
    "SASL_PLAINTEXT": "{protocol: SASL_PLAINTEXT, mechanism: SCRAM-SHA-512, user: tool, "
    "password: {file: kept/kafka}}",
    "SSL": "{protocol: SSL, ca: CA, certificate: TOOL.pem, key: TOOL.key}",
}


def client(site: Site, name: str) -> str:
    return CLIENTS[name].replace("CA", str(site.own.authority)).replace("TOOL", str(site.own.folder / "tool"))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_placement_reads_brokers_that_want_a_login(site: Site, name: str) -> None:
    file = site.inventory(name, client(site, name))
    code, output = zkmigrate(site, "placement", "measure", "-i", str(file), "--out", f"{name}.json", *SHORT)
    assert code == 0, output
    assert '"a"' in (site.folder / f"{name}.json").read_text()


@pytest.mark.parametrize(
    ("name", "client", "told"),
    [
        (
            "SASL_SSL",
            "{protocol: SASL_SSL, mechanism: PLAIN, user: other, ca: CA, password: {file: kept/kafka}}",
            "the broker refused the login of other with PLAIN: Authentication failed",
        ),
        (
            "SASL_PLAINTEXT",
            "{protocol: SASL_PLAINTEXT, mechanism: SCRAM-SHA-256, user: tool, password: {file: kept/sasl}}",
            "the broker refused the login of tool with SCRAM-SHA-256",
        ),
        (
            "SASL_SSL",
            "{protocol: SASL_SSL, mechanism: PLAIN, user: tool, password: {file: kept/kafka}}",
            "VERIFY",
        ),
        ("SSL", "{protocol: SSL, ca: CA}", "answered in 3 s: "),
        ("SASL_PLAINTEXT", "{protocol: SSL, ca: CA}", "answered in 3 s: "),
        ("SSL", "", "answered in 3 s"),
    ],
)
def test_a_refused_login_is_named(site: Site, name: str, client: str, told: str) -> None:
    file = site.inventory(name, client.replace("CA", str(site.own.authority)))
    code, output = zkmigrate(site, "placement", "measure", "-i", str(file), "--out", "x.json", *SHORT)
    assert code != 0
    assert told in output, output


@contextmanager
def operator(site: Site) -> Iterator[KazooClient]:
    """A session as the user of SASL, and as super."""
    file = site.folder / "operator.yml"
    file.write_text(f"version: 1\nname: login\n{site.zookeeper_section(*LOGINS)}")
    os.environ["ZKM_TEST_SUPER"] = SUPER
    login = credentials_of(load(file, Inventory, ()))
    with connect("ZooKeeper", [Server(ADDRESS, site.secure)], login) as client:
        yield client


def secured_stray(site: Site) -> None:
    """A leftover that only the user of SASL may read, change or delete."""
    with operator(site) as client:
        if client.exists(STRAY):
            client.delete(STRAY)
        client.create(STRAY, b'{"version":1,"config":{}}', [ACL(31, Id("sasl", "tool"))])


@pytest.mark.parametrize(
    ("logins", "code", "told"),
    [
        (LOGINS[:1], 0, '"complete": true'),
        (LOGINS[1:], 0, '"complete": true'),
        (LOGINS, 0, '"complete": true'),
        ((), 8, "no ACL lets this client read /kafka/config/topics/stray"),
        (
            ("sasl: {user: tool, password: {file: kept/kafka}}",),
            8,
            "the server did not accept the login of tool (SASL), or the connection broke",
        ),
    ],
)
def test_a_subtree_is_walked_by_who_logs_in(
    site: Site, logins: tuple[str, ...], code: int, told: str
) -> None:
    secured_stray(site)
    file = site.folder / "client.yml"
    file.write_text(f"version: 1\nname: login\n{site.zookeeper_section(*logins)}")
    at = f"{ADDRESS}:{site.secure}/kafka"
    ended, output = zkmigrate(site, "zxid", "subtree", at, "--json", "--client", str(file))
    assert (ended, told in output) == (code, True), output
    ended, output = zkmigrate(site, "zxid", "subtree", at, "--json")
    assert (ended, "or needs TLS" in output) == (8, True), output


def test_leftovers_behind_tls_and_sasl_are_removed_and_put_back(site: Site) -> None:
    hook = site.folder / "hook"
    hook.write_text("#!/bin/sh\nenv\ntr '\\0' '\\n' < /proc/$$/cmdline\ncat\nsleep 0.1\n")
    hook.chmod(0o755)
    more = (
        f"hooks: {{before_run: [{{run: hook}}], on_end: [{{run: hook}}]}}\n"
        f"leftovers:\n  zookeeper: {ADDRESS}:{site.secure}/kafka\n  older_than_s: 1\n"
        "  remove: [/config/topics/stray]\n"
    )
    file = site.inventory("SASL_SSL", client(site, "SASL_SSL"), more)
    secured_stray(site)
    playbook = ("-i", str(file), "--playbook", "kafka_clean_leftovers")
    code, output = zkmigrate(site, "preflight", *playbook)
    assert "/config/topics/stray" in output, output
    code, output = zkmigrate(site, "run", "--yes", *playbook)
    assert code == 0, output
    with operator(site) as zk:
        assert zk.exists(STRAY) is None
    code, output = zkmigrate(site, "rollback", "--yes", *playbook)
    assert code == 0, output
    with operator(site) as zk:
        assert zk.get_acls(STRAY)[0] == [ACL(31, Id("sasl", "tool"))]
        zk.delete(STRAY)
    written = [path for path in site.folder.rglob("*") if path.is_file() and path.parent.name != "kept"]
    assert any(b"/hook\0" in text for text in STARTED)
    assert any(b"kept/kafka\0" in text for text in STARTED)
    hooks = [path for path in written if "hooks" in path.parts]
    assert len(hooks) == 4
    assert all(b"ZKMIGRATE_MOMENT=" in path.read_bytes() for path in hooks)
    assert [str(path) for path in written if found(path.read_bytes())] == []
