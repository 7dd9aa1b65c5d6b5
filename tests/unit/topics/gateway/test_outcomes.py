"""Requests of producers whose outcome a client does not know: found, settled, and kept from a switch."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from tests.examples import examples as count
from tests.unit.topics.gateway import frames
from tests.unit.topics.gateway.frames import request
from tests.unit.topics.gateway.loop import Client, Setting, run, until
from tests.unit.topics.gateway.test_connection import told
from tests.unit.topics.gateway.test_messages import mutated
from tests.unit.topics.mirror.batches import built
from zkmigrate.topics.gateway.rules import outcomes
from zkmigrate.topics.gateway.rules.apis import PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from zkmigrate.topics.gateway.rules.layout import text
from zkmigrate.topics.gateway.rules.outcomes import (
    DELIVERY_S,
    MOST_OPEN,
    MOST_PARTS,
    Headers,
    Outcomes,
    Written,
    errors,
    unsure,
)
from zkmigrate.topics.gateway.serving.learns import FIRST, MOST_KEPT
from zkmigrate.topics.mirror.rules.batch import produced

Parts = Iterable[tuple[str, int, bytes | None]]
VERSIONS = range(3, 10)


def body(version: int, parts: Parts, acks: int = -1, transactional: str | None = None) -> Any:
    """A PRODUCE request, with a topic for each part."""
    kind = ProduceRequest.TopicProduceData
    data = [
        kind(
            version=version,
            name=topic,
            partition_data=[kind.PartitionProduceData(version=version, index=number, records=records)],
        )
        for topic, number, records in parts
    ]
    return ProduceRequest(
        version=version, transactional_id=transactional, acks=acks, timeout_ms=1000, topic_data=data
    )


def batch(first: int = 10, id: int = 5, records: int = 5) -> bytes:
    return produced(built(records), id, first)


def frame(*parts: tuple[str, int, bytes], correlation: int = 5, acks: int = -1, version: int = 9) -> bytes:
    return request(body(version, parts, acks), version, correlation)


def one(first: int = 10, id: int = 5, part: int = 0, **more: Any) -> bytes:
    """A request with one batch."""
    return frame(("orders", part, batch(first, id)), **more)


def answer(*errors: tuple[str, int, int], version: int = 9) -> bytes:
    """The answer to PRODUCE behind its correlation id. errors: topic, partition, Kafka's error."""
    kind = ProduceResponse.TopicProduceResponse
    own = kind.PartitionProduceResponse
    more = [own.BatchIndexAndErrorMessage(version=version, batch_index=1)] if version >= 8 else []
    responses = [
        kind(
            version=version,
            name=topic,
            partition_responses=[
                own(
                    version=version,
                    index=number,
                    error_code=error,
                    base_offset=5,
                    log_append_time_ms=-1,
                    log_start_offset=0,
                    record_errors=more,
                    error_message="why",
                )
            ],
        )
        for topic, number, error in errors
    ]
    told = ProduceResponse(version=version, responses=responses, throttle_time_ms=0)
    return frames.answer(told, version)[4:]


FINE = answer(("orders", 0, 0))


# -- reading


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional", [None, "t-1"])
def test_the_batches_of_a_request_are_read_from_pieces_of_any_size(
    version: int, transactional: str | None
) -> None:
    parts = [
        ("orders", 0, batch(10)),
        ("mail", 7, batch(0, 6, 900)),
        ("none", 1, None),
        ("z", 2, batch(-1, -1)),
    ]
    message = bytes(body(version, parts, transactional=transactional).encode(version=version))
    whole = Headers(version, message)
    assert whole.whole
    assert [(b.topic, b.partition, b.producer, b.epoch, b.first, b.last) for b in whole.found] == [
        ("orders", 0, 5, 0, 10, 14),
        ("mail", 7, 6, 0, 0, 899),
        ("z", 2, -1, 0, -1, 3),
    ]
    chance = random.Random(version)
    for most in (1, 3, 60, 5000):
        at, pieces = 0, Headers(version)
        while at < len(message):
            assert not pieces.whole
            size = chance.randrange(1, most + 1)
            pieces.feed(message[at : at + size])
            at += size
        assert (pieces.found, pieces.whole) == (whole.found, True)


