"""What a real site puts together: here its watch, over a server on loopback."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.sshd import make_key
from tests.world.operator import inventory
from zkmigrate.engine import probes
from zkmigrate.inventory import Ports, Source, Ssh, ZooKeeperHost
from zkmigrate.model.finding import Held
from zkmigrate.model.playbook import Stage
from zkmigrate.simulate.ensemble import UNSERVING
from zkmigrate.wiring import Site


@contextmanager
def server(said: list[str]) -> Iterator[int]:
    """A server on loopback that runs and does not serve; gives its port, notes what was asked."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            said.append(self.request.recv(4).decode())
            self.request.sendall(UNSERVING.encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield listening.server_address[1]
        finally:
            listening.shutdown()
            thread.join()


def test_the_watch_of_a_site_asks_source_whether_it_serves(tmp_path: Path) -> None:
    make_key(tmp_path / "key")
    (tmp_path / "known_hosts").write_text("")
    (tmp_path / "known_hosts").chmod(0o600)
    said: list[str] = []
    with server(said) as port:
        hosts = tuple(ZooKeeperHost(name=f"source{n}", address="127.0.0.1", myid=n) for n in (1, 2, 3))
        ssh = Ssh(user="ops", key=str(tmp_path / "key"), known_hosts=str(tmp_path / "known_hosts"))
        source = Source(hosts=hosts, ports=Ports(client=port))
        site = Site(inventory().model_copy(update={"ssh": ssh, "source": source}), "run")
        try:
            [asking] = [probe for probe in site._probes(Stage("cutover", "Cut over", ())) if probe.leased]
            assert tuple(asking.ask()) == ()
            held = {finding.id: finding.held for finding in asking.ask()}
        finally:
            site.close()
    assert held[probes.SOURCE_SICK] is Held.NO
    assert said == ["srvr"] * 6
