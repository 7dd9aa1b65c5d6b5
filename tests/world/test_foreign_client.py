"""A client of dest that is nobody's: named and refused before the roll, the cut-over and FENCE."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.world.model.look import WorldLook
from tests.world.model.world import World
from tests.world.operator import Operator, quiet_world
from tests.world.rolled import rolled
from zkmigrate.inventory.accept import Accept
from zkmigrate.kafka.questions import KafkaView, PartitionState
from zkmigrate.move.steps.fence import FenceFacts, FenceStep
from zkmigrate.runbook.engine.events import StepBlocked, WaveBegun
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context

ADDRESS, SESSION, OWNED = "10.0.0.77", 0x77, "/other/lock-0000000001"
LINE = (
    f":40077[1](queued=0,recved=2,sent=2,sid={SESSION:#x},lop=PING,est=1,to=20000,"
    "lcxid=0x1,lzxid=0x1,lresp=1,llat=1,minlat=0,avglat=1,maxlat=1)\n"
)


def accept(finding: str, target: str, until: str = "2099-01-01T00:00Z") -> tuple[Accept, ...]:
    return (Accept(finding=finding, target=target, who="Lea", why="it is known", until=until),)


@dataclass
class Stranger:
    """Somebody's client, connected to dest2 from a moment on."""

    connected: bool = True
    address: str = ADDRESS
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Stranger:
    made, answer = Stranger(), WorldLook.word

    def word(look: WorldLook, host: str, word: str) -> Reading[str]:
        told = answer(look, host, word)
        if host != "dest2" or not made.connected or not isinstance(told, Seen):
            return told
        if word == "cons":
            return Seen(told.value.rstrip("\n") + f"\n /{made.address}{LINE}\n")
        if word == "dump":
            return Seen(f"{told.value.rstrip()}\n{SESSION:#x}:\n\t{OWNED}\n")
        return told

    monkeypatch.setattr(WorldLook, "word", word)
    return made


def refused(operator: Operator) -> StepBlocked:
    return [e for e in operator.events if isinstance(e, StepBlocked)][-1]


def where(operator: Operator) -> str:
    blocked = refused(operator)
    return f"{blocked.stage}.{blocked.step}"


def foreign(operator: Operator) -> list[tuple[str, str]]:
    blocked = refused(operator)
    return [(f.target, f.seen) for f in blocked.findings if f.blocks and f.id == "dest.foreign-client"]


NAMED = [(ADDRESS, f"1 session on dest2, owns {OWNED}")]


def test_the_gate_of_the_roll_names_it_and_refuses(tmp_path: Path, stranger: Stranger) -> None:
    operator = Operator(quiet_world(), tmp_path / "run")
    assert operator.forward().code == 6
    assert (refused(operator).stage, refused(operator).step) == ("roll", "preflight")
    assert foreign(operator) == NAMED
    stranger.connected = False
    assert operator.resume().code == 0, "gone, the move goes on"


def test_the_gate_of_the_cut_over_names_it_and_refuses(tmp_path: Path, stranger: Stranger) -> None:
    stranger.connected = False
    operator = rolled(tmp_path)
    stranger.connected = True
    assert operator.resume().code != 0
    assert (refused(operator).stage, refused(operator).step) == ("cutover", "preflight")
    assert foreign(operator) == NAMED


def test_survey_looks_once_more_just_before_the_fence(tmp_path: Path, stranger: Stranger) -> None:
    stranger.connected = False
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until="cutover.arm").code == 0
    stranger.connected = True
    assert operator.resume().code != 0
    assert (refused(operator).stage, refused(operator).step) == ("cutover", "survey")
    assert foreign(operator) == NAMED
    assert all(not host.fence.holds(world.now) for host in world.hosts.values()), "no client was shut out"


