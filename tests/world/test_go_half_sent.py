"""A dest host that is lost during GO, or for good: the others finish, it is named, and it joins later."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from tests.world.model.host import Host
from tests.world.model.look import WorldLook
from tests.world.model.world import World
from tests.world.operator import Killed, Operator
from tests.world.rolled import rolled
from zkmigrate.errors import HostError
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.steps.verify import VerifyStep
from zkmigrate.runbook.engine.events import Event, StepBegun, StepEnded, Turned
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.model.change import Change, Go, HostVerb, Outcome
from zkmigrate.runbook.model.fact import Reading, Unknown
from zkmigrate.runbook.model.finding import Finding, Held
from zkmigrate.runbook.model.look import DirEntry, Look
from zkmigrate.runbook.model.step import Context, Hazard, Way

DEST = ("dest1", "dest2", "dest3")


@dataclass
class Night:
    """A rolled world, its operator, and what is wrong. silent: nobody hears these hosts. dead: they have no
    power either. lose: host → ``before`` or ``after`` it took GO, or ``deaf``: only its answer is lost."""

    world: World
    operator: Operator
    silent: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    lose: dict[str, str] = field(default_factory=dict)
    killed: bool = False

    def take(self, change: Change, operation: str, fencing: int) -> Outcome:
        mine = isinstance(change, Go) and operation.startswith("cutover.")
        if mine and self.killed:
            raise Killed
        how = self.lose.get(change.where, "") if mine else ""
        if how in ("after", "deaf"):
            assert self.world.apply(change, operation, fencing)[0] == 0
        if how:
            self.silent.add(change.where)
            self.dead |= {change.where} if how != "deaf" else set()
        if change.where in self.silent:
            raise HostError(f"{change.where}: no answer")
        return Outcome(*self.world.apply(change, operation, fencing))

    def back_again(self) -> None:
        self.silent.clear()
        self.dead.clear()
        self.lose.clear()

    def again(self) -> Operator:
        """The operator's next process."""
        self.operator = Operator(self.world, self.operator.run_dir)
        self.operator._apply = self.take  # type: ignore[method-assign]
        return self.operator

    def phases(self) -> list[str]:
        return [self.world.hosts[host].phase for host in DEST]

    def found(self, id: str) -> list[Finding]:
        return [f for e in self.operator.events if isinstance(e, StepEnded) for f in e.findings if f.id == id]

    def turned_back_to(self) -> list[str]:
        return [e.to for e in self.operator.events if isinstance(e, Turned) and e.way is Way.BACK]

    def modes(self) -> list[str]:
        return sorted(self.world.mode(host) for host in DEST)


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    operator = rolled(tmp_path)
    made = Night(operator.world, operator)
    made.again()
    zkm, file, listing, word = WorldLook.zkm, WorldLook.file, WorldLook.listing, WorldLook.word
    finish = World._finish

    def no(host: str) -> Unknown:
        return Unknown("timeout", f"{host}: no answer")

    def heard(look: WorldLook, host: str, *words: str) -> Reading[str]:
        return no(host) if host in made.silent else zkm(look, host, *words)

    def read(look: WorldLook, host: str, path: str) -> Reading[bytes]:
        return no(host) if host in made.silent else file(look, host, path)

    def listed(look: WorldLook, host: str, path: str) -> Reading[tuple[DirEntry, ...]]:
        return no(host) if host in made.silent else listing(look, host, path)

    def answered(look: WorldLook, host: str, what: str) -> Reading[str]:
        return no(host) if host in made.dead else word(look, host, what)

    def finished(here: World, host: Host) -> None:
        if host.name in made.dead:
            host.stop()
        else:
            finish(here, host)

    monkeypatch.setattr(WorldLook, "zkm", heard)
    monkeypatch.setattr(WorldLook, "file", read)
    monkeypatch.setattr(WorldLook, "listing", listed)
    monkeypatch.setattr(WorldLook, "word", answered)
    monkeypatch.setattr(World, "_finish", finished)
    return made


