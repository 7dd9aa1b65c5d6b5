"""SURVEY, PROVE and VERIFY over the model world: what must be on dest before it may be alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.world.model.disk import Disk
from tests.world.model.look import WorldLook
from tests.world.model.world import World
from tests.world.operator import Operator
from tests.world.rolled import rolled, walked
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.records import Drained, Stopped
from zkmigrate.move.facts.subtree import digests
from zkmigrate.move.steps.prove import ProveStep
from zkmigrate.move.steps.survey import SurveyFacts, SurveyStep
from zkmigrate.move.steps.verify import _same_tree
from zkmigrate.runbook.engine.events import StepEnded
from zkmigrate.runbook.model.change import Change, HostVerb, Outcome
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.step import Blocked, Context, Done
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.sums import hash_of
from zkmigrate.zookeeper.data.tree import Znode
from zkmigrate.zookeeper.facts.ownership import Ephemeral, Ownership

KAFKA_SESSION_TIMEOUT_MS = 18000
FOREIGN = 0x300000000000777


def own_ephemeral_on_source(world: World) -> None:
    """A client that nobody rolled owns a znode under the chroot; it is a client of source."""
    world.source.commit("open-session", FOREIGN, timeout_ms=KAFKA_SESSION_TIMEOUT_MS)
    world.source.commit("create", FOREIGN, "/kafka/tool", ephemeral=1)
    world.source.seen[FOREIGN] = float("inf")
    world.advance(0.5)


def surveyed(world: World, *, rehearsal: bool = False) -> tuple[SurveyFacts, Done | Blocked]:
    step, c = SurveyStep(KAFKA), Context("run", world.inventory, rehearsal=rehearsal)
    f = step.observe(c, WorldLook(world))
    verdict = step.check(c, f)
    assert isinstance(verdict, Done | Blocked)
    return f, verdict


def stopping(verdict: Done | Blocked) -> dict[str, Finding]:
    """The findings that block, by id."""
    return {f.id: f for f in verdict.findings if f.blocks}


def test_a_session_that_no_dest_host_serves_stops_the_cut_over_before_the_fence(tmp_path: Path) -> None:
    world = rolled(tmp_path).world
    own_ephemeral_on_source(world)

    assert Operator(world, tmp_path / "run").resume(until="cutover").code != 0

    assert all(world.hosts[h].phase in ("idle", "armed") for h in world.inventory.dest_names)
    found = stopping(surveyed(world)[1])
    assert set(found) == {"survey.sessions-on-dest"}
    assert found["survey.sessions-on-dest"].seen == f"session {FOREIGN:#x}: client of no ensemble"


def test_a_session_on_a_source_host_is_named_with_its_host(tmp_path: Path) -> None:
    world = rolled(tmp_path).world
    world.brokers["broker2"].connected = "source3"
    found = stopping(surveyed(world)[1])
    assert f"session {world.brokers['broker2'].session:#x}: client of source3" in (
        found["survey.sessions-on-dest"].seen
    )


@pytest.mark.parametrize("host", ["dest2", "source2"])
def test_a_client_list_that_cannot_be_had_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    world = rolled(tmp_path).world
    answer = WorldLook.word

    def word(look: WorldLook, name: str, asked: str) -> Reading[str]:
        if (name, asked) == (host, "cons"):
            return Unknown("denied", "cons is not in the whitelist")
        return answer(look, name, asked)

    monkeypatch.setattr(WorldLook, "word", word)
    found = stopping(surveyed(world)[1])["survey.sessions-on-dest"]
    assert found.held is Held.UNKNOWN
    assert f"cons of {host}" in found.seen


def test_the_rehearsal_asks_neither_for_homes_nor_for_equal_trees(tmp_path: Path) -> None:
    world = walked(tmp_path, "join").world
    facts, verdict = surveyed(world, rehearsal=True)
    assert isinstance(verdict, Done)
    assert (facts.homes, facts.comparison) == (None, None)


def ownership(ephemerals: Mapping[str, Ephemeral], timeouts: Mapping[int, int]) -> Ownership:
    return Ownership(Chroot("/kafka"), 5, 5, ephemerals, timeouts)


@pytest.mark.parametrize(
    ("state", "blocked"),
    [
        (ownership({"/kafka/controller": Ephemeral(8, 4)}, {}), "survey.timeouts"),
        (
            ownership({"/kafka/a": Ephemeral(8, 4), "/kafka/b": Ephemeral(7, 4)}, {8: 18000}),
            "survey.timeouts",
        ),
        (ownership({}, {8: 18000}), "survey.baseline"),
    ],
    ids=["no timeout known", "one of two not known", "nothing to compare"],
)
def test_without_a_baseline_and_its_timeouts_there_is_no_window(
    tmp_path: Path, state: Ownership, blocked: str
) -> None:
    world = rolled(tmp_path).world
    facts, good = surveyed(world)
    assert isinstance(good, Done)
    step, c = SurveyStep(KAFKA), Context("run", world.inventory)
    verdict = step.check(c, replace(facts, ownership=Seen((state, None))))
    assert isinstance(verdict, Blocked)
    assert set(stopping(verdict)) == {blocked}


def test_a_dest_disk_with_another_tree_is_named_with_the_path(tmp_path: Path) -> None:
    world = rolled(tmp_path).world
    _, good = surveyed(world)
    equal = [f.target for f in good.findings if f.id == "survey.same-tree" and f.held is Held.YES]
    assert equal == ["dest1", "dest2", "dest3"]
    disk = world.hosts["dest2"].disk
    assert disk is not None
    changed = tuple(
        replace(txn, data=b'{"version":"1","id":"other"}') if txn.path == "/kafka/cluster/id" else txn
        for txn in disk.log
    )
    world.hosts["dest2"].disk = Disk(changed, disk.accepted, disk.current)
    verdict = surveyed(world)[1]
    wrong = [f for f in verdict.findings if f.id == "survey.same-tree" and f.blocks]
    assert [f.target for f in wrong] == ["dest2"]
    assert "/kafka/cluster/id: data_sha256" in wrong[0].seen


# --- PROVE -----------------------------------------------------------------------------------------------


def proved(world: World, tails: Mapping[str, int], **survey: Any) -> Done | Blocked:
    """PROVE's verdict right after SURVEY, with these zxids found at STOP."""
    _, good = surveyed(world)
    assert isinstance(good, Done)
    records = {
        "survey": {**good.record, **survey},
        "drain": Drained(world.source.zxid, None, {}).encode(),
        "stop": Stopped(tails, {}, {}).encode(),
    }
    step, c = ProveStep(KAFKA), Context("run", world.inventory, records=records)
    verdict = step.check(c, step.observe(c, WorldLook(world)))
    assert isinstance(verdict, Done | Blocked)
    return verdict