@pytest.mark.parametrize("version", VERSIONS)
def test_of_a_request_of_one_partition_its_beginning_is_enough(version: int) -> None:
    own = bytes(body(version, [("orders", 3, batch(10, 5, 900))]).encode(version=version))
    two = bytes(
        body(version, [("a", 0, batch(0, 5, 900)), ("b", 0, batch(0, 5, 900))]).encode(version=version)
    )
    kept = outcomes.part_to_remember(version, own[:500], len(own) - 500)
    assert kept == own[:500], "nothing of it is read while all is well"
    assert outcomes.headers(version, kept).whole
    assert outcomes.headers(version, kept).found == Headers(version, own).found
    kept = outcomes.part_to_remember(version, two[:500], len(two) - 500)
    assert isinstance(kept, Headers)
    assert (len(kept.found), kept.whole) == (1, False)
    kept.feed(two[500:])
    assert outcomes.headers(version, kept).found == Headers(version, two).found
    assert not outcomes.headers(version, two[:500]).whole


@pytest.mark.parametrize("version", [3, 9])
def test_a_request_of_many_partitions_is_not_read_to_its_end(version: int) -> None:
    for parts in ([("t", n, None) for n in range(MOST_PARTS)], [("t", 0, None)] * MOST_PARTS):
        read = Headers(version, bytes(body(version, parts).encode(version=version)))
        assert not read.whole
    long = Headers(version, bytes(body(version, [("t" * 250, 0, batch())]).encode(version=version)))
    assert (long.found, long.whole) == ([], False), "there is no such topic"


def test_mutated_requests_and_answers_are_read_without_an_error() -> None:
    chance = random.Random(3)
    good = {version: bytes(body(version, [("a", 0, batch()), ("b", 1, batch(7))]).encode(version=version))
            for version in VERSIONS}  # fmt: skip
    for _ in range(count(3000)):
        version = chance.choice(VERSIONS)
        read = Headers(version, mutated(good[version], chance))
        read.feed(b"more")
        assert len(read.found) <= MOST_PARTS
        errors(version, b"\0\0\0\5" + mutated(answer(("a", 0, 7), ("b", 1, 0), version=version), chance))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_errors_in_an_answer_are_read(version: int) -> None:
    told = b"\0\7\0\x14" + answer(("orders", 0, 0), ("mail", 4, 6), version=version)
    assert errors(version, told) == {("orders", 0): 0, ("mail", 4): 6}
    assert not unsure(version, told)
    for error in (7, 20):
        told = b"\0\0\0\5" + answer(("orders", 0, 0), ("mail", 4, error), version=version)
        assert errors(version, told) == {("orders", 0): 0, ("mail", 4): error}
        assert unsure(version, told)
        assert errors(version, told[:-10]) == {("orders", 0): 0, ("mail", 4): error}, "as far as it goes"
    assert not unsure(version, b"\0\0\0\5" + answer(("orders", 7, 0), ("mail", 20, 0), version=version))


# -- which answers settle


def written(first: int = 10, *, id: int = 5, epoch: int = 0, part: int = 0, crc: int = 1) -> Written:
    return Written("orders", part, id, epoch, first, first + 4, crc)


def read(*found: Written) -> Headers:
    made = Headers(9)
    made.found, made.whole = list(found), True
    return made


def test_the_retry_or_a_later_batch_of_the_producer_settles_and_nothing_else_does() -> None:
    last = (1 << 31) - 3
    for lost, answered, error, settled in (
        (written(), written(crc=2), 0, True),
        (written(), written(crc=2), 46, True),
        (written(), written(15), 0, True),
        (written(last), written(2), 0, True),
        (written(), written(crc=2), 6, False),
        (written(), written(5), 0, False),
        (written(2), written(last), 0, False),
        (written(), written(id=6), 0, False),
        (written(), written(15, epoch=1), 0, False),
        (written(), written(part=1), 0, False),
        (written(-1, id=-1), written(-1, id=-1, crc=2), 0, False),
        (written(-1, id=-1), written(-1, id=-1), 0, True),
    ):
        own = Outcomes()
        own.record_lost("app-1", read(lost), 100.0)
        own.record_answer("app-1", read(answered), {("orders", answered.partition): error}, 101.0)
        assert bool(own.names(101.0)) != settled, (lost, answered, error)
        assert bool(own) != settled


