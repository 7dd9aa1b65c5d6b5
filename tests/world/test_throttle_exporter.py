"""Partitions moved under a throttle that reads the load from node exporters: T7 of the table of features."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.unit.engine_world import forward
from tests.world.reassigning import BROKERS, ReassignDesk, found
from tests.world.test_throttle_listens import STEPS, M, everywhere, listening, rates
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.model.finding import Held

TEXT = (Path(__file__).parent.parent / "recorded" / "load" / "node_exporter-1.5.0.txt").read_text()
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


def exported(made: ReassignDesk, broker: int) -> str:
    """What a node exporter of release 1.5.0 serves, with the counters of a broker's host."""
    host, now = made.cluster.loads[broker], made.clock.now()
    host.move_on(now)
    text = TEXT
    for name, value in (
        ("node_boot_time_seconds", 1.7e9),
        ("node_time_seconds", 1.7e9 + now),
        ('node_disk_io_time_seconds_total{device="vda"}', host.busy_ms / 1000),
        ('node_network_receive_bytes_total{device="eth0"}', host.received),
        ('node_network_transmit_bytes_total{device="eth0"}', host.sent),
    ):
        text, times = re.subn(rf"(?m)^{re.escape(name)} .*$", f"{name} {value!r}", text)
        assert times == 1, name
    return text


Answer = Callable[[int], tuple[int, str, bytes]]
"""Status, content type and body that the exporter of a broker answers with."""


class Exporters:
    """The exporters of all brokers, on one port of loopback: ``/ID/metrics``."""

    def __init__(self) -> None:
        self.answer: Answer = lambda _broker: (500, PLAIN, b"")
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = outer.answer(int(self.path.split("/")[1]))
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Stay silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def urls(self, brokers: tuple[int, ...]) -> tuple[dict[str, object], ...]:
        port = self.server.server_port
        return tuple({"id": id, "url": f"http://127.0.0.1:{port}/{id}/metrics"} for id in brokers)


@pytest.fixture
def exporters() -> Iterator[Exporters]:
    made = Exporters()
    yield made
    made.server.shutdown()
    made.server.server_close()


def scraping(
    tmp_path: Path,
    exporters: Exporters,
    brokers: tuple[int, ...] = BROKERS,
    size: int = 40 * M,
    keep_ticks: int = 1,
) -> ReassignDesk:
    """A run whose hosts answer no ssh. brokers: those with an exporter."""
    made = listening(
        tmp_path,
        size=size,
        source="prometheus",
        exporters=exporters.urls(brokers),
        disks=("vda",),
        interfaces=("eth0",),
        keep_ticks=keep_ticks,
    )
    for host in made.cluster.loads.values():
        host.blind = lambda _now: True
    exporters.answer = lambda broker: (200, PLAIN, exported(made, broker).encode())
    return made


def test_the_rates_follow_what_node_exporters_serve(tmp_path: Path, exporters: Exporters) -> None:
    made = scraping(tmp_path, exporters)
    everywhere(made, clients=lambda _t: 1.5 * M)
    made.cluster.loads[4].busy = lambda now: 0.98 if now > 1060 else 0.1
    assert made.process(forward).code == 0
    assert made.there
    assert found(made, "reassign.load").held is Held.YES
    assert rates(made, 4, 1)[-1][1] == STEPS[0], "its disk is busy"
    assert rates(made, 2)[-1][1] == max(step for step in STEPS if step <= (4 * M - 1.5 * M) / 2)


def test_a_broker_without_an_exporter_is_named_and_gets_the_floor(
    tmp_path: Path, exporters: Exporters
) -> None:
    made = scraping(tmp_path, exporters, brokers=(1, 3, 4, 5))
    assert made.process(forward).code == 0
    told = found(made, "reassign.load")
    assert told.held is Held.NO
    assert "broker 2: adapt.exporters does not name the broker" in told.seen
    assert rates(made, 2)[-1][1] == STEPS[0]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda text: (404, PLAIN, b"404 page not found"), "answered 'HTTP/1.0 404 Not Found'"),
        (lambda text: (200, "text/html", b"<html>log in</html>"), "'text/html' is not Prometheus text"),
        (lambda text: (200, PLAIN, b""), "no metric node_time_seconds"),
        (lambda text: (200, PLAIN, text.replace(b'"eth0"', b'"eth1"')), "of device eth0"),
        (lambda text: (200, PLAIN, text.replace(b"node_boot_time", b"else_time")), "node_boot_time_seconds"),
        (
            lambda text: (
                200,
                PLAIN,
                re.sub(rb'(io_time_seconds_total\{device="vda"\}) .*', rb"\1 NaN", text),
            ),
            "node_disk_io_time_seconds_total is nan, which is not a counter",
        ),
        (lambda text: (200, PLAIN, text + b"node_disk_x{ 1\n"), "not Prometheus text"),
        (lambda text: (200, PLAIN, b"x" * ((8 << 20) + 1)), "longer than 8388608 bytes"),
    ],
    ids=["missing", "HTML", "empty", "device", "boot", "NaN", "garbled", "endless"],
)
def test_an_exporter_that_serves_no_counters_is_named_with_what_it_served(
    tmp_path: Path, exporters: Exporters, spoil: Callable[[bytes], tuple[int, str, bytes]], told: str
) -> None:
    made = scraping(tmp_path, exporters)
    good = exporters.answer
    exporters.answer = lambda broker: spoil(good(broker)[2]) if broker == 2 else good(broker)
    assert made.process(forward).code == 0
    assert made.there
    seen = found(made, "reassign.load").seen
    assert "broker 2: " in seen
    assert "/2/metrics" in seen
    assert told in seen
    assert rates(made, 2)[-1][1] == STEPS[0]


def test_counters_that_begin_anew_give_no_figures_for_one_tick(tmp_path: Path, exporters: Exporters) -> None:
    made = scraping(tmp_path, exporters, size=100 * M, keep_ticks=0)
    good, born = exporters.answer, 1.7e9

    def answer(broker: int) -> tuple[int, str, bytes]:
        status, kind, body = good(broker)
        if broker == 2 and made.clock.now() > 1060:
            boot = f"node_boot_time_seconds {born + 1060!r}".encode()
            body = re.sub(rb"(?m)^node_boot_time_seconds .*$", boot, body)
        return status, kind, body

    exporters.answer = answer
    assert made.process(forward).code == 0
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits)]
    assert any("no load figures of broker 2: " in one and "the host has restarted" in one for one in waits)
    told = [rate for at, rate in rates(made, 2) if at > 60]
    assert told[0] == STEPS[0]
    assert told[-1] > STEPS[0], "it rises again"


def test_the_same_text_twice_is_no_reading(tmp_path: Path, exporters: Exporters) -> None:
    made = scraping(tmp_path, exporters)
    good = exporters.answer
    kept: dict[int, tuple[int, str, bytes]] = {}
    exporters.answer = lambda broker: kept.setdefault(broker, good(broker)) if broker == 2 else good(broker)
    assert made.process(forward).code == 0
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits)]
    assert any("no load figures of broker 2: " in one and "a cache is in front" in one for one in waits)
    assert rates(made, 2)[-1][1] == STEPS[0]
