"""Switches at random.

A seed draws the world's size, what is wrong with it, and what befalls operators and gateways. Operators come
one after the other, until the run is complete or walked back.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from tests.world.switch.logs import Cluster
from tests.world.switch.operator import Fault, Kind, Operator
from tests.world.switch.site import Broken, Shape, World
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.engine.history import History
from zkmigrate.runbook.model.step import Way

CHANGES = 40
"""Among so many changes some faults fall; an undisturbed switch has about as many."""
STEPS = (
    *(f"rehearse.{step}" for step in ("arm", "settle", "hold", "drain")),
    *(f"switch.{step}" for step in ("arm", "settle", "hold", "drain")),
    *(f"switch.{step}" for step in ("seal", "go", "open") for _ in range(4)),
    "after.turn",
)
"""The steps that other faults befall, those between SEAL and OPEN most often."""
MENDED_AFTER, MOST_PROCESSES = 4, 12


@dataclass(frozen=True)
class Scene:
    """What a seed draws. wrong: what is the matter with the world, if anything. deaf: the share of questions
    without an answer."""

    seed: int
    shape: Shape
    faults: tuple[Fault, ...] = ()
    wrong: str = ""
    deaf: float = 0.0

    @property
    def quiet(self) -> bool:
        """Whether nothing goes wrong."""
        return not (self.faults or self.wrong or self.deaf)


WRONG = ("slow-copier", "still-copier", "bypass", "slow-brokers", "restless-group", "on-target")


def drawn(seed: int) -> Scene:
    """The scene of a seed."""
    rng = random.Random(seed)
    apps = rng.choice((("orders",), ("orders",), ("orders", "audit")))
    wrong = rng.choice(WRONG) if rng.random() < 0.25 else ""
    shape = Shape(
        gateways=rng.choice((1, 2, 2, 3)),
        mirrors=rng.choice((1, 2)),
        apps=apps,
        speed=2.0 if wrong == "slow-copier" else 500.0,
        took_s=3.0 if wrong == "slow-brokers" else 0.15,
    )
    faults = tuple(_fault(rng) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4))))
    return Scene(seed, shape, faults, wrong, 0.03 if rng.random() < 0.1 else 0.0)


def _fault(rng: random.Random) -> Fault:
    kind: Kind = rng.choice(get_args(Kind))
    most = {
        "late": 12.0,
        "asleep": 15.0,
        "gateway": 6.0,
        "silent": 20.0,
        "dark": 20.0,
        "taken-over": 2.0,
    }.get(kind, 0.0)
    amount = rng.uniform(0.1, most) if most else 0.0
    if rng.random() < 0.4:
        return Fault(rng.randint(1, CHANGES), kind, amount)
    return Fault(rng.choice((1, 1, 2, 2, 3, 4, 5, 6)), kind, amount, rng.choice(STEPS))


@dataclass
class Story:
    """How a seed's run went. codes: of each process, None for one that was killed. switched: whether clients
    came to the other cluster. steps: those that sent a change."""

    codes: list[int | None] = field(default_factory=list)
    switched: bool = False
    steps: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)


def told(scene: Scene, folder: Path) -> Story:
    """Run a scene. AssertionError with the seed and what was broken."""
    shape, story = scene.shape, Story()
    world = World(scene.seed, shape)
    try:
        _prepare(world, scene)
        _leg(world, scene, folder / "r-1", story)
        if scene.seed % 3 == 0:
            if world.writer is world.target:
                world.turn()
            _leg(world, scene, folder / "r-2", story)
    except Broken as broken:
        raise AssertionError(f"{scene}: {broken}; {story.codes} {story.said}") from broken
    return story


def _prepare(world: World, scene: Scene) -> None:
    soon = world.rng.uniform(0.0, 12.0)
    match scene.wrong:
        case "bypass":
            world.bypass = soon / 2  # one who begins after the last look cannot be seen
        case "on-target":
            world.on_target = soon
        case "restless-group":
            world.consumers[0].steady = False
        case "still-copier":
            world.later(soon, lambda: _speed(world, 0.0))
            world.later(soon + 40.0, lambda: _speed(world, 500.0))
        case "slow-copier":
            world.later(40.0, lambda: _speed(world, 500.0))
    world.advance(3.0)


def _speed(world: World, speed: float) -> None:
    for host in world.hosts.values():
        for copier in host.units.values():
            copier.speed = speed


def _mend(world: World, operator: Operator) -> None:
    """Nothing goes wrong from here on."""
    operator.faults.clear()
    operator.deaf = 0.0
    world.bypass = world.on_target = float("inf")
    world.shape.took_s, world.dark = 0.15, 0.0
    _speed(world, 500.0)
    for consumer in world.consumers:
        consumer.steady = True
    for gateway in world.gateways.values():
        gateway.start()
        gateway.silent = False


def _leg(world: World, scene: Scene, folder: Path, story: Story) -> None:
    """One switch, operator after operator."""
    operator = Operator(world, folder, list(scene.faults), scene.deaf)
    rng, before = world.rng, world.switched
    ended = operator.forward()
    for number in range(MOST_PROCESSES):
        story.codes.append(ended.code if ended else None)
        story.said.append(ended.message if ended else "killed")
        if operator.taken_over is not None:
            operator = Operator(
                world, operator.taken_over, operator.faults, operator.deaf, changes=operator.changes
            )
        if ended is not None and ended.code == 0:
            break
        world.advance(rng.choice((0.1, 2.0, 15.0)))
        if number >= MENDED_AFTER:
            _mend(world, operator)
            world.advance(8.0)
        ended = _next(operator, ended, number)
    _mend(world, operator)
    world.advance(25.0)
    story.switched = story.switched or world.switched > before
    history = operator.history
    story.steps |= set(history.first_sent) | history.undone
    world.at_rest(_in_force(world, history))
    if scene.quiet and (story.codes[-1] != 0 or any(consumer.repeats for consumer in world.consumers)):
        world.broken(f"nothing went wrong, yet {[consumer.repeats for consumer in world.consumers]} repeats")


def _next(operator: Operator, ended: RunEnded | None, number: int) -> RunEnded | None:
    """What the next process does. Who was told that there is no way back goes on: a run that is only ever
    told to walk back never comes to its end."""
    history = operator.history
    if history.way is Way.BACK and not (ended is not None and ended.code in (7, 9)):
        return operator.resume()
    back = operator.world.rng.random() < (0.45 if number < MENDED_AFTER + 3 else 0.7)
    if back and history.begun and not (ended is not None and "has no way back" in ended.message):
        return operator.back()
    return operator.forward() if ended is not None and ended.code in (7, 9) else operator.resume()


def _in_force(world: World, history: History) -> Cluster:
    """The cluster that the journal alone names."""
    if "switch.open" in history.done:
        return world.target
    if history.has_touched("switch.go"):
        world.broken(f"the journal does not tell: {world.standing()}")
    return world.source