def test_source_in_another_epoch_than_at_survey_proves_nothing(tmp_path: Path) -> None:
    world = rolled(tmp_path).world
    tails = dict.fromkeys(world.inventory.dest_names, world.source.zxid)
    assert isinstance(proved(world, tails), Done)
    found = stopping(proved(world, tails, epoch=world.source.epoch - 1))
    assert set(found) == {"prove.leader"}


def test_a_dest_disk_that_ends_before_the_surveys_cursor_proves_nothing(tmp_path: Path) -> None:
    world = rolled(tmp_path).world
    tails = dict.fromkeys(world.inventory.dest_names, world.source.zxid)
    found = stopping(proved(world, {**tails, "dest3": world.source.zxid - 1}))
    assert found["prove.cursor"].needed == f"at least 0x{world.source.zxid:x}"


@pytest.mark.parametrize("laggard", ["dest1", "dest2", "dest3"])
def test_one_laggard_blocks_though_a_majority_holds_everything(tmp_path: Path, laggard: str) -> None:
    world = rolled(tmp_path).world
    facts, _ = surveyed(world)
    assert isinstance(facts.ownership, Seen)
    newest = facts.ownership.value[0].newest
    tails = dict.fromkeys(world.inventory.dest_names, world.source.zxid)
    verdict = proved(world, {**tails, laggard: newest - 1})
    assert isinstance(verdict, Blocked)
    lacking = [(f.target, f.needed) for f in verdict.findings if f.id == "prove.tail" and f.blocks]
    assert lacking == [(laggard, f"at least {newest:#x}")]