class Counted(int):
    """A sequence number that counts how often it is looked at."""

    looks = 0

    def __rsub__(self, other: int) -> int:
        Counted.looks += 1
        return other - int(self)

    def __mod__(self, other: int) -> int:
        Counted.looks += 1
        return int(self) % other


@pytest.mark.parametrize("answered", [5, 50_000, (1 << 30) + 25_000])
def test_an_answer_does_not_look_at_every_open_outcome(answered: int) -> None:
    own = Outcomes()
    own.record_lost("app-1", read(*(written(Counted(10 * n + 10)) for n in range(MOST_OPEN))), 100.0)
    Counted.looks = 0
    own.record_answer("app-1", read(written(answered)), {("orders", 0): 0}, 101.0)
    assert Counted.looks < 100


def test_what_is_settled_is_what_a_look_at_every_open_outcome_would_settle() -> None:
    chance, half = random.Random(36), 1 << 30

    def some() -> Written:
        first = chance.choice([0, half, 2 * half - 1, -1]) + chance.randrange(-3, 4)
        id, epoch, part, crc = (chance.randrange(2) for _ in range(4))
        return written(first, id=id - chance.randrange(2), epoch=epoch, part=part, crc=crc)

    for _ in range(count(200)):
        own, naive, now = Outcomes(), dict[Any, dict[Written, float]](), 100.0
        for _ in range(30):
            one, now = some(), now + 20.0
            if chance.randrange(3):
                own.record_lost("app-1", read(one), now)
                naive.setdefault(one[:3], {})[one] = now
            else:
                own.record_answer("app-1", read(one), {("orders", one.partition): 0}, now)
                for other in list(naive.get(one[:3], {})):
                    behind = one.epoch == other.epoch and (one.first - other.first) % (2 * half) < half
                    if one.crc == other.crc if one.producer < 0 else behind:
                        del naive[one[:3]][other]
            if not chance.randrange(4):
                for batches in naive.values():
                    for other in [other for other, at in batches.items() if at <= now - DELIVERY_S]:
                        del batches[other]
                naive = {key: batches for key, batches in naive.items() if batches}
                assert own.names(now) == [str(other) for batches in naive.values() for other in batches]
            naive = {key: batches for key, batches in naive.items() if batches}


def test_an_answer_that_did_not_come_to_its_client_tells_what_was_written() -> None:
    both = read(written(), written(part=1), written(part=2))
    own = Outcomes()
    own.record_lost("app-1", both, 100.0, {("orders", 0): 6, ("orders", 1): 7})
    assert own.names(100.0) == [str(written(part=1)), str(written(part=2))]


def test_outcomes_close_when_clients_have_given_up() -> None:
    own = Outcomes()
    own.record_lost("app-1", read(written()), 100.0)
    own.record_lost("app-2", None, 110.0)
    assert own.body(200.0) == {
        "open": 2,
        "names": [
            "producer 5 epoch 0, orders-0, sequences 10 to 14",
            "client 'app-2', a request that could not be read",
        ],
        "left_s": DELIVERY_S - 90,
    }
    assert own.names(100.0 + DELIVERY_S) == ["client 'app-2', a request that could not be read"]
    assert own.body(110.0 + DELIVERY_S) == {"open": 0, "names": [], "left_s": 0.0}
    assert not own


def test_the_table_of_open_outcomes_is_bounded() -> None:
    own = Outcomes()
    for n in range(MOST_OPEN + 5):
        own.record_lost("app-1", read(written(10 * n)), 100.0)
        own.record_lost(f"app-{n}", None, 100.0)
    names = own.names(100.0)
    assert len(names) == MOST_OPEN + MOST_PARTS + 1
    assert len(own.body(100.0)["names"]) == 5
    own.record_answer("app-1", read(written(10 * (MOST_OPEN + 6))), {("orders", 0): 0}, 101.0)
    assert own.names(101.0), "what found no room stays until clients have given up"


