"""The load's ZooKeeper messages against another implementation of the same wire format (kazoo's)."""

from __future__ import annotations

import struct

import pytest
from kazoo.protocol import serialization as kazoo
from kazoo.security import OPEN_ACL_UNSAFE

from zkmigrate.lab.load import zkmessages as messages


@pytest.mark.parametrize(("flags", "data"), [(0, b""), (messages.SEQUENTIAL, b"x"), (3, bytes(900 * 1024))])
def test_create_is_what_kazoo_sends(flags: int, data: bytes) -> None:
    expected = kazoo.Create("/kafka/ä", data, OPEN_ACL_UNSAFE, flags)
    assert messages.create_request("/kafka/ä", data, flags) == bytes(expected.serialize())
    assert expected.type == messages.CREATE


@pytest.mark.parametrize(
    ("made", "op", "expected"),
    [
        (messages.set_request("/a", b"v"), messages.SET_DATA, kazoo.SetData("/a", b"v", -1)),
        (messages.delete_request("/a"), messages.DELETE, kazoo.Delete("/a", -1)),
        (messages.read_request("/a"), messages.EXISTS, kazoo.Exists("/a", None)),
        (messages.read_request("/a"), messages.GET_DATA, kazoo.GetData("/a", None)),
        (messages.read_request("/a"), messages.GET_CHILDREN, kazoo.GetChildren("/a", None)),
        (messages.sync_request("/a"), messages.SYNC, kazoo.Sync("/a")),
    ],
)
def test_requests_are_what_kazoo_sends(made: bytes, op: int, expected: kazoo.Exists) -> None:
    assert made == bytes(expected.serialize())
    assert op == expected.type


def test_answers_are_taken_apart() -> None:
    stat = messages.Stat(1, 2, 3, 4, 5, 6, 7, -8, 9, 10, 11)
    wire = struct.pack(">qqqqiiiqiiq", *stat)
    assert messages.stat_of(wire) == stat
    assert messages.data_of(messages.buffer(b"abc") + wire) == b"abc"
    assert messages.data_of(struct.pack(">i", -1) + wire) == b""
    assert messages.path_of(messages.buffer(b"/a/n-0000000001")) == "/a/n-0000000001"
    names = struct.pack(">i", 2) + messages.buffer(b"x") + messages.buffer("ü".encode())
    assert messages.children_of(names) == ["x", "ü"]


def test_ids_are_printed_as_zookeeper_prints_them() -> None:
    assert messages.hex_id(-1) == "0xffffffffffffffff"
    assert messages.hex_id(0x1000016351E0003) == "0x1000016351e0003"


def test_errors_have_their_names() -> None:
    assert messages.error_name(messages.NODE_EXISTS) == "NodeExists"
    assert messages.error_name(-999) == "error -999"
