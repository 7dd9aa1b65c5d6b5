"""The load's ZooKeeper clients on a real server that restarts, and that ends their sessions.

The server is of the oldest version that the lab moves from: it does not know every request of kazoo's.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.ensembles import Member, client, serving
from tests.servers.process import ADDRESS, stand_still
from zkmigrate.lab.judge.history import parse_tree
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.load.json_lines import Event, load_recording
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.wait import wait_until

VERSION = "3.4.14"
KINDS = ("raw", "tenant")
NOTICES = "/changes"
FLOW_S = 60.0


@pytest.fixture
def member(tmp_path: Path) -> Member:
    return Member(1, tmp_path / "server")


@pytest.fixture
def load(tmp_path: Path, member: Member) -> Iterator[LoadRunner]:
    address = f"{ADDRESS}:{member.port}"
    config = LoadConfig(
        raw_hosts={"d1": address}, raw_root="/kafka/raw", tenant_servers=(address,), notices=NOTICES,
        session_timeout_ms=8000,
    )  # fmt: skip
    made = LoadRunner(tmp_path / "load", config)
    yield made
    made.kill()


def wait_recorded(load: LoadRunner, event: str) -> None:
    """Wait until each kind has recorded the event."""

    def missing() -> str | None:
        lacking = [kind for kind in KINDS if not load_recording(load.directory, kind).of(event)]
        return ", ".join(lacking) or None

    wait_until(f"{event} of the load", missing, FLOW_S)


def last_ns(load: LoadRunner) -> int:
    return max(int(load_recording(load.directory, kind).events[-1]["mono_ns"]) for kind in KINDS)


def connections(load: LoadRunner, kind: str) -> list[Event]:
    names = ("connected", "disconnected", "expired")
    return load_recording(load.directory, kind).of(*names)


def test_what_was_acknowledged_is_there_after_a_restart(load: LoadRunner, member: Member) -> None:
    load.start(KINDS)
    wait_recorded(load, "connect_failed")
    with serving(VERSION, member), client(member) as zk:
        zk.create(NOTICES)
        zk.create(f"{NOTICES}/change-1")
        load.wait_flowing(KINDS, FLOW_S)
        wait_until("no old notice", lambda: "one" if zk.get_children(NOTICES) else None, FLOW_S)
    wait_recorded(load, "disconnected")
    with serving(VERSION, member):
        load.wait_flowing(KINDS, FLOW_S, last_ns(load))
        assert load.finish() == []
    for kind in KINDS:
        assert load_recording(load.directory, kind).problem == ""
        events = connections(load, kind)
        assert [event["event"] for event in events] == ["connected", "disconnected", "connected"]
        assert (events[0]["renewed"], events[2]["renewed"]) == (False, True)
        assert events[1]["reason"]
    tree = parse_tree((load.directory / "tree-d1.json").read_text())
    acked = {e["path"]: int(e["zxid"], 16) for e in load_recording(load.directory, "raw").of("ack")}
    assert tree.problem == ""
    assert acked.items() <= tree.nodes.items()
    (verified,) = load_recording(load.directory, "tenant").of("verified")
    assert verified["complete"], verified["error"]
    assert all(verified[name] > 0 for name in ("ephemerals", "counters", "creates"))
    lost = [verified[name] for name in ("ephemerals_lost", "counters_wrong", "creates_missing")]
    assert lost == [[], [], []]


def test_a_session_that_expires_is_recorded_and_replaced(load: LoadRunner, member: Member) -> None:
    with serving(VERSION, member), client(member) as zk:
        load.start(KINDS)
        load.wait_flowing(KINDS, FLOW_S)
        processes = [item.pid for item in load.status()]
        for pid in processes:
            stand_still(pid)
        live = f"{load.config.tenant_root}/live"
        wait_until("no ephemeral", lambda: "one" if zk.get_children(live) else None, FLOW_S)
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
        wait_recorded(load, "expired")
        load.wait_flowing(KINDS, FLOW_S, last_ns(load))
        assert load.finish() == []
    for kind in KINDS:
        events = connections(load, kind)
        assert [event["event"] for event in events] == ["connected", "disconnected", "expired", "connected"]
        assert events[2]["session"] == events[0]["session"] != events[3]["session"]
        assert not events[3]["renewed"]
    (verified,) = load_recording(load.directory, "tenant").of("verified")
    assert verified["complete"], verified["error"]
    assert len(verified["ephemerals_lost"]) == verified["ephemerals"] // 2
