"""One source server that is down during the move, while the others keep the quorum: accepted by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.world.build import World
from tests.world.desk import Desk
from tests.world.model.look import WorldLook
from tests.world.model.world import World as Move
from tests.world.operator import Operator
from tests.world.returned import AGREED, on_dest, opened, returning, whole
from tests.world.test_move import footprint, owners
from tests.world.test_source_sick import Asking
from zkmigrate.inventory.accept import Accept
from zkmigrate.runbook.engine.events import Turned
from zkmigrate.runbook.model.change import Change, Cut, Fence, Outcome
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.step import Way

ID = "source.server-down"
NEVER, OVER = "2099-01-01T00:00Z", "2000-01-01T00:00Z"


def accepting(world: Move, *hosts: str, until: str = NEVER) -> Move:
    """The same world, whose inventory accepts that these servers are down."""
    entries = (Accept(finding=ID, target=h, who="Ada", why="its board is broken", until=until) for h in hosts)
    world.inventory = world.inventory.model_copy(update={"accept": (*world.inventory.accept, *entries)})
    return world


def lacking(*down: str, source: int = 3) -> Move:
    """A world in which these servers of source are down from the start."""
    world = World().ensemble(source).brokers(3).move()
    kill(world, *down)
    return world


def kill(world: Move, *hosts: str) -> None:
    world.source_down |= set(hosts)
    world.advance(2.0)


def start(world: Move) -> None:
    world.source_down.clear()
    world.advance(2.0)


def wrong(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return [(f.id, f.target) for f in findings if f.blocks]


def turned_back(operator: Operator) -> list[str]:
    return [e.to for e in operator.events if isinstance(e, Turned) and e.way is Way.BACK]


SHAPES = {
    "a follower of three": (3, "source1", False),
    "who led": (3, "source3", False),
    "one of five": (5, "source2", False),
    "a dead host": (5, "source2", True),
}


@pytest.mark.parametrize(("source", "down", "host"), SHAPES.values(), ids=SHAPES)
def test_the_whole_move_goes_without_it(tmp_path: Path, source: int, down: str, host: bool) -> None:
    world = accepting(lacking(down, source=source), down)
    unreachable = frozenset((down,)) if host else frozenset[str]()
    operator = Operator(world, tmp_path / "run", unreachable=unreachable)
    assert operator.forward(until="roll").code == 0
    before = owners(world)
    ended = operator.resume()
    assert (ended.code, wrong(ended.findings)) == (0, [])
    assert turned_back(operator) == ["rehearse"], "only the rehearsal walked back"
    assert owners(world) == before
    assert world.dest is not None
    assert all(p.connected.startswith("dest") for p in world.brokers.values())


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        (3, "2 of 3 servers with a vote serve under source3, none to spare"),
        (5, "4 of 5 servers with a vote serve under source5, 1 to spare"),
    ],
)
def test_the_preflight_names_it_and_offers_to_accept_it(tmp_path: Path, source: int, seen: str) -> None:
    ended = Operator(lacking("source1", source=source), tmp_path / "run").forward()
    assert (ended.code, wrong(ended.findings)) == (3, [(ID, "source1")])
    (found,) = [f for f in ended.findings if f.blocks]
    assert seen in found.seen
    assert "connection refused" in found.seen
    assert any(f"accept entry for {ID} with target source1" in move for move in found.moves)


def test_an_acceptance_that_is_over_or_of_another_server_counts_for_nothing(tmp_path: Path) -> None:
    world = accepting(accepting(lacking("source1"), "source1", until=OVER), "source2")
    ended = Operator(world, tmp_path / "run").forward()
    assert (ended.code, wrong(ended.findings)) == (3, [(ID, "source1")])


def test_a_server_that_only_this_machine_does_not_reach_cannot_be_accepted(tmp_path: Path) -> None:
    """It may have clients: source's leader counts it as a follower in sync."""
    world = accepting(World().ensemble(3).brokers(3).move(), "source1")
    ended = Operator(world, tmp_path / "run", unreachable=frozenset(("source1",))).forward()
    assert ended.code == 3
    assert {("source.quorum", ""), (ID, "source1")} <= set(wrong(ended.findings))
    (found,) = [f for f in ended.findings if f.id == ID and f.target == "source1"]
    assert "source3 counts 2 followers in sync, and 1 answer" in found.seen


