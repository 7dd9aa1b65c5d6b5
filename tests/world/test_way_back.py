"""The way back and the way on when a host is not heard, dies, is late, or the journal is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.model.host import File, Host
from tests.world.model.look import WorldLook
from tests.world.model.world import World
from tests.world.operator import Operator, quiet_world
from tests.world.rolled import rolled
from zkmigrate.errors import HostError
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.steps import check
from zkmigrate.move.steps.go import GoStep
from zkmigrate.runbook.engine import journal
from zkmigrate.runbook.engine.events import ChangeSent, Consented, StepEnded, Turned
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.model.change import Change, HostVerb, Outcome, Seal
from zkmigrate.runbook.model.fact import Reading, Unknown
from zkmigrate.runbook.model.finding import Finding, claim
from zkmigrate.runbook.model.step import Context, Waiting, Way
from zkmigrate.zookeeper.facts.ensemble import EnsembleView


def phases(world: World) -> dict[str, str]:
    return {name: world.hosts[name].phase for name in world.inventory.dest_names}


def doors_shut(world: World) -> list[str]:
    return [n for n in world.inventory.dest_names if world.hosts[n].fence.holds(world.now)]


def silenced(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> list[str]:
    """The hosts that answer no question of zkm-host's any more, to be added to and taken from."""
    dead = list(hosts)
    answer = WorldLook.zkm

    def zkm(look: WorldLook, host: str, *words: str) -> Reading[str]:
        return Unknown("timeout", "no answer") if host in dead else answer(look, host, *words)

    monkeypatch.setattr(WorldLook, "zkm", zkm)
    return dead


