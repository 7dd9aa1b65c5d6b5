"""What a gateway between clients and a broker costs: ``python -m bench.gateway``.

One broker. Each way to it gets the same requests: direct connections, ``zkmigrate gateway serve``, and with
``--envoy PATH`` Envoy as a plain TCP proxy on one thread. That one does not know Kafka: it hides no epochs,
rewrites no addresses and holds nobody. Envoy's filter ``kafka_broker`` is not in its build on PyPI.
*Gateway with TLS* speaks it to clients and to the broker, with EC keys.
With ``--before FOLDER`` the gateway of another checkout is one more way. The *bare pump* is ``bench.pump``,
which passes bytes on as the gateway does and reads none of them: no proxy on this event loop costs less.

- *Latency*: a producer (acks=all) that sends a request at a time, at a fixed rate. The ways take turns,
  request after request, so that other work on the machine meets all of them. From sending to the answer.
- *Throughput*: a producer with five requests in flight, then a consumer of what it wrote, a batch a request.
  The ways take turns. CPU time is that of the proxy's threads, user and system.
- *Beside a hold*: a producer through the gateway before another application is held, and meanwhile, with that
  one's requests parked. From when a request was due to its answer, so a pause counts for all that it delays.

Clients are sockets with requests made before. So they cost little, and no library's batching comes between.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from kafka.admin import KafkaAdminClient
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest

from bench.mirror import batch, started
from bench.spread import out_option, save, shown, spread
from bench.usage import threads_s
from tests.ports import free_port
from tests.servers import kraft
from tests.servers.process import ADDRESS
from tests.servers.secured import Certificates
from tests.servers.test_mirror import make
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.series import quantile
from zkmigrate.topics.gateway.serving.record import SOCKET

RELEASES = ("3.9.1", "4.3.1")
DIRECT, OURS, BEFORE, PUMP, ENVOY = "direct", "gateway", "gateway before", "bare pump", "Envoy"
TLS = "gateway with TLS"
NODE, IN_FLIGHT, HELD = 1, 5, 8
"""The broker's id, a producer's requests in flight, and the connections of the held application."""
BUFFER = 1 << 20
"""Bytes of the largest answer."""
WAIT_S, WIDTH = 120.0, 54
_PRODUCE, _FETCH = 8, 11
"""Versions of both requests that the broker and each proxy support."""
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")


@dataclass(frozen=True)
class Kind:
    """A kind of request: this many records of this many bytes.

    rate: requests per second and way in paced rounds. paced, unpaced: requests in a round.
    """

    records: int
    size: int
    rate: float
    paced: int
    unpaced: int

    @property
    def name(self) -> str:
        return f"{self.records} x {self.size:,} B"

    @property
    def megabytes(self) -> float:
        """Megabytes of records in a request."""
        return self.records * self.size / 1e6


KINDS = (
    Kind(1, 100, rate=50, paced=500, unpaced=4000),
    Kind(50, 100, rate=50, paced=500, unpaced=4000),
    Kind(1, 900_000, rate=10, paced=200, unpaced=150),
)


def produce(topic: str, data: bytes, client: str = "bench") -> bytes:
    """Return a producer's request with a batch, as it is sent over the wire."""
    kind = ProduceRequest.TopicProduceData
    own = kind(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=data)])
    asked = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[own])
    return _framed(asked, _PRODUCE, client)


def fetch(topic: str, offset: int, most: int) -> bytes:
    """Return a consumer's request from an offset on, for at most `most` bytes.

    The first batch is always complete.
    """
    kind = FetchRequest.FetchTopic
    part = kind.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=most,
    )
    asked = FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=most,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[kind(topic=topic, partitions=[part])],
        forgotten_topics_data=[],
        rack_id="",
    )
    return _framed(asked, _FETCH, "bench")


def _framed(asked: Any, version: int, client: str) -> bytes:
    asked.API_VERSION = version
    asked.with_header(1, client)
    return bytes(asked.encode(version=version, header=True, framed=True))


