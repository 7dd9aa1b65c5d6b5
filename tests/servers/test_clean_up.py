"""The clean-up of a real dest of three servers with a real broker: killed in between, resumed, put back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_acl

from tests.ports import free_port
from tests.servers.brokers import Broker, serve
from tests.servers.ensembles import quorum
from tests.servers.process import ADDRESS, START_SECONDS
from tests.unit import sshd
from tests.world.test_clean_up import MOVE, finished
from zkmigrate.kafka.clients import topics
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.fact import Seen

TAIL = ADDRESS.partition("127.1")[2]
ADDRESSES = tuple(f"127.{n}{TAIL}" for n in (1, 2, 3))
HOSTS = ("dest1", "dest2", "dest3")
MANY = 3000


@contextmanager
def client(port: int, at: int = 0) -> Iterator[KazooClient]:
    """A session of the operator's on one of the servers."""
    made = KazooClient(f"{ADDRESSES[at]}:{port}")
    made.start(START_SECONDS)
    try:
        yield made
    finally:
        made.stop()
        made.close()


def plant(zk: KazooClient) -> None:
    zk.create("/solr/live/nodes", b"x" * 10, makepath=True)
    zk.create("/solr/null", None)
    zk.create("/solr/bin", bytes(range(256)))
    anybody = make_acl("world", "anyone", read=True, delete=True)
    shared = [anybody, make_acl("ip", "10.0.0.0/8", all=True)]
    zk.create("/solr/shared", b"1", acl=shared)
    zk.set("/solr/bin", b"2")
    zk.ensure_path("/hbase/rs")
    for sent in [zk.create_async(f"/solr/live/nodes/n{n}", b"%d" % n) for n in range(MANY)]:
        sent.get(START_SECONDS)


def tree(port: int, path: str, at: int = 0) -> dict[str, tuple[Any, ...]]:
    """Data and ACL by path, as one server holds them."""
    with client(port, at) as zk:
        zk.sync("/")
        found: dict[str, tuple[Any, ...]] = {}
        ahead = [path] if zk.exists(path) else []
        while ahead:
            one = ahead.pop()
            found[one] = (zk.get(one)[0], tuple(zk.get_acls(one)[0]))
            ahead += [f"{one}/{name}" for name in zk.get_children(one)]
        return found


def words(folder: Path, verb: str) -> list[str]:
    file = str(folder / "leftovers.yml")
    yes = ["--yes"] if verb in ("run", "resume", "rollback") else []
    return [sys.executable, "-m", "zkmigrate", verb, "-i", file, "--playbook", "kafka_clean_leftovers", *yes]


def begin(folder: Path, verb: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words(folder, verb),
        env={**os.environ, "ZKMIGRATE_RUNS": str(folder / "runs")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(folder: Path, verb: str) -> tuple[int, str]:
    process = begin(folder, verb)
    said, _ = process.communicate(timeout=180)
    return process.returncode, said


def test_other_tenants_of_a_real_dest_are_listed_deleted_over_a_kill_and_put_back(tmp_path: Path) -> None:
    broker = Broker("2.8.2", "offsets.topic.replication.factor=1\n", address=f"127.5{TAIL}:{free_port()}")
    with (
        quorum("3.8.4", tmp_path / "dest", ADDRESSES) as port,
        client(port) as zk,
        serve(tmp_path, port, broker),
        sshd.running(tmp_path) as daemon,
    ):
        plant(zk)
        zk.ensure_path("/solr/cut")
        finished(tmp_path / "runs", hosts=HOSTS, cut=zk.exists("/solr/cut").czxid)
        daemon.refuse_sudo()
        host, _, its_port = broker.address.partition(":")
        login = f"user: {sshd.user()}, port: {daemon.port}, key: user_key, known_hosts: {daemon.pin([host])}"

        def name(*subtrees: str) -> None:
            told = topics.names([broker.address])
            assert isinstance(told, Seen)
            at = zip(HOSTS, ADDRESSES, (11, 12, 13), strict=True)
            members = "".join(f"    - {{name: {one}, address: {a}, myid: {id}}}\n" for one, a, id in at)
            (tmp_path / "leftovers.yml").write_text(
                f"version: 1\nname: moved\noperator: [127.0.0.1]\nssh: {{{login}}}\n"
                f"dest:\n  ports: {{client: {port}}}\n  hosts:\n{members}"
                f"kafka:\n  cluster_id: {told.value.cluster_id}\n  chroot: /kafka\n"
                f"  config: {tmp_path}/kafka1.properties\n  brokers:\n"
                f"    - {{name: broker1, address: {host}, port: {its_port}, id: 1}}\n"
                f"leftovers:\n  zookeeper: {ADDRESS}:{port}/kafka\n  after_move: {MOVE}\n"
                f"  subtrees: [{', '.join(subtrees)}]\n"
            )

        before = tree(port, "/solr")
        name()
        code, said = ended(tmp_path, "preflight")
        assert code == 0, said
        assert f"/solr: {len(before):,} znodes" in said
        assert "/kafka: " not in said
        name("/kafka")
        assert ended(tmp_path, "preflight")[0] == 3
        name("/solr")
        with client(port, at=2) as other:
            other.get("/solr/bin", watch=print)
            code, said = ended(tmp_path, "preflight")
            assert (code, "clean-up.watched" in said) == (3, True), said
        code, said = ended(tmp_path, "plan")
        assert (code, "batch by batch: /solr" in said) == (0, True), said

        process = begin(tmp_path, "run")
        wait_until("the first znodes deleted", lambda: missing(zk, process), 120)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert 0 < len(tree(port, "/solr")) < len(before)
        code, said = ended(tmp_path, "resume")
        assert code == 0, said
        assert all(tree(port, "/solr", at) == {} for at in range(3))
        assert tree(port, "/hbase").keys() == {"/hbase", "/hbase/rs"}
        assert zk.exists("/kafka/controller")

        code, said = ended(tmp_path, "rollback")
        assert code == 0, said
        assert tree(port, "/solr") == before, "data and ACL"
        code, said = ended(tmp_path, "preflight")
        assert (code, "clean-up.written" in said) == (3, True), said


def missing(zk: KazooClient, process: subprocess.Popen[str]) -> str | None:
    """Why the run is not in the middle of its deletion yet."""
    if process.poll() is not None:
        raise AssertionError(f"it ended with {process.returncode}: {process.communicate()[0][-3000:]}")
    with suppress(NoNodeError):
        left = len(zk.get_children("/solr/live/nodes"))
        return None if left < MANY else f"{left} znodes"
    return None
