"""The gateway ends TLS and begins it again: what passes, who is refused, and what a bad file does."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from tests.ports import free_port
from tests.servers.secured import Certificates
from tests.unit.topics.gateway import loop, test_bounds, test_connection, test_turns
from tests.unit.topics.gateway.loop import Broker, Client, Setting, run, until
from tests.unit.topics.gateway.test_connection import fetch, produce, told
from tests.unit.topics.gateway.test_server import HOST, Running, serve
from zkmigrate.topics.gateway.rules.apis import API_VERSIONS, SASL_HANDSHAKE
from zkmigrate.topics.gateway.serving import door, times
from zkmigrate.topics.gateway.serving.config import Config
from zkmigrate.topics.gateway.serving.connection import Connection
from zkmigrate.topics.gateway.serving.turns import Turns

NAMES = ("gateway", "broker", "client", "other")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("certificates"), HOST)
    made.write(*NAMES)
    return made


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """What another authority signed."""
    made = Certificates(tmp_path_factory.mktemp("strange"), HOST)
    made.write(*NAMES)
    return made


def serving(own: Certificates, name: str, ask: Certificates | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate(name), own.key(name))
    if ask is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(ask.authority)
    return context


def trusting(own: Certificates, show: Certificates | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(own.authority))
    if show is not None:
        context.load_cert_chain(show.certificate("client"), show.key("client"))
    return context


# -- each test of a connection, with TLS to the client and to the brokers


class TestWithTls:
    """The same tests as without TLS."""

    @pytest.fixture(autouse=True)
    def _tls(self, own: Certificates) -> Iterator[None]:
        loop.SETTINGS_TLS.append(loop.Tls(serving(own, "gateway"), trusting(own)))
        yield
        loop.SETTINGS_TLS.clear()

    def test_large_messages_pass_unchanged_and_in_order(self) -> None:
        async def test(at: Setting) -> None:
            answers = [os.urandom(size) for size in (1, 100_000, 1_500_000, 70_000)]
            client = await at.client()
            for n, answer in enumerate(answers):
                at.a.body = answer
                records = os.urandom(len(answer))
                assert await client.asks(produce(n, records=records)) == told(n, answer)
                assert at.a.got[-1].endswith(records[-1:]) or records[-9:] in at.a.got[-1]

        run(test)

    def test_an_answer_counts_only_once_the_system_has_all_of_it(self) -> None:
        async def test(at: Setting) -> None:
            at.a.body = bytes(20_000)
            client = await at.client()
            cast(asyncio.Transport, client.writer.transport).pause_reading()
            count = 0

            async def ask() -> None:
                nonlocal count
                count += 1
                client.send(produce(count))
                await until("it arrives", lambda: len(at.a.got) == count)

            await ask()
            [one] = at.gateway.everyone
            assert isinstance(one, Connection)
            while one._transport.get_write_buffer_size() == 0:
                await ask()
            assert one.full
            assert at.gateway.in_flight("app") > 0
            cast(asyncio.Transport, client.writer.transport).resume_reading()
            for n in range(count):
                assert await client.answer() == told(n + 1, at.a.body)
            await until("it has them", lambda: at.gateway.in_flight("app") == 0)

        run(test)

    def test_many_small_records_and_bytes_that_come_one_by_one_are_requests_too(
        self, own: Certificates
    ) -> None:
        async def test(at: Setting) -> None:
            client = await Bare.connect(at.servers["a"].sockets[0].getsockname()[1], trusting(own))
            frame = produce(3)
            for one in len(frame).to_bytes(4, "big") + frame:
                client.tls.write(bytes([one]))
            sealed = client.to.read()
            client.writer.write(sealed[:-200])
            for at_byte in range(200):
                client.writer.write(sealed[len(sealed) - 200 + at_byte :][:1])
                await asyncio.sleep(0)
            assert await client.read(12) == (8).to_bytes(4, "big") + told(3)

        run(test)

    def test_records_are_charged_to_their_client(
        self, own: Certificates, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spent: list[int] = []
        charge = Turns.spend

        def spend(own: Turns, address: str, size: int) -> None:
            spent.append(size)
            charge(own, address, size)

        monkeypatch.setattr(Turns, "spend", spend)

        async def test(at: Setting) -> None:
            client = await Bare.connect(at.servers["a"].sockets[0].getsockname()[1], trusting(own))
            spent.clear()
            frame = produce(3, records=b"r" * 400)
            for one in len(frame).to_bytes(4, "big") + frame:
                client.tls.write(bytes([one]))
            client.flush()
            await client.read(12)
            assert sum(spent) >= 16 * len(frame)

        run(test)

    def test_a_client_that_ends_its_side_still_gets_its_answers(self, own: Certificates) -> None:
        async def test(at: Setting) -> None:
            at.a.answering.clear()
            client = await Bare.connect(at.servers["a"].sockets[0].getsockname()[1], trusting(own))
            frame = produce(3)
            client.tls.write(len(frame).to_bytes(4, "big") + frame)
            with suppress(ssl.SSLWantReadError):
                client.tls.unwrap()
            client.flush()
            await until("it arrives", lambda: len(at.a.got) == 1)
            at.a.answering.set()
            client.came.write(await client.reader.read())
            client.came.write_eof()
            assert client.tls.read(100) == (8).to_bytes(4, "big") + told(3)
            with pytest.raises(ssl.SSLZeroReturnError):  # the gateway's own word for the end
                client.tls.read(100)

        run(test)


_HALF_CLOSED = {"test_what_a_client_left_behind_stays_in_flight_until_it_is_answered"}
"""asyncio's own client waits for the other side's word for the end, which comes after the answers."""


def _with_tls(test: Callable[..., None]) -> Callable[..., None]:
    return staticmethod(test)


_TESTS = {name: one for name, one in vars(test_connection).items() if name.startswith("test_")}
for _test in (
    *(one for name, one in _TESTS.items() if name not in _HALF_CLOSED),
    test_turns.test_a_closed_connection_leaves_no_circle_of_objects,
    test_turns.test_a_flood_of_one_address_is_held_before_it_is_read_further,
    test_bounds.test_what_a_crowd_that_was_not_served_yet_leaves_unfinished_is_bounded,
):
    setattr(TestWithTls, _test.__name__, _with_tls(_test))


class Bare:
    """A client that seals its bytes itself, and sends them as it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.came, self.to = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls: ssl.SSLObject

    @classmethod
    async def connect(cls, port: int, context: ssl.SSLContext) -> Bare:
        made = cls(*await asyncio.open_connection("127.0.0.1", port))
        made.tls = context.wrap_bio(made.came, made.to, server_hostname=HOST)
        while True:
            try:
                made.tls.do_handshake()
            except ssl.SSLWantReadError:
                made.flush()
                made.came.write(await made.reader.read(1 << 16))
            except ssl.SSLError:
                made.flush()  # its alert
                raise
            else:
                made.flush()
                return made

    def flush(self) -> None:
        self.writer.write(self.to.read())

    async def read(self, size: int) -> bytes:
        found = b""
        async with asyncio.timeout(loop.DEADLINE_S):
            while len(found) < size:
                try:
                    found += self.tls.read(size - len(found))
                except ssl.SSLWantReadError:
                    self.came.write(await self.reader.read(1 << 16))
        return found


