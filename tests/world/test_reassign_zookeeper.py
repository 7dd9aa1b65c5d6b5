"""ZooKeeper as a second witness of moves: a contradiction is waited for, and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.engine_world import Killed, Points, back, forward, resume
from tests.world.reassigning import ReassignDesk, found, inventory, plan, world
from zkmigrate.runbook.engine import events
from zkmigrate.runbook.model.fact import Unknown

NAME = ("t0", 0)


def desk(tmp_path: Path) -> ReassignDesk:
    """The first server is down. The plan moves t0-0 from brokers 1 and 2 to 4 and 2."""
    cluster = world(8)
    servers = ("zk1:2181", "zk2:2181")
    return ReassignDesk(tmp_path / "r", cluster, inventory(plan(cluster), {}, None, zookeeper=servers))


def test_there_and_back_with_both_witnesses(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(forward).code == 0
    assert made.there
    assert found(made, "reassign.verified").seen == "7 partitions, reported by brokers and ZooKeeper"
    assert made.process(back).code == 0
    assert made.home


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"adding": [4]}, "t0-0: ZooKeeper still adds [4] and removes []"),
        ({"removing": [1]}, "t0-0: ZooKeeper still adds [] and removes [1]"),
        ({"set": [1, 2]}, "t0-0: its replicas according to ZooKeeper are [1, 2]"),
        ({"isr": [2]}, "t0-0: not in sync according to ZooKeeper: [4]"),
    ],
)
def test_a_move_that_zookeeper_does_not_show_as_done_is_waited_for_and_told(
    tmp_path: Path, told: dict[str, list[int]], why: str
) -> None:
    made = desk(tmp_path)
    made.cluster.zookeeper[NAME] = told
    ended = made.process(forward)
    [finding] = ended.findings
    assert (ended.code, finding.id) == (6, "engine.wait-over")
    assert why in finding.seen
    made.cluster.zookeeper.clear()
    assert made.process(resume).code == 0
    assert made.there


@pytest.mark.parametrize("told", [{"isr": 5}, {"isr": [[4]]}, {"isr": [True, 4]}, {"set": 5}, {"set": ["4"]}])
def test_ids_that_kafka_does_not_write_there_are_told(tmp_path: Path, told: dict[str, Any]) -> None:
    made = desk(tmp_path)
    made.cluster.zookeeper[NAME] = told
    ended = made.process(forward)
    assert (ended.code, [f.id for f in ended.findings]) == (6, ["engine.wait-over"])
    assert "t0-0: ZooKeeper reports nothing: unexpected content of t0" in ended.findings[0].seen


def test_a_zookeeper_that_does_not_answer_is_told(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.keeper = Unknown("timeout", "zk2 does not answer")
    ended = made.process(forward)
    assert (ended.code, [f.id for f in ended.findings]) == (6, ["engine.wait-over"])
    assert "t0-0: ZooKeeper reports nothing: unknown (timeout): zk2 does not answer" in ended.findings[0].seen
    assert made.process(back).code == 6 or made.cluster.keeper is not None
    made.cluster.keeper = None
    assert made.process(resume).code == 0
    assert made.home


def test_the_end_is_witnessed_once_more(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(lambda walk: walk.forward(until="move")).code == 0
    made.cluster.zookeeper[NAME] = {"adding": [4]}
    ended = made.process(resume)
    [finding] = [one for one in ended.findings if one.blocks]
    assert (finding.id, finding.seen) == (
        "reassign.verified",
        "t0-0: ZooKeeper still adds [4] and removes []",
    )


def test_without_a_zookeeper_it_is_said_who_tells(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.inventory = inventory(made.inventory.sets)
    assert made.process(forward).code == 0
    assert found(made, "reassign.verified").seen == "7 partitions, reported only by brokers"


def test_killed_while_zookeeper_is_late_it_goes_on(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.zookeeper[NAME] = {"adding": [4]}
    with pytest.raises(Killed):
        made.process(forward, Points(20, kinds=("applied",)))
    made.cluster.zookeeper.clear()
    assert made.process(resume).code == 0
    assert made.there
    waits = [e.progress for e in made.seen if isinstance(e, events.Waits)]
    assert not any("ZooKeeper reports nothing" in progress for progress in waits)