def refuse_in_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHECK finds something wrong, but only in the real window."""
    right = check.quorum

    def quorum(c: Context, servers: EnsembleView) -> tuple[Finding, ...]:
        return right(c, servers) if c.rehearsal else (claim("check.quorum", "a quorum", False),)

    monkeypatch.setattr(check, "quorum", quorum)


def test_one_answer_that_does_not_come_on_the_way_back_leaves_no_door_shut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    refuse_in_the_window(monkeypatch)
    halted: list[str] = []
    unheard: list[str] = []
    answer, act = WorldLook.zkm, operator._apply

    def zkm(look: WorldLook, host: str, *words: str) -> Reading[str]:
        if len(halted) == 3 and host == "dest2" and words[0] in ("phase", "status") and not unheard:
            unheard.append(host)
            return Unknown("timeout", "no answer")
        return answer(look, host, *words)

    def apply(change: Change, operation: str, fencing: int) -> Outcome:
        if isinstance(change, HostVerb) and change.verb == "halt" and operation.startswith("cutover."):
            halted.append(change.where)
        return act(change, operation, fencing)

    monkeypatch.setattr(WorldLook, "zkm", zkm)
    monkeypatch.setattr(operator, "_apply", apply)
    assert operator.forward(until="cutover").code == 7
    assert unheard == ["dest2"]
    assert doors_shut(world) == []
    assert set(phases(world).values()) == {"idle"}


def test_where_another_run_acted_its_program_stays_and_the_way_back_ends(tmp_path: Path) -> None:
    world = quiet_world()
    state, shared = "/var/lib/zkmigrate/r2", ("dest2", "broker3")
    others = {f"{state}/{name}": File(b"r2's", "0600", "root:root") for name in ("ops/a.1", "staged/a.1")}
    for host in shared:
        world.hosts[host].files.update(others)
    operator = Operator(world, tmp_path / "run")
    assert operator.forward(until="join").code == 0
    assert operator.back().code == 0
    assert {name for name, host in world.hosts.items() if host.installed} == set(shared)
    assert all(others.items() <= world.hosts[host].files.items() for host in shared)
    ended = [f for e in operator.events if isinstance(e, StepEnded) for f in e.findings]
    told = {f.target: f.seen for f in ended if f.id == "install.gone"}
    assert told == dict.fromkeys(shared, "zkm-host stays installed for r2")


def test_a_host_that_dies_while_sealing_keeps_no_other_host_shut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    dead = silenced(monkeypatch)
    act = operator._apply

    def apply(change: Change, operation: str, fencing: int) -> Outcome:
        if isinstance(change, Seal) and operation.startswith("cutover.") and change.where == "dest3":
            dead.append("dest3")
        if change.where in dead:
            raise HostError("dest3: no answer")
        return act(change, operation, fencing)

    monkeypatch.setattr(operator, "_apply", apply)
    ended = operator.forward(until="cutover")
    assert ended.code == 8
    assert "host.dest3" in {f.id for f in ended.findings}
    assert doors_shut(world) == ["dest3"]
    assert {world.mode("dest1"), world.mode("dest2")} == {"observer"}
    dead.clear()
    monkeypatch.setattr(operator, "_apply", act)
    assert operator.resume().code == 7
    assert doors_shut(world) == []
    assert set(phases(world).values()) == {"idle"}


@pytest.mark.parametrize("verb", ["fence", "cut", "stopped"])
def test_a_host_that_dies_before_the_seal_keeps_no_other_host_shut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    dead = silenced(monkeypatch)
    act = operator._apply

    def apply(change: Change, operation: str, fencing: int) -> Outcome:
        if change.where in dead:
            raise HostError("dest3: no answer")
        outcome = act(change, operation, fencing)
        if change.verb == verb and operation.startswith("cutover.") and change.where == "dest3":
            dead.append("dest3")
        return outcome

    monkeypatch.setattr(operator, "_apply", apply)
    ended = operator.forward(until="cutover")
    assert ended.code == 8
    assert "host.dest3" in {f.id for f in ended.findings}
    sent = [e for e in operator.events if isinstance(e, ChangeSent) and e.operation.startswith("cutover.")]
    assert {e.target for e in sent if e.change.verb == "reopen"} == {"dest1", "dest2"}
    assert {"dest1", "dest2"}.isdisjoint(doors_shut(world))


def test_a_host_that_dies_after_go_while_the_others_open_alone_turns_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    assert operator.forward(until="cutover.go").code == 0
    dead = silenced(monkeypatch, "dest3")
    assert operator.resume(until="cutover").code == 0
    warned = {f.id for e in operator.events if isinstance(e, StepEnded) for f in e.findings if not f.blocks}
    assert "serve.late" in warned
    assert {phases(world)[h] for h in ("dest1", "dest2")} == {"open"}
    dead.clear()
    assert operator.resume().code == 0


def test_one_open_host_ends_the_way_back_though_another_is_not_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    refuse_in_the_window(monkeypatch)
    dead = silenced(monkeypatch)
    act = operator._apply

    def apply(change: Change, operation: str, fencing: int) -> Outcome:
        if isinstance(change, HostVerb) and change.verb == "halt" and operation.startswith("cutover."):
            world.advance(30.0)  # the operator was slow: the hosts reach their own limit
            dead.append("dest3")
            raise HostError(f"{change.where}: no answer")
        return act(change, operation, fencing)

    monkeypatch.setattr(operator, "_apply", apply)
    ended = operator.forward(until="cutover")
    assert ended.code == 6
    assert [f.id for f in ended.findings] == ["open.no-way-back"]
    assert journal.read(operator.run_dir).way is Way.FORWARD


@pytest.mark.parametrize(("stalled", "code"), [({"dest3"}, 7), ({"dest2", "dest3"}, 6)])
def test_a_halt_that_comes_after_a_hosts_own_limit_splits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stalled: set[str], code: int
) -> None:
    """A minority has no quorum to open with; a majority opens, and whoever was halted joins it again."""
    operator = rolled(tmp_path)
    world = operator.world
    refuse_in_the_window(monkeypatch)
    act = operator._apply
    waiting: list[Change] = []
    halted: set[str] = set()

    def apply(change: Change, operation: str, fencing: int) -> Outcome:
        if isinstance(change, HostVerb) and change.verb == "halt" and operation.startswith("cutover."):
            if change.where in stalled and change not in waiting:
                waiting.append(change)
                raise HostError(f"{change.where}: no answer")
            outcome = act(change, operation, fencing)
            halted.add(change.where)
            if halted == set(world.inventory.dest_names) - stalled:
                with world.lock:
                    world.advance(30.0)
            return outcome
        return act(change, operation, fencing)

    monkeypatch.setattr(operator, "_apply", apply)
    ended = operator.forward(until="cutover")
    assert ended.code == code
    assert {c.where for c in waiting} == stalled
    if code == 7:
        assert doors_shut(world) == []
        assert {world.mode(h) for h in world.inventory.dest_names} == {"observer"}
        return
    assert {h: phases(world)[h] for h in stalled} == dict.fromkeys(stalled, "open")
    monkeypatch.undo()
    assert Operator(world, operator.run_dir).resume().code == 0
    assert doors_shut(world) == []
    assert sorted(world.mode(h) for h in world.inventory.dest_names) == ["follower", "follower", "leader"]


@pytest.mark.parametrize("question", ["word", "file"])
def test_the_way_back_waits_for_no_answer_of_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    refuse_in_the_window(monkeypatch)
    asked: list[str] = []
    answer = getattr(WorldLook, question)

    def recorded(look: WorldLook, host: str, what: str) -> object:
        turned = [e for e in operator.events if isinstance(e, Turned) and e.to == "cutover"]
        if turned and host in world.inventory.source_names:
            asked.append(f"{host} {what}")
        return answer(look, host, what)

    monkeypatch.setattr(WorldLook, question, recorded)
    assert operator.forward(until="cutover").code == 7
    assert asked == []


def test_what_is_left_until_a_host_opens_alone_counts_from_when_it_served(tmp_path: Path) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    assert operator.forward(until="cutover.serve").code == 0
    world.advance(8.0)
    with world.lock:
        for host in world.inventory.dest_names:
            assert world.apply(HostVerb(host, "checked"), f"by-hand-{host}", 1)[0] == 0
    context = Context(run="run", inventory=world.inventory, way=Way.BACK)
    verdict = GoStep(KAFKA).check(context, GoStep(KAFKA).observe(context, WorldLook(world)))
    assert isinstance(verdict, Waiting)
    assert set(phases(world).values()) == {"checked"}


def test_hosts_that_would_wait_for_open_longer_than_a_session_lives_are_refused_before_the_fence(
    tmp_path: Path,
) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    policy = world.inventory.policy.model_copy(update={"open_limit_s": 15.5})
    world.inventory = world.inventory.model_copy(update={"policy": policy})
    ended = operator.forward(until="cutover")
    assert ended.code == 7
    assert [f.id for f in ended.findings if f.blocks] == ["survey.open-limit"]


def test_a_host_that_does_not_come_up_after_go_does_not_turn_the_others_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    ready = Host.ready

    def late(host: Host, now: float) -> bool:
        stuck = host.name == "dest3" and host.phase == "go" and host.spec.get("rehearsal") != "yes"
        return not stuck and ready(host, now)

    monkeypatch.setattr(Host, "ready", late)
    assert operator.forward(until="cutover").code == 0
    assert phases(world) == {"dest1": "open", "dest2": "open", "dest3": "go"}
    monkeypatch.setattr(Host, "ready", ready)
    world.advance(30.0)
    assert operator.resume().code == 0
    assert sorted(world.mode(h) for h in world.inventory.dest_names) == ["follower", "follower", "leader"]


@pytest.mark.parametrize("until", ["join", "roll"])
def test_without_its_journal_a_run_can_still_be_walked_back(tmp_path: Path, until: str) -> None:
    world = quiet_world()
    assert Operator(world, tmp_path / "run").forward(until=until).code == 0
    copy = (tmp_path / "run" / "journal.jsonl").read_bytes()
    journal = Journal.recover(tmp_path / "again", lambda: world.wall, copies=[copy])
    journal.close()
    assert Operator(world, tmp_path / "again").back().code == 0
    assert all(p.connected.startswith("source") for p in world.brokers.values())
    assert not any(world.hosts[h].running for h in world.inventory.dest_names)


def test_a_closed_gate_of_the_cut_over_turns_nothing_back_and_asks_again(tmp_path: Path) -> None:
    operator = rolled(tmp_path)
    world = operator.world
    world.hosts["dest1"].stop()
    ended = operator.forward(until="cutover")
    assert (ended.code, ended.message) == (6, "cutover.preflight is blocked; fix the findings, then resume")
    assert "dest.observing" in {f.id for f in ended.findings if f.blocks}
    assert not any(isinstance(e, Turned) and e.way is Way.BACK for e in operator.events)
    world.hosts["dest1"].start(world.now)
    world.advance(10.0)
    assert operator.resume(until="cutover").code == 0
    asked = [e.stage for e in operator.events if isinstance(e, Consented) and not e.step]
    assert asked.count("cutover") == 2, "mending may take days: the question comes again"