@pytest.mark.parametrize("how", ["before", "after", "deaf"])
@pytest.mark.parametrize("lost", DEST)
def test_a_host_lost_during_go_is_named_and_the_others_are_checked_and_opened(
    night: Night, lost: str, how: str
) -> None:
    night.lose[lost] = how
    assert night.operator.forward(until="cutover").code == 0

    others = [host for host in DEST if host != lost]
    opened = {c.where for c, op in night.world.applied if isinstance(c, HostVerb) and c.verb == "open"}
    assert opened == set(others), "the operator opened them; they did not wait for their own limit"
    assert night.turned_back_to() == []
    assert [f.target for f in night.found("go.not-heard")] == [lost]
    assert {f.target for f in night.found("serve.late")} == {lost}
    for id in ("check.owners", "check.czxid", "check.quorum", "check.epoch"):
        assert {f.held for f in night.found(id)} <= {Held.YES}, id
    assert night.found("check.owners")
    assert night.found("check.czxid")
    assert night.found("check.quorum")

    night.back_again()
    assert night.again().resume().code == 0
    assert night.modes() == ["follower", "follower", "leader"]
    assert night.phases() == ["idle"] * 3, "finalized"
    assert night.found("verify.missing") == []
    assert night.found("finalize.left") == []


def test_a_host_without_go_gets_it_from_verify_and_joins_the_others(night: Night) -> None:
    night.lose["dest3"] = "before"
    assert night.operator.forward(until="cutover").code == 0
    assert night.phases() == ["open", "open", "sealed"]
    night.back_again()
    assert night.again().resume(until="verify").code == 0
    assert night.phases() == ["open"] * 3
    sent = [op for c, op in night.world.applied if isinstance(c, Go) and c.where == "dest3"]
    assert [op.split(".")[0] for op in sent][-1] == "verify"
    assert VerifyStep.hazard is Hazard.LATE
    assert {f.held for f in night.found("verify.same-tree")} == {Held.YES}
    assert {f.target for f in night.found("verify.same-tree")} == set(DEST)


@pytest.mark.parametrize("how", ["before", "after"])
def test_two_hosts_lost_during_go_open_nothing_and_resume_goes_on_when_one_is_back(
    night: Night, how: str
) -> None:
    night.lose |= {"dest1": how, "dest3": how}
    ended = night.operator.forward(until="cutover")
    assert ended.code == 8
    assert [f.id for f in ended.findings] == ["go.majority", "host.dest1", "host.dest3"]
    assert night.turned_back_to() == []
    assert night.world.dest_leader == ""
    assert "open" not in night.phases()

    night.silent.remove("dest1")
    night.dead.remove("dest1")
    night.lose.clear()
    assert night.again().resume(until="cutover").code == 0
    assert night.phases()[:2] == ["open", "open"]
    night.back_again()
    assert night.again().resume(until="verify").code == 0
    assert night.modes() == ["follower", "follower", "leader"]


def test_an_operator_that_died_while_it_sent_go_goes_on_without_a_host_that_is_gone(night: Night) -> None:
    """Nobody knows whether dest1 has its GO: the journal says that it was sent."""
    night.killed = True
    with pytest.raises(Killed):
        night.operator.forward(until="cutover")
    assert night.phases() == ["sealed"] * 3
    night.killed = False
    night.silent.add("dest1")
    night.dead.add("dest1")
    assert night.again().resume(until="cutover").code == 0
    assert night.phases() == ["sealed", "open", "open"]


def test_a_host_that_is_not_heard_before_the_first_go_turns_back_as_ever(night: Night) -> None:
    assert night.operator.forward(until="cutover.seal").code == 0
    night.silent.add("dest2")
    ended = night.again().resume(until="cutover")
    assert ended.code == 8
    assert night.turned_back_to() == ["cutover"]
    assert not [c for c, op in night.world.applied if isinstance(c, Go) and op.startswith("cutover.")]
    night.world.advance(3)
    assert night.world.mode("dest1") == night.world.mode("dest3") == "observer"
    night.back_again()
    assert night.again().resume().code == 7
    assert night.phases() == ["idle"] * 3


