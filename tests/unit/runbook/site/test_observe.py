"""The real look over a real sshd, and the real zkm-host where the look goes through it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from tests.ports import free_port
from tests.unit import sshd as daemon
from tests.unit.sshd import Sshd
from tests.world.operator import inventory
from zkmigrate import deadline
from zkmigrate.errors import HostError
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.facts import load
from zkmigrate.hosts.facts.status import reach
from zkmigrate.hosts.transport import own_addresses
from zkmigrate.hosts.transport.channels import Channels
from zkmigrate.hosts.transport.channels import zkm_host as speaker
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.program import Program, ProgramPaths
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.changes import KAFKA, AlterTopicConfig, ElectLeaders
from zkmigrate.kafka.clients import cluster_view, connections
from zkmigrate.kafka.clients import topics as topic_client
from zkmigrate.kafka.facts.broker import BrokerProcess, WorkingDirectory, broker_process, same_file
from zkmigrate.kafka.facts.release import release
from zkmigrate.kafka.questions import DescribeCluster, ListTopics, ReadTopicSettings
from zkmigrate.runbook.engine.apply import Apply, ChannelApply
from zkmigrate.runbook.model.change import (
    Arm,
    ClusterChange,
    Fence,
    HostChange,
    HostVerb,
    InstallProgram,
    Outcome,
    PutFile,
    Restore,
    SetService,
    UninstallProgram,
)
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import DirEntry, Look
from zkmigrate.runbook.site.observe import FILE_LIMIT, Observe, parse_listing
from zkmigrate.topics.gateway.order import GatewayOrder
from zkmigrate.topics.mirror.clients.answers import MirrorAnswers
from zkmigrate.topics.mirror.questions import ClusterAt, ReadMirrorEnds
from zkmigrate.zookeeper.clients.answers import ZooKeeperAnswers
from zkmigrate.zookeeper.questions import ReadZnode, SendWord, Znode

T = TypeVar("T")


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    folder = tmp_path_factory.mktemp("sshd")
    with daemon.running(folder, environment=f"ZKM_STATE={folder}/state") as running:
        running.allow_sudo()
        running.program("visudo", "#!/bin/sh\nexit 0\n")
        yield running


class Parts:
    """What cli.py wires together, over one sshd."""

    def __init__(self, sshd: Sshd, inventory: Inventory) -> None:
        paths = ProgramPaths(str(sshd.folder / "zkm-host"), str(sshd.folder / "sudoers"))
        self.transport = Transport(inventory)
        self.program = Program(self.transport, "r1", zkm_host.program(), zkm_host.sudoers, paths)
        self.channels = Channels(self.transport, "r1", "steps", speaker(paths.program))
        self.look = Observe(inventory, self.transport, self.program, self.channels)
        self.policy = str(sshd.folder / "state" / "r1" / "policy"), "lock\n"

    def close(self) -> None:
        self.look.close()
        self.channels.close()
        self.transport.close()


@pytest.fixture
def parts(sshd: Sshd) -> Iterator[Parts]:
    opened = Parts(sshd, with_closed_ports(daemon.inventory(sshd)))
    yield opened
    opened.close()
    for name in ("zkm-host", "sudoers"):
        (sshd.folder / name).unlink(missing_ok=True)


def with_closed_ports(inventory: Inventory) -> Inventory:
    """No test of this file may meet a ZooKeeper or Kafka that happens to run on this machine."""
    ports = inventory.source.ports.model_copy(update={"client": free_port()})
    broker = inventory.kafka.brokers[0].model_copy(update={"port": free_port()})
    return inventory.model_copy(
        update={
            "source": inventory.source.model_copy(update={"ports": ports}),
            "dest": inventory.dest.model_copy(update={"ports": ports}),
            "kafka": inventory.kafka.model_copy(update={"brokers": (broker,)}),
        }
    )


def cause(reading: Reading[object]) -> str:
    assert isinstance(reading, Unknown), reading
    return reading.cause


def value(reading: Reading[T]) -> T:
    assert isinstance(reading, Seen), reading
    return reading.value


def test_it_is_a_look(parts: Parts) -> None:
    look: Look = parts.look
    assert look.now() <= look.now()
    assert look.wall() > 1.6e9


@pytest.mark.parametrize("host", ["s1", "d1", "b1"])
def test_files_and_directories_of_every_role_look_the_same(parts: Parts, tmp_path: Path, host: str) -> None:
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "file").write_bytes(b"\x00\xffcontent\n")
    (tmp_path / "some" / "file").chmod(0o640)
    (tmp_path / "empty").mkdir()
    assert parts.look.file(host, f"{tmp_path}/some/file") == Seen(b"\x00\xffcontent\n")
    (entry,) = value(parts.look.listing(host, f"{tmp_path}/some"))
    seen = (entry.name, entry.kind, entry.size, entry.mode, entry.owner)
    assert seen == ("file", "f", 10, "0640", daemon.user())
    assert parts.look.listing(host, f"{tmp_path}/empty") == Seen(())
    assert isinstance(parts.look.file(host, f"{tmp_path}/none"), Absent)
    assert isinstance(parts.look.listing(host, f"{tmp_path}/none"), Absent)


@pytest.mark.parametrize("host", ["s1", "d1"])
def test_a_file_at_the_limit_is_read_and_one_byte_more_is_refused(
    parts: Parts, tmp_path: Path, host: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * FILE_LIMIT)
    assert parts.look.file(host, str(file)) == Seen(b"x" * FILE_LIMIT)
    file.write_bytes(b"x" * (FILE_LIMIT + 1))
    assert "larger than" in str(parts.look.file(host, str(file)))


@pytest.mark.parametrize("host", ["s1", "d1"])
def test_readers_of_every_role_read_the_same(parts: Parts, tmp_path: Path, host: str) -> None:
    data = bytes(range(256)) * 6000
    (tmp_path / "log").write_bytes(data)
    reader = parts.look.reader(host, f"{tmp_path}/log")
    assert reader.size() == len(data)
    assert reader.read(1000, 70_000) == data[1000:71_000]
    assert reader.read(0, 2 * len(data)) == data
    assert reader.read(len(data), 10) == b""
    with pytest.raises(HostError, match="none"):
        parts.look.reader(host, f"{tmp_path}/none").read(0, 1)


def test_established_sockets_are_listed(parts: Parts, sshd: Sshd) -> None:
    assert f"127.0.0.1:{sshd.port}" in value(parts.look.sockets("s1"))


def test_what_a_host_reaches_is_told_in_one_answer(parts: Parts, sshd: Sshd) -> None:
    closed = free_port()
    found = reach(parts.look, "d1", [("127.0.0.1", sshd.port), ("127.0.0.1", closed)])
    assert found == Seen({f"127.0.0.1:{sshd.port}": "open", f"127.0.0.1:{closed}": "refused"})


@pytest.mark.parametrize("host", ["s1", "d1"])
def test_a_hosts_clock_is_asked_by_the_login_shell(parts: Parts, host: str) -> None:
    before = parts.look.wall()
    assert before - 0.1 <= float(value(parts.look.date(host))) <= parts.look.wall() + 0.1


@pytest.mark.parametrize("host", ["s1", "d1"])
def test_processes_are_told_with_their_arguments(parts: Parts, host: str) -> None:
    assert "ps -e -ww -o args=" in value(parts.look.processes(host)).splitlines()


def test_a_hosts_counters_tell_of_the_disk_below_a_directory(parts: Parts, tmp_path: Path) -> None:
    mounted = value(parts.look.volumes("b1", [str(tmp_path)]))[str(tmp_path)].mount
    told = load.parse(value(parts.look.load_counters("b1")), "127.0.0.1", [mounted], ["lo"])
    assert value(told).received > 0
    assert len(value(told).disks) == 1


@pytest.mark.parametrize("host", ["s1", "d1", "b1"])
def test_the_volumes_of_directories_are_told_without_sudo(parts: Parts, tmp_path: Path, host: str) -> None:
    (folder := tmp_path / "below").mkdir()
    told = value(parts.look.volumes(host, [str(tmp_path), str(folder)]))
    assert list(told) == [str(tmp_path), str(folder)]
    assert told[str(folder)].total == shutil.disk_usage(folder).total // 1024 * 1024
    assert folder.is_relative_to(told[str(folder)].mount)
    assert told[str(folder)].mount == told[str(tmp_path)].mount
    missing = parts.look.volumes(host, [str(tmp_path), f"{tmp_path}/none"])
    assert isinstance(missing, Unknown)
    assert f"{tmp_path}/none" in missing.why


@pytest.fixture
def closed(sshd: Sshd) -> Iterator[Sshd]:
    """A host whose directories are closed to the ssh account."""
    denied = 'echo "df: $3: Permission denied" >&2; exit 1'
    sshd.program("df", f'#!/bin/sh\n[ -n "$AS_ROOT" ] || {{ {denied}; }}\nexec /bin/df "$@"\n')
    sshd.program("sudo", '#!/bin/sh\n[ "$1" = -n ] && shift\nAS_ROOT=1 exec "$@"\n')
    yield sshd
    (sshd.programs / "df").unlink()
    sshd.allow_sudo()


def test_volumes_closed_to_the_account_are_told_with_sudo(closed: Sshd, parts: Parts, tmp_path: Path) -> None:
    told = value(parts.look.volumes("b1", [str(tmp_path)]))
    assert told[str(tmp_path)].total == shutil.disk_usage(tmp_path).total // 1024 * 1024


def test_volumes_that_sudo_does_not_tell_either_are_refused_with_both_answers(
    closed: Sshd, parts: Parts, tmp_path: Path
) -> None:
    closed.refuse_sudo()
    told = parts.look.volumes("b1", [str(tmp_path)])
    assert isinstance(told, Unknown)
    assert f"df: {tmp_path}: Permission denied; and with sudo: sudo: sudo: a password is required" in told.why


@pytest.mark.parametrize("path", ["", "relative", "-a", "/a b", "/a\n/b", "/a;reboot", "/$(reboot)"])
def test_a_directory_with_an_odd_name_enters_no_command(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(parts.transport, "exec", None)
    told = parts.look.volumes("b1", ["/", path])
    assert isinstance(told, Unknown)
    assert f"{path!r} is not a plain path" in told.why


@pytest.mark.parametrize("host", ["s1", "d1", ""])
def test_names_are_resolved_on_hosts_and_here(parts: Parts, host: str) -> None:
    assert set(value(parts.look.addresses(host, "localhost"))) <= {"127.0.0.1", "::1"}
    assert isinstance(parts.look.addresses(host, "no-such-host.invalid"), Absent | Unknown)


def test_zkm_host_is_never_run_on_source(parts: Parts) -> None:
    assert cause(parts.look.zkm("s1", "status")) == "denied"


def test_a_verb_that_is_refused_is_unknown_with_its_words(parts: Parts) -> None:
    for _ in ("streamed", "installed"):
        reading = parts.look.zkm("d1", "read", "not-absolute", "0", "1")
        assert cause(reading) == "failed"
        assert "exit 2" in str(reading)
        parts.program.install("d1", *parts.policy)


def test_sudo_that_is_refused_is_denied(parts: Parts, sshd: Sshd) -> None:
    sshd.refuse_sudo()
    try:
        assert cause(parts.look.zkm("d1", "status")) == "denied"
        # As a directory stands for a file that the account may not read: here it may read all files.
        assert cause(parts.look.file("d1", "/etc")) == "denied"
    finally:
        sshd.allow_sudo()


def test_without_sudo_a_file_is_read_as_the_account_may(parts: Parts, sshd: Sshd, tmp_path: Path) -> None:
    """A finalized host need not let zkmigrate be root any more; `watch` still reads what anybody may."""
    file = tmp_path / "server.properties"
    file.write_bytes(b"zookeeper.connect=x\n")
    sshd.refuse_sudo()
    try:
        assert parts.look.file("b1", str(file)) == Seen(b"zookeeper.connect=x\n")
        assert isinstance(parts.look.file("b1", str(tmp_path / "none")), Absent)
    finally:
        sshd.allow_sudo()


def test_a_program_that_was_removed_meanwhile_is_streamed_again(parts: Parts, sshd: Sshd) -> None:
    """As `finalize` does while a watch goes on: what was installed once is not taken for installed."""
    assert parts.program.install("d1", *parts.policy).startswith("installed ")
    assert isinstance(parts.look.zkm("d1", "status"), Seen)
    parts.channels.close()
    Path(parts.program.paths.program).unlink()
    assert isinstance(parts.look.zkm("d1", "status"), Seen)
    assert not parts.program.installed("d1")


def test_a_missing_command_is_a_missing_tool(parts: Parts, sshd: Sshd) -> None:
    sshd.program("ss", "#!/bin/sh\necho 'sh: ss: not found' >&2\nexit 127\n")
    try:
        assert cause(parts.look.sockets("s1")) == "missing-tool"
    finally:
        (sshd.programs / "ss").unlink()


def test_services_that_are_not_there_are_unknown_with_a_cause(parts: Parts) -> None:
    assert cause(parts.look.ask(SendWord("s1", "srvr"))) == "refused"
    assert cause(parts.look.ask(ReadZnode("s1", "/"))) == "refused"
    assert cause(parts.look.ask(DescribeCluster())) == "timeout"
    assert cause(parts.look.ask(SendWord("b1", "srvr"))) == "failed"
    assert cause(parts.look.ask(ReadZnode("b1", "/"))) == "failed"


def test_a_running_broker_is_seen_through_proc(parts: Parts, tmp_path: Path) -> None:
    """A process with a broker's command line, read by the real program: /proc has files without a size."""
    config, jars = tmp_path / "config/server.properties", tmp_path / "libs"
    for directory in (config.parent, jars):
        directory.mkdir()
    config.write_text("broker.id=1\n")
    for jar in ("kafka_2.13-2.8.2.jar", "zookeeper-3.5.9.jar"):
        (jars / jar).write_bytes(b"")
    java = [sys.executable, "-c", "input()", "-cp", f"/etc:{jars}/*"]
    argv = [*java, "kafka.Kafka", "config/server.properties", "--override", "zookeeper.connect=zk:2181"]
    environment = {**os.environ, "KAFKA_ZOOKEEPER_CONNECT": "hush"}
    with subprocess.Popen(argv, cwd=tmp_path, env=environment, stdin=subprocess.PIPE) as broker:
        found = value(broker_process(parts.look, "b1", broker.pid))
        place = WorkingDirectory(broker.pid, "")
        assert same_file(parts.look, "b1", found, str(config), place) == Seen(True)
        (config.parent / "other").write_text("broker.id=1\n")
        assert same_file(parts.look, "b1", found, f"{config.parent}/other", place) == Seen(False)
        broker.communicate(b"\n", timeout=10)
    assert found == BrokerProcess(
        broker.pid,
        "config/server.properties",
        ("zookeeper.connect=zk:2181",),
        ("KAFKA_ZOOKEEPER_CONNECT",),
        release("2.8.2"),
        release("3.5.9"),
    )
    assert isinstance(broker_process(parts.look, "b1", broker.pid), Absent), "it has ended"


