"""`zkmigrate writers`: who wrote under a chroot, from a server's log."""

from __future__ import annotations

import json
import struct
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.memory_files import BytesDirectory
from tests.unit.loopback import listening
from tests.unit.zkdata_fixtures import (
    OPEN_ACL,
    VERSIONS,
    log_from,
    payload,
    recorded,
    recorded_files,
    snapshot_of,
    text,
)
from tests.unit.zookeeper.clients.test_admin import body as admin_body
from tests.unit.zookeeper.clients.test_admin import page, server
from zkmigrate.cli.main import cli
from zkmigrate.zookeeper.clients.admin import format_as_word
from zkmigrate.zookeeper.clients.login import OPEN
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.effect import path_changes, touches
from zkmigrate.zookeeper.data.four_letter_words import parse_cons
from zkmigrate.zookeeper.data.log_writers import WriterList, broker_of, writers
from zkmigrate.zookeeper.data.logdir import walk
from zkmigrate.zookeeper.data.session import unsigned
from zkmigrate.zookeeper.data.txn import CloseSessionTxn
from zkmigrate.zookeeper.disks.writer_addresses import addresses

BROKER, TOOL, OTHER, OLD = 0x11, 0x22, -0x33, 0x44
HOUR = 3_600_000


def create(zxid: int, session: int, at_ms: int, path: str, *, ephemeral: bool = False) -> bytes:
    body = text(path) + struct.pack(">i", 1) + b"d" + OPEN_ACL + struct.pack(">?i", ephemeral, 1)
    return payload(zxid, 1, body, session, time_ms=at_ms)


def opened(zxid: int, session: int, at_ms: int, timeout_ms: int = 18_000) -> bytes:
    return payload(zxid, -10, struct.pack(">i", timeout_ms), session, time_ms=at_ms)


def deleted(zxid: int, session: int, at_ms: int, path: str) -> bytes:
    return payload(zxid, 2, text(path), session, time_ms=at_ms)


LOG = [
    opened(1, BROKER, 1 * HOUR),
    create(2, BROKER, 1 * HOUR, "/kafka/brokers/ids/7", ephemeral=True),
    create(3, OTHER, 2 * HOUR, "/other/a"),
    opened(4, TOOL, 3 * HOUR, 30_000),
    create(5, TOOL, 3 * HOUR, "/kafka/config/topics/t"),
    create(6, TOOL, 3 * HOUR, "/kafka/admin/delete_topics/t"),
    deleted(7, TOOL, 3 * HOUR, "/kafka/admin/delete_topics/t"),
    create(8, BROKER, 4 * HOUR, "/kafka/brokers/topics/t/partitions/0"),
    payload(9, -11, b"", TOOL, 0, 4 * HOUR),
    create(10, OLD, 5 * HOUR, "/kafka/consumers/group/offsets"),
]


def found(span_ms: int | None = None, **more: Any) -> WriterList:
    return writers(BytesDirectory({"log.1": log_from(LOG)}), chroot=Chroot("/kafka"), span_ms=span_ms, **more)


def test_each_session_with_what_it_changed_and_when() -> None:
    seen = found()
    assert (seen.records, seen.under, seen.since_ms, seen.until_ms) == (10, 6, HOUR, 5 * HOUR)
    by_session = {one.session: one for one in seen.writers}
    assert list(by_session) == [TOOL, BROKER, OLD]
    tool = by_session[TOOL]
    assert (tool.changes, tool.first_ms, tool.last_ms, tool.ended_ms) == (3, 3 * HOUR, 3 * HOUR, 4 * HOUR)
    assert tool.types == {"create": 2, "delete": 1}
    assert tool.places == {"/kafka/admin/delete_topics": 2, "/kafka/config/topics": 1}
    assert (tool.broker, tool.timeout_ms) == (None, 30_000)
    assert (by_session[BROKER].broker, by_session[BROKER].timeout_ms) == (7, 18_000)
    assert (by_session[OLD].timeout_ms, by_session[OLD].ended_ms) == (None, None)


def test_who_set_a_quota_of_the_chroot_is_told_with_the_whole_path() -> None:
    limits = "/zookeeper/quota/kafka/zookeeper_limits"
    log = [create(1, TOOL, HOUR, limits), create(2, TOOL, HOUR, limits.replace("kafka", "solr"))]
    seen = writers(BytesDirectory({"log.1": log_from(log)}), chroot=Chroot("/kafka"))
    assert [(one.session, one.places) for one in seen.writers] == [(TOOL, {limits: 1})]


