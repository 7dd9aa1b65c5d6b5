"""The whole move over the model world: stopped after each change, resumed, walked back."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import playbooks
from tests.examples import every
from tests.world.model.world import World
from tests.world.operator import Killed, Moment, Operator, quiet_world
from tests.world.rolled import rolled, walked
from zkmigrate.runbook.engine import chain
from zkmigrate.runbook.engine.events import ChangeSent
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.model.change import Change
from zkmigrate.runbook.model.playbook import Playbook
from zkmigrate.runbook.model.step import Hazard, Reads

WAYS_ON = (7, 9)
TO_THE_END = 4
"""Of so many kills before the cut-over, one is gone on from through it. It begins as if none had been."""
Sent = tuple[Change, str]


def footprint(world: World) -> dict[str, object]:
    """Everything on the hosts that a rollback must leave as it found it."""
    return {
        name: (
            {path: (f.content, f.mode, f.owner) for path, f in host.files.items()},
            host.running,
            host.installed,
            host.phase,
            host.disk is None,
            host.fence.filled,
            host.cut.filled,
            host.armed,
            dict(host.aside),
        )
        for name, host in world.hosts.items()
    }


def owners(world: World) -> dict[str, tuple[int, int]]:
    """Ephemerals that Kafka sees, wherever it is now: path → owner, czxid."""
    ensemble = world.dest if world.dest is not None else world.source
    return {path: (z.owner, z.czxid) for path, z in ensemble.tree().znodes.items() if z.owner}


def finish(operator: Operator) -> int:
    """Resume; a run that has turned back is started forward once more."""
    ended = operator.resume()
    return operator.forward().code if ended.code in WAYS_ON else ended.code


def step_of(sent: Sent) -> tuple[str, bool]:
    """The stage.step that sent a change, and whether walking back, by its operation id."""
    stage, step, *_, leg, _ = sent[1].split(".")
    return f"{stage}.{step}", leg.startswith("back")


def words(sent: Sequence[Sent]) -> Counter[tuple[str, ...]]:
    """Changes without what a second try makes anew: operation ids, and so the one that a restore names."""
    return Counter(
        (c.where, c.verb, *(str(getattr(c, name, "")) for name in ("path", "content", "action", "place")))
        for c, _ in sent
    )


def half_done(whole: Sequence[Sent], sent: Sequence[Sent], journal: bytes) -> list[Sent]:
    """What the last step has sent to hosts to which it had more to send, or of which an answer does not stand
    in the journal. Hosts are told at once: of several a kill can come before the answer is written down."""
    step = step_of(sent[-1])
    wanted = Counter(change.where for change, operation in whole if step_of((change, operation)) == step)
    last = [one for one in sent if step_of(one) == step]
    done = Counter(change.where for change, _ in last)
    heard = {e.body["operation"] for e in chain.parse(journal).entries if e.kind == "outcome"}
    unheard = {change.where for change, operation in last if operation not in heard}
    return [one for one in last if one[0].where in unheard or done[one[0].where] < wanted[one[0].where]]


def told(operator: Operator) -> list[tuple[str, object]]:
    """The journal of a run without what changes of several hosts at once put in another order each time."""
    journal = Journal.open(operator.run_dir, lambda: operator.world.wall)
    entries = journal.entries()
    journal.close()
    return sorted(((entry.kind, dict(entry.body)) for entry in entries if entry.kind != "begin"), key=str)


PLAYBOOKS: list[Playbook] = [
    importlib.import_module(f"playbooks.{found.name}").PLAYBOOK
    for found in pkgutil.iter_modules(playbooks.__path__)
]


@dataclass(frozen=True)
class Whole:
    """The undisturbed move: what it sent, how much of it up to the cut-over, owners then, and the end.

    first: the hosts before it. before, after: what a kill around each change leaves. gate: the hosts before
    the cut-over.
    """

    first: dict[str, object]
    sent: tuple[Sent, ...]
    before: tuple[Moment, ...]
    after: tuple[Moment, ...]
    rolled: int
    owners: dict[str, tuple[int, int]]
    gate: dict[str, object]
    end: dict[str, object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    world = quiet_world()
    first = footprint(world)
    operator = Operator(world, tmp_path_factory.mktemp("whole") / "run", keeps=True)
    assert operator.forward().code == 0
    sent, before, after = tuple(world.applied), tuple(operator.before), tuple(operator.after)
    assert operator.calls == len(sent) == len(before) == len(after)
    rolled = next(n for n, one in enumerate(sent) if step_of(one)[0].startswith("cutover."))
    gate = before[rolled].world
    return Whole(first, sent, before, after, rolled, owners(gate), footprint(gate), footprint(world))


def test_a_step_that_sends_says_so_in_its_hazard_and_one_that_only_reads_says_that(tmp_path: Path) -> None:
    """In a night without trouble. After one in which a host was not heard VERIFY sends it its GO: that is in
    ``test_a_host_without_go_gets_it_from_verify_and_joins_the_others``."""
    operator = Operator(quiet_world(), tmp_path / "run")
    assert operator.forward().code == 0
    sent = {step_of((e.change, e.operation))[0] for e in operator.events if isinstance(e, ChangeSent)}
    for stage in operator.playbook.stages:
        for step in stage.steps:
            assert step.hazard.reads == (f"{stage.id}.{step.id}" not in sent), step.id


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda playbook: playbook.id)
def test_what_can_be_derived_of_a_hazard_is_what_the_step_declares(playbook: Playbook) -> None:
    """A step without a plan of its own reads. One that changes hosts in a window, from the step that shuts
    clients out on, is of the window, unless nothing leads back from it. The rest must be declared."""
    for stage in playbook.stages:
        ids = [step.id for step in stage.steps]
        shut = ids.index(stage.window.steps.begins) if stage.window else len(ids)
        for number, step in enumerate(stage.steps):
            assert (step.hazard is Hazard.READ_ONLY) == isinstance(step, Reads), step.id
            if not step.hazard.reads and step.hazard is not Hazard.FINAL:
                assert (step.hazard is Hazard.WINDOW) == (number >= shut), step.id


def test_the_move_completes_and_keeps_every_session(tmp_path: Path) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    before = owners(world)
    assert set(before) == {"/kafka/controller", *(f"/kafka/brokers/ids/{n}" for n in (1, 2, 3))}

    assert operator.resume().code == 0

    assert world.dest is not None
    assert owners(world) == before
    assert {world.mode(h) for h in world.inventory.dest_names} == {"leader", "follower"}
    assert all(p.connected.startswith("dest") for p in world.brokers.values())
    assert not any(h.installed or h.armed or h.cut.filled for h in world.hosts.values())


def test_source_is_never_changed(tmp_path: Path) -> None:
    world = quiet_world()
    Operator(world, tmp_path / "run").forward()
    assert {change.where for change, _ in world.applied}.isdisjoint(world.inventory.source_names)


def test_rollback_before_open_leaves_the_first_world(tmp_path: Path) -> None:
    for stage in ("install", "join", "rehearse", "roll", "cutover.check"):
        world = quiet_world()
        first = footprint(world)
        operator = Operator(world, tmp_path / stage / "run")
        assert operator.forward(until=stage).code == 0
        assert operator.back().code == 0, stage
        assert footprint(world) == first, stage
        assert all(p.connected.startswith("source") for p in world.brokers.values()), stage


def test_rollback_after_open_is_refused_by_name(tmp_path: Path) -> None:
    operator = walked(tmp_path, "cutover")
    world = operator.world
    ended = operator.back()
    assert ended.code == 6
    assert [f.id for f in ended.findings] == ["open.no-way-back"]
    assert any("consent" in move for move in ended.findings[0].moves)
    assert world.dest is not None


def test_what_is_kept_of_a_moment_is_what_a_killed_operator_leaves(tmp_path: Path, whole: Whole) -> None:
    """The roll changes one broker after the other: there the order of the changes is always the same."""
    rolling = [n for n, sent in enumerate(whole.sent, start=1) if step_of(sent)[0] == "roll.roll"]
    assert len(rolling) >= 4
    for n in rolling[:4]:
        for when, kept in (("before", whole.before[n - 1]), ("after", whole.after[n - 1])):
            world = quiet_world()
            operator = Operator(world, tmp_path / f"{when}-{n}" / "run")
            setattr(operator, f"kill_{when}", n)
            with pytest.raises(Killed):
                operator.forward()
            again = kept.again(tmp_path / f"{when}-{n}-kept" / "run")
            assert footprint(again.world) == footprint(world), (when, n)
            assert words(again.world.applied) == words(world.applied), (when, n)
            assert (again.world.now, owners(again.world)) == (world.now, owners(world)), (when, n)
            assert told(again) == told(operator), (when, n)


@pytest.mark.parametrize(("when", "stride"), [("before", 4 * every(2)), ("after", every(4))])
def test_killed_at_each_change_the_run_resumes_to_the_same_end(
    tmp_path: Path, whole: Whole, when: str, stride: int
) -> None:
    """Before a change the world is as after the one before it; only the journal knows one intent more.

    What is sent after that is what was still to be sent; at most a host that was half done gets its own
    changes again. Only a rehearsal that had not come to its end is begun anew.
    """
    kept = whole.after if when == "after" else whole.before
    for n in range(1, len(whole.sent) + 1, stride):
        again = kept[n - 1].again(tmp_path / f"{n}" / "run")
        world = again.world
        sent = list(world.applied)
        assert len(sent) == (n if when == "after" else n - 1)
        before, wanted = whole.owners, whole.sent
        if len(sent) < whole.rolled:
            assert again.resume(until="roll").code == 0, n
            assert footprint(world) == whole.gate, n
            before, wanted = owners(world), whole.sent[: whole.rolled]
        if len(sent) >= whole.rolled or n // stride % TO_THE_END == 0:
            assert Operator(world, again.run_dir).resume().code == 0, n
            assert footprint(world) == whole.end, n
            assert owners(world) == before, n
            assert {world.mode(h) for h in world.inventory.dest_names} == {"leader", "follower"}, n
            wanted = whole.sent
        step, back = step_of(sent[-1]) if sent else ("", False)
        if step.startswith("rehearse.") and not back:
            continue
        left = words(wanted) - words(sent)
        more = words(world.applied[len(sent) :]) - left
        assert left <= words(world.applied[len(sent) :]), (n, step)
        again_to = half_done(whole.sent, sent, kept[n - 1].journal) if sent else ()
        assert more <= words(again_to), (n, step)


def test_killed_at_each_change_and_left_alone_the_run_resumes(tmp_path: Path, whole: Whole) -> None:
    """The operator's machine stays away for half a minute: leases end, finishers act, sessions may go."""
    for n in range(1, len(whole.sent) + 1, every(4)):
        again = whole.after[n - 1].again(tmp_path / f"{n}" / "run")
        world = again.world
        world.advance(30.0)
        assert finish(again) == 0, n
        assert footprint(world) == whole.end, n
        assert owners(world).keys() == whole.owners.keys(), n
        assert {world.mode(h) for h in world.inventory.dest_names} == {"leader", "follower"}, n


def test_killed_at_each_change_the_run_walks_back_to_the_first_world(tmp_path: Path, whole: Whole) -> None:
    for n in range(1, len(whole.sent) + 1, every(4)):
        again = whole.after[n - 1].again(tmp_path / f"{n}" / "run")
        world = again.world
        ended = again.back()
        if any(host.phase == "open" for host in world.hosts.values()) or world.dest is not None:
            assert ended.code == 6, n
            continue
        assert ended.code == 0, (n, ended)
        assert footprint(world) == whole.first, n