def test_source_is_never_asked_for_a_znode_on_the_brokers_behalf(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client session on source is a transaction there, and before the join dest does not serve."""
    asked: list[str] = []
    answer: dict[str, Reading[Znode]] = {}

    def znode(_self: ZooKeeperAnswers, request: ReadZnode) -> Reading[Znode]:
        asked.append(request.host)
        return answer.get(request.path, Unknown("refused", f"{request.host} does not serve"))

    monkeypatch.setattr(ZooKeeperAnswers, "znode", znode)
    monkeypatch.setattr(cluster_view, "view", lambda _brokers, reassignments, witnesses: reassignments())
    dests, chroot = parts.look._inventory.dest_names, parts.look._inventory.kafka.chroot
    assert parts.look.ask(DescribeCluster()) is None
    assert asked == list(dests)
    path = f"{chroot}{cluster_view.REASSIGNMENTS}"
    answer[path] = Absent(path)
    assert cause(parts.look.ask(DescribeCluster())) == "failed", "no such chroot"
    answer[chroot] = Seen(Znode(b"", 1, 1, 1, 0, 0, ()))
    assert parts.look.ask(DescribeCluster()) == Absent(path)
    answer[path] = Seen(Znode(b"{}", 1, 1, 1, 0, 0, ()))
    assert str(parts.look.ask(DescribeCluster())) == str(Seen(b"{}"))
    assert set(asked) == set(dests)


def test_a_cluster_is_asked_for_its_topics_through_its_brokers(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Parts(sshd, daemon.inventory(sshd)).look
    asked: list[tuple[object, ...]] = []
    for question in ("names", "settings"):
        monkeypatch.setattr(topic_client, question, lambda *what: asked.append(what))
    for cluster in (KAFKA, "another"):
        readings = (
            look.ask(ListTopics(cluster)),
            look.ask(ReadTopicSettings(cluster, "k", ("a",))),
        )
    [brokers] = {id(what[0]): what[0] for what in asked}.values()
    assert isinstance(brokers, connections.Brokers), "which keep their connections"
    assert list(brokers) == [broker.endpoint for broker in look._inventory.brokers]
    assert asked == [(brokers,), (brokers, "k", ("a",))]
    assert {cause(reading) for reading in readings} == {"failed"}


def test_a_host_that_cannot_be_reached_is_unknown_to_every_look(sshd: Sshd) -> None:
    inventory = with_closed_ports(daemon.inventory(sshd))
    parts = Parts(sshd, daemon.with_ssh(inventory, port=free_port()))
    look = parts.look
    for host in ("s1", "d1"):
        assert cause(look.file(host, "/etc/hostname")) == "refused"
        assert cause(look.listing(host, "/etc")) == "refused"
        assert cause(look.sockets(host)) == "refused"
        assert cause(look.date(host)) == "refused"
        assert cause(look.addresses(host, "localhost")) == "refused"
        with pytest.raises(HostError):
            look.reader(host, "/etc/hostname").read(0, 1)
    parts.close()


def test_each_asks_at_once_and_keeps_the_order(parts: Parts) -> None:
    together = threading.Barrier(3, timeout=10)

    def ask(host: str) -> int:
        together.wait()  # passes only when all three are being asked at the same time
        return len(host)

    assert list(parts.look.each(["dd", "s", "bbb"], ask).items()) == [("dd", 2), ("s", 1), ("bbb", 3)]
    assert parts.look.each([], ask) == {}


def test_a_cluster_change_goes_to_its_cluster_and_to_no_host(parts: Parts) -> None:
    asked: list[ClusterChange] = []

    def alter(change: ClusterChange) -> tuple[int, str]:
        asked.append(change)
        return (1, "no such topic") if isinstance(change, AlterTopicConfig) else (0, "elected")

    apply = ChannelApply(parts.channels, parts.program, {"kafka": alter, "d1": no_cluster})
    election = ElectLeaders("kafka")
    setting = AlterTopicConfig("kafka", "t", "retention.ms", "1", None)
    assert apply(election, "e.1", 1) == Outcome(0, "elected")
    assert apply(setting, "s.1", 1) == Outcome(1, "no such topic")
    assert asked == [election, setting]
    assert apply(ElectLeaders("other"), "e.2", 1) == Outcome(
        1, "nothing was sent: unknown cluster other; needed: one of kafka, d1"
    )


@pytest.mark.parametrize(
    ("change", "answer_s"),
    [
        (Fence("d1", 5000), 20.0),
        (HostVerb("d1", "open"), 20.0),
        (HostVerb("d1", "halt"), 120.0),
        (Arm("d1", "ip=10.0.0.1"), 300.0),
        (SetService("d1", "zookeeper.service", "restart"), 180.0),
    ],
)
def test_a_change_says_how_long_its_answer_may_take(change: HostChange, answer_s: float) -> None:
    waited: list[float] = []

    class Silent:
        def ask(self, *_words: str, fencing: int, deadline_s: float) -> Outcome:
            waited.append(deadline_s)
            return Outcome(fencing, "")

    ChannelApply(cast(Channels, Silent()), cast(Program, None), {})(change, "o.1", 1)
    assert waited == [answer_s]


class Relays:
    """The channels to gateways' relays. answer: of each request. asked: host, words and fencing number."""

    def __init__(self, answer: Outcome | TransportError) -> None:
        self.answer = answer
        self.asked: list[tuple[str, tuple[str, ...], int | None]] = []

    def ask(self, host: str, *words: str, fencing: int | None = None, deadline_s: float = 30.0) -> Outcome:
        assert deadline_s > 0
        self.asked.append((host, words, fencing))
        if isinstance(self.answer, TransportError):
            raise self.answer
        return self.answer


def test_an_order_goes_to_the_gateways_relay_with_operation_and_fencing_number() -> None:
    relays, nobody = Relays(Outcome(9, "fenced: out")), cast(Any, None)
    apply = ChannelApply(nobody, nobody, {}, {"gateway": cast(Channels, relays)})
    order = GatewayOrder("g1", "hold", "orders", ttl_ms=10_000)
    assert apply(order, "switch.hold.g1.7.1", 3) == Outcome(9, "fenced: out")
    words = ("order", "switch.hold.g1.7.1", "hold", "orders", "to=", "hold=", "ttl_ms=10000")
    assert relays.asked == [("g1", words, 3)]


def test_an_order_needs_an_inventory_with_gateways(parts: Parts) -> None:
    apply = ChannelApply(parts.channels, parts.program, {})
    told = apply(GatewayOrder("g1", "unhold", "orders"), "o.1", 3)
    assert told == Outcome(1, "nothing was sent to g1: the inventory names no gateway")
    assert parts.look.program("gateway", "g1", "status") == Unknown(
        "failed", "g1: the inventory names no gateway"
    )


@pytest.mark.parametrize(
    ("answer", "reading"),
    [
        (Outcome(0, '{"fencing": 3}'), Seen('{"fencing": 3}')),
        (Outcome(8, "no gateway\n"), Unknown("failed", "g1: the gateway's relay: status exit 8: no gateway")),
        (TransportError("g1", "timeout", "late"), Unknown("timeout", "g1: late")),
    ],
)
def test_a_gateways_status_is_seen_or_unknown(
    answer: Outcome | TransportError, reading: Reading[str]
) -> None:
    relays, nobody = Relays(answer), cast(Any, None)
    look = Observe(
        with_closed_ports(inventory()), nobody, nobody, nobody, {"gateway": cast(Channels, relays)}
    )
    assert look.program("gateway", "g1", "status") == reading
    assert relays.asked == [("g1", ("status",), None)]


def test_a_look_keeps_one_pair_of_connections_for_two_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = cast(Any, None)
    look = Observe(with_closed_ports(inventory()), nobody, nobody, nobody)
    one, other = ClusterAt((f"127.0.0.1:{free_port()}",)), ClusterAt(("127.0.0.1:1",))
    asked = [(one, other), (ClusterAt(one.brokers), other), (other, one)]
    with deadline.within(0.5):
        for ends in asked:
            assert cause(look.ask(ReadMirrorEnds(*ends, ["orders"]))) == "failed"
    [answers] = look._answers.values()
    assert list(answers._pairs) == [(one, other), (other, one)]
    closed: list[object] = []
    monkeypatch.setattr(MirrorAnswers, "close", lambda one: closed.append(one))
    look.close()
    assert closed == [answers]


def no_cluster(change: ClusterChange) -> tuple[int, str]:
    raise AssertionError(f"no cluster was asked to {change.describe()}")


def test_a_change_goes_over_the_channel_and_back(parts: Parts, tmp_path: Path) -> None:
    apply: Apply = ChannelApply(parts.channels, parts.program, {})
    target = tmp_path / "conf"
    target.write_text("before\n")
    owner = f"{target.owner()}:{target.group()}"
    path = parts.policy[0]
    assert apply(InstallProgram("d1", path, f"lock\nrewrite {target}\n"), "install.d1.1.1", 0).rc == 0
    put = PutFile("d1", str(target), b"after\n", owner)
    other = PutFile("d1", f"{target}.other", b"after\n", owner)
    assert "does not allow" in (refused := apply(other, "join.d1.0.1", 1)).output
    assert refused.rc == 3
    assert apply(put, "join.d1.1.1", 1).rc == 0
    assert target.read_text() == "after\n"
    assert apply(Restore("d1", "join.d1.1.1", str(target)), "join.d1.2.1", 1).rc == 0
    assert target.read_text() == "before\n"
    assert apply(put, "join.d1.3.1", 0).rc == 9, "a lower fencing number is fenced off"
    assert target.read_text() == "before\n"
    assert "rc 0" in value(parts.look.zkm("d1", "op", "join.d1.1.1")).splitlines()


def test_uninstalling_an_absent_program_is_done(parts: Parts) -> None:
    apply = ChannelApply(parts.channels, parts.program, {})
    assert apply(UninstallProgram("d1"), "u.1", 1) == Outcome(0, "zkm-host is not installed\n")


def test_uninstalling_by_one_name_forgets_every_name_of_the_machine(parts: Parts) -> None:
    """An open channel is that of a program that is gone, and would answer no reading."""
    apply = ChannelApply(parts.channels, parts.program, {}, None, lambda _host: ("d1", "b1"))
    assert apply(InstallProgram("d1", *parts.policy), "install.d1.1.1", 0).rc == 0
    for host in ("d1", "b1"):
        assert isinstance(parts.look.zkm(host, "phase"), Seen)
    assert apply(UninstallProgram("d1"), "u.1", 1).rc == 0
    Path(parts.program.paths.program).unlink()  # at this path zkm-host leaves itself
    assert isinstance(parts.look.zkm("b1", "phase"), Seen), "streamed, as where none is installed"


@pytest.mark.parametrize("text", ["f 1 2", "f x 2 644 a b n", "file 1 2 644 a b n", "something else"])
def test_a_listing_that_is_not_one_is_garbled(text: str) -> None:
    assert cause(parse_listing("/x", text)) == "garbled"


def test_a_listing_keeps_names_with_spaces() -> None:
    assert parse_listing("/x", "f 1 2 644 a b two words\nl 0 3 777 a b link") == Seen(
        (DirEntry("link", "o", 0, 3, "0777", "a", "b"), DirEntry("two words", "f", 1, 2, "0644", "a", "b"))
    )


def test_this_machine_knows_which_of_operators_addresses_it_has(parts: Parts) -> None:
    assert own_addresses.owned(("127.0.0.1", "203.0.113.7", "no-such-name.invalid")) == ("127.0.0.1",)
    assert own_addresses.sent_from(("127.0.0.9", "no-such-name.invalid")) == ("127.0.0.1",)
    assert "127.0.0.1" in value(parts.look.here())