def test_the_last_hours_count_back_from_the_newest_transaction() -> None:
    seen = found(1 * HOUR)
    assert {one.session: one.changes for one in seen.writers} == {BROKER: 1, OLD: 1}
    assert (seen.records, seen.since_ms) == (3, 4 * HOUR)
    # It registered before that: the snapshot knows, and the log when it reaches back.
    assert {one.broker for one in seen.writers} == {None}
    known = found(1 * HOUR, owners={BROKER: ("/kafka/brokers/ids/7", "/kafka/controller")})
    assert {one.session: one.broker for one in known.writers} == {BROKER: 7, OLD: None}


def test_only_the_files_that_reach_into_the_time_are_read() -> None:
    names = {"log.1": log_from(LOG[:4]), "log.5": log_from(LOG[4:7]), "log.8": log_from(LOG[7:])}
    whole = writers(BytesDirectory(names), chroot=Chroot("/kafka"))
    assert [one.changes for one in whole.writers] == [3, 2, 1]
    names["log.1"] = b"ZKLG" + bytes(400)  # damaged, and older than what is asked for
    late = writers(BytesDirectory(names), chroot=Chroot("/kafka"), span_ms=2 * HOUR)
    assert {one.session: one.changes for one in late.writers} == {TOOL: 3, BROKER: 1, OLD: 1}


@pytest.mark.parametrize("allocated", [0, 1 << 16])
def test_no_more_than_so_many_bytes_are_read_and_the_newest_file_in_any_case(allocated: int) -> None:
    """What a server has allocated and not written does not count."""
    names = {"log.1": log_from(LOG[:4]), "log.5": log_from(LOG[4:7]), "log.8": log_from(LOG[7:])}
    size = {name: len(content) for name, content in names.items()}
    names = {name: content + bytes(allocated) for name, content in names.items()}

    def changes(at_most: int, **more: Any) -> list[int]:
        seen = writers(BytesDirectory(names), chroot=Chroot("/kafka"), at_most=at_most, **more)
        return [one.changes for one in seen.writers]

    assert changes(sum(size.values())) == [3, 2, 1]
    assert changes(sum(size.values()) - 1) == changes(size["log.5"] + size["log.8"]) == [3, 1, 1]
    assert changes(size["log.5"] + size["log.8"] - 1) == changes(1) == [1, 1]
    assert changes(sum(size.values()), span_ms=1 * HOUR) == [1, 1]


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/kafka/brokers/topics/t/partitions/0/state", True),
        ("/kafka/controller_epoch", True),
        ("/kafka/isr_change_notification/isr_change_0000000001", True),
        ("/kafka/brokers/topics/t", False),
        ("/kafka/config/changes/config_change_0000000001", False),
        ("/kafka/controller_of_mine", False),
    ],
)
def test_who_wrote_what_only_brokers_write_is_one_though_its_registration_is_not_there(
    path: str, own: bool
) -> None:
    log = log_from([create(1, OTHER, HOUR, path)])
    (seen,) = writers(BytesDirectory({"log.1": log}), chroot=Chroot("/kafka")).writers
    assert (seen.broker, seen.is_broker) == (None, own)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("chroot", ["/", "/kafka"])
def test_the_logs_of_real_servers_are_counted_as_they_stand(version: str, chroot: str) -> None:
    directory = recorded(version, "standalone")
    expected: dict[int, int] = {}
    for record in walk(directory):
        txn = record.txn()
        changed = any(touches(change, Chroot(chroot)) for change in path_changes(txn))
        if changed and not isinstance(txn.body, CloseSessionTxn):
            expected[record.session] = expected.get(record.session, 0) + 1
    seen = writers(directory, chroot=Chroot(chroot))
    assert {one.session: one.changes for one in seen.writers} == expected
    assert seen.under == sum(expected.values()) > 0
    if chroot == "/kafka":
        assert {one.broker for one in seen.writers} >= {1, 2}


def test_a_brokers_registration_is_known_by_its_path_alone() -> None:
    assert broker_of("/kafka/brokers/ids/12", Chroot("/kafka")) == 12
    assert broker_of("/brokers/ids/3", Chroot("/")) == 3
    for path in ("/kafka/brokers/ids", "/kafka/brokers/ids/1/x", "/kafkax/brokers/ids/1", "/brokers/ids/1"):
        assert broker_of(path, Chroot("/kafka")) is None


# --- the command -------------------------------------------------------------------------------------------


def answering(text: str) -> AbstractContextManager[int]:
    """A server that gives every four-letter word this answer; its port."""
    return listening(lambda client: client.sendall(text.encode() if client.recv(4) else b""))


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["writers", *words])


def placed(folder: Path) -> Path:
    inside = folder / "version-2"
    inside.mkdir(parents=True)
    (inside / "snapshot.0").write_bytes(snapshot_of({"/kafka": b"", "/other": b""}))
    (inside / "log.1").write_bytes(log_from(LOG))
    return folder