# -- through a gateway


def open_(at: Setting) -> list[str]:
    names: list[str] = at.gateway.status()["apps"]["app"]["outcomes"]["names"]
    return names


def sealed(at: Setting) -> str:
    """Hold and seal; the refusal, if there is one. Open again."""
    at.order("route", to="b")
    at.order("hold", id=f"h-{at.ids}", ttl_ms=60_000)
    answer = at.order("seal", hold=f"h-{at.ids - 1}")
    if answer.outcome == "done":
        at.order("unseal", ttl_ms=60_000)
    assert at.order("unhold").outcome == "done"
    return "" if answer.outcome == "done" else answer.text


async def loses(at: Setting, *asked: bytes) -> None:
    """A client asks, and its broker ends the connection before it answers."""
    at.a.answering.clear()
    before, client = len(at.a.got), await at.client()
    for frame in asked:
        client.send(frame)
    await until("they are sent", lambda: len(at.a.got) == before + 1)
    at.a.writers[-1].transport.abort()
    await client.ended()
    await until("it is noted", lambda: not at.gateway.in_flight("app"))
    at.a.answering.set()


async def gets(at: Setting, asked: bytes, body: bytes = FINE) -> None:
    """A new connection asks and gets an answer."""
    at.a.answers[PRODUCE] = body
    assert await (await at.client()).asks(asked) == told(5, body)


NAME = "producer 5 epoch 0, orders-0, sequences 10 to 14"


def test_no_seal_while_a_broker_ended_before_its_answer_and_the_retry_was_not_answered() -> None:
    async def test(at: Setting) -> None:
        await loses(at, one())
        assert open_(at) == [NAME]
        assert NAME in sealed(at)
        await gets(at, one(), answer(("orders", 0, 6)))
        assert open_(at) == [NAME], "its retry was not served"
        held = await at.client()
        at.order("hold", id="h", ttl_ms=60_000)
        held.send(one())
        await until("the retry waits", lambda: at.seen("parked") == {"PRODUCE": 1})
        assert NAME in at.order("seal", hold="h").text
        at.order("unhold")
        assert (await held.answer())[:4] == told(5, b"")
        at.a.answers[PRODUCE] = FINE
        assert await held.asks(one()) == told(5, FINE)
        assert (open_(at), sealed(at)) == ([], "")

    run(test)


@pytest.mark.parametrize("whole", [True, False])
def test_a_large_request_like_an_earlier_one_is_lost_only_if_all_of_it_was_sent(whole: bool) -> None:
    async def test(at: Setting) -> None:
        at.a.answers[PRODUCE] = FINE
        client, records = await at.client(), FIRST // 8
        first, second = (frame(("orders", 0, batch(n, records=records))) for n in (10, 10 + records))
        assert await client.asks(first) == told(5, FINE)
        data = len(second).to_bytes(4, "big") + second
        at.a.answering.clear()
        client.writer.write(data[: FIRST + 10])
        await until("it has begun", lambda: at.gateway.in_flight("app") == 1)
        if whole:
            client.writer.write(data[FIRST + 10 :])
            await until("it is sent", lambda: len(at.a.got) == 2)
        client.writer.close()
        lost = f"producer 5 epoch 0, orders-0, sequences {10 + records} to {9 + 2 * records}"
        await until("it is noted", lambda: open_(at) == [lost] if whole else not at.gateway.everyone)
        assert open_(at) == ([lost] if whole else [])

    run(test)


