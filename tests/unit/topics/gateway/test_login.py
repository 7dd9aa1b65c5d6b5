"""Where brokers demand a login, a client that has not logged in changes nothing that a switch looks at."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path

import pytest
from kafka.protocol.producer import InitProducerIdRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from tests.unit.topics.gateway import frames
from tests.unit.topics.gateway.frames import answer, request
from tests.unit.topics.gateway.loop import Broker, Client, Setting, run, until
from tests.unit.topics.gateway.test_connection import fetch, produce, told
from tests.unit.topics.gateway.test_outcomes import SHAKEN, logs_in
from tests.unit.topics.gateway.test_server import Running, config, serve
from zkmigrate.topics.gateway.rules import clients, seen
from zkmigrate.topics.gateway.rules.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from zkmigrate.topics.gateway.rules.clients import Rejoined
from zkmigrate.topics.gateway.rules.seen import LONGEST, MOST_NAMES, MOST_TOLD, Seen, bounded, fit

VERSIONS = answer(frames.ApiVersionsResponse(error_code=0, api_keys=[]), 3)[4:]
HEARTBEAT = frames.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


async def says_its_release(at: Setting, to: str = "a", id: str = "app-1") -> Client:
    at.a.answers[API_VERSIONS] = at.b.answers[API_VERSIONS] = VERSIONS
    client = await at.client(to)
    await client.asks(request(frames.software("apache-kafka-java", "2.5.0"), 3, client=id))
    return client


def test_a_request_before_the_login_is_not_sent_and_nothing_is_learned_of_it() -> None:
    async def test(at: Setting) -> None:
        at.gateway.demands_login("a")
        asked = InitProducerIdRequest(transactional_id="pay", transaction_timeout_ms=1)
        for frame in (
            request(HEARTBEAT, 3, client="app-invented"),
            fetch(),
            produce(transactional="pay"),
            request(asked, 4),
            request(frames.MetadataRequest(topics=None), 9),
        ):
            client = await at.client()
            client.send(frame)
            await client.ended()
        client = await at.client()
        client.send((68).to_bytes(2, "big") + bytes(2) + told(1, b"\0\5app-1\0\0"))
        await client.ended()
        body = at.gateway.status()["apps"]["app"]
        assert at.a.got == []
        assert {name: body[name] for name in ("topics", "transactional", "acks", "clients", "lost")} == {
            name: {} for name in ("topics", "transactional", "acks", "clients", "lost")
        }
        assert at.seen("refused", "others") == {"login": 6}
        client = await at.client()
        client.send(SASL_HANDSHAKE.to_bytes(2, "big") + b"\0\x09" + told(1, b"\0\5app-1\0\0"))
        await client.ended()
        assert at.seen("refused") == {"api": 1}, "the version is the client's to choose"
        assert not at.gateway._rejoined["app"]._members

    run(test)


def test_what_a_client_tells_before_its_login_counts_once_its_broker_has_accepted_it() -> None:
    async def test(at: Setting) -> None:
        at.gateway.demands_login("a")
        client = await says_its_release(at)
        await logs_in(at, client, b"r=xy,s=c2FsdA==,i=4096")
        body = at.gateway.status()["apps"]["app"]
        assert (body["software"], body["clients"], body["principals"]) == ({}, {}, {})
        await client.asks(request(SaslHandshakeRequest(mechanism="PLAIN"), 1, client="x"))
        assert at.seen("software", "others") == {}
        done = at.a.answers[SASL_AUTHENTICATE] = bytes(2) + b"\xff\xff" + bytes(4)
        asked = request(SaslAuthenticateRequest(auth_bytes=b"\0bob\0x"), 0)
        assert await client.asks(asked) == told(5, done)
        body = at.gateway.status()["apps"]["app"]
        assert body["software"] == {"apache-kafka-java 2.5.0": 1}
        assert (body["clients"], body["principals"]) == ({"app-1": 4}, {"bob": 1})
        assert await client.asks(produce()) == told(5)

    run(test)


def test_the_release_of_a_client_counts_for_the_application_of_its_principal() -> None:
    async def test(at: Setting) -> None:
        for cluster in ("a", "b"):
            at.gateway.demands_login(cluster)
        client = await says_its_release(at)
        await client.asks(request(SaslHandshakeRequest(mechanism="PLAIN"), 1))
        at.b.answers[SASL_AUTHENTICATE] = bytes(2) + b"\xff\xff" + bytes(4)
        await client.asks(request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0x"), 0))
        for app in ("app", "user"):
            assert at.seen("software", app) == {"apache-kafka-java 2.5.0": 1}
        assert at.seen("principals", "user") == {"alice": 1}

    run(test)


def test_a_client_that_has_not_logged_in_is_neither_missing_nor_left_behind_by_a_switch() -> None:
    async def test(at: Setting) -> None:
        for cluster in ("a", "b"):
            at.gateway.demands_login(cluster)
        honest = await says_its_release(at)
        await logs_in(at, honest, b"")
        assert await honest.asks(produce()) == told(5)
        hostile = await says_its_release(at, id="app-invented")
        assert at.seal().outcome == "done"
        assert at.order("go").outcome == "done"
        await honest.ended()
        await hostile.ended()
        at.gateway.logins.clear()
        assert at.gateway.status()["apps"]["app"]["returned"]["missing"] == 1
        at.gateway.logins.add("b")
        again = await says_its_release(at)
        body = at.gateway.status()["apps"]["app"]
        assert (body["left_clients"], body["connections_on_left_ports"]) == ([], 0)
        assert body["returned"]["back"] == 0, "it may only have the honest client's id and address"
        at.gateway.demands_login("b")
        at.b.answers = at.a.answers
        await logs_in(at, again, b"")
        body = at.gateway.status()["apps"]["app"]
        assert (body["returned"]["back"], body["left_clients"]) == (1, ["app-1 at 127.0.0.1"])

    run(test)


@pytest.mark.parametrize(
    ("error", "demanded"), [(b"\0\0", True), (b"\0\x21", True), (b"\0\x22", False), (b"", False)]
)
def test_the_gateway_knows_before_its_first_client_whether_brokers_demand_a_login(
    error: bytes, demanded: bool, tmp_path: Path
) -> None:
    own = config(tmp_path)
    spans = ((API_VERSIONS, 0, 3), (SASL_HANDSHAKE, 0, 1))
    versions = b"\0\0" + struct.pack(">i", 2) + b"".join(struct.pack(">hhh", *one) for one in spans)
    shaken = SHAKEN.replace(b"\0\0", error, 1) if error else b""
    broker = Broker("b", answers={API_VERSIONS: versions, SASL_HANDSHAKE: shaken})
    broker.answering.set()

    async def test(at: Running) -> None:
        host, _, port = own.clusters["b"]["2"].rpartition(":")
        end = await asyncio.start_server(broker.client, host, int(port))
        await until("it is asked", lambda: SASL_HANDSHAKE in broker.kinds())
        await until("it is known", lambda: at.server._gateway.silent["b"] == {2: ""})
        assert at.server._gateway.logins == ({"b"} if demanded else set())
        end.close()
        for writer in broker.writers:
            writer.transport.abort()

    serve(own, test)


def test_invented_clients_displace_only_those_of_their_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MOST_CLIENTS", 100)
    table, honest = Rejoined(), [(f"c-{n}", f"10.0.0.{n}") for n in range(20)]
    for one in honest:
        table.member(one)
        assert not table.may_fetch(one, 1000.0, 1000.0, 0.0)
        table.confirmed(one)
    for n in range(1000):
        hostile = f"x-{n}", f"2001:db8::{n:x}"
        table.member(hostile)
        table.may_fetch(hostile, 1000.0, 1001.0, 0.0)
        table.confirmed(hostile)
    for known in (table._members, table._confirmed, table._begun):
        assert len(known) == 100
        assert all(one in known for one in honest)
    assert ("x-999", "2001:db8::3e7") in table._members


# -- the size of a status


@pytest.mark.parametrize("char", ["é", "\U0001f600", '"', "\\", "\n", "\u2028", "x"])
def test_a_name_is_bounded_in_bytes_of_json(char: str) -> None:
    for count in (1, 20, 40, 41, 42, 248, 249, 250, 5000):
        told = fit(char * count)
        assert len(json.dumps(told)) - 2 <= LONGEST
        assert fit(told) == told, "a name is found again in a table"
        assert told.endswith("…") == (count * (len(json.dumps(fit(char))) - 2) > LONGEST)


def test_a_status_is_bounded_and_small_tables_are_whole() -> None:
    tables = {}
    for app in range(30):
        own = Seen()
        for n in range(MOST_NAMES):
            name = f"{n:04}" + "x" * 245
            told = {"ClientSoftwareName": name, "ClientSoftwareVersion": "1", "TransactionalId": name}
            own.request(told, "a")
            own.clients[name] = own.principals[name] = own.topics[name] = 1
        own.topics["orders"], own.acks["-1"] = 500, 7
        tables[f"app-{app}"] = own.body(0.0)
    tables["small"] = {**Seen().body(0.0), "topics": {f"t-{n}": n + 1 for n in range(500)}}
    size = len(json.dumps(tables))
    assert size > 8 * MOST_TOLD
    found = bounded(tables)
    assert len(json.dumps(found)) < MOST_TOLD + 1024 * len(tables)
    assert found["small"] == tables["small"]
    assert (found["app-3"]["acks"], found["app-3"]["topics"]["orders"]) == ({"-1": 7}, 500)
    assert sum(found["app-3"]["topics"].values()) == MOST_NAMES + 500
    assert bounded(found) == found
    assert bounded({"small": tables["small"]}) == {"small": tables["small"]}


def test_the_status_of_a_gateway_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "MOST_TOLD", 5000)

    async def test(at: Setting) -> None:
        for n in range(200):
            at.gateway.refused("r", f"{n} " + "y" * 200)
            at.gateway.refused("app", f"{n} " + "y" * 200)
        assert len(json.dumps(at.gateway.status())) < 5000 + 5000
        assert at.gateway.status()["readers"]["r"]["refused"]["(more)"] > 100
        assert at.seen("refused")["(more)"] > 100

    run(test)
