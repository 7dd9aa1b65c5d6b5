"""What a real site puts together: here its watch, over a server on loopback."""

from __future__ import annotations

import json
import math
import pkgutil
import socket
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, cast

import pytest

import playbooks
from tests.unit.loopback import listening
from tests.unit.runbook.engine.test_watch import Moment
from tests.unit.sshd import make_key
from tests.world.model.ensemble import UNSERVING
from tests.world.operator import inventory
from zkmigrate import deadline
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import Inventory, Ports, Source, SourceHost, Ssh
from zkmigrate.kafka.changes import ElectLeaders
from zkmigrate.kafka.rules.sampling import BROKERS
from zkmigrate.move.rules.lease import lease_in_force
from zkmigrate.move.rules.window_rules import WINDOW
from zkmigrate.runbook.engine.clock import Clock
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.engine.lock import HostLock
from zkmigrate.runbook.engine.renewal_process import RenewalProcess
from zkmigrate.runbook.engine.samples import Samples
from zkmigrate.runbook.model.change import Outcome
from zkmigrate.runbook.model.fact import Unknown
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Stage
from zkmigrate.runbook.model.sampling import Note
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.model.window import Probe, Trouble
from zkmigrate.runbook.runs import playbook_files
from zkmigrate.runbook.site.wiring import Site
from zkmigrate.topics.mirror.changes import MIRRORED, CopyOffsets
from zkmigrate.topics.topic_move.section import TopicMoveInventory


@pytest.fixture
def ssh(tmp_path: Path) -> Ssh:
    make_key(tmp_path / "key")
    (tmp_path / "known_hosts").write_text("")
    (tmp_path / "known_hosts").chmod(0o600)
    return Ssh(user="ops", key=str(tmp_path / "key"), known_hosts=str(tmp_path / "known_hosts"))


def server(said: list[str]) -> AbstractContextManager[int]:
    """A server on loopback that runs and does not serve; gives its port, notes what was asked."""

    def serve(client: socket.socket) -> None:
        said.append(client.recv(4).decode())
        client.sendall(UNSERVING.encode())

    return listening(serve)


def test_the_watch_of_a_site_asks_source_whether_it_serves(ssh: Ssh) -> None:
    said: list[str] = []
    [window] = {stage.window for stage in playbook_files.load(playbook_files.DEFAULT).stages if stage.window}
    with server(said) as port:
        hosts = tuple(SourceHost(name=f"source{n}", address="127.0.0.1", myid=n) for n in (1, 2, 3))
        source = Source(hosts=hosts, ports=Ports(client=port))
        site = Site(inventory().model_copy(update={"ssh": ssh, "source": source}), "run")
        try:
            asked = site._probes(Stage("cutover", "Cut over", (), window=window))
            [asking] = [probe for probe in asked if probe.leased]
            assert tuple(asking.ask()) == ()
            held = {finding.id: finding.held for finding in asking.ask()}
        finally:
            site.close()
    assert held[Trouble.SOURCE_SICK] is Held.NO
    assert said == ["srvr"] * 6
    assert [(probe.name, probe.within_s) for probe in asked] == [
        ("block on 3 hosts", 3.0), ("brokers", math.inf), ("source", 3.0),
    ]  # fmt: skip
    assert window.lease is lease_in_force


def test_what_a_probe_of_a_site_sees_is_a_sample(ssh: Ssh, tmp_path: Path) -> None:
    def probes(_inventory: Inventory, _look: Look, note: Note) -> tuple[Probe, ...]:
        note("doors", {"shut": 3})
        return ()

    stage = Stage("main", "Do", (), window=replace(WINDOW, probes=probes))
    moment, noted = Moment(), list[tuple[str, Any]]()
    samples = Samples(
        tmp_path, moment.now, moment.wall, print, show=lambda _at, kind, body: noted.append((kind, body))
    )
    site = Site(inventory().model_copy(update={"ssh": ssh}), "run")
    try:
        site._probes(stage)
        end = site.sample(samples, Playbook("toy", "A toy"))
        site._probes(stage)
        end()
    finally:
        site.close()
    assert noted == [("process", {}), ("doors", {"shut": 3})]


def test_a_step_hears_the_canary_of_the_samples(ssh: Ssh, tmp_path: Path) -> None:
    known = inventory().model_copy(update={"ssh": ssh})
    asked = known.model_copy(update={"kafka": known.kafka.model_copy(update={"canary_topic": "canary"})})
    only = replace(BROKERS, questions=lambda _inventory, _look: ())
    moment = Moment()
    site = Site(asked, "run")
    try:
        assert site.look.produced() == {}
        end = site.sample(
            Samples(tmp_path, moment.now, moment.wall, print), Playbook("toy", "A toy", sampling=(only,))
        )
        heard = cast(Any, site.look.heard)
        assert (heard.__name__, heard.__self__.topic) == ("pulses", "canary")
        assert site.look.produced() == {}
        end()
    finally:
        site.close()


