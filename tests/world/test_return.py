"""The return to source behind the open door: whole, killed at each change and resumed, walked back before it
is too late."""

from __future__ import annotations

import base64
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from playbooks.kafka_zookeeper_return import PLAYBOOK
from tests.world.model.look import WorldLook
from tests.world.model.world import WRITER, World
from tests.world.operator import Moment, copied
from tests.world.returned import again, on_dest, opened, returning, went_on, whole
from tests.world.test_move import footprint
from zkmigrate.runbook.engine import chain, plan
from zkmigrate.runbook.engine.codec import decode_change
from zkmigrate.runbook.model.change import Change
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.changes import ReplayTransactions

HALF_REPLAYED = 7
"""The moment behind the first hundred transactions."""

LAST_BEFORE_A_BROKER = 11
"""The first broker's file is written; the next change starts it."""


@dataclass(frozen=True)
class Walked:
    """A return that nothing disturbed. world: where it began. before, after: what kills leave."""

    world: World
    end: World
    before: tuple[Moment, ...]
    after: tuple[Moment, ...]

    @property
    def sent(self) -> tuple[Change, ...]:
        return tuple(change for change, _ in self.end.applied[len(self.world.applied) :])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return opened(tmp_path_factory.mktemp("moved"))


@pytest.fixture(scope="module")
def walked(world: World, tmp_path_factory: pytest.TempPathFactory) -> Walked:
    operator = returning(copied(world), tmp_path_factory.mktemp("walked") / "run", keeps=True)
    ended = operator.forward()
    assert ended.code == 0, ended
    return Walked(world, operator.world, tuple(operator.before), tuple(operator.after))


def test_kafka_is_back_on_source_with_what_dest_did(walked: Walked) -> None:
    assert whole(walked.end)
    verbs = [change.verb for change in walked.sent]
    assert verbs[:12] == [*["service"] * 6, "begin-replay", *["replay"] * 3, "edit", "service"]
    assert Counter(verbs[12:-1]) == {"edit": 2, "service": 2}
    assert verbs[-1] == "end-replay"
    replayed = [change for change in walked.sent if isinstance(change, ReplayTransactions)]
    assert [change.count for change in replayed[:2]] == [100, 100]
    topics = {path for path in on_dest(walked.end) if path.startswith("/kafka/topic-")}
    assert topics
    assert topics == {p for p in walked.end.source.tree().znodes if p.startswith("/kafka/topic-")}


def test_the_plan_shows_every_change_but_the_replay(world: World) -> None:
    made = plan.make(PLAYBOOK, world.inventory, cast(Look, WorldLook(world)), ())
    verbs = {
        f"{stage.id}.{step.id}": {t: [c.change.verb for c in changes] for t, changes in step.targets.items()}
        for stage in made.stages
        for step in stage.steps
        if step.targets
    }
    brokers, dest = world.inventory.broker_names, world.inventory.dest_names
    assert verbs == {
        "outage.brokers": {key: ["service"] for key in brokers},
        "outage.dest": {key: ["service"] for key in dest},
        "start.brokers-back": {key: ["edit", "service"] for key in brokers},
        "start.close": {"source": ["end-replay"]},
    }
    assert made.unknown == {}
    put = made.stages[-1].steps[0].targets["broker1"][0]
    assert "+zookeeper.connect=10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181/kafka" in put.diff


def test_the_controller_stops_last_and_starts_first(walked: Walked) -> None:
    assert walked.world.dest is not None
    id = json.loads(walked.world.dest.tree().znodes["/kafka/controller"].data)["brokerid"]
    controller = f"broker{id}"
    hosts = [change.where for change in walked.sent]
    assert (hosts[2], hosts[11]) == (controller, controller)


def test_no_content_of_a_znode_is_in_the_journal(walked: Walked) -> None:
    content = b"of-nobodys-business"
    assert content in repr(walked.end.source.log).encode()
    for word in (content, base64.b64encode(content)[:20]):
        assert word not in walked.after[-1].journal
    entries = chain.parse(walked.after[-1].journal).entries
    changes = [decode_change(entry.body["change"]) for entry in entries if entry.kind == "intent"]
    assert changes
    assert content not in repr(changes).encode()


def test_files_stand_compressed_in_the_journal(walked: Walked) -> None:
    journal = walked.after[-1].journal
    assert b'"new":{"zlib":' in journal
    assert b'"base64":' not in journal


def test_killed_at_any_change_it_is_resumed_to_the_same_end(tmp_path: Path, walked: Walked) -> None:
    moments = (*walked.before, *walked.after)
    assert len(moments) == 2 * len(walked.sent)
    for number, moment in enumerate(moments):
        operator = again(moment, tmp_path / f"{number}" / "run")
        ended = operator.resume()
        assert ended.code == 0, (number, ended)
        assert whole(operator.world), number


def test_walked_back_before_a_broker_was_started_it_leads_to_dest_again(
    tmp_path: Path, walked: Walked
) -> None:
    first = footprint(walked.world)
    for number, moment in enumerate(walked.after[:LAST_BEFORE_A_BROKER]):
        operator = again(moment, tmp_path / f"{number}" / "run")
        ended = operator.back()
        assert ended.code == 0, (number, ended)
        back = operator.world
        assert {k: v for k, v in footprint(back).items() if k != "source"} == {
            k: v for k, v in first.items() if k != "source"
        }, number
        assert all(p.connected.startswith("dest") for p in back.brokers.values()), number


def test_a_connection_that_breaks_in_the_middle_of_a_change_does_nothing_twice(
    tmp_path: Path, world: World
) -> None:
    operator = returning(copied(world), tmp_path / "run")
    operator.world.replay_lost_behind = 40
    ended = operator.forward()
    assert ended.code == 0, ended
    assert whole(operator.world)
    tries = [change for change, _ in operator.world.applied if isinstance(change, ReplayTransactions)]
    assert len(tries) == 3
    assert operator.calls > len(operator.world.applied) - len(world.applied)


def test_a_later_return_goes_on_behind_the_mark_of_one_that_was_walked_back(
    tmp_path: Path, walked: Walked
) -> None:
    """Brokers work with dest again in between, and dest goes on."""
    half = again(walked.after[HALF_REPLAYED], tmp_path / "first" / "run")
    assert half.back().code == 0
    world = half.world
    went_on(world, 50)
    second = returning(world, tmp_path / "second" / "run")
    ended = second.forward()
    assert ended.code == 0, ended
    assert whole(world)


def test_a_writer_on_source_stops_the_replay_at_its_znode(tmp_path: Path, walked: Walked) -> None:
    operator = again(walked.after[HALF_REPLAYED], tmp_path / "run")
    stray = next(p for p in sorted(on_dest(walked.world)) if p.startswith("/kafka/topic-7"))
    if stray in operator.world.source.tree().znodes:
        operator.world.source.commit("delete", WRITER, stray)
    else:
        operator.world.source.commit("create", WRITER, stray)
    ended = operator.resume()
    assert ended.code in (6, 8), ended
    assert operator.back().code == 0
    assert all(p.connected.startswith("dest") for p in operator.world.brokers.values())


def test_once_a_broker_was_started_against_source_there_is_no_way_back(
    tmp_path: Path, walked: Walked
) -> None:
    for number in (LAST_BEFORE_A_BROKER, len(walked.after) - 1):
        operator = again(walked.after[number], tmp_path / f"{number}" / "run")
        operator.world.advance(5.0)
        ended = operator.back()
        assert (ended.code, [f.id for f in ended.findings]) == (6, ["brokers-back.no-way-back"]), number
        assert operator.resume().code == 0
        assert whole(operator.world)
