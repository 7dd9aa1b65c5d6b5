"""What clients that mean harm cost the others: ``python -m bench.gateway_hostile``.

Two brokers that answer at once, and ``zkmigrate gateway serve`` before them. One client sends small PRODUCE
requests to one of them at a fixed rate, quietly first. Then 200 hostile connections of each kind come to the
other, kind after kind, and at last all kinds together, from other addresses of the loopback. Told are the
client's p50 and p99, the p99 of the same requests straight to its broker, the difference of both, the
longest answer to ``status``, and to an order, and the gateway's memory (RSS) at its highest. What the machine
itself costs beside the hostile shows in the direct p99, in the load average, and in the seconds for which the
gateway could run but had no CPU.

Hostile clients and their broker only get the CPU that nobody else uses (SCHED_IDLE), as if on other
machines. With ``--before FOLDER`` it is the gateway of another checkout. With ``--envoy PATH`` Envoy, as a
plain TCP proxy on one thread, meets each kind next; it gets no orders.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from multiprocessing import Process
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import click
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from bench.gateway import ENVOY, OURS, Wire, envoy, fetch, gateway, milliseconds, produce, told
from bench.mirror import batch
from bench.spread import out_option, save
from tests.servers.process import ADDRESS

TOPIC, RATE = "t", 100.0
_HEAD, _INT = struct.Struct(">hhi"), struct.Struct(">i")
LARGE_ANSWER = 2 << 20
"""The bytes of the broker's answers to FETCH."""
Next = Callable[[int], bytes]
"""A function that returns the n-th piece that a hostile connection sends.

It is empty if the connection should wait.
"""


def framed(asked: Any, version: int, client: str) -> bytes:
    asked.with_header(correlation_id=1, client_id=client)
    return bytes(asked.encode(version=version, header=True, framed=True))


def metadata(topics: int, client: str = "bench") -> bytes:
    """Return a METADATA request of this many topics with names of one letter."""
    kind = MetadataRequest.MetadataRequestTopic
    one = framed(MetadataRequest(topics=[kind(name="t")]), 1, client)
    own = one[4:].removesuffix(b"\0\0\0\1\0\1t") + _INT.pack(topics) + b"\0\1t" * topics
    return _INT.pack(len(own)) + own


def software(size: int) -> bytes:
    asked = ApiVersionsRequest(client_software_name="n" * size, client_software_version="1")
    return framed(asked, 3, "bench")


SMALL = produce(TOPIC, batch(1, 100))
LARGE = produce(TOPIC, batch(1, 10 << 20), "held")
READ = fetch(TOPIC, 0, LARGE_ANSWER)
BIG_NAME, MANY = software(60 << 20), metadata(5_000_000)
TAGS = software(1)[:-1] + b"\xff\xff\xff\x07" + b"\0\0" * ((1 << 24) - 1)
TAGS = _INT.pack(len(TAGS) - 4) + TAGS[4:]

KINDS: dict[str, Next] = {
    "idle": lambda _n: b"",
    "names of 60 MiB": lambda _n: BIG_NAME,
    "millions of topics": lambda _n: MANY,
    "millions of topics, after a login": lambda n: MANY if n else SMALL,
    "millions of tags": lambda _n: TAGS,
    "a large request that stops": lambda n: SMALL if not n else MANY[:-1] if n == 1 else b"",
    "answers that are not read": lambda n: READ if n < 200 else b"",
    "a byte now and then": lambda n: SMALL if not n else LARGE[n - 1 : n],
    "a flood of small requests": lambda _n: SMALL * 50,
    "a flood of METADATA": lambda _n: metadata(1000),
    "parked requests of 10 MiB": lambda _n: LARGE,
    "not Kafka": lambda _n: b"GET / HTTP/1.1\r\n\r\n",
    "connections without end": lambda n: SMALL if not n else b"\xff\xff\xff\xff",
}
SLOW, DEAF = "a byte now and then", "answers that are not read"


# -- the broker