@pytest.mark.parametrize("name", [one.name for one in pkgutil.iter_modules(playbooks.__path__)])
def test_every_plug_of_a_playbook_is_there(ssh: Ssh, name: str) -> None:
    """What reaches out is named, so only its use would tell that it is gone."""
    playbook = playbook_files.load(name)
    known = inventory().model_copy(update={"ssh": ssh})
    site = Site(known, "run", playbook.clusters)
    try:
        assert set(site._clusters) == set(playbook.clusters)
        answer = site.apply(ElectLeaders("none"), "e.1", 1)
        assert answer.output.endswith(f"needed: one of {', '.join(playbook.clusters)}")
    finally:
        site.close()
    asked = known.model_copy(update={"kafka": known.kafka.model_copy(update={"canary_topic": "canary"})})
    canaries = [resolve_name(one.canary[1]) for one in playbook.sampling if one.canary]
    assert [canary(asked).topic for canary in canaries] == ["canary"] * (BROKERS in playbook.sampling)
    assert not any(canary(known) for canary in canaries)


@pytest.mark.parametrize(("cut_ms", "limit_s"), [(5000, 2.5), (2000, 1.0), (300, 1.0)])
def test_a_renewal_is_given_up_after_half_of_the_cut(
    ssh: Ssh, monkeypatch: pytest.MonkeyPatch, cut_ms: int, limit_s: float
) -> None:
    class Lock:
        number = 7

    limits: list[float] = []

    def ask(*_words: str, fencing: int, deadline_s: float) -> Outcome:
        limits.append(deadline_s)
        return Outcome(0, f"renewed by {fencing}")

    site = Site(inventory().model_copy(update={"ssh": ssh}), "run")
    try:
        watching: Any = site._watching
        monkeypatch.setattr(watching, "ask", ask)
        assert site._renew(cast(HostLock, Lock()), "dest1", 9000, cut_ms).output == "renewed by 7"
    finally:
        site.close()
    assert limits == [limit_s]


def test_the_watch_of_a_site_renews_from_a_second_process_from_before_fence_on(ssh: Ssh) -> None:
    class Lock:
        number = 7
        hosts = inventory().dest_names

    site = Site(inventory().model_copy(update={"ssh": ssh}), "run")
    try:
        watch = site.watch(cast(Clock, Moment()), cast(HostLock, Lock()))
        other = cast(RenewalProcess, watch._second)
        assert other.pid == 0
        watch.follow(Stage("cutover", "Cut over", (), window=WINDOW), History(), cast(Context, None))
        pid = other.pid
        assert Path(f"/proc/{pid}").exists()
        watch.close()
        assert not Path(f"/proc/{pid}").exists()
    finally:
        site.close()


def topic_move(ssh: Ssh) -> TopicMoveInventory:
    """Two clusters that nobody serves, two gateways and a mirror host."""
    body = {
        "version": 1,
        "name": "orders",
        "ssh": ssh.model_dump(exclude_none=True),
        "clusters": [
            {"name": name, "brokers": [f"127.0.0.1:{port}"], "mirror": f"to-{name}.service"}
            for name, port in (("old", 1), ("new", 2))
        ],
        "gateways": {
            "hosts": [{"name": f"gw{n}", "address": f"127.0.0.{n}"} for n in (1, 2)],
            "program": "/usr/bin/sudo -n -u gateway /opt/zkmigrate",
            "config": "/etc/gw.yml",
        },
        "mirrors": {"hosts": [{"name": "copier", "address": "127.0.0.3"}]},
        "sets": [{"name": "orders", "topics": ["orders"], "apps": ["orders"]}],
        "topic_move": {"set": "orders", "source": "old", "target": "new"},
    }
    return TopicMoveInventory.model_validate_json(json.dumps(body))


def test_orders_and_looks_reach_a_gateways_relay_on_channels_of_their_own(ssh: Ssh) -> None:
    """A look of the watch never stands before an order of a step."""
    site = Site(topic_move(ssh), "run-1", {MIRRORED: "zkmigrate.topics.mirror.clients.alter:alterer"})
    try:
        orders, looks = site.look._programs["gateway"], site._watch_look._programs["gateway"]
        assert orders is not None
        assert looks is not None
        assert site.apply._others["gateway"] is orders
        assert looks is not orders
        for channels in (orders, looks):
            assert channels._speaker.words("run-1", 3) == (
                *("/usr/bin/sudo", "-n", "-u", "gateway", "/opt/zkmigrate", "gateway", "relay"),
                *("--config", "/etc/gw.yml", "--run", "run-1", "--as", "3"),
            )
        told = site.look.program("gateway", "gw1", "status")
        assert isinstance(told, Unknown)
        with deadline.within(0.3), pytest.raises(HostError, match=r"source 127\.0\.0\.1:1 did not respond"):
            site.apply(CopyOffsets(MIRRORED, ("orders",), ()), "o.1", 3)
    finally:
        site.close()