@pytest.mark.parametrize(("source", "down"), [(3, ("source1", "source2")), (5, ("source1", "source2"))])
def test_a_second_one_cannot_be_accepted(tmp_path: Path, source: int, down: tuple[str, ...]) -> None:
    ended = Operator(accepting(lacking(*down, source=source), *down), tmp_path / "run").forward()
    assert ended.code == 3
    assert ("source.quorum", "") in wrong(ended.findings)


@pytest.mark.parametrize("until", ["join", "roll"])
def test_one_that_dies_between_two_stages_stops_the_next_gate_until_it_is_accepted(
    tmp_path: Path, until: str
) -> None:
    world = lacking()
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until=until).code == 0
    kill(world, "source2")
    ended = operator.resume()
    assert (ended.code, wrong(ended.findings)) == (6, [(ID, "source2")])
    accepting(world, "source2")
    assert Operator(world, operator.run_dir).resume().code == 0
    assert world.dest is not None


@pytest.mark.parametrize("until", ["join", "roll.roll", "cutover.arm", "cutover.preflight"])
def test_one_that_dies_between_two_steps_stops_nothing_if_it_is_accepted(tmp_path: Path, until: str) -> None:
    world = accepting(lacking(source=5), "source2")
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until=until).code == 0
    kill(world, "source2")
    assert operator.resume().code == 0
    assert turned_back(operator) == ["rehearse"]


@pytest.mark.parametrize("step", ["roll", "survey"])
def test_one_that_dies_after_the_gate_and_is_not_accepted_stops_the_step(tmp_path: Path, step: str) -> None:
    """Nobody knows its clients."""
    world = lacking()
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until={"roll": "roll.preflight", "survey": "cutover.arm"}[step]).code == 0
    kill(world, "source2")
    ended = operator.resume()
    assert ended.code != 0
    assert {"roll": "roll.left-source", "survey": "survey.sessions-on-dest"}[step] in {
        id for id, _ in wrong(ended.findings)
    }
    assert not any(host.fence.holds(world.now) for host in world.hosts.values())


@pytest.mark.parametrize("until", ["preflight", "join", "rehearse", "roll", "cutover.arm", "cutover"])
def test_one_that_comes_back_between_two_steps_changes_nothing(tmp_path: Path, until: str) -> None:
    world = accepting(lacking("source1"), "source1")
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until=until).code == 0
    start(world)
    assert operator.resume().code == 0
    assert turned_back(operator) == ["rehearse"]
    assert world.dest is not None


class Reviving(Operator):
    """Calls ``act`` once, when the cut-over has sent this kind of change to every dest host."""

    def on(self, kind: type[Change], act: Callable[[], None]) -> Reviving:
        self._kind, self._act, self._sent = kind, act, 0
        return self

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        outcome = super()._apply(change, operation, fencing)
        if isinstance(change, self._kind) and operation.startswith("cutover."):
            self._sent += 1
            if self._sent == len(self.world.inventory.dest_names):
                self._act()
        return outcome


@pytest.mark.parametrize("kind", [Fence, Cut], ids=["before the cut", "behind the cut"])
def test_one_that_comes_back_in_the_window_turns_nothing_back(tmp_path: Path, kind: type[Change]) -> None:
    """It is a follower of source again, not a dest host that the leader still counts."""
    world = accepting(lacking("source1"), "source1")
    operator = Reviving(world, tmp_path / "run").on(kind, world.source_down.clear)
    assert operator.forward(until="cutover").code == 0
    assert world.source_down == set()
    assert turned_back(operator) == ["rehearse"]
    assert world.dest is not None


