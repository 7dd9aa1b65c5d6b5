"""The whole move, its ways back and the return with Kafka at the chroot ``/``, beside another tenant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.build import World
from tests.world.model.world import World as Move
from tests.world.operator import Operator
from tests.world.returned import ADMIN, on_dest, opened, returning, whole
from tests.world.test_move import footprint, owners
from tests.world.test_refused_in_window import STRANGER, turned_back
from zkmigrate.inventory.accept import Accept
from zkmigrate.runbook.model.change import Change, Cut, Outcome
from zkmigrate.runbook.runs.run_status import last_findings

TENANT = 0x200000000000888
QUOTA = "/zookeeper/quota/config"
LEFT = Accept(
    finding="kafka.foreign-znodes", target="/other", who="Ada", why="stays", until="2099-01-01T00:00Z"
)


def at_the_root(*accept: Accept) -> Move:
    """A world whose Kafka shares the top level with the tenant of ``/other``."""
    world = World().ensemble(3).brokers(3).chroot("/").move()
    world.inventory = world.inventory.model_copy(update={"accept": accept})
    return world


def writing_after_the_cut(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, kind: str, session: int, path: str
) -> list[str]:
    """Let somebody write on source once all hosts are cut off. Return the hosts that were cut off so far."""
    act, cut = operator._apply, list[str]()

    def apply(change: Change, operation: str, fencing: int) -> Outcome:
        outcome = act(change, operation, fencing)
        if isinstance(change, Cut):
            cut.append(change.host)
            if len(cut) == len(operator.world.inventory.dest_names):
                operator.world.source.commit("set" if kind == "set" else "create", session, path, b"late")
        return outcome

    monkeypatch.setattr(operator, "_apply", apply)
    return cut


def test_another_tenants_znode_stops_the_roll_until_it_is_accepted(tmp_path: Path) -> None:
    operator = Operator(at_the_root(), tmp_path / "run")
    assert operator.forward(until="preflight").code == 0
    (told,) = last_findings(operator.run_dir, "preflight").values()
    (early,) = [one for one in told if one["id"] == "kafka.foreign-znodes"]
    assert (early["target"], early["held"], early["severity"]) == ("/other", "no", "warn")
    ended = operator.resume(until="roll")
    assert [(f.id, f.target) for f in ended.findings if f.blocks] == [("kafka.foreign-znodes", "/other")]
    assert all(p.connected.startswith("source") for p in operator.world.brokers.values())
    operator.world.inventory = operator.world.inventory.model_copy(update={"accept": (LEFT,)})
    assert Operator(operator.world, operator.run_dir).resume(until="roll").code == 0
    assert all(p.connected.startswith("dest") for p in operator.world.brokers.values())


def test_the_move_keeps_every_session_while_the_tenant_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator(at_the_root(LEFT), tmp_path / "run")
    assert operator.forward(until="roll").code == 0
    before = owners(operator.world)
    assert set(before) == {"/controller", *(f"/brokers/ids/{n}" for n in (1, 2, 3))}
    cut = writing_after_the_cut(operator, monkeypatch, "set", TENANT, "/other")
    assert operator.resume().code == 0
    assert len(cut) == 3
    assert owners(operator.world) == before
    assert operator.world.dest is not None
    assert operator.world.source.tree().znodes["/other"].data == b"late"
    assert operator.world.dest.tree().znodes["/other"].data != b"late"


@pytest.mark.parametrize("path", ["/brokers/stray", "/kafka-acl", "/zookeeper/quota/brokers"])
def test_a_stray_write_to_kafkas_znodes_turns_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    operator = Operator(at_the_root(LEFT), tmp_path / "run")
    assert operator.forward(until="roll").code == 0
    before = owners(operator.world)
    writing_after_the_cut(operator, monkeypatch, "create", STRANGER, path)
    ended = operator.forward(until="cutover")
    assert [f.id for f in ended.findings if f.blocks] == ["prove.delta"]
    assert any(f"{path} session {STRANGER:#x}" in f.seen for f in ended.findings)
    turned_back(operator.world, before)


@pytest.mark.parametrize("until", ["join", "roll", "cutover.check"])
def test_a_rollback_leaves_the_first_world(tmp_path: Path, until: str) -> None:
    world = at_the_root(LEFT)
    first = footprint(world)
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until=until).code == 0
    assert operator.back().code == 0
    assert footprint(world) == first


def test_the_return_replays_what_dest_did_and_leaves_the_tenant_alone(tmp_path: Path) -> None:
    world = opened(tmp_path, first=at_the_root(LEFT))
    world.source.commit("set", TENANT, "/other", b"late")
    assert world.dest is not None
    for path in (QUOTA, f"{QUOTA}/zookeeper_limits"):
        world.dest.commit("create", ADMIN, path, b"count=9")
    operator = returning(world, tmp_path / "return")
    assert operator.forward().code == 0
    assert whole(operator.world)
    assert operator.world.source.tree().znodes[f"{QUOTA}/zookeeper_limits"].data == b"count=9"
    topics = {path for path in on_dest(operator.world) if path.startswith("/config/topic-")}
    znodes = operator.world.source.tree().znodes
    assert topics
    assert topics == {path for path in znodes if path.startswith("/config/topic-")}
    assert znodes["/other"].data == b"late"