def test_no_seal_while_a_client_left_before_its_answer() -> None:
    async def test(at: Setting) -> None:
        at.a.answers[PRODUCE] = FINE
        at.a.answering.clear()
        client = await at.client()
        client.send(one())
        await until("it is sent", lambda: at.a.kinds() == [PRODUCE])
        client.writer.close()
        await until("it is noted", lambda: bool(open_(at)))
        at.order("hold", id="h", ttl_ms=60_000)
        at.a.answering.set()
        await until("it is answered", lambda: at.gateway.in_flight("app") == 0)
        assert open_(at) == [NAME], "its client has not got the answer"
        at.order("route", to="b")
        assert NAME in at.order("seal", hold="h").text
        at.order("unhold")
        await gets(at, one(15))
        assert open_(at) == [], "a later batch shows that it was sent again"

    run(test)


def test_a_client_that_leaves_while_its_next_request_waits_has_not_got_its_answer() -> None:
    async def test(at: Setting) -> None:
        at.a.answers[PRODUCE] = FINE
        at.a.answering.clear()
        client = await at.client()
        client.send(one())
        await until("it is sent", lambda: at.a.kinds() == [PRODUCE])
        at.order("hold", ttl_ms=60_000)
        client.send(one(15))
        await until("the next one waits", lambda: at.seen("parked") == {"PRODUCE": 1})
        client.writer.transport.abort()
        at.a.answering.set()
        await until("it is answered", lambda: at.gateway.in_flight("app") == 0)
        assert open_(at) == [NAME]

    run(test)


@pytest.mark.parametrize(("error", "names"), [(7, [NAME]), (20, [NAME]), (6, []), (0, [])])
def test_an_error_after_the_records_were_written_leaves_the_outcome_open(
    error: int, names: list[str]
) -> None:
    async def test(at: Setting) -> None:
        await gets(at, one(), answer(("orders", 0, error)))
        assert open_(at) == names
        assert bool(sealed(at)) == bool(names)
        await gets(at, one())
        assert open_(at) == []

    run(test)