# -- the process, with its file


def config(folder: Path, own: Certificates, listener: dict[str, Any], cluster: dict[str, Any]) -> Config:
    """Listener l is served by cluster a; both with the sections ``tls`` that are given."""
    ports = {"a": {"1": free_port()}}
    files = {"certificate": str(own.certificate("gateway")), "key": str(own.key("gateway"))}
    return Config.model_validate(
        {
            "state": str(folder / "state"),
            "listen": HOST,
            "route": "a",
            "clusters": {"a": {"1": f"{HOST}:{free_port()}"}},
            "listeners": {"l": {"advertise": HOST, "ports": ports, "tls": files | listener}},
            "tls": {"a": cluster} if cluster else {},
        }
    )


async def connected(at: Running, context: ssl.SSLContext | None) -> Client:
    [port] = at.config.listeners["l"].ports["a"].values()
    return Client(*await asyncio.open_connection(HOST, port, ssl=context))


async def broker(at: Running, context: ssl.SSLContext | None, *, login: bool = False) -> Broker:
    """A broker of cluster a that answers queries. login: it demands one."""
    made = Broker("a")
    spans = ((API_VERSIONS, 0, 3), (0, 0, 9)) + (((SASL_HANDSHAKE, 0, 1),) if login else ())
    versions = b"".join(struct.pack(">hhh", *one) for one in spans)
    made.answers[API_VERSIONS] = b"\0\0" + struct.pack(">i", len(spans)) + versions
    made.answers[SASL_HANDSHAKE] = b"\0\0" + struct.pack(">i", 0)
    made.answering.set()
    host, _, port = at.config.clusters["a"]["1"].rpartition(":")
    await asyncio.start_server(made.client, host, int(port), ssl=context)
    return made