def test_a_program_on_a_brokers_host_is_found_at_the_gate_and_just_before_the_fence(
    tmp_path: Path, stranger: Stranger
) -> None:
    world = quiet_world()
    stranger.address = world.inventory.broker("broker2").address
    named = [(stranger.address, f"1 session in addition to those of broker2 on dest2, owns {OWNED}")]
    operator = Operator(world, tmp_path / "run")
    assert operator.forward().code == 6
    assert ((refused(operator).stage, refused(operator).step), foreign(operator)) == (
        ("roll", "preflight"),
        named,
    )
    stranger.connected = False
    assert operator.resume(until="cutover.arm").code == 0
    stranger.connected = True
    assert operator.resume().code != 0
    assert ((refused(operator).stage, refused(operator).step), foreign(operator)) == (
        ("cutover", "survey"),
        named,
    )
    assert all(not host.fence.holds(world.now) for host in world.hosts.values()), "no client was shut out"


@pytest.fixture
def _after_survey(monkeypatch: pytest.MonkeyPatch, stranger: Stranger) -> None:
    """The client comes when SURVEY has looked."""
    observe, stranger.connected = FenceStep.observe, False

    def late(step: FenceStep, c: Context, look: Look) -> FenceFacts:
        stranger.connected = not c.rehearsal
        return observe(step, c, look)

    monkeypatch.setattr(FenceStep, "observe", late)


@pytest.mark.usefixtures("_after_survey")
def test_one_that_comes_after_survey_is_found_before_the_first_door_is_shut(
    tmp_path: Path, stranger: Stranger
) -> None:
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")
    assert operator.forward().code != 0
    assert (refused(operator).stage, refused(operator).step) == ("cutover", "fence")
    assert foreign(operator) == NAMED
    waves = [e for e in operator.events if isinstance(e, WaveBegun) and e.stage == "cutover"]
    assert "fence" not in [e.step for e in waves], "no client was shut out"


@pytest.mark.usefixtures("_after_survey", "stranger")
def test_one_that_comes_after_survey_and_is_accepted_holds_nothing_up(tmp_path: Path) -> None:
    world = accepting(quiet_world(), accept("dest.foreign-client", ADDRESS))
    assert Operator(world, tmp_path / "run").forward().code == 0


def accepting(world: World, exceptions: tuple[Accept, ...]) -> World:
    world.inventory = world.inventory.model_copy(update={"accept": exceptions})
    return world


def test_an_accepted_one_is_named_at_every_gate_and_the_move_is_whole(
    tmp_path: Path, stranger: Stranger
) -> None:
    world = accepting(quiet_world(), accept("dest.foreign-client", ADDRESS))
    operator = Operator(world, tmp_path / "run")
    assert operator.forward().code == 0
    journal = operator.run_dir.joinpath("journal.jsonl").read_text()
    assert journal.count("accepted by Lea until 2099-01-01T00:00Z: it is known") >= 3


def test_after_its_end_it_blocks_again(tmp_path: Path, stranger: Stranger) -> None:
    world = accepting(quiet_world(), accept("dest.foreign-client", ADDRESS, "2020-01-01T00:00Z"))
    operator = Operator(world, tmp_path / "run")
    assert operator.forward().code == 6
    assert "which is over" in foreign(operator)[0][1]


@pytest.fixture
def _one_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic whose only replica is on broker 2."""
    answer = WorldLook.kafka

    def kafka(look: WorldLook, _witnesses: int | None) -> Reading[KafkaView]:
        told = answer(look)
        if not isinstance(told, Seen):
            return told
        leader = 2 if look.world.in_sync(look.world.brokers["broker2"]) else -1
        alone = PartitionState("scratch", 0, leader, (2,), (2,))
        return Seen(
            replace(
                told.value,
                partitions=(*told.value.partitions, alone),
                min_isr={**told.value.min_isr, "scratch": 1},
            )
        )

    monkeypatch.setattr(WorldLook, "kafka", kafka)


@pytest.mark.usefixtures("_one_replica")
def test_a_topic_with_one_replica_blocks_for_ever_unless_somebody_accepts_its_pause(tmp_path: Path) -> None:
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")
    assert operator.forward().code == 3
    accepting(world, accept("kafka.replication", "scratch"))
    assert operator.resume().code == 0
    assert all(p.connected.startswith("dest") for p in world.brokers.values())
