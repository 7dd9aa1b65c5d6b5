"""Messages as they leave the gateway, read back by another implementation."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    HeartbeatResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import ApiVersionsResponse, FindCoordinatorResponse, MetadataResponse
from kafka.protocol.producer import TxnOffsetCommitRequest

from tests.examples import examples
from tests.unit.topics.gateway import frames
from tests.unit.topics.gateway.frames import EPOCH, answer, decoded, head, request
from zkmigrate.topics.gateway.rules.apis import (
    API_VERSIONS,
    APIS,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    name_of,
    offered,
)
from zkmigrate.topics.gateway.rules.layout import SLICE, FrameError, finished
from zkmigrate.topics.gateway.rules.messages import (
    LONG,
    MECHANISMS,
    correlation,
    nowhere,
    other_mechanism,
    principal,
    ranges,
    too_new,
    versions,
    without_epochs,
)
from zkmigrate.topics.gateway.rules.seen import MOST_NAMES
from zkmigrate.topics.gateway.serving.schemas import messages

MESSAGES = messages()


def where(node: int) -> tuple[str, int]:
    return "gw.example", 19000 + node


def asked(frame: bytes) -> tuple[bytes | bytearray, Any]:
    return finished(MESSAGES.read_request(MESSAGES.head(frame), frame))


def hidden(body: Any) -> Any:
    """The fields with every leader epoch at -1 and every address ours."""
    if isinstance(body, list):
        return [hidden(one) for one in body]
    if not isinstance(body, dict):
        return body
    new = {key: -1 if key.endswith("leader_epoch") else hidden(value) for key, value in body.items()}
    if "host" in new and new["node_id"] >= 0:
        new["host"], new["port"] = where(new["node_id"])
    return new


ANSWERS = [
    *(("METADATA", MetadataResponse, v, frames.metadata()) for v in range(10)),
    *(("FIND_COORDINATOR", FindCoordinatorResponse, v, frames.coordinator(v)) for v in range(5)),
    *(("FIND_COORDINATOR", FindCoordinatorResponse, v, frames.coordinator(v, -1)) for v in range(5)),
    *(("LIST_OFFSETS", ListOffsetsResponse, v, frames.listed_offsets()) for v in range(1, 8)),
    *(("OFFSET_FETCH", OffsetFetchResponse, v, frames.offset_fetched(v)) for v in range(1, 9)),
]
REQUESTS = [
    *((FetchRequest, v, frames.fetch()) for v in range(4, 12)),
    *((ListOffsetsRequest, v, frames.list_offsets()) for v in range(1, 8)),
    *((OffsetCommitRequest, v, frames.offset_commit()) for v in range(2, 9)),
    *((TxnOffsetCommitRequest, v, frames.txn_offset_commit()) for v in range(4)),
]
KEYS = {name_of(key): key for key in APIS}


@pytest.mark.parametrize(("name", "kind", "version", "body"), ANSWERS)
def test_answers_carry_our_addresses_and_no_epochs(name: str, kind: Any, version: int, body: Any) -> None:
    frame = answer(body, version)
    told = bytes(finished(MESSAGES.read_answer(head(KEYS[name], version), frame, where)))
    assert decoded(kind, told, version) == hidden(decoded(kind, frame, version))


@pytest.mark.parametrize(("kind", "version", "body"), REQUESTS)
def test_requests_carry_no_epochs(kind: Any, version: int, body: Any) -> None:
    frame = request(body, version)
    told, _ = asked(frame)
    assert decoded(kind, bytes(told), version) == hidden(decoded(kind, frame, version))


def test_an_epoch_was_there_to_hide() -> None:
    """Else the tests above would show nothing."""
    for kind, version, body in [
        (FetchRequest, 11, frames.fetch()),
        (OffsetCommitRequest, 8, frames.offset_commit()),
    ]:
        assert f"leader_epoch': {EPOCH}" in str(decoded(kind, request(body, version), version))
    for name, kind, version, body in ANSWERS:
        if (name, version) in {
            ("METADATA", 9),
            ("LIST_OFFSETS", 7),
            ("OFFSET_FETCH", 8),
            ("OFFSET_FETCH", 5),
        }:
            assert f"leader_epoch': {EPOCH}" in str(decoded(kind, answer(body, version), version))


def epochless(frame: bytes) -> bool:
    whole = len(frame).to_bytes(4, "big") + frame
    return without_epochs(MESSAGES.head(whole, 4), whole)


@pytest.mark.parametrize("version", range(9, 12))
@pytest.mark.parametrize(
    "topics",
    [{}, {"a": [-1]}, {"a": []}, {"orders": [-1] * 9, "b": [-1], "": [-1, -1]}],
)
def test_a_fetch_without_epochs_is_known_at_once(version: int, topics: dict[str, list[int]]) -> None:
    assert epochless(request(frames.fetch(topics), version))
    for name, own in topics.items():
        for at in range(len(own)):
            for epoch in (EPOCH, 255, -256, -(1 << 31)):
                other = {**topics, name: [*own[:at], epoch, *own[at + 1 :]]}
                assert not epochless(request(frames.fetch(other), version)), (name, at)


def test_a_large_fetch_is_not_looked_through_at_once() -> None:
    frame = request(frames.fetch({"a": [-1] * (LONG // 28)}), 11)
    assert len(frame) > LONG
    assert not epochless(frame)


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32))
def test_a_damaged_fetch_is_passed_on_at_once_only_if_no_epoch_is_in_it(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        epochs = [chance.choice((-1, -1, EPOCH)) for _ in range(chance.randrange(4))]
        good = request(frames.fetch({"a": epochs, "orders": [-1]}), chance.randrange(9, 12))
        frame = good[:14] + mutated(good[14:], chance)
        try:
            if MESSAGES.head(frame) == MESSAGES.head(good) and epochless(frame):
                assert asked(frame)[0] is frame
        except FrameError:
            pass


@pytest.mark.parametrize("version", range(4, 12))
def test_a_fetch_is_answered_without_records_as_a_broker_does_that_leads_nothing(version: int) -> None:
    frame = request(frames.fetch(), version, correlation=9)
    told = MESSAGES.not_led(MESSAGES.head(frame), frame)
    assert correlation(told) == 9
    seen = decoded(FetchResponse, told, version)
    part = {
        "partition_index": 0,
        "error_code": 6,
        "high_watermark": -1,
        "last_stable_offset": -1,
        "aborted_transactions": None,
        "records": "",
        **({"log_start_offset": -1} if version >= 5 else {}),
        **({"preferred_read_replica": -1} if version >= 11 else {}),
    }
    assert seen["responses"] == [{"topic": "orders", "partitions": [part]}]
    if version >= 7:
        assert (seen["error_code"], seen["session_id"]) == (0, 0)


def test_what_has_nothing_to_change_is_the_same_object() -> None:
    frame = request(frames.fetch(), 4)
    assert asked(frame)[0] is frame


@pytest.mark.parametrize("version", [3, 8, 9])
def test_a_producers_first_bytes_tell_acks_and_transaction(version: int) -> None:
    frame = request(frames.produce(0, "txn", b"r" * 9000), version)[:4096]
    told, fields = asked(frame)
    assert told is frame
    assert fields == {"TransactionalId": "txn", "Acks": 0}


@pytest.mark.parametrize("version", [0, 1, 4, 8, 9])
def test_h20_the_topics_that_metadata_asks_for_are_read(version: int) -> None:
    """librdkafka sends a byte behind the request."""

    def topics(*names: str, all: bool = False) -> Any:
        own = [frames.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        frame = request(frames.MetadataRequest(topics=None if all else own), version) + b"\0"
        told, fields = asked(frame)
        assert told is frame
        return fields["Topics"]

    assert topics("orders", "bills", "orders") == {"orders", "bills"}
    assert topics() == (None if version == 0 else set())
    if version:
        assert topics(all=True) is None
    assert len(topics(*map(str, range(MOST_NAMES + 9)))) == MOST_NAMES + 1


@pytest.mark.parametrize("version", [0, 2, 3])
def test_the_software_is_seen_from_version_3_on(version: int) -> None:
    frame = request(frames.software(), version)
    told = MESSAGES.head(frame)
    assert (told.key, told.version, told.correlation, told.client) == (API_VERSIONS, version, 5, "app-1")
    _, fields = asked(frame)
    needed = {"ClientSoftwareName": "librdkafka", "ClientSoftwareVersion": "2.16.0"}
    assert fields == (needed if version == 3 else {})


A28 = {0: (0, 9), 1: (0, 12), 3: (0, 11), 18: (0, 3), 23: (0, 4), 68: (0, 1), 60: (0, 0)}
A43 = {0: (0, 13), 1: (4, 18), 3: (0, 13), 18: (0, 4), 23: (2, 4), 68: (0, 1), 77: (0, 1), 60: (0, 2)}


def test_offered_is_what_all_have_and_we_serve() -> None:
    assert offered([A28, A43]) == {0: (0, 9), 1: (4, 11), 3: (0, 9), 18: (0, 3)}


def test_offered_hides_epochs_topic_ids_and_groups_of_kip_848_also_of_the_newest_alone() -> None:
    newest = dict.fromkeys(range(100), (0, 30))
    told = offered([newest])
    assert not told.keys() & {23, 60, 68, 69, 71, 75, 76, 77, 78, 79, 88}
    assert told[1][1] < 12, "FETCH 12 has the last fetched epoch, 13 topic ids"
    assert told[3][1] < 10, "topic ids"
    assert told[0][1] < 10, "KIP-951"
    assert told[8][1] < 10
    assert offered([newest, {0: (10, 13)}]) == {}, "no version in common"


@pytest.mark.parametrize("version", range(4))
def test_versions_are_read_and_written(version: int) -> None:
    kind = ApiVersionsResponse.ApiVersion
    keys = [kind(api_key=key, min_version=a, max_version=b) for key, (a, b) in A43.items()]
    frame = answer(ApiVersionsResponse(error_code=0, api_keys=keys, throttle_time_ms=0), version)
    assert ranges(frame, version) == (0, A43)
    mine = versions(head(API_VERSIONS, version), 0, A28)
    assert mine[:4] == (5).to_bytes(4, "big")
    told = ApiVersionsResponse.decode(mine[4:], version=version).to_dict()
    assert {one["api_key"]: (one["min_version"], one["max_version"]) for one in told["api_keys"]} == A28


def test_a_version_that_we_lack_is_answered_as_kafka_does() -> None:
    told = too_new(head(API_VERSIONS, 4))
    assert ranges(told, 4) == (35, {API_VERSIONS: (0, 3)})


def test_mechanisms_and_principals() -> None:
    told = other_mechanism(head(17, 1))
    assert correlation(told) == 5
    assert told[4:6] == b"\0\x21"
    assert all(one.encode() in told for one in MECHANISMS)
    assert principal("PLAIN", b"\0alice\0secret") == "alice"
    assert principal("PLAIN", b"alice") is None
    assert principal("SCRAM-SHA-256", b"n,,n=al=2Cice,r=nonce") == "al,ice"
    assert principal("SCRAM-SHA-256", b"c=biws,r=nonce,p=proof") is None
    assert principal("SCRAM-SHA-256", None) is None


@pytest.mark.parametrize(("version", "error"), [(0, 0), (3, 0), (4, 0), (0, 25), (1, 27), (4, 25)])
def test_only_an_answer_without_an_error_confirms_a_member(version: int, error: int) -> None:
    body = HeartbeatResponse(throttle_time_ms=0, error_code=error)
    assert MESSAGES.accepted(head(HEARTBEAT, version), answer(body, version)) == (error == 0)


@pytest.mark.parametrize(("version", "error"), [(0, 0), (3, 0), (4, 0), (5, 0), (1, 25), (5, 27)])
def test_only_an_answer_with_partitions_counts_as_synced(version: int, error: int) -> None:
    body = frames.SyncGroupResponse(throttle_time_ms=0, error_code=error, assignment=b"x")
    assert MESSAGES.accepted(head(14, version), answer(body, version)) == (error == 0)


# -- hostile bytes


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (b"\0\3\0\1", "size"),
        (b"\0\3\0\1\0\0\0\5\x7f\xff", "length"),
        (b"\0\3\0\1\0\0\0\5\xff\xfe", "length"),
        (b"\0\3\0\x09\0\0\0\5\0\0" + b"\xff" * 20, "number"),
    ],
)
def test_a_header_that_is_none_is_named(frame: bytes, what: str) -> None:
    with pytest.raises(FrameError) as error:
        MESSAGES.head(frame)
    assert error.value.what == what


def test_an_absurd_count_is_refused_before_it_is_counted() -> None:
    frame = request(frames.fetch(), 4)
    at = frame.index(b"\0\0\0\1\0\6orders")
    frame = frame[:at] + b"\x7f\xff\xff\xff" + frame[at + 4 :]
    with pytest.raises(FrameError) as error:
        asked(frame)
    assert error.value.what == "count"


def test_more_tagged_fields_than_kafka_has_are_refused_before_they_are_counted() -> None:
    frame = request(frames.software(), 3)
    tags = b"\xff\xff\x7f" + b"\0\0" * ((1 << 21) - 1)
    with pytest.raises(FrameError, match="2097151 tagged fields") as error:
        asked(frame[:-1] + tags)
    assert error.value.what == "count"


def test_a_text_is_at_most_as_long_as_brokers_take_it() -> None:
    assert asked(request(frames.software("n" * ((1 << 15) - 1)), 3))
    with pytest.raises(FrameError) as error:
        asked(request(frames.software("n" * (1 << 15)), 3))
    assert error.value.what == "length"


@pytest.mark.parametrize(("one", "version"), [(0, 9), (1, 9), (1, 1)])
def test_a_message_of_many_small_items_is_read_slice_by_slice(one: int, version: int) -> None:
    """Whoever sends it does not stop the others meanwhile: many topics, or one with many partitions."""
    if one:
        body, count = frames.metadata(partitions=5000), 5000
        frame = answer(body, version)
        steps: Any = MESSAGES.read_answer(head(METADATA, version), frame, where)
    else:
        own = [frames.MetadataRequest.MetadataRequestTopic(name="t") for _ in range(50_000)]
        frame, count = request(frames.MetadataRequest(topics=own), version), 50_000
        steps = MESSAGES.read_request(MESSAGES.head(frame), frame)
    slices = sum(1 for _ in steps)
    assert len(frame) / SLICE / 2 < slices <= len(frame) / SLICE + 1, count


def test_bytes_behind_a_message_are_refused() -> None:
    frame = request(frames.fetch(), 11) + b"\0"
    with pytest.raises(FrameError) as error:
        asked(frame)
    assert error.value.what == "rest"


def mutated(frame: bytes, chance: random.Random) -> bytes:
    """A frame with one thing wrong: cut short, longer, a byte, or a number out of all measure."""
    at = chance.randrange(len(frame))
    match chance.randrange(5):
        case 0:
            return frame[:at]
        case 1:
            return frame + chance.randbytes(chance.randrange(1, 9))
        case 2:
            return frame[:at] + chance.randbytes(1) + frame[at + 1 :]
        case 3:
            return frame[:at] + b"\x7f\xff\xff\xff" + frame[at + 4 :]
        case _:
            return frame[:at] + b"\xff" * chance.randrange(1, 9) + frame[at:]


GOOD_REQUESTS = [
    *(request(body, version) for _, version, body in REQUESTS),
    *(request(frames.produce(), version) for version in range(3, 10)),
    *(request(frames.software(), version) for version in range(4)),
]
GOOD_ANSWERS = [(head(KEYS[name], version), answer(body, version)) for name, _, version, body in ANSWERS]


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32))
def test_mutated_requests_are_refused_or_read(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        frame = mutated(chance.choice(GOOD_REQUESTS), chance)
        try:
            told = MESSAGES.head(frame)
            if told.api is not None:
                sent, _ = asked(frame)
                assert len(sent) == len(frame)
        except FrameError:
            pass


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32))
def test_mutated_answers_are_refused_or_read(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        told, frame = chance.choice(GOOD_ANSWERS)
        frame = mutated(frame, chance)
        try:
            new = finished(MESSAGES.read_answer(told, frame, lambda _node: ("gw.example", 1)))
            assert len(new) <= len(frame) + 16 * (len(frame) // 10 + 1)
            ranges(frame, chance.randrange(4))
        except FrameError:
            pass


def test_requests_have_no_addresses_and_every_kind_has_a_layout() -> None:
    """Every version of every request and answer that is offered can be walked."""
    for key, api in APIS.items():
        for version in range(api.least, api.most + 1):
            for side in ("Request", "Response"):
                assert MESSAGES._layout(f"{api.schema}{side}", version, ()).parts is not None
            with pytest.raises(FrameError):
                finished(MESSAGES.read_answer(head(key, version), b"\0\0\0\5" + b"\xff" * 40, where))
    with pytest.raises(AssertionError):
        nowhere(1)
    assert (METADATA, PRODUCE) == (3, 0)