def why(at: Running, event: str) -> list[str]:
    return [one["why"] for one in at.lines if one["event"] == event]


async def refused(at: Running, context: ssl.SSLContext | None, sent: bytes = b"") -> str:
    """Why the next client is refused."""
    before = len(why(at, "Refused"))
    with suppress(OSError):
        client = await connected(at, context)
        client.writer.write(sent)
        await client.ended()
    await until("it is refused", lambda: len(why(at, "Refused")) > before)
    return why(at, "Refused")[-1]


def test_it_ends_tls_and_begins_it_again(tmp_path: Path, own: Certificates) -> None:
    settings = config(tmp_path, own, {}, {"ca": str(own.authority)})

    async def test(at: Running) -> None:
        there = await broker(at, serving(own, "broker"))
        await until("the broker answers", lambda: "Answers" in [one["event"] for one in at.lines])
        client = await connected(at, trusting(own))
        assert await client.asks(produce(5)) == told(5)
        assert there.kinds()[-1] == 0
        contexts = at.server._gateway.certificates
        for context in (*contexts.listeners.values(), *contexts.clusters.values()):
            assert context.options & ssl.OP_NO_RENEGOTIATION
        ends = (await at.asks(b'"status"'))["certificates"]["left_s"]
        assert {key: 0 < left < 2 * 86400 for key, left in ends.items()} == {"listeners.l.tls": True}

    serve(settings, test)


def test_who_speaks_plain_text_or_shows_no_good_certificate_is_refused_by_name(
    tmp_path: Path, own: Certificates, strange: Certificates
) -> None:
    settings = config(tmp_path, own, {"ca": str(own.authority)}, {})

    async def test(at: Running) -> None:
        frame = fetch()
        told = await refused(at, None, len(frame).to_bytes(4, "big") + frame)
        assert told.startswith("tls: the client sent plain text; needed: security.protocol SSL")
        assert "the client showed no certificate; needed: one that listeners.l.tls.ca" in await refused(
            at, trusting(own), b"x"
        )
        assert "the client's certificate is not accepted: unable to get local issuer" in await refused(
            at, trusting(own, strange), b"x"
        )
        [port] = at.config.listeners["l"].ports["a"].values()
        with pytest.raises(ssl.SSLCertVerificationError):
            await Bare.connect(port, trusting(strange, own))
        await until("it is refused", lambda: len(why(at, "Refused")) == 4)
        assert "the client ended the handshake of TLS: TLSV1_ALERT_UNKNOWN_CA" in why(at, "Refused")[-1]
        old = trusting(own, own)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        old.set_ciphers("AES128-GCM-SHA256")
        assert "NO_SHARED_CIPHER; needed: a client with TLS 1.2 or 1.3" in await refused(at, old)
        assert at.seen("refused") == {"tls": 5}
        await broker(at, None)
        good = await connected(at, trusting(own, own))
        assert (await good.asks(produce(5)))[:4] == (5).to_bytes(4, "big")

    serve(settings, test)


def test_tls_at_a_listener_without_it_is_refused_by_name() -> None:
    async def test(at: Setting) -> None:
        client = await at.client()
        client.writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        await client.ended()
        [event] = at.events("Refused")
        assert event["why"].startswith("tls: the client began TLS, and listener l speaks plain text; needed:")

    run(test)


def test_a_handshake_that_is_not_finished_is_closed(
    tmp_path: Path, own: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "TLS_S", 0.05)
    settings = config(tmp_path, own, {}, {})

    async def test(at: Running) -> None:
        for sent in (b"", b"\x16\x03\x01\x02\x00"):
            told = await refused(at, None, sent)
            assert told == "time: the client did not finish the handshake of TLS within 0.05 s"
        assert not at.server._gateway.everyone

    serve(settings, test)