def elsewhere() -> None:
    """Give this process only the CPU that no other process uses."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def broker(listener: socket.socket, idle: bool) -> None:
    """Answer each request at once, in this process."""
    if idle:
        elsewhere()
    while True:
        own, _ = listener.accept()
        threading.Thread(target=_serve, args=(own,), daemon=True).start()


def _serve(own: socket.socket) -> None:
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bodies = {1: bytes(LARGE_ANSWER), 18: b"\0\0" + _INT.pack(1) + struct.pack(">hhh", 18, 0, 3)}
    metadata = _INT.pack(0) * 3
    with own, suppress(OSError), own.makefile("rb", 1 << 18) as stream:
        while len(prefix := stream.read(4)) == 4:
            size = _INT.unpack(prefix)[0]
            frame = stream.read(min(size, 64))
            while size > len(frame) and (left := size - len(frame)) > 0:
                size -= len(stream.read(min(left, 1 << 18))) or size
            key, _, correlation = _HEAD.unpack_from(frame)
            body = _INT.pack(correlation) + (metadata if key == 3 else bodies.get(key, bytes(60)))
            own.sendall(_INT.pack(len(body)) + body)


@contextmanager
def answering(*, idle: bool = False) -> Iterator[str]:
    """Run a broker in its own process and yield its address."""
    with socket.create_server((ADDRESS, 0), backlog=1024) as listener:
        process = Process(target=broker, args=(listener, idle), daemon=True)
        process.start()
        try:
            yield f"{ADDRESS}:{listener.getsockname()[1]}"
        finally:
            process.terminate()
            process.join()


# -- the hostile


@dataclass
class Hostile:
    """Hostile connections of some kinds, in their own process."""

    address: str
    kinds: Sequence[str]
    count: int
    pending: dict[socket.socket, tuple[str, int, bytes, float]] = field(default_factory=dict)

    def run(self) -> None:
        """Send the kinds' pieces and replace closed connections, without end."""
        elsewhere()
        poll = selectors.DefaultSelector()
        wanted = [(kind, n) for kind in self.kinds for n in range(self.count)]
        while True:
            while wanted:
                kind, n = wanted.pop()
                try:
                    own = socket.create_connection(
                        self._to, timeout=5, source_address=(f"127.0.1.{1 + n % 4}", 0)
                    )
                except OSError:
                    wanted.append((kind, n))
                    time.sleep(0.01)
                    break
                own.setblocking(False)
                self.pending[own] = kind, 0, b"", 0.0
                poll.register(own, selectors.EVENT_READ | selectors.EVENT_WRITE, n)
            for key, events in poll.select(0.05):
                own = cast(socket.socket, key.fileobj)
                if not self._moved(own, events):
                    kind = self.pending.pop(own)[0]
                    poll.unregister(own)
                    own.close()
                    wanted.append((kind, key.data))
            time.sleep(0.002)

    @property
    def _to(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def _moved(self, own: socket.socket, events: int) -> bool:
        """Read and send what is possible; return whether the connection is still open."""
        kind, n, left, due = self.pending[own]
        try:
            if events & selectors.EVENT_READ and kind != DEAF and not own.recv(1 << 16):
                return False
            if events & selectors.EVENT_WRITE and time.monotonic() >= due:
                if not left:
                    left, n = KINDS[kind](n), n + 1
                left = left[own.send(left[: 1 << 18]) :] if left else left
                due = time.monotonic() + (1.0 if kind == SLOW or (not left and kind == "idle") else 0.0)
                self.pending[own] = kind, n, left, due
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True


@contextmanager
def hostile(address: str, kinds: Sequence[str], count: int) -> Iterator[None]:
    processes = [Process(target=Hostile(address, kinds, count).run, daemon=True)] if kinds else []
    for one in processes:
        one.start()
    try:
        yield
    finally:
        for one in processes:
            one.terminate()
            one.join()


# -- the honest


def rss_mib(pid: int, what: str = "VmRSS") -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) / 1024
    raise click.ClickException("the gateway has ended")


