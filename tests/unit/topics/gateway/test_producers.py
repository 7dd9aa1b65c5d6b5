"""Producer ids across switches."""

from __future__ import annotations

import random
import struct

import crc32c
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st
from kafka.protocol.producer import InitProducerIdResponse, ProduceRequest

from tests.examples import examples as count
from tests.unit.topics.gateway.test_messages import mutated
from tests.unit.topics.mirror.batches import built
from zkmigrate.topics.gateway.rules import producers
from zkmigrate.topics.gateway.rules.layout import SLICE, FrameError, finished
from zkmigrate.topics.gateway.rules.producers import Rename, id_for_broker, id_for_client, initiated
from zkmigrate.topics.mirror.rules.batch import encode, parse
from zkmigrate.topics.mirror.rules.batch import produced as by
from zkmigrate.topics.mirror.rules.stand import FIRST_ID

IDS, FLIPS = st.integers(0, (1 << 40) - 1), st.integers(0, 1000)


@examples(IDS, FLIPS)
def test_an_id_of_the_present_cluster_goes_back_as_it_was_given(id: int, flips: int) -> None:
    assert id_for_broker(id_for_client(id, flips), flips) == id
    assert id_for_client(id, 0) == id, "before the first switch nothing is changed"


@examples(IDS, IDS, FLIPS, FLIPS, FLIPS)
def test_no_other_id_meets_one_that_a_broker_has_seen(a: int, b: int, x: int, y: int, now: int) -> None:
    """Neither those that brokers give, nor those of the mirror, nor its own of another time there."""
    one = id_for_broker(id_for_client(a, x), now)
    assert 0 <= one < FIRST_ID
    if x != now:
        assert one >= 1 << 50
        assert (one == id_for_broker(id_for_client(b, y), now)) == ((a, x) == (b, y))
        assert one not in (
            id_for_broker(id_for_client(a, x), later) for later in range(now + 1, now + 3) if later <= 1000
        )


def produced(version: int, body: bytes, rename: Rename) -> bytes:
    data = bytearray(body)
    finished(producers.produced(version, data, 0, rename))
    return bytes(data)


def renamed(batches: bytes, rename: Rename) -> bytes:
    data = bytearray(batches)
    finished(producers.renamed(data, 0, len(data), rename))
    return bytes(data)


def test_a_request_of_many_batches_is_changed_slice_by_slice() -> None:
    """Whoever sends it does not stop the others meanwhile."""
    many, one = request(9, *[of(5)] * 500), request(9, of(5) * 500)
    for frame in (many, one):
        slices = sum(1 for _ in producers.produced(9, bytearray(frame), 0, lambda id: id + 1))
        assert len(frame) / SLICE / 2 < slices <= len(frame) / SLICE + 1


def test_a_producer_without_an_id_has_none_afterwards() -> None:
    assert [id_for_broker(-1, n) for n in (0, 3)] == [-1, -1]
    assert id_for_client(-1, 3) == -1, "the broker gave none: it answered with an error"


def request(version: int, *records: bytes | None) -> bytes:
    kind = ProduceRequest.TopicProduceData
    asked = ProduceRequest(
        version=version,
        transactional_id=None,
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            kind(
                version=version,
                name=f"t{n}",
                partition_data=[kind.PartitionProduceData(version=version, index=n, records=one)],
            )
            for n, one in enumerate(records)
        ],
    )
    return bytes(asked.encode(version=version))


def of(id: int, count: int = 3) -> bytes:
    return by(built(count), id, 7)


@pytest.mark.parametrize("version", range(3, 10))
def test_every_batch_of_a_request_gets_its_id_and_a_right_crc(version: int) -> None:
    two = of(5) + of(6, 1)
    changed = produced(version, request(version, two, None, of(7)), lambda id: id + 1000)
    assert changed == request(version, of(1005) + of(1006, 1), None, of(1007))
    assert [(one.producer_id, one.base_sequence) for one in parse(of(1005))] == [(1005, 7)]


def test_what_is_damaged_stays_damaged() -> None:
    sound = of(5)
    odd = bytearray(sound)
    odd[-1] ^= 1
    old = bytearray(sound)
    old[16] = 1
    for one in (bytes(odd), bytes(old), sound[:-1], sound[:40], b"", bytes(12) + b"\xff" * 60):
        assert renamed(one, lambda id: id + 1) == one
    assert renamed(sound + bytes(odd), lambda id: id + 1) == of(6) + bytes(odd)
    (batch,) = parse(renamed(sound, lambda id: id + 1))
    told = encode(batch)
    assert crc32c.crc32c(told[21:]) == int.from_bytes(told[17:21], "big")


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_request_that_is_cut_short_or_goes_on_is_refused(cut: int) -> None:
    whole = request(9, of(5))
    for odd in (whole[:-cut], whole + bytes(cut)):
        with pytest.raises(FrameError):
            produced(9, odd, lambda id: id)


@settings(max_examples=count(100), deadline=None)
@examples(st.integers(0, 2**32))
def test_a_mutated_request_is_refused_or_keeps_its_size(seed: int) -> None:
    """No damaged batch gets a right CRC. A sound one behind it stays: the broker refuses both."""
    chance = random.Random(seed)
    for _ in range(100):
        version = chance.randrange(3, 10)
        body = mutated(request(version, of(5) + of(6, 1), of(7)), chance)
        try:
            told = produced(version, body, lambda id: id + 1000)
        except FrameError:
            continue
        assert len(told) == len(body)
        before = sound(body)
        assert all(now in (id, id + 1000) for id, now in zip(before, sound(told), strict=True))


def sound(body: bytes) -> list[int]:
    """The producer ids of the whole batches in it that have a right CRC."""
    found = []
    for at in range(len(body) - 60):
        size = int.from_bytes(body[at + 8 : at + 12], "big", signed=True)
        end = at + 12 + size
        if body[at + 16] == 2 and size >= 49 and end <= len(body):
            crc = int.from_bytes(body[at + 17 : at + 21], "big")
            if crc32c.crc32c(body[at + 21 : end]) == crc:
                found.append(int.from_bytes(body[at + 43 : at + 51], "big", signed=True))
    return found


@pytest.mark.parametrize("version", [0, 1, 2, 4])
def test_a_new_id_reaches_the_client_as_one_of_its_time(version: int) -> None:
    def answer(id: int) -> bytes:
        told = InitProducerIdResponse(
            version=version, throttle_time_ms=0, error_code=0, producer_id=id, producer_epoch=3
        )
        return bytes(told.encode(version=version))

    assert initiated(answer(41), lambda id: id + 1) == answer(42)
    with pytest.raises((FrameError, struct.error)):
        initiated(answer(41)[:9], lambda id: id)