def test_handshakes_are_few_and_who_began_first_makes_place(
    tmp_path: Path, own: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MOST_SHAKING", 2)
    settings = config(tmp_path, own, {}, {})

    async def test(at: Running) -> None:
        await broker(at, None)
        for _ in range(3):
            good = await connected(at, trusting(own))
            assert await good.asks(produce(5)) == told(5), "who has finished it does not count"
        first, second = await connected(at, None), await connected(at, None)
        await until("both are in it", lambda: len(at.server._gateway.shaking) == 2)
        third = await connected(at, trusting(own))
        await first.ended()
        assert why(at, "Refused") == [
            "place: too many clients were in the handshake of TLS, and this one had not finished it"
        ]
        assert await third.asks(produce(5)) == told(5)
        second.writer.close()

    serve(settings, test)


@pytest.mark.parametrize("to", ["a strange broker", "another host", "a plain broker", "a broker with TLS"])
def test_why_a_broker_cannot_be_used_is_in_the_status(
    to: str, tmp_path: Path, own: Certificates, strange: Certificates
) -> None:
    settings = config(tmp_path, own, {}, {} if to == "a broker with TLS" else {"ca": str(own.authority)})
    elsewhere = Certificates(tmp_path, "192.0.2.1")
    elsewhere.write("broker")
    if to == "another host":
        cluster = {"ca": str(elsewhere.authority)}
        settings = config(tmp_path, own, {}, cluster)
    contexts = {
        "a strange broker": serving(strange, "broker"),
        "another host": serving(elsewhere, "broker"),
        "a plain broker": None,
        "a broker with TLS": serving(own, "broker"),
    }
    needed = {
        "a strange broker": ("not accepted: unable to get local issuer certificate", "tls.a.ca has signed"),
        "another host": ("IP address mismatch", "names the broker's host in the gateway's file"),
        "a plain broker": ("", "needed: a port of the broker that speaks TLS"),
        "a broker with TLS": ("", "the gateway's file needs tls.a"),
    }

    async def test(at: Running) -> None:
        await broker(at, contexts[to])
        at.server._ordered.set()
        silent = at.server._gateway.silent["a"]
        await until("the reason is seen", lambda: needed[to][1] in silent[1])
        assert needed[to][0] in silent[1]
        client = await connected(at, trusting(own))
        client.send(produce(5))
        await client.ended()
        if to == "a strange broker":
            [told] = why(at, "Unreachable")
            assert needed[to][1] in told

    serve(settings, test)


@pytest.mark.parametrize("login", [False, True])
def test_nobody_borrows_the_gateways_certificate(login: bool, tmp_path: Path, own: Certificates) -> None:
    """Where brokers demand no login, clients of a listener that asks for nothing would be the gateway."""
    files = {"certificate": str(own.certificate("client")), "key": str(own.key("client"))}
    settings = config(tmp_path, own, {}, {"ca": str(own.authority), **files})

    async def test(at: Running) -> None:
        there = await broker(at, serving(own, "broker", own), login=login)
        await until("the broker answers", lambda: "Answers" in [one["event"] for one in at.lines])
        client = await connected(at, trusting(own))
        client.send(struct.pack(">hhih", API_VERSIONS, 0, 1, -1))
        if login:
            assert (await client.answer())[:4] == (1).to_bytes(4, "big")
            return
        await client.ended()
        [told] = why(at, "Refused")
        assert "would take every client of listener l for the gateway; needed: listeners.l.tls.ca" in told
        assert set(there.kinds()) == {API_VERSIONS}, "of the gateway itself"

    serve(settings, test)


def test_on_sighup_new_files_count_and_bad_ones_do_not(
    tmp_path: Path, own: Certificates, strange: Certificates
) -> None:
    settings = config(tmp_path, own, {}, {})
    files = settings.listeners["l"].tls
    assert files is not None
    mine = Certificates(tmp_path / "mine", HOST)
    mine.folder.mkdir()
    settings = config(tmp_path, mine, {}, {})

    def put(one: Certificates) -> None:
        mine.certificate("gateway").write_bytes(one.certificate("gateway").read_bytes())
        mine.key("gateway").write_bytes(one.key("gateway").read_bytes())
        mine.key("gateway").chmod(0o600)

    put(own)

    async def test(at: Running) -> None:
        await broker(at, None)
        before = await connected(at, trusting(own))
        put(strange)
        mine.certificate("gateway").write_text("no certificate")
        os.kill(os.getpid(), signal.SIGHUP)
        await until("it says so", lambda: bool(why(at, "CertificatesKept")))
        [told_why] = why(at, "CertificatesKept")
        assert told_why.startswith("listeners.l.tls.certificate, listeners.l.tls.key: ")
        assert told_why.endswith("The former files stay in use")
        assert "Needed: PEM files" in (await at.asks(b'"status"'))["certificates"]["kept"]
        assert await (await connected(at, trusting(own))).asks(produce(5)) == told(5)
        put(strange)
        os.kill(os.getpid(), signal.SIGHUP)
        await until("it says so", lambda: "Certificates" in [one["event"] for one in at.lines])
        assert (await at.asks(b'"status"'))["certificates"]["kept"] == ""
        assert await (await connected(at, trusting(strange))).asks(produce(5)) == told(5)
        assert await before.asks(produce(5)) == told(5), "its connection goes on"

    serve(settings, test)