def waited_s(pid: int) -> float:
    """Return the seconds for which a process could run but had no CPU."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def measured(address: str, broker: str, where: Path | None, pid: int, seconds: float) -> dict[str, float]:
    """Return a client's times, the longest answer to an order or to status, and the largest memory.

    where: the socket for orders; None for a proxy without one.
    """
    orders: list[float] = []
    memory: list[float] = []
    over = threading.Event()

    def ordering() -> None:
        n = 0
        while not over.wait(0.2):
            n += 1
            order = {
                "fencing": 1,
                "app": "held",
                "id": f"{time.monotonic_ns()}",
                "verb": "hold",
                "ttl_ms": 600_000,
            }
            begun = time.monotonic()
            if where is not None:
                told(where, order if n % 2 else "status")
                orders.append(time.monotonic() - begun)
            memory.append(rss_mib(pid))

    waited = waited_s(pid)
    thread = threading.Thread(target=ordering)
    thread.start()
    times: list[float] = []
    direct: list[float] = []
    try:
        with closing(Wire(address)) as wire, closing(Wire(broker)) as beside:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for one, found in ((wire, times), (beside, direct)):
                    begun = time.monotonic()
                    one.asks(SMALL)
                    found.append(time.monotonic() - begun)
                    time.sleep(max(0.0, 1 / RATE - found[-1]))
    finally:
        over.set()
        thread.join()
    return {
        "requests": len(times),
        "p50 ms": milliseconds(times, 0.5),
        "p99 ms": milliseconds(times, 0.99),
        "p99 direct ms": milliseconds(direct, 0.99),
        "p99 less direct ms": milliseconds(times, 0.99) - milliseconds(direct, 0.99),
        "longest ms": max(times) * 1000,
        "longest order ms": max(orders, default=0.0) * 1000,
        "most MiB": max(memory),
        "without a CPU s": waited_s(pid) - waited,
        "load": os.getloadavg()[0],
    }


@click.command(help=__doc__)
@click.option("--count", default=200, show_default=True, help="Hostile connections of each kind.")
@click.option("--seconds", default=15.0, show_default=True, help="How long each kind lasts.")
@click.option("--kind", "chosen", multiple=True, type=click.Choice([*KINDS, "all"]), help="Only these.")
@click.option("--before", type=click.Path(path_type=Path, exists=True), help="Another checkout's gateway.")
@click.option("--envoy", "program", type=click.Path(path_type=Path, exists=True), help="Envoy's program.")
@out_option
def main(
    count: int,
    seconds: float,
    chosen: tuple[str, ...],
    before: Path | None,
    program: Path | None,
    out: Path | None,
) -> None:
    found: dict[str, dict[str, float]] = {}
    ways = (OURS, ENVOY) if program else (OURS,)
    for kind, way in product(("quiet", *(chosen or (*KINDS, "all"))), ways):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-hostile-")))
            brokers = [stack.enter_context(answering()), stack.enter_context(answering(idle=True))]
            where = None
            if way == ENVOY and program is not None:
                addresses, process = stack.enter_context(envoy(program, folder, brokers))
            else:
                addresses, process, where = stack.enter_context(gateway(folder / "gateway", brokers, before))
            kinds = [] if kind == "quiet" else list(KINDS) if kind == "all" else [kind]
            stack.enter_context(hostile(addresses[1], kinds, count))
            time.sleep(2.0)
            name = f"{kind}, {way}"
            try:
                found[name] = measured(addresses[0], brokers[0], where, process.pid, seconds)
            except (OSError, click.ClickException) as error:
                click.echo(f"{name}: {error}")
                continue
            ratio = found[name]["p99 ms"] / found[f"quiet, {way}"]["p99 ms"]
            figures = ", ".join(f"{label} {figure:,.1f}" for label, figure in found[name].items())
            click.echo(f"{name}: {figures}, p99 / quiet {ratio:.1f}")
    save(out, found)


if __name__ == "__main__":
    main()