def test_requests_of_several_partitions_are_settled_one_by_one_also_large_ones() -> None:
    big = produced(built(FIRST // 8), 5, 10)

    async def test(at: Setting) -> None:
        for records in (batch(), big):
            asked = frame(("orders", 0, records), ("orders", 1, records), ("mail", 0, records))
            await loses(at, asked)
            assert len(open_(at)) == 3
            assert not [name for name in open_(at) if "not read" in name]
            await gets(at, frame(("orders", 1, records)), answer(("orders", 1, 0)))
            both = answer(("mail", 0, 0), ("orders", 0, 5))
            await gets(at, frame(("mail", 0, records), ("orders", 0, records)), both)
            assert [name[:29] for name in open_(at)] == ["producer 5 epoch 0, orders-0,"]
            await gets(at, frame(("orders", 0, records)))
            assert open_(at) == []
        await loses(at, frame(("orders", 0, big)))
        assert len(open_(at)) == 1, "its beginning is enough"
        await gets(at, frame(("orders", 0, big)))
        assert open_(at) == []

    run(test)


def test_without_an_id_an_outcome_is_open_until_the_same_bytes_or_the_time_are_seen() -> None:
    async def test(at: Setting) -> None:
        await loses(at, one(-1, -1))
        assert open_(at) == ["a producer without an id, orders-0, 5 records"]
        await gets(at, frame(("orders", 0, batch(-1, -1, 6))))
        assert sealed(at)
        await gets(at, one(-1, -1))
        assert sealed(at) == ""
        await loses(at, one(-1, -1))
        at.now += DELIVERY_S - 1
        assert sealed(at)
        at.now += 1
        assert sealed(at) == ""

    run(test)


def test_what_nobody_sends_again_keeps_nobody() -> None:
    """acks=0, other requests than PRODUCE, and a request that its broker never got whole."""

    async def test(at: Setting) -> None:
        client = await at.client()
        client.send(one(acks=0))
        await until("it arrives", lambda: len(at.a.got) == 1)
        at.a.writers[-1].transport.abort()
        await client.ended()
        await loses(at, request(frames.fetch(), 11))
        asked = frame(("orders", 0, batch(records=900)), ("orders", 1, batch()))
        part = await at.client()
        part.writer.write(len(asked).to_bytes(4, "big") + asked[:-1])
        await until("its beginning is sent", lambda: at.gateway.in_flight("app") == 1)
        part.writer.transport.abort()
        await until("it is over", lambda: at.gateway.in_flight("app") == 0)
        assert (open_(at), sealed(at)) == ([], "")

    run(test)


def test_of_many_requests_in_flight_those_that_are_not_kept_count_until_clients_gave_up() -> None:
    async def test(at: Setting) -> None:
        at.a.answers[PRODUCE] = FINE
        await loses(at, *(one(10 + 5 * n, correlation=n) for n in range(MOST_KEPT + 2)))
        own = at.gateway.status()["apps"]["app"]["outcomes"]
        assert own["open"] == MOST_KEPT + 1
        await gets(at, one(500))
        assert [name.split(",")[1] for name in open_(at)] == [" a request that could not be read"]
        at.now += DELIVERY_S
        assert open_(at) == []

    run(test)


SHAKEN = b"\0\0" + b"\0\0\0\1" + text("PLAIN", compact=False)


async def logs_in(at: Setting, client: Client, last: bytes) -> None:
    """Begin a login as a client of SASL does; ``last``: the bytes of the broker's answer to it."""
    at.a.answers[SASL_HANDSHAKE] = SHAKEN
    assert await client.asks(request(SaslHandshakeRequest(mechanism="PLAIN"), 1)) == told(5, SHAKEN)
    done = b"\0\0" + b"\xff\xff" + len(last).to_bytes(4, "big") + last
    at.a.answers[SASL_AUTHENTICATE] = done
    asked = request(SaslAuthenticateRequest(auth_bytes=b"n,,n=alex,r=x"), 0)
    assert await client.asks(asked) == told(5, done)


@pytest.mark.parametrize("last", [b"", b"v=cHJvb2Y="])
def test_a_client_that_has_logged_in_keeps_its_application(last: bytes) -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        await logs_in(at, client, last)
        at.a.answering.clear()
        client.send(one())
        await until("it is sent", lambda: at.a.kinds()[-1] == PRODUCE)
        at.a.writers[-1].transport.abort()
        await client.ended()
        await until("it is noted", lambda: not at.gateway.in_flight("app"))
        assert open_(at) == [NAME]

    run(test)


@pytest.mark.parametrize("last", [None, b"r=xy,s=c2FsdA==,i=4096"])
def test_a_client_that_has_not_logged_in_keeps_no_application(last: bytes | None) -> None:
    """A broker that demands a login closes such a connection, and has written nothing."""

    async def test(at: Setting) -> None:
        await loses(at, one())
        assert open_(at) == [NAME], "nobody knows yet that this cluster demands a login"
        client = await at.client()
        await logs_in(at, client, b"r=xy,s=c2FsdA==,i=4096")
        assert open_(at) == [], "nobody can have logged in before"
        if last is None:
            client = await at.client()
        before = len(at.a.got)
        client.send(one())
        await client.ended()
        assert len(at.a.got) == before
        assert (open_(at), sealed(at)) == ([], "")

    run(test)


def test_what_was_sent_before_the_login_was_known_to_be_demanded_keeps_no_application() -> None:
    async def test(at: Setting) -> None:
        at.a.answering.clear()
        client = await at.client()
        client.send(one())
        await until("it is sent", lambda: at.a.kinds() == [PRODUCE])
        at.gateway.demands_login("a")
        at.a.writers[-1].transport.abort()
        await client.ended()
        await until("it is noted", lambda: not at.gateway.in_flight("app"))
        assert (open_(at), sealed(at)) == ([], "")

    run(test)


def test_another_application_is_not_kept_and_a_switch_begins_anew() -> None:
    async def test(at: Setting) -> None:
        await loses(at, one())
        assert at.order("hold", "others", id="o", ttl_ms=60_000).outcome == "done"
        at.order("route", "others", to="b")
        assert at.order("seal", "others", hold="o").outcome == "done"
        at.now += DELIVERY_S
        at.seal()
        at.gateway.outcomes["app"].record_lost("late", None, at.now)
        assert at.order("go").outcome == "done"
        assert open_(at) == []

    run(test)
