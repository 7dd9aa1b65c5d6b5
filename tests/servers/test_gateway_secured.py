"""The gateway between secured clients and two secured clusters, before and after a switch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError as RdError
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialUpsertion

from tests.ports import free_port
from tests.servers import secured
from tests.servers.brokers import ALONE, Broker, serve
from tests.servers.process import ADDRESS
from tests.servers.secured import KAFKA, Certificates
from tests.servers.test_gateway import (
    TOPIC,
    WAIT_S,
    Gateway,
    Librdkafka,
    acknowledged,
    committed,
    copy,
    end,
    make,
    reader,
    send,
)
from tests.servers.test_versions import zookeeper
from zkmigrate.lab.wait import wait_until

RELEASES = {"old": "2.8.2", "new": "3.9.1"}
NODES = {"old": 1, "new": 7}
LEFT_BEHIND = "only-old"
"""A user that the new cluster does not know."""
REAUTH_MS, REPEATED = 3000, 5
"""How long a login counts at the brokers, and how many logins the test sees repeated on connections."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    made.write("server", "gateway")
    return made


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, own: Certificates) -> Iterator[dict[str, Broker]]:
    """Both clusters. Their doors for plain text serve the mirror and this test."""
    folder, made = tmp_path_factory.mktemp("servers"), dict[str, Broker]()
    for name, release in RELEASES.items():
        doors = {door: f"{ADDRESS}:{free_port()}" for door in ("SASL_SSL", "SASL_PLAINTEXT", "SSL")}
        listeners, settings = secured.kafka(doors, own)
        if release < "3":
            store = (
                f"PKCS12\nssl.keystore.password={KAFKA}\nssl.keystore.location={own.pkcs12('server', KAFKA)}"
            )
            pem = f"PEM\nssl.keystore.location={own.store('server')}"
            assert pem in settings
            settings = settings.replace(pem, store)
        lines = f"{ALONE}{settings}connections.max.reauth.ms={REAUTH_MS}\n"
        one = Broker(release, lines, id=NODES[name], chroot=name, listeners=listeners)
        made[name] = replace(one, log_dirs=str(folder / f"{name}-log"))
    with zookeeper("3.5.8", folder) as port, ExitStack() as stack:
        stack.enter_context(serve(folder, port, *made.values()))
        make(made["old"].address, TOPIC)
        for name, one in made.items():
            with closing(KafkaAdminClient(bootstrap_servers=[one.address])) as admin:
                users = ["tool", *([LEFT_BEHIND] if name == "old" else [])]
                for user in users:
                    sent = UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, KAFKA)
                    admin.alter_user_scram_credentials([sent])
        yield made


class Secured(Gateway):
    """A gateway with TLS on both sides."""

    def __init__(self, folder: Path, brokers: dict[str, Broker], own: Certificates) -> None:
        self.ports = {name: free_port() for name in brokers}
        self.file, self.log = folder / "gateway.yml", folder / "gateway.log"
        doors = {
            name: one.listeners.partition("SASL_SSL://")[2].partition(",")[0] for name, one in brokers.items()
        }
        nodes = {name: f"{name}: {{{NODES[name]}: '{doors[name]}'}}" for name in brokers}
        ports = {name: f"{name}: {{{NODES[name]}: {self.ports[name]}}}" for name in brokers}
        self.file.write_text(
            f"state: {folder / 'state'}\nlisten: {ADDRESS}\nroute: old\n"
            f"clusters: {{{', '.join(nodes.values())}}}\n"
            f"listeners:\n  shop:\n    advertise: {ADDRESS}\n    ports: {{{', '.join(ports.values())}}}\n"
            f"    tls: {{certificate: {own.certificate('gateway')}, key: {own.key('gateway')}}}\n"
            f"tls: {{old: {{ca: {own.authority}}}, new: {{ca: {own.authority}}}}}\n"
            "apps:\n  app: {route: old, client_ids: ['app-*']}\n"
            f"  left: {{route: old, principals: [{LEFT_BEHIND}]}}\n"
        )
        self.begin()


def librdkafka(own: Certificates, user: str = "tool", password: str = KAFKA) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(own.authority),
    }


def java(own: Certificates) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return (
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="tool" password="{KAFKA}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={own.authority}\n"
    )


def produced(producer: Producer, value: int) -> int | None:
    """Kafka's error code for a record, or None if it was acknowledged."""
    codes: list[int | None] = []
    producer.produce(
        TOPIC,
        b"%d" % value,
        partition=0,
        on_delivery=lambda error, _: codes.append(None if error is None else error.code()),
    )
    assert producer.flush(WAIT_S) == 0
    return codes[0]