@pytest.mark.parametrize("on_dest", [True, False])
def test_only_the_expiry_of_a_session_seen_on_dest_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_dest: bool
) -> None:
    world = rolled(tmp_path).world
    tails = dict.fromkeys(world.inventory.dest_names, world.source.zxid)
    _, good = surveyed(world)
    assert isinstance(good, Done)
    session = world.brokers["broker1"].session
    homes = [h for h in good.record["on_dest"] if on_dest or int(h, 16) != session]
    step = ProveStep(KAFKA)
    records = {
        "survey": {**good.record, "on_dest": homes},
        "drain": Drained(world.source.zxid, None, {}).encode(),
        "stop": Stopped(tails, {}, {}).encode(),
    }
    world.source.commit("close-session", session, cxid=0)
    c = Context("run", world.inventory, records=records)
    verdict = step.check(c, step.observe(c, WorldLook(world)))
    assert isinstance(verdict, Done) is on_dest
    assert ("prove.delta" in stopping(verdict)) is not on_dest  # type: ignore[arg-type]


# --- VERIFY ----------------------------------------------------------------------------------------------


def test_a_writer_left_on_source_is_named_and_does_not_stop_the_run(tmp_path: Path) -> None:
    world = rolled(tmp_path).world
    operator = Operator(world, tmp_path / "run")
    assert operator.resume(until="cutover").code == 0
    stray = world.source.commit("create", FOREIGN, "/kafka/config-left-behind")
    operator.events.clear()

    assert operator.resume(until="verify").code == 0

    said = [f for e in operator.events if isinstance(e, StepEnded) for f in e.findings]
    (found,) = [f for f in said if f.id == "verify.strays"]
    assert (found.held, found.blocks) == (Held.NO, False)
    assert found.seen == (
        f"1 writes missing on dest: create /kafka/config-left-behind by session {FOREIGN:#x} "
        f"at 0x{stray.zxid:x}"
    )


def test_expiries_on_source_are_no_strays(tmp_path: Path) -> None:
    world = rolled(tmp_path).world
    operator = Operator(world, tmp_path / "run")
    assert operator.resume(until="verify").code == 0
    assert not any(p.session in world.source.tree().sessions for p in world.brokers.values())
    said = [f for e in operator.events if isinstance(e, StepEnded) for f in e.findings]
    assert [f.held for f in said if f.id == "verify.strays"] == [Held.YES]


def test_the_end_of_a_strays_session_is_no_write_of_its_own(tmp_path: Path) -> None:
    world = rolled(tmp_path).world
    operator = Operator(world, tmp_path / "run")
    assert operator.resume(until="cutover").code == 0
    world.source.commit("open-session", FOREIGN, timeout_ms=KAFKA_SESSION_TIMEOUT_MS)
    world.source.commit("create", FOREIGN, "/kafka/stray", ephemeral=1)
    world.source.commit("close-session", FOREIGN, cxid=0)
    operator.events.clear()
    assert operator.resume(until="verify").code == 0
    said = [f for e in operator.events if isinstance(e, StepEnded) for f in e.findings]
    (found,) = [f for f in said if f.id == "verify.strays"]
    assert found.seen.startswith("2 writes missing on dest: createSession ")
    assert "closeSession" not in found.seen