def test_what_is_said_of_them(tmp_path: Path) -> None:
    cons = (
        " /10.0.0.31:40000[1](queued=0,recved=5,sent=5,sid=0x11,lop=PING,est=1,to=18000,lcxid=0x1,lzxid=0x8,"
        "lresp=1,llat=0,minlat=0,avglat=0,maxlat=1)\n"
    )
    with answering(cons) as port:
        result = run(str(placed(tmp_path)), "--chroot", "/kafka", "--servers", f"127.0.0.1:{port}")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "6 of 10 transactions changed /kafka (1970-01-01 01:00:00Z to 1970-01-01 05:00:00Z): 1 session of "
        "brokers, 2 of others",
        "0x22 not a broker, not connected to the queried servers: 3 changes, last 1970-01-01 03:00:00Z, "
        "ended 1970-01-01 04:00:00Z",
        "    /kafka/admin/delete_topics (2), /kafka/config/topics (1)",
        "0x44 not a broker, not connected to the queried servers: 1 changes, last 1970-01-01 05:00:00Z",
        "    /kafka/consumers/group (1)",
        "0x11 broker 7, 10.0.0.31: 2 changes, last 1970-01-01 04:00:00Z",
        "    /kafka/brokers/ids (1), /kafka/brokers/topics (1)",
    ]


def test_the_same_as_json(tmp_path: Path) -> None:
    result = run(str(placed(tmp_path)), "--chroot", "/other", "--json")
    assert result.exit_code == 0
    body = json.loads(result.stdout)
    assert (body["records"], body["under_chroot"], body["gaps"]) == (10, 1, [])
    assert body["writers"] == [
        {
            "session": "0xffffffffffffffcd", "broker": None, "is_broker": False, "address": None,
            "changes": 1, "first_ms": 2 * HOUR, "last_ms": 2 * HOUR, "ended_ms": None, "timeout_ms": None,
            "types": {"create": 1}, "places": {"/other/a": 1}, "last_path": "/other/a",
        }
    ]  # fmt: skip


def test_addresses_come_from_adminserver_where_cons_is_not_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cons = admin_body("3.5.8.leader", "cons")
    known = parse_cons(format_as_word("cons", cons))[0]
    denied = "cons is not executed because it is not in the whitelist.\n"
    with answering(denied) as port, server(page(json.dumps(cons).encode())) as (admin, _):
        monkeypatch.setattr("zkmigrate.zookeeper.disks.writer_addresses.ADMIN_PORT", admin)
        found = addresses([Server("127.0.0.1", port)], OPEN, pytest.fail)
    assert known.session is not None
    assert found[unsigned(known.session)] == known.address


def test_a_server_that_gives_no_addresses_is_named_and_the_rest_is_said(tmp_path: Path) -> None:
    folder = str(placed(tmp_path))
    with answering("cons is not executed because it is not in the whitelist.\n") as port:
        result = run(folder, "--chroot", "/kafka", "--servers", f"127.0.0.1:{port}")
    assert result.exit_code == 0
    assert "whitelist" in result.stderr
    closed = run(folder, "--servers", "127.0.0.1:1")
    assert (closed.exit_code, "127.0.0.1:1: cannot read client addresses" in closed.stderr) == (0, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--chroot", "kafka"], 2, "is not the path of a znode"),
        (["--hours", "0"], 2, "0"),
        (["--hours", "soon"], 2, "soon"),
        (["--servers", "zk1:2181/kafka"], 2, "ends in /kafka"),
        (["--servers", "zk1:port"], 2, "is not a server"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_2(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    result = run(str(placed(tmp_path)), *words)
    assert (result.exit_code, said in result.stderr) == (code, True)


def test_a_damaged_log_is_named_with_file_and_offset(tmp_path: Path) -> None:
    folder = placed(tmp_path)
    log = folder / "version-2" / "log.1"
    data = bytearray(log.read_bytes())
    data[60] ^= 1
    log.write_bytes(bytes(data))
    result = run(str(folder))
    assert result.exit_code == 8
    assert "log.1 at offset " in result.stderr


def test_an_empty_directory_of_zookeepers_has_no_writers(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    (tmp_path / "version-2" / "snapshot.0").write_bytes(snapshot_of({"/kafka": b""}))
    result = run(str(tmp_path), "--hours", "1")
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "0 of 0 transactions changed / (nothing): 0 sessions of brokers, 0 of others"
    )


def test_every_recorded_directory_is_told(tmp_path: Path) -> None:
    for version in VERSIONS:
        inside = tmp_path / version / "version-2"
        inside.mkdir(parents=True)
        for name, content in recorded_files(version, "standalone").items():
            (inside / name).write_bytes(content)
        result = run(str(inside.parent), "--chroot", "/kafka")
        assert result.exit_code == 0, result.output
        assert " broker 1: " in result.stdout