def test_clients_log_in_through_the_gateway_before_and_after_a_switch(
    brokers: dict[str, Broker], own: Certificates, tmp_path: Path
) -> None:
    plain = {name: one.address for name, one in brokers.items()}
    with Secured(tmp_path, brokers, own) as gateway, ExitStack() as stack:
        left = gateway.address("old")
        told = gateway.status()
        assert [list(one["brokers"].values()) for one in told["clusters"].values()] == [[""], [""]]
        assert 1 < told["certificates"]["left_s"]["listeners.shop.tls"] < 2 * 86400

        def app(name: str) -> dict[str, Any]:
            seen: dict[str, Any] = gateway.status()["apps"][name]
            return seen

        python = stack.enter_context(
            closing(
                KafkaProducer(
                    bootstrap_servers=[left],
                    client_id="app-writer",
                    acks="all",
                    linger_ms=0,
                    security_protocol="SASL_SSL",
                    sasl_mechanism="PLAIN",
                    sasl_plain_username="tool",
                    sasl_plain_password=KAFKA,
                    ssl_cafile=str(own.authority),
                )
            )
        )
        out = stack.enter_context(reader(left, tmp_path, java(own)))
        rd = stack.enter_context(closing(Librdkafka(left, librdkafka(own))))
        assert acknowledged(send(python, TOPIC, range(20))) == list(range(20))
        assert rd.send(range(20, 30)) == list(range(20, 30))

        errors: list[int] = []
        wrong = Producer(
            {
                "bootstrap.servers": left,
                "client.id": "app-wrong",
                "message.timeout.ms": 6_000,
                "error_cb": lambda error: errors.append(error.code()),
                **librdkafka(own, password="wrong"),
            }
        )
        assert produced(wrong, -1) == RdError._MSG_TIMED_OUT
        assert RdError._AUTHENTICATION in errors
        errors.clear()
        lone = Producer(
            {
                "bootstrap.servers": left,
                "client.id": "lone",
                "acks": "all",
                "message.timeout.ms": 6_000,
                "error_cb": lambda error: errors.append(error.code()),
                **librdkafka(own, LEFT_BEHIND),
            }
        )
        assert produced(lone, 30) is None

        def behind(last: int) -> str | None:
            seen = out.read_text().split()
            read = None if seen and int(seen[-1]) >= last else f"{len(seen)} records"
            return rd.behind(last) or read

        wait_until("the readers have all", lambda: behind(30), WAIT_S)
        assert app("app")["principals"].keys() == {"tool"}
        assert app("left")["principals"].keys() == {LEFT_BEHIND}

        def logged_in_once() -> str | None:
            """A connection begins with API_VERSIONS; a login that is repeated on it does not."""
            rd.behind(30)
            seen = app("app")["answered"]
            again = seen["SASL_HANDSHAKE"] - seen["API_VERSIONS"]
            return None if again >= REPEATED else f"{again} more logins than connections"

        wait_until("clients log in again on their connections", logged_in_once, WAIT_S)
        copy(plain)

        gateway.order("route", "o-1", "app", "--to", "new")
        gateway.order("settle", "o-2", "app", "--ttl-ms", "60000")

        def uncommitted() -> str | None:
            rd.behind(30)
            seen = committed(plain["old"])
            return None if set(seen.values()) == {31} else str(seen)

        wait_until("what was delivered is committed", uncommitted, WAIT_S)
        gateway.order("hold", "o-3", "app", "--ttl-ms", "120000")
        waits = send(python, TOPIC, range(31, 40))

        def held() -> str | None:
            seen = app("app")
            quiet = seen["requests_in_flight"] == 0 and "PRODUCE" in seen["parked"]
            return None if quiet else str(seen)

        wait_until("nothing is in flight, and the producer waits", held, WAIT_S)
        copy(plain)
        gateway.order("seal", "o-4", "app", "--hold", "o-3")
        gateway.order("go", "o-5", "app")
        assert acknowledged(waits) == list(range(31, 40))
        assert rd.send(range(40, 50)) == list(range(40, 50))
        wait_until("the readers go on", lambda: behind(49), WAIT_S)
        assert (end(plain["old"]), end(plain["new"])) == (31, 50)
        assert [int(one) for one in out.read_text().split()] == list(range(50)), "each once, in order"
        assert rd.seen == list(range(50)), "each once, in order"

        # A user whom the new cluster does not know cannot log in there.
        for verb, *more in (
            ("route", "o-6", "left", "--to", "new"),
            ("hold", "o-7", "left", "--ttl-ms", "60000"),
            ("seal", "o-8", "left", "--hold", "o-7"),
            ("go", "o-9", "left"),
        ):
            gateway.order(verb, *more)
        assert produced(lone, 50) == RdError._MSG_TIMED_OUT
        assert RdError._AUTHENTICATION in errors
        assert end(plain["new"]) == 50
    assert KAFKA not in gateway.log.read_text()