def test_a_host_clock_that_jumps_after_open_does_not_shorten_the_settling(tmp_path: Path) -> None:
    world = rolled(tmp_path).world
    opened: list[float] = []
    operator = Operator(world, tmp_path / "run")
    act = operator._apply

    def apply(change: Change, operation: str, fencing: int) -> Outcome:
        if isinstance(change, HostVerb) and change.verb == "open":
            opened.append(world.now)
        return act(change, operation, fencing)

    operator._apply = apply  # type: ignore[method-assign]
    assert operator.resume(until="cutover").code == 0
    for name in world.inventory.dest_names:
        host = world.hosts[name]
        host.skew_s += 3600.0
        host.phase_since -= 3600.0  # the phase file holds the wall clock of then

    assert operator.resume(until="verify").code == 0

    assert world.now - max(opened) >= 2 * KAFKA_SESSION_TIMEOUT_MS / 1000


def test_a_broker_that_lost_its_session_behind_the_door_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """It was killed in the window, or crashed a minute later: it has a session of its own when it is back."""
    world = rolled(tmp_path).world
    operator = Operator(world, tmp_path / "run")
    assert operator.resume(until="cutover").code == 0
    host, lost = world.hosts["broker2"], world.brokers["broker2"].session
    host.stop()
    world.advance(2 * KAFKA_SESSION_TIMEOUT_MS / 1000)
    operator.events.clear()
    waited = operator.resume(until="verify")
    assert waited.code == 6
    assert [f.seen for f in waited.findings] == ["not registered: broker2"]
    host.start(world.now)

    assert operator.resume(until="verify").code == 0

    assert world.brokers["broker2"].session != lost
    said = {f.id: f for e in operator.events if isinstance(e, StepEnded) for f in e.findings}
    owners = said["check.owners"]
    assert (owners.held, owners.blocks) == (Held.NO, False)
    assert f"{lost:#x}: had ('/kafka/brokers/ids/2', '/kafka/controller'), has ()" in owners.seen
    assert (said["check.czxid"].held, said["check.czxid"].blocks) == (Held.NO, False)
    assert said["verify.registered"].held is Held.YES


def test_the_trees_at_the_cut_are_compared_on_every_disk_once_more(tmp_path: Path) -> None:
    world = rolled(tmp_path).world
    operator = Operator(world, tmp_path / "run")
    assert operator.resume(until="verify").code == 0
    said = [f for e in operator.events if isinstance(e, StepEnded) for f in e.findings]
    found = {f.target: f for f in said if f.id == "verify.same-tree"}
    assert set(found) == set(world.inventory.dest_names)
    assert {f.held for f in found.values()} == {Held.YES}
    (seen,) = {f.seen for f in found.values()}
    assert " znodes at 0x" in seen


def test_a_tree_that_was_another_at_the_cut_is_told_with_both_digests(tmp_path: Path) -> None:
    world = rolled(tmp_path).world
    operator = Operator(world, tmp_path / "run")
    assert operator.resume(until="cutover").code == 0
    leader = next(iter(world.inventory.source_names))
    trees = digests(WorldLook(world), world.inventory, Chroot("/kafka"), leader, world.source.zxid)
    assert isinstance(trees.source, Seen)
    znode = hash_of("/kafka/own", Znode(b"", 0, None, 1, 1, 1, 0, 0, 0, 0, 0, 0))
    sums = (trees.source.value.sums[0] + znode, *trees.source.value.sums[1:])
    other = replace(trees, hosts={**trees.hosts, "dest2": Seen(replace(trees.source.value, sums=sums))})
    found = {f.target: f for f in _same_tree(other)}
    assert {host: f.held for host, f in found.items()} == {
        "dest1": Held.YES, "dest2": Held.NO, "dest3": Held.YES
    }  # fmt: skip
    assert not any(f.blocks for f in found.values())
    assert (
        f"on source {trees.source.value.znodes}, digest {trees.source.value.digest[:16]}"
        in found["dest2"].seen
    )
    unread = replace(trees, source=Unknown("failed", "source1: no snapshot"))
    assert {f.held for f in _same_tree(unread)} == {Held.UNKNOWN}