def refusal(answer: bytes, topic: str) -> int:
    """Return Kafka's error code of an answer to PRODUCE; 0 if there is none.

    It follows correlation id, topics, name and index.
    """
    [error] = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    return int(error)


def produced(answer: bytes, topic: str) -> None:
    """Raise ClickException if a PRODUCE was refused."""
    if error := refusal(answer, topic):
        raise click.ClickException(f"Kafka's error {error} to PRODUCE")


def fetched(answer: bytes, topic: str) -> int:
    """Return the bytes of records in the answer to a FETCH of one partition without aborted transactions.

    Raises ClickException if there are none.
    """
    named = 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
    [error] = struct.unpack_from(">h", answer, named)
    [size] = _INT.unpack_from(answer, named + 2 + 3 * 8 + 4 + 4)
    if error or size <= 0:
        raise click.ClickException(f"Kafka's error {error} to FETCH, {size} bytes")
    return int(size)


class Wire:
    """A client's connection to ``host:port``.

    tls: whether it uses TLS. It does not check the certificate, which costs nothing after the handshake.
    """

    def __init__(self, address: str, *, tls: bool = False) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), WAIT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._socket = context.wrap_socket(self._socket)
        self._buffer = bytearray(BUFFER)

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def answer(self) -> bytes:
        """Return the next answer, without its size field."""
        size = int(_INT.unpack(self._read(4))[0])
        return bytes(self._read(size))

    def asks(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.answer()

    def _read(self, size: int) -> memoryview:
        view, at = memoryview(self._buffer)[:size], 0
        while at < size:
            count = self._socket.recv_into(view[at:])
            if not count:
                raise click.ClickException("the connection was closed")
            at += count
        return view

    def close(self) -> None:
        self._socket.close()


def milliseconds(seconds: Sequence[float], share: float) -> float:
    """Return the value that this share of the times does not exceed, in milliseconds."""
    found = quantile(sorted(seconds), share)
    assert found is not None, "no request"
    return found * 1000


def paced(wires: Sequence[Wire], frame: bytes, topic: str, rate: float, count: int) -> list[list[float]]:
    """Send `count` requests on each connection, one at a time, and return the seconds of each.

    rate: requests per second and connection. The time counts from sending; on a single connection it counts
    from the moment when the request was due.
    """
    found: list[list[float]] = [[] for _ in wires]
    begun = time.perf_counter()
    for n in range(count * len(wires)):
        due = begun + n / (rate * len(wires))
        time.sleep(max(0.0, due - time.perf_counter()))
        since = due if len(wires) == 1 else time.perf_counter()
        answer = wires[n % len(wires)].asks(frame)
        found[n % len(wires)].append(time.perf_counter() - since)
        produced(answer, topic)
    return found


def write(wire: Wire, frame: bytes, topic: str, count: int) -> float:
    """Send `count` requests as fast as possible and return the seconds."""
    begun = time.perf_counter()
    for n in range(count + IN_FLIGHT):
        if n >= IN_FLIGHT:
            produced(wire.answer(), topic)
        if n < count:
            wire.send(frame)
    return time.perf_counter() - begun


def read(wire: Wire, topic: str, data: int, offsets: range) -> float:
    """Read one batch of ``data`` bytes from each of these offsets and return the seconds."""
    frame = bytearray(fetch(topic, 1 << 40, data))
    at, begun = frame.index(_LONG.pack(1 << 40)), time.perf_counter()
    for offset in offsets:
        _LONG.pack_into(frame, at, offset)
        size = fetched(wire.asks(bytes(frame)), topic)
        if size != data:
            raise click.ClickException(f"{size} bytes from offset {offset}, needed: {data}")
    return time.perf_counter() - begun


# -- the ways


@contextmanager
def gateway(
    folder: Path, brokers: Sequence[str], checkout: Path | None = None, own: Certificates | None = None
) -> Iterator[tuple[list[str], subprocess.Popen[bytes], Path]]:
    """Run a gateway; yield its address for each broker, its process and its socket.

    Application ``held`` has the client id ``held``. checkout: the folder of another version of the code.
    own: certificates for TLS on both sides.
    """
    folder.mkdir(exist_ok=True)
    ports = {n: free_port() for n in range(1, len(brokers) + 1)}
    nodes = dict(enumerate(brokers, 1))
    config = folder / "gateway.yml"
    config.write_text(
        f"state: {folder / 'state'}\nlisten: {ADDRESS}\nroute: one\nclusters:\n  one: {nodes}\n"
        f"listeners:\n  bench:\n    advertise: {ADDRESS}\n    ports:\n      one: {ports}\n"
        + (f"    tls: {{certificate: {own.certificate('bench')}, key: {own.key('bench')}}}\n" if own else "")
        + "apps:\n  held: {route: one, client_ids: [held]}\n"
        + (f"tls: {{one: {{ca: {own.authority}}}}}\n" if own else "")
    )
    words = [sys.executable, "-m", "zkmigrate", "gateway", "serve", "--config", str(config)]
    if checkout is not None:
        words = ["env", f"PYTHONPATH={checkout}", words[0], "-P", *words[1:]]
    addresses = [f"{ADDRESS}:{port}" for port in ports.values()]
    with serving(words, folder / "gateway.log", addresses[-1]) as process:
        yield addresses, process, folder / "state" / SOCKET


@contextmanager
def pump(folder: Path, broker: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a bare pump to a broker; yield its address and its process."""
    address = f"{ADDRESS}:{free_port()}"
    words = [sys.executable, "-m", "bench.pump", address, broker]
    with serving(words, folder / "pump.log", address) as process:
        yield address, process


@contextmanager
def envoy(
    program: Path, folder: Path, brokers: Sequence[str]
) -> Iterator[tuple[list[str], subprocess.Popen[bytes]]]:
    """Run Envoy; yield its address for each broker and its process."""

    def at(address: str) -> dict[str, Any]:
        host, _, number = address.rpartition(":")
        return {"socket_address": {"address": host, "port_value": int(number)}}

    addresses = [f"{ADDRESS}:{free_port()}" for _ in brokers]
    config = folder / "envoy.json"
    kind = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
    listeners, clusters = [], []
    for address, broker in zip(addresses, brokers, strict=True):
        proxy = {"@type": kind, "stat_prefix": "bench", "cluster": broker}
        filters = [{"name": "tcp_proxy", "typed_config": proxy}]
        listeners.append({"address": at(address), "filter_chains": [{"filters": filters}]})
        endpoints = [{"lb_endpoints": [{"endpoint": {"address": at(broker)}}]}]
        assignment = {"cluster_name": broker, "endpoints": endpoints}
        cluster = {"name": broker, "type": "STATIC", "connect_timeout": "5s"}
        clusters.append({**cluster, "load_assignment": assignment})
    config.write_text(json.dumps({"static_resources": {"listeners": listeners, "clusters": clusters}}))
    words = [str(program), "-c", str(config), "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
    with serving(words, folder / "envoy.log", addresses[-1]) as process:
        yield addresses, process


@contextmanager
def serving(words: Sequence[str], log: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process, wait until it listens at an address, and end it with the block."""
    process = started(words, log)

    def silent() -> str | None:
        if process.poll() is not None:
            raise click.ClickException(f"{words[0]} ended:\n{log.read_text()[-2000:]}")
        try:
            Wire(address).close()
        except OSError as error:
            return str(error)
        return None

    try:
        wait_until(address, silent, WAIT_S)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_S)


def told(where: Path, question: Any) -> Any:
    """Return the gateway's answer on its socket."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(WAIT_S)
        asked.connect(str(where))
        asked.sendall(json.dumps(question).encode() + b"\n")
        with asked.makefile("rb") as answer:
            return json.loads(answer.readline())


# -- rounds


def new(broker: str, topic: str) -> None:
    """Create a topic, and write a record as soon as the broker accepts one."""
    make(broker, topic)
    frame = produce(topic, batch(1, 1))
    with closing(Wire(broker)) as wire:

        def refused() -> str | None:
            error = refusal(wire.asks(frame), topic)
            return f"Kafka's error {error}" if error else None

        wait_until(topic, refused, WAIT_S)


Figures = dict[str, dict[str, list[float]]]
"""Figures of each round by name and way."""


def add(figures: Figures, name: str, way: str, figure: float) -> None:
    figures.setdefault(name, {}).setdefault(way, []).append(figure)


def latency(ways: Mapping[str, str], kind: Kind, topic: str, figures: Figures) -> None:
    """Measure a round of paced requests."""
    frame = produce(topic, batch(kind.records, kind.size))
    with ExitStack() as stack:
        wires = [stack.enter_context(closing(Wire(at, tls=way == TLS))) for way, at in ways.items()]
        for wire in wires:
            produced(wire.asks(frame), topic)  # the first one connects the proxy to the broker
        for way, seconds in zip(ways, paced(wires, frame, topic, kind.rate, kind.paced), strict=True):
            for share in (0.5, 0.99):
                add(figures, f"p{share * 100:g} ms", way, milliseconds(seconds, share))


def throughput(
    ways: Mapping[str, str], pids: Mapping[str, int], kind: Kind, topic: str, figures: Figures
) -> None:
    """Measure a round of requests that are sent as fast as possible. The topic has one record."""
    data = batch(kind.records, kind.size)
    frame, end = produce(topic, data), 1
    for way, address in ways.items():
        with closing(Wire(address, tls=way == TLS)) as wire:
            produced(wire.asks(frame), topic)  # the first one connects the proxy to the broker
            first, end = end + kind.records, end + (kind.unpaced + 1) * kind.records
            before = threads_s(pids[way])
            seconds = {"produce": write(wire, frame, topic, kind.unpaced)}
            between = threads_s(pids[way])
            seconds["consume"] = read(wire, topic, len(data), range(first, end, kind.records))
            used = {"produce": between - before, "consume": threads_s(pids[way]) - between}
        for verb, took in seconds.items():
            megabytes = kind.unpaced * kind.megabytes
            add(figures, f"{verb} MB/s", way, megabytes / took)
            if way == DIRECT:
                continue
            add(figures, f"{verb} MB per CPU second", way, megabytes / used[verb])
            add(figures, f"{verb} requests per CPU second", way, kind.unpaced / used[verb])


def beside_a_hold(address: str, where: Path, kind: Kind, topic: str, turn: int, figures: Figures) -> None:
    """Measure a round of a producer of another application, before a hold and during it.

    Both orders and the parked requests fall into the second part.
    """
    data = batch(kind.records, kind.size)
    mine, theirs = produce(topic, data), produce(topic, data, "held")
    order = {"fencing": 1, "app": "held"}

    def hold(wires: Sequence[Wire]) -> None:
        said = told(where, {**order, "id": f"hold-{turn}", "verb": "hold", "ttl_ms": 600_000})
        for wire in wires:
            wire.send(theirs)
        time.sleep(0.8 * kind.paced / kind.rate)
        parked = told(where, "status")["apps"]["held"]["parked"]
        if said["outcome"] != "done" or parked != {"PRODUCE": len(wires)}:
            raise click.ClickException(f"hold: {said}, parked: {parked}")
        told(where, {**order, "id": f"unhold-{turn}", "verb": "unhold"})
        for wire in wires:
            produced(wire.answer(), topic)

    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        other = stack.enter_context(closing(Wire(address)))
        wires = [stack.enter_context(closing(Wire(address))) for _ in range(HELD)]
        for wire, frame in [(other, mine), *((wire, theirs) for wire in wires)]:
            produced(wire.asks(frame), topic)
        [before] = paced([other], mine, topic, kind.rate, kind.paced)
        holding = pool.submit(hold, wires)
        [meanwhile] = paced([other], mine, topic, kind.rate, kind.paced)
        holding.result()
    for way, seconds in (("before", before), ("meanwhile", meanwhile)):
        for share in (0.5, 0.99):
            add(figures, f"p{share * 100:g} ms", way, milliseconds(seconds, share))
        add(figures, "longest ms", way, max(seconds) * 1000)


def summary(figures: Figures, peer: str) -> dict[str, Any]:
    """Print and return the spread of each figure, and of its ratio to the peer's figure of the same round."""
    found: dict[str, Any] = {}
    for name, of_ways in figures.items():
        other = peer if peer in of_ways else ENVOY
        found[name] = {way: spread(one) for way, one in of_ways.items()}
        for way, one in of_ways.items():
            click.echo(shown(f"  {name}, {way}".ljust(WIDTH), one, ""))
            if way != other and other in of_ways:
                ratios = [mine / theirs for mine, theirs in zip(one, of_ways[other], strict=True)]
                found[name][f"{way} / {other}"] = spread(ratios)
                click.echo(shown(f"  {name}, {way} / {other}".ljust(WIDTH), ratios, ""))
    return found


@click.command(help=__doc__)
@click.option("--rounds", default=5, show_default=True, help="How often each way gets each kind of request.")
@click.option("--scale", default=1.0, show_default=True, help="Times the requests of a round.")
@click.option("--release", default=RELEASES[0], show_default=True, type=click.Choice(RELEASES))
@click.option("--envoy", "program", type=click.Path(path_type=Path, exists=True), help="Envoy's program.")
@click.option("--before", type=click.Path(path_type=Path, exists=True), help="A checkout to compare with.")
@out_option
def main(
    rounds: int, scale: float, release: str, program: Path | None, before: Path | None, out: Path | None
) -> None:
    load = [os.getloadavg()[0]]
    kinds = [
        Kind(k.records, k.size, k.rate, max(1, round(k.paced * scale)), max(1, round(k.unpaced * scale)))
        for k in KINDS
    ]
    figures: dict[str, Figures] = {kind.name: {} for kind in kinds}
    beside: Figures = {}
    with tempfile.TemporaryDirectory(prefix="bench-gateway-") as name, ExitStack() as stack:
        folder = Path(name)
        own = Certificates(folder)
        own.write("bench")
        secure = f"{ADDRESS}:{free_port()}"
        store = f"ssl.keystore.type=PEM\nssl.keystore.location={own.store('bench')}\n"
        broker = stack.enter_context(kraft.broker(release, folder, NODE, f",SSL://{secure}", store))
        [address], process, where = stack.enter_context(gateway(folder / "own", [broker]))
        ways, pids = {DIRECT: broker, OURS: address}, {DIRECT: os.getpid(), OURS: process.pid}
        [ways[TLS]], tls, _ = stack.enter_context(gateway(folder / "tls", [secure], own=own))
        pids[TLS] = tls.pid
        if before is not None:
            [ways[BEFORE]], former, _ = stack.enter_context(gateway(folder / "before", [broker], before))
            pids[BEFORE] = former.pid
        ways[PUMP], bare = stack.enter_context(pump(folder, broker))
        pids[PUMP] = bare.pid
        if program is not None:
            [ways[ENVOY]], other = stack.enter_context(envoy(program, folder, [broker]))
            pids[ENVOY] = other.pid
        admin = stack.enter_context(closing(KafkaAdminClient(bootstrap_servers=[broker])))
        for turn in range(rounds):
            for n, kind in enumerate(kinds):
                topics = [f"{what}-{n}-{turn}" for what in ("paced", "unpaced")]
                for topic in topics:
                    new(broker, topic)
                latency(ways, kind, topics[0], figures[kind.name])
                throughput(ways, pids, kind, topics[1], figures[kind.name])
                if n == 0:
                    beside_a_hold(address, where, kind, topics[0], turn, beside)
                admin.delete_topics(topics)
            load.append(os.getloadavg()[0])
            click.echo(f"round {turn + 1} of {rounds}, load {load[-1]:.1f}")
    found = {}
    for name, of_kind in figures.items():
        click.echo(name)
        found[name] = summary(of_kind, DIRECT)
    click.echo("another application beside a hold")
    save(out, {"release": release, "load": load, "kinds": found, "hold": summary(beside, "before")})


if __name__ == "__main__":
    main()
