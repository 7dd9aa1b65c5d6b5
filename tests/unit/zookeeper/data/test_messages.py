"""Client messages byte by byte: what is sent, what is taken, and bytes that are neither."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tree_server import CONNECTED, children_reply, framed, header, stat
from zkmigrate.zookeeper.data.errors import MalformedError
from zkmigrate.zookeeper.data.jute import JuteInput
from zkmigrate.zookeeper.data.messages import (
    EXISTS,
    GET_CHILDREN2,
    SYNC,
    Frames,
    ReplyHeader,
    close_request,
    connect_request,
    connect_response,
    error_name,
    get_children2_response,
    reply_header,
    request,
)


def replied(frame: bytes) -> tuple[ReplyHeader, list[str], int]:
    cursor = JuteInput(frame)
    head = reply_header(cursor)
    names, found = get_children2_response(cursor)
    return head, names, found.pzxid


def test_requests_are_what_the_protocol_says() -> None:
    assert connect_request(30_000).hex() == (
        "0000002d00000000000000000000000000007530000000000000000000000010" + "00" * 16 + "00"
    )
    assert request(7, GET_CHILDREN2, "/a").hex() == "0000000f000000070000000c000000022f6100"
    assert request(7, EXISTS, "/a").hex() == "0000000f0000000700000003000000022f6100"
    assert request(1, SYNC, "/é").hex() == "0000000f0000000100000009000000032fc3a9"
    assert close_request(9).hex() == "0000000800000009fffffff5"


def test_a_session_is_granted_with_and_without_the_last_field() -> None:
    assert connect_response(CONNECTED) == connect_response(CONNECTED[:-1]) == (30_000, 0x77)


def test_a_reply_has_its_children_and_its_stat() -> None:
    reply = children_reply(5, ["b", "é"], (0x10, 0x20, 0x30), zxid=0x99)
    assert replied(reply) == ((5, 0x99, 0), ["b", "é"], 0x30)
    null = header(5) + struct.pack(">i", -1) + stat((1, 2, 3))
    assert replied(null)[1] == [], "a null vector is an empty one"


def test_errors_go_by_their_names() -> None:
    assert (error_name(-112), error_name(-77)) == ("SessionExpired", "error -77")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        CONNECTED[:-2],
        CONNECTED + b"\0",
        struct.pack(">iiqi", 0, 30_000, 0x77, -1) + bytes(17),
        struct.pack(">iiqi", 0, 30_000, 0x77, 15) + bytes(17),
        struct.pack(">iiqi", 0, 30_000, 0x77, 1 << 30) + bytes(17),
    ],
    ids=["empty", "short", "long", "null-password", "other-password", "password-longer-than-the-frame"],
)
def test_what_is_no_connect_response_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedError):
        connect_response(frame)


GOOD = children_reply(5, ["abc", "d"], (1, 2, 3))
AT_COUNT, AT_NAME = 16, 20


def patched(at: int, value: int) -> bytes:
    return GOOD[:at] + struct.pack(">i", value) + GOOD[at + 4 :]


@pytest.mark.parametrize(
    "frame",
    [
        GOOD[:15],
        GOOD[:-1],
        GOOD + b"\0",
        patched(AT_COUNT, -2),
        patched(AT_COUNT, 1),
        patched(AT_COUNT, 3),
        patched(AT_COUNT, 0x7FFFFFFF),
        patched(AT_NAME, -1),
        patched(AT_NAME, -5),
        patched(AT_NAME, 0x7FFFFFFF),
        GOOD.replace(b"abc", b"a\xffc"),
    ],
    ids=[
        "half-a-header", "short", "long", "negative-count", "count-too-small", "count-too-large",
        "count-huge", "null-name", "negative-name", "huge-name", "not-utf-8",
    ],
)  # fmt: skip
def test_what_is_no_reply_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedError):
        replied(frame)


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_messages_are_cut_alike_however_they_arrive(messages: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(framed, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    frames = Frames(40)
    came = [
        each
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for each in frames.feed(stream[start:end])
    ]
    assert came == messages


@pytest.mark.parametrize("length", [-1, -(1 << 31), 41, 0x48545450, 0x7FFFFFFF])
def test_a_length_that_cannot_be_is_refused_before_its_message_comes(length: int) -> None:
    frames = Frames(40)
    assert frames.feed(framed(b"x")) == [b"x"]
    with pytest.raises(MalformedError, match=f"a message has {length} bytes, but 0 to 40"):
        frames.feed(struct.pack(">i", length))


@pytest.mark.parametrize("read", [connect_response, replied])
@given(frame=st.binary(max_size=120))
def test_any_bytes_are_a_message_or_refused(read: Callable[[bytes], object], frame: bytes) -> None:
    try:
        read(frame)
    except MalformedError:
        return


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_any_byte_of_a_reply_may_be_wrong(at: int, value: int) -> None:
    try:
        head, names, _ = replied(GOOD[:at] + bytes([value]) + GOOD[at + 1 :])
    except MalformedError:
        return
    assert len(names) == 2
    assert isinstance(head.zxid, int)