def test_with_a_lost_journal_nobody_goes_back_while_a_silent_host_may_have_go(
    night: Night, tmp_path: Path
) -> None:
    assert night.operator.forward(until="cutover.seal").code == 0
    copy = (night.operator.run_dir / "journal.jsonl").read_bytes()
    order = Go("dest1", "first", tuple(f"10.0.0.1{n}:2181" for n in (1, 2, 3)), 2, 10_000)
    assert night.world.apply(order, "cutover.go.dest1.99.1", 1)[0] == 0
    Journal.recover(tmp_path / "again", lambda: night.world.wall, copies=[copy]).close()
    night.operator.run_dir = tmp_path / "again"

    class Events(list[Event]):
        def append(self, event: Event) -> None:
            super().append(event)
            if isinstance(event, StepBegun) and (event.step, event.way) == ("go", Way.BACK):
                night.silent.add("dest1")

    night.again().events = Events()
    assert night.operator.back("cutover").code == 8
    assert night.phases()[1:] == ["sealed", "sealed"]


def test_a_rollback_is_refused_while_a_host_that_may_have_go_is_not_heard(night: Night) -> None:
    night.lose["dest2"] = "deaf"
    assert night.operator.forward(until="cutover.check").code == 0
    halted = len([c for c, _ in night.world.applied if c.verb == "halt"])
    ended = night.again().back("cutover")
    assert ended.code == 6, "meanwhile the hosts opened by themselves"
    assert [f.id for f in ended.findings] == ["open.no-way-back"]
    assert len([c for c, _ in night.world.applied if c.verb == "halt"]) == halted, "nobody was halted"
    night.back_again()
    assert night.again().resume(until="verify").code == 0
    assert night.phases() == ["open"] * 3


@pytest.mark.parametrize("how", ["before", "after"])
def test_verify_and_finalize_end_with_a_host_that_died_for_good(night: Night, how: str) -> None:
    night.lose["dest1"] = how
    began = night.world.now
    assert night.operator.forward().code == 0
    assert night.world.now - began < 400
    assert [f.target for f in night.found("verify.missing")] == ["dest1"]
    assert [f.target for f in night.found("finalize.left")] == ["dest1"]
    assert all("host-died.md" in f.moves[0] for f in night.found("verify.missing"))
    assert [bool(night.world.hosts[host].installed) for host in DEST] == [True, False, False]


def test_finalize_waits_for_a_silent_host_that_verify_has_seen(night: Night) -> None:
    assert night.operator.forward(until="verify").code == 0
    night.silent.add("dest2")
    ended = night.again().resume()
    assert (ended.code, [f.id for f in ended.findings]) == (6, ["finalize.answer"])


def test_a_host_that_comes_back_after_verify_is_let_in_before_finalize(night: Night) -> None:
    night.lose["dest3"] = "before"
    assert night.operator.forward(until="verify").code == 0
    night.back_again()
    ended = night.again().resume()
    assert ended.code == 0
    assert night.found("finalize.left") == []
    assert night.modes() == ["follower", "follower", "leader"]
    assert night.phases() == ["idle"] * 3


def test_a_machine_put_in_the_place_of_a_dead_host_is_not_missing(night: Night) -> None:
    night.lose["dest3"] = "before"
    assert night.operator.forward(until="cutover").code == 0
    night.back_again()
    host, config = night.world.hosts["dest3"], night.world.inventory.dest.config
    host.installed, host.phase, host.armed, host.disk = b"", "idle", False, None
    host.files[config] = night.world.hosts["dest1"].files[config]
    host.fence.empty()
    host.cut.empty()
    host.start(night.world.now)
    night.world.advance(5)
    assert night.again().resume().code == 0
    assert night.found("verify.missing") == []
    assert night.modes() == ["follower", "follower", "leader"]


def test_a_missing_host_that_starts_again_and_again_does_not_make_verify_wait(night: Night) -> None:
    night.lose["dest3"] = "before"
    assert night.operator.forward(until="cutover").code == 0
    night.back_again()
    host = night.world.hosts["dest3"]
    host.set_phase("go", night.world.now)
    night.world.advance(20)
    host.start(night.world.now)
    c = Context("run", night.world.inventory)
    assert VerifyStep(KAFKA).observe(c, cast(Look, WorldLook(night.world))).settled_for > 20
