"""`zkmigrate zxid subtree`: largest zxids, from a server with its faults, and from its files."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.ports import free_port
from tests.unit.sshd import Sshd
from tests.unit.tree_server import CONNECTED, EXPIRED, SYNC, TreeServer, Zxids, running
from tests.unit.zkdata_fixtures import VERSIONS, create_payload, log_from
from tests.unit.zookeeper.disks.test_tail import placed
from zkmigrate.cli.main import cli
from zkmigrate.errors import HostError, UsageError
from zkmigrate.zookeeper.clients.login import OPEN
from zkmigrate.zookeeper.clients.session import Limits
from zkmigrate.zookeeper.clients.subtree import Server, walk_subtree
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.subtree import Walk
from zkmigrate.zookeeper.data.tree import load_tree, max_zxid
from zkmigrate.zookeeper.disks.progress import Interval
from zkmigrate.zookeeper.disks.servers import parse_servers
from zkmigrate.zookeeper.disks.subtree import WalkProgress

TREE: dict[str, Zxids] = {
    "/": (0, 0, 9),
    "/kafka": (5, 5, 8),
    "/kafka/a": (6, 7, 6),
    "/kafka/b": (8, 20, 0x30),
    "/kafka/b/c": (0x30, 0x30, 0x30),
    "/zookeeper/quota": (0, 0, 0),
}
KEYS = [
    "schema", "time",
    "zxid", "complete", "source", "where", "chroot", "znodes", "czxid", "mzxid", "pzxid", "begin", "end",
    "gone", "denied", "requests", "seconds",
]  # fmt: skip


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["zxid", "subtree", *words])


def at(*servers: TreeServer, chroot: str = "/kafka") -> str:
    return ",".join(f"127.0.0.1:{server.port}" for server in servers) + chroot


def closed_port() -> TreeServer:
    return TreeServer({}, port=free_port())


def test_a_server_is_asked_and_its_session_ended() -> None:
    with running(TreeServer(TREE)) as server:
        result = run(at(server))
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    first, czxid, mzxid, pzxid, state = result.stdout.splitlines()
    assert first.startswith(
        f"0x30 /kafka/b/c (4 znodes at and under /kafka on 127.0.0.1:{server.port}, 6 requests, "
    )
    assert [line.split() for line in (czxid, mzxid, pzxid)] == [
        ["czxid", "0x30", "/kafka/b/c"],
        ["mzxid", "0x30", "/kafka/b/c"],
        ["pzxid", "0x30", "/kafka/b"],
    ]
    assert state == "every znode was read at 0x500: nothing was written during the read"
    assert server.closed == 1


def test_the_answer_as_json() -> None:
    with running(TreeServer(TREE, zxids=(0x40, 0x41))) as server:
        result = run(at(server), "--json", "--window", "1")
    assert result.exit_code == 0, result.output
    body = json.loads(result.stdout)
    assert list(body) == KEYS
    assert body.pop("seconds") >= 0
    assert (body.pop("schema"), bool(body.pop("time"))) == (1, True)
    assert body == {
        "zxid": "0x30",
        "complete": True,
        "source": "server",
        "where": f"127.0.0.1:{server.port}",
        "chroot": "/kafka",
        "znodes": 4,
        "czxid": {"zxid": "0x30", "path": "/kafka/b/c"},
        "mzxid": {"zxid": "0x30", "path": "/kafka/b/c"},
        "pzxid": {"zxid": "0x30", "path": "/kafka/b"},
        "begin": "0x40",
        "end": "0x41",
        "gone": 0,
        "denied": [],
        "requests": 6,
    }


def test_writes_meanwhile_and_znodes_that_went_are_told() -> None:
    with running(TreeServer(TREE, gone=frozenset({"/kafka/a"}), zxids=(0x40, 0x41))) as server:
        result = run(at(server))
    assert result.exit_code == 0, result.output
    *_, state, gone = result.stdout.splitlines()
    assert state.startswith("transactions were written during the read, from 0x40 to 0x41: ")
    assert gone == "znodes deleted before they were read: 1"


def test_a_walk_that_may_not_read_all_is_never_called_whole() -> None:
    with running(TreeServer(TREE, denied=frozenset({"/kafka/b"}))) as server:
        plain, machine = run(at(server)), run(at(server), "--json")
    assert (plain.exit_code, machine.exit_code) == (8, 8)
    assert plain.stdout.startswith("at least 0x8 /kafka (2 znodes ")
    assert plain.stdout.splitlines()[-1].startswith("incomplete: no ACL lets this client read /kafka/b, ")
    assert plain.stderr.startswith(
        "zkmigrate: /kafka was read only in part: no ACL lets this client read /kafka/b"
    )
    body = json.loads(machine.stdout)
    assert (body["complete"], body["denied"], body["zxid"]) == (False, ["/kafka/b"], "0x8")


def test_a_root_that_may_not_be_read_has_no_zxid() -> None:
    with running(TreeServer(TREE, denied=frozenset({"/kafka"}))) as server:
        plain, machine = run(at(server)), run(at(server), "--json")
    assert (plain.exit_code, machine.exit_code) == (8, 8)
    assert plain.stdout.startswith("at least none /kafka (0 znodes ")
    body = json.loads(machine.stdout)
    assert (body["zxid"], body["czxid"], body["znodes"]) == (None, {"zxid": None, "path": ""}, 0)


def test_a_chroot_that_is_not_there_is_told_with_the_part_that_is() -> None:
    with running(TreeServer(TREE)) as server:
        result = run(at(server, chroot="/kafka/no/where"), "--json")
    assert result.exit_code == 8
    said = f"/kafka/no/where does not exist on 127.0.0.1:{server.port}; /kafka does."
    assert result.stderr.startswith(f"zkmigrate: {said}")
    assert json.loads(result.stdout)["error"].startswith(said)


def test_a_walk_that_breaks_off_begins_anew_on_the_next_server() -> None:
    with running(TreeServer(TREE, drop_after=3)) as first, running(TreeServer(TREE)) as second:
        result = run(at(closed_port(), first, second), "--json", "--window", "1")
    assert result.exit_code == 0, result.output
    refused, lost = result.stderr.splitlines()
    assert refused.endswith(": cannot connect: Connection refused")
    assert lost == (
        f"127.0.0.1:{first.port}: the connection was lost: the server closed the connection after 2 znodes"
    )
    body = json.loads(result.stdout)
    assert (body["where"], body["requests"]) == (f"127.0.0.1:{second.port}", 6)
    assert [kind for kind, _ in second.requests].count(SYNC) == 1
    assert second.requests[1] == (12, "/kafka"), "from the root on"


HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (
            TreeServer(TREE, greeting=None),
            "closed the connection without opening a session. It does not serve",
        ),
        (TreeServer(TREE, greeting=EXPIRED), "refused the session as expired"),
        (
            TreeServer(TREE, greeting=CONNECTED[:9]),
            "the server is not ZooKeeper: a ConnectResponse has 9 bytes",
        ),
        (TreeServer(TREE, drop_after=0), "the connection was lost: the server closed the connection"),
        (TreeServer(TREE, garble=lambda _: HTTP), "a message has 1213486160 bytes, but 0 to "),
        (TreeServer(TREE, garble=lambda _: struct.pack(">i", -9)), "a message has -9 bytes"),
        (TreeServer(TREE, garble=lambda _: struct.pack(">iq", 8, 1)), "long needs 8 bytes, but 4 are left"),
        (
            TreeServer(TREE, garble=lambda r: r[:4] + b"\0\0\0\x63" + r[8:]),
            "a reply to request 99 arrived, but",
        ),
        (TreeServer(TREE, garble=lambda r: r[:16] + struct.pack(">i", -112) + r[20:]), "SessionExpired"),
    ],
    ids=["closed", "expired", "short", "dropped", "http", "negative", "runt", "other-xid", "session-expired"],
)
def test_a_server_that_gives_no_answer_is_named_with_the_reason(server: TreeServer, said: str) -> None:
    with running(server):
        result = run(at(server), "--json")
    assert result.exit_code == 8
    assert f"127.0.0.1:{server.port}: " in result.stderr
    assert said in json.loads(result.stdout)["error"]
    assert "Traceback" not in result.output


def test_all_that_failed_are_named() -> None:
    one, two = closed_port(), closed_port()
    result = run(at(one, two))
    assert result.exit_code == 8
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("zkmigrate: no server returned the whole subtree. ")
    assert f"127.0.0.1:{one.port}: cannot connect" in last
    assert f"127.0.0.1:{two.port}: cannot connect" in last


def test_a_reply_may_be_as_large_as_is_allowed() -> None:
    wide = TREE | {f"/kafka/{n:050d}": (1, 1, 1) for n in range(40)}
    with running(TreeServer(wide)) as server:
        refused, taken = run(at(server), "--max-reply", "1000"), run(at(server), "--max-reply", "4000")
    assert refused.exit_code == 8
    assert "bytes, but 0 to 1000 are allowed. A reply is larger than --max-reply" in refused.stderr
    assert taken.exit_code == 0, taken.output
    assert taken.output.startswith("0x30 ")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("chroot", ["/", "/kafka"])
def test_a_directory_is_read_alike_from_here_and_from_a_host(
    tmp_path: Path, sshd: Sshd, version: str, chroot: str
) -> None:
    folder = placed(tmp_path, version, "standalone")
    tree = load_tree(FileDirectory(folder / "version-2"), chroot=Chroot(chroot))
    here = run("--dir", str(folder), "--chroot", chroot, "--json")
    there = run("--dir", f"127.0.0.1:{folder}", "--chroot", chroot, "--json", *sshd.options)
    assert (here.exit_code, there.exit_code) == (0, 0), here.output + there.output
    body, other = json.loads(here.stdout), json.loads(there.stdout)
    assert list(body) == KEYS
    assert (body["source"], body["where"], other["where"]) == ("disk", str(folder), f"127.0.0.1:{folder}")
    assert (body["zxid"], body["znodes"]) == (f"0x{max_zxid(tree):x}", len(tree.nodes))
    assert (body["begin"], body["end"], body["requests"]) == (f"0x{tree.zxid:x}", f"0x{tree.zxid:x}", 0)
    assert max(int(body[kind]["zxid"], 16) for kind in ("czxid", "mzxid", "pzxid")) == max_zxid(tree)
    for each in (body, other):
        del each["where"], each["seconds"], each["time"]
    assert body == other


def test_logs_may_lie_in_a_directory_of_their_own(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    (data / "version-2").mkdir(parents=True)
    (log / "version-2").mkdir(parents=True)
    (log / "version-2" / "log.1").write_bytes(log_from([create_payload(1, "/a", b"")]))
    result = run("--dir", str(data), "--log-dir", str(log))
    assert result.exit_code == 0, result.output
    assert result.output.startswith("0x1 /a (2 znodes ")
    assert result.output.splitlines()[-1] == "at 0x1, the newest transaction in the files"


def test_files_that_lack_the_chroot_or_cannot_be_read_get_one_line(tmp_path: Path) -> None:
    folder = placed(tmp_path, VERSIONS[-1], "standalone")
    absent = run("--dir", str(folder), "--chroot", "/nowhere")
    assert absent.exit_code == 8
    assert f"{folder} has no znode /nowhere at 0x" in absent.stderr
    assert run("--dir", str(tmp_path / "none")).exit_code == 8
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "log.1").write_bytes(b"PK\x03\x04" + bytes(100))
    damaged = run("--dir", str(tmp_path / "bad"))
    assert damaged.exit_code == 8
    assert "log.1 at offset 0: the file starts with b'PK" in damaged.stderr
    (tmp_path / "foreign").mkdir()
    assert run("--dir", str(tmp_path / "foreign")).exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Needed: HOST"),
        (("h/kafka", "--dir", "/data"), "Needed: HOST"),
        (
            ("h/kafka", "--chroot", "/x", "--ssh-user", "me"),
            "--chroot, --ssh-user has no effect when reading from a server",
        ),
        (("--dir", "/data", "--window", "4"), "--window has no effect when reading files"),
        (("h:0/kafka",), "'h:0' in 'h:0/kafka' is not a server"),
        (("h/kafka/",), "'/kafka/' is not the path of a znode"),
        (("--dir", "/data", "--chroot", "kafka"), "'kafka' is not the path of a znode"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_servers_are_named_as_clients_name_them() -> None:
    servers, chroot = parse_servers("zk1,zk2:2182,[fd77::1]:2183,10.0.0.1/kafka/a")
    assert [str(server) for server in servers] == ["zk1:2181", "zk2:2182", "[fd77::1]:2183", "10.0.0.1:2181"]
    assert chroot == "/kafka/a"
    assert parse_servers("zk1")[1] == parse_servers("zk1/")[1] == "/"


@pytest.mark.parametrize(
    "text", ["", "/kafka", "a,,b/x", "a:/x", "a:99999/x", "fd77::1/x", "a b/x", "a/x//y", "a/./x"]
)
def test_what_names_no_server_or_no_path_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a server|not the path of a znode"):
        parse_servers(text)


def paced(ticks: list[float]) -> tuple[list[str], WalkProgress]:
    said: list[str] = []
    clock: Callable[[], float] = iter(ticks).__next__
    return said, WalkProgress(said.append, Interval(5.0, clock))


def test_a_long_walk_tells_how_many_how_fast_and_what_is_left() -> None:
    walk = Walk(Chroot("/kafka"), 3)
    for n in range(800):
        walk.extent.take(f"/kafka/{n}", 1, 1, 1)
    said, pace = paced([100.0, 102.0, 108.0, 108.0, 109.0])
    for _ in range(3):
        pace.report_walk(walk)
    assert said == ["800 znodes, 100 a second; 1 more known znodes are not read yet"]


def test_a_long_replay_tells_how_many_transactions() -> None:
    said, pace = paced([0.0, 4.0, 5.0, 9.0, 11.0])
    for done in (500, 1000, 1500, 2000):
        pace.report_replay(done, None)
    assert said == [
        "read the snapshot and 1000 transactions after it",
        "read the snapshot and 2000 transactions after it",
    ]


def failures(server: TreeServer, limits: Limits) -> str:
    """What a walk that cannot end says."""
    with pytest.raises(HostError) as caught:
        walk_subtree(
            [Server("127.0.0.1", server.port)],
            Chroot("/kafka"),
            5,
            limits,
            lambda _: None,
            lambda _: None,
            OPEN,
        )
    return str(caught.value)


def test_a_server_that_takes_the_connection_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:  # the system accepts, nobody reads
        silent = TreeServer({}, port=listener.getsockname()[1])
        said = failures(silent, Limits(connect_s=0.2))
    assert (
        f"127.0.0.1:{silent.port}: the server accepted the connection, but opened no session: timed out"
        in said
    )


def test_a_server_that_falls_silent_is_given_up_within_the_session_it_granted() -> None:
    granted_ms = struct.pack(">ii", 0, 300) + CONNECTED[8:]
    with running(TreeServer(TREE, greeting=granted_ms, garble=lambda _: b"")) as server:
        assert "the connection was lost: timed out" in failures(server, Limits())


def test_a_walk_that_is_interrupted_ends_its_session() -> None:
    def interrupt(_walk: Walk) -> None:
        raise KeyboardInterrupt

    with running(TreeServer(TREE)) as server:
        at_it = [Server("127.0.0.1", server.port)]
        with pytest.raises(KeyboardInterrupt):
            walk_subtree(at_it, Chroot("/kafka"), 5, Limits(), interrupt, lambda _: None, OPEN)
    assert server.closed == 1


SHARED: dict[str, Zxids] = {
    "/": (0, 0, 0x50),
    "/brokers": (5, 5, 8),
    "/brokers/ids": (8, 8, 8),
    "/hbase": (0x40, 0x41, 0x40),
    "/zookeeper": (0, 0, 0),
    "/zookeeper/quota": (0, 0, 0),
}


@pytest.mark.parametrize(
    ("only", "largest", "znodes"),
    [("kafka", "0x8", 2), ("hbase", "0x41", 1), ("kafka,hbase", "0x41", 3), ("", "0x50", 4)],
)
def test_at_the_chroot_slash_a_walk_keeps_to_the_named_znodes(only: str, largest: str, znodes: int) -> None:
    with running(TreeServer(SHARED)) as server:
        result = run(at(server, chroot="/"), "--only", only, "--json")
    found = json.loads(result.stdout)
    assert (found["zxid"], found["znodes"]) == (largest, znodes)


def test_a_walk_that_finds_none_of_the_named_znodes_says_so() -> None:
    with running(TreeServer(SHARED)) as server:
        result = run(at(server, chroot="/"), "--only", "solr,live")
    assert result.exit_code == 8
    assert "none of /live, /solr exists on 127.0.0.1" in result.stderr
