"""Join while source is busy: the next dest host waits, within the policy's limit and deadline."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.model.host import File
from tests.world.model.look import WorldLook
from tests.world.operator import Operator, quiet_world
from zkmigrate.runbook.engine.events import Waits
from zkmigrate.runbook.model.fact import Reading, Seen


def busy_after_the_first_host(
    monkeypatch: pytest.MonkeyPatch, looks: int, outstanding: int
) -> list[tuple[str, ...]]:
    """source2 has ``outstanding`` requests for so many looks once dest1 runs; returns who ran at each."""
    answer = WorldLook.word
    running: list[tuple[str, ...]] = []

    def word(look: WorldLook, host: str, what: str) -> Reading[str]:
        said = answer(look, host, what)
        hosts = look.world.hosts
        joined = tuple(h for h in look.world.inventory.dest_names if hosts[h].running)
        if (host, what) != ("source2", "srvr") or not joined or len(running) >= looks:
            return said
        assert isinstance(said, Seen)
        running.append(joined)
        return Seen(said.value.replace("Outstanding: 0", f"Outstanding: {outstanding}"))

    monkeypatch.setattr(WorldLook, "word", word)
    return running


def test_the_next_host_joins_only_when_source_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator(quiet_world(), tmp_path / "run")
    running = busy_after_the_first_host(monkeypatch, looks=8, outstanding=201)
    assert operator.forward(until="join").code == 0
    assert running == [("dest1",)] * 8
    waits = {(e.what, e.progress) for e in operator.events if isinstance(e, Waits) and "answered" in e.what}
    assert waits == {
        (
            "source has answered enough of its outstanding requests for dest2 to join",
            "source2: 201 outstanding; needed: at most 200",
        )
    }


def test_within_the_policys_limit_nobody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Operator(quiet_world(), tmp_path / "run")
    busy_after_the_first_host(monkeypatch, looks=10_000, outstanding=200)
    assert operator.forward(until="join").code == 0


def test_a_source_that_stays_busy_stops_the_join_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")
    busy_after_the_first_host(monkeypatch, looks=10_000, outstanding=5000)
    ended = operator.forward(until="join")
    assert ended.code == 6
    assert "for dest2 to join" in ended.findings[0].claim
    assert [h for h in world.inventory.dest_names if world.hosts[h].running] == ["dest1"]
    assert operator.back().code == 0
    assert not any(world.hosts[h].running for h in world.inventory.dest_names)


def electing_after_the_first_host(monkeypatch: pytest.MonkeyPatch, looks: int) -> list[str]:
    """No server of source serves for so many looks once dest1 runs; returns who was asked meanwhile."""
    answer = WorldLook.word
    asked: list[str] = []

    def word(look: WorldLook, host: str, what: str) -> Reading[str]:
        joined = look.world.hosts["dest1"].running
        if not host.startswith("source") or what != "srvr" or not joined or len(asked) >= looks:
            return answer(look, host, what)
        asked.append(host)
        return Seen("This ZooKeeper instance is not currently serving requests\n")

    monkeypatch.setattr(WorldLook, "word", word)
    return asked


def test_an_election_on_source_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Operator(quiet_world(), tmp_path / "run")
    asked = electing_after_the_first_host(monkeypatch, looks=12)
    assert operator.forward(until="join").code == 0
    assert len(asked) == 12
    waits = {(e.what, e.progress) for e in operator.events if isinstance(e, Waits) and "leader" in e.what}
    modes = "source1: not serving; source2: not serving; source3: not serving"
    assert waits == {("source has a leader", modes)}


def test_a_source_that_finds_no_leader_stops_the_join_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")
    electing_after_the_first_host(monkeypatch, looks=1_000_000)
    ended = operator.forward(until="join")
    assert ended.code == 6
    assert "source has a leader" in ended.findings[0].claim
    assert [h for h in world.inventory.dest_names if world.hosts[h].running] == ["dest1"]


def test_the_way_back_leaves_an_administrators_own_copies_alone(tmp_path: Path) -> None:
    """Only names that ZooKeeper itself gives its files count as written by the observer."""
    world = quiet_world()
    path = f"{world.inventory.dest.config}.bak-2020"
    world.hosts["dest1"].files[path] = File(b"tickTime=2000\n", "0644", "root:root")
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until="join").code == 0
    assert operator.back().code == 0
    assert world.hosts["dest1"].files[path].content == b"tickTime=2000\n"