def test_the_loss_of_the_quorum_in_the_window_turns_back(tmp_path: Path) -> None:
    """None is to spare: the second one that dies ends the quorum, and comes back later."""
    world = accepting(lacking("source1"), "source1")
    operator = Reviving(world, tmp_path / "run")
    operator.on(Cut, lambda: world.source_down.add("source2"))
    assert operator.forward(until="roll").code == 0
    before = owners(world)
    operator.watch = Asking(world, WorldLook(world))
    pause = operator.pause

    def reviving(seconds: float) -> None:
        if turned_back(operator)[1:]:
            world.source_down.discard("source2")
        pause(seconds)

    operator.pause = reviving  # type: ignore[method-assign]
    ended = operator.forward(until="cutover")
    assert ended.code == 7
    assert turned_back(operator)[1:], "the window has turned back"
    assert {world.mode(name) for name in world.inventory.dest_names} == {"observer"}
    assert owners(world) == before


@pytest.mark.parametrize("until", ["join", "roll", "cutover.check"])
def test_a_rollback_leaves_the_first_world(tmp_path: Path, until: str) -> None:
    world = accepting(lacking("source1"), "source1")
    first = footprint(world)
    operator = Operator(world, tmp_path / "run", unreachable=frozenset(("source1",)))
    assert operator.forward(until=until).code == 0
    assert operator.back().code == 0
    assert footprint(world) == first


def test_the_return_goes_without_it_once_it_is_accepted(tmp_path: Path) -> None:
    world = opened(tmp_path, first=lacking())
    kill(world, "source1")
    operator = returning(world, tmp_path / "return")
    ended = operator.forward()
    assert (ended.code, wrong(ended.findings)) == (3, [(ID, "source1")])
    assert AGREED in accepting(world, "source1").inventory.accept
    operator = returning(world, operator.run_dir)
    assert operator.forward().code == 0
    assert whole(world)
    topics = {path for path in on_dest(world) if path.startswith("/kafka/topic-")}
    assert topics
    assert topics <= set(world.source.tree().znodes)


def test_the_return_is_refused_while_two_are_down(tmp_path: Path) -> None:
    world = accepting(opened(tmp_path, first=lacking(source=5)), "source1", "source2")
    kill(world, "source1", "source2")
    ended = returning(world, tmp_path / "return").forward()
    assert (ended.code, wrong(ended.findings)) == (3, [("return.source", "")])


ENTRY = (
    f"accept: [{{finding: {ID}, target: source1, who: Ada, why: its board is broken, until: '{NEVER}'}}]\n"
)


def test_preflight_plan_and_status_say_who_accepts_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, lacking("source1"), WORLD_SPEED="20")
    lost = frozenset(("source1",))
    told = desk.call("preflight", unreachable=lost)
    assert told.exit_code == 3
    assert "none to spare" in told.stdout
    body = json.loads(desk.call("preflight", "--json", unreachable=lost).stdout)
    bad = [f["id"] for f in body["findings"] if f["held"] != "yes" and f["target"] == "source1"]
    assert bad == [ID], "nothing else is said of a server that is down"
    desk.file.write_text(desk.file.read_text() + ENTRY)
    assert desk.call("preflight", unreachable=lost).exit_code == 0
    for verb in ("preflight", "plan"):
        assert "its board is broken" in desk.call(verb, unreachable=lost).stdout
    assert desk.call("run", "--yes", "--until", "join", unreachable=lost).exit_code == 0
    assert "its board is broken" in desk.call("status", unreachable=lost).stdout


def test_its_old_members_stop_no_join(tmp_path: Path) -> None:
    """Source was reconfigured while it was down: its file has the members of before."""
    world = accepting(lacking("source1"), "source1")
    before = dict(world.source_files["source1"])
    world.reconfigure_source(0x100000005)
    world.source_files["source1"] = before
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until="rehearse.arm").code == 0
    assert {world.mode(name) for name in world.inventory.dest_names} == {"observer"}
