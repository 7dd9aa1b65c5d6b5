"""The switch of topics over its model world: killed, cut off, taken over, there and back."""

from __future__ import annotations

import math
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playbooks.kafka_topic_move import PLAYBOOK
from tests.examples import every, examples
from tests.world.operator import Killed
from tests.world.switch import operator as operators
from tests.world.switch.clients import Flight
from tests.world.switch.logs import Cluster, Part
from tests.world.switch.look import NOBODY, ModelMirror, SwitchLook
from tests.world.switch.operator import Fault, Operator, inventory
from tests.world.switch.runs import Story, drawn, told
from tests.world.switch.site import WRITE, Shape, World
from zkmigrate.report.build import build
from zkmigrate.report.page import page
from zkmigrate.report.sources import read
from zkmigrate.report.tables import tables
from zkmigrate.runbook.engine.events import Event, RunEnded, StepEnded, Turned
from zkmigrate.runbook.engine.plan import make
from zkmigrate.runbook.model.change import Change, Outcome, SetService
from zkmigrate.runbook.model.finding import Held, Severity
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context, Done, Verdict
from zkmigrate.runbook.runs import left_window
from zkmigrate.runbook.runs.left_window import SHUT_OUT, Kind
from zkmigrate.runbook.runs.run_status import lines, of_run, told_by
from zkmigrate.topics.gateway.order import GatewayOrder
from zkmigrate.topics.gateway.rules.hold import Gate
from zkmigrate.topics.gateway.rules.outcomes import DELIVERY_S
from zkmigrate.topics.topic_move.check_step import CheckFacts, CheckStep

KILLS = 64
"""More changes than a whole switch has."""


def at_work(shape: Shape | None = None, seed: int = 1) -> World:
    """A world whose clients have been at work for some seconds."""
    world = World(seed, shape or Shape())
    world.advance(3.0)
    return world


def operator(world: World, folder: Path, *faults: Fault) -> Operator:
    return Operator(world, folder / "r-1", list(faults))


def ended(one: Operator) -> tuple[int, str]:
    """How its next process ends."""
    said = one.resume() if one.begun else one.forward()
    assert said is not None
    return said.code, said.message


def exit_of(ended: RunEnded | None) -> int:
    """That of a process that nobody killed."""
    assert ended is not None
    return ended.code


def rests(world: World, cluster: Cluster, after_s: float = 10.0) -> None:
    """After so long this cluster is in force, and has all."""
    world.advance(after_s)
    world.at_rest(cluster)


@pytest.mark.parametrize("gateways", [1, 2, 3])
def test_h11_h12_all_clients_come_along_and_nothing_is_lost_or_twice(tmp_path: Path, gateways: int) -> None:
    world = at_work(Shape(gateways, apps=("orders", "audit")))
    before = len(world.acked)
    assert ended(operator(world, tmp_path)) == (0, "kafka_topic_move is complete")
    assert world.switched == 1
    rests(world, world.target)
    assert [consumer.repeats for consumer in world.consumers] == [0, 0]
    assert len(world.acked) > before > 0


@pytest.mark.parametrize("seed", range(1, 6))
def test_consumers_commit_what_they_were_delivered_before_the_hold(tmp_path: Path, seed: int) -> None:
    """They commit nearly as seldom as the time to settle allows."""
    world = at_work(Shape(apps=("orders", "audit"), commits_s=1.0), seed)
    one = operator(world, tmp_path)
    assert ended(one) == (0, "kafka_topic_move is complete")
    assert named(one) == {}
    rests(world, world.target)
    assert [consumer.repeats for consumer in world.consumers] == [0, 0]


def named(one: Operator) -> dict[str, int]:
    """The groups that were named for what they would get twice, and how many records at most."""
    found = [f for event in one.events if isinstance(event, StepEnded) for f in event.findings]
    late = [f for f in found if f.id == "switch.settled" and f.held is Held.NO]
    return {f.target: int(re.findall(r"at most ([\d,]+), and", f.seen)[0].replace(",", "")) for f in late}


@pytest.mark.parametrize("seed", range(1, 4))
def test_h12_a_group_that_does_not_settle_is_named_before_consent_with_how_many_come_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The other group is not named, and gets nothing twice."""
    world, looked = at_work(seed=seed), [0]
    slow, other = world.consumers
    slow.steady = False
    reads = ModelMirror.reads

    def counted(self: ModelMirror, topics: Any, groups: Any) -> Any:
        looked.append(sum(map(len, world.source.logs.values())))
        return reads(self, topics, groups)

    monkeypatch.setattr(ModelMirror, "reads", counted)
    one = operator(world, tmp_path)
    assert exit_of(one.forward(until="preflight")) == 0
    assert list(named(one)) == [slow.group]
    most, then = named(one)[slow.group], looked[-1]
    assert ended(one) == (0, "kafka_topic_move is complete")
    rests(world, world.target)
    held = sum(offset for _, _, offset in one.history.records()["drain"]["ends"])
    assert most > 0
    assert 0 < slow.repeats <= most + held - then
    assert other.repeats == 0


def copying(world: World, speed: float) -> None:
    """How fast every copier is from now on."""
    for host in world.hosts.values():
        for unit in host.units.values():
            unit.speed = speed


def test_h14_a_mirror_that_falls_behind_while_consumers_settle_is_not_held_for(tmp_path: Path) -> None:
    world = at_work()
    one = operator(world, tmp_path)
    seen = changed(one, "settle", lambda _order, _fencing: copying(world, 0.0))
    code, said = ended(one)
    assert seen
    assert code == 7
    assert "switch.settle-lag" in said
    assert one.changes["switch.hold"] == 0
    assert one.changes["rehearse.hold"] > 0
    rests(world, world.source)


def test_h14_a_mirror_that_is_close_again_within_the_lease_is_waited_for(tmp_path: Path) -> None:
    world = at_work()
    one = operator(world, tmp_path)

    def stumble(_order: GatewayOrder, _fencing: int) -> None:
        copying(world, 0.0)
        world.later(3.5, lambda: copying(world, 500.0))

    seen = changed(one, "settle", stumble)
    assert ended(one) == (0, "kafka_topic_move is complete")
    assert seen
    rests(world, world.target)
    assert [consumer.repeats for consumer in world.consumers] == [0, 0]


def test_h17_there_and_back_and_there_again(tmp_path: Path) -> None:
    world = at_work()
    for number in range(3):
        one = Operator(world, tmp_path / f"r-{number}")
        assert ended(one) == (0, "kafka_topic_move is complete"), number
        world.advance(10.0)
        world.at_rest(world.target)
        world.turn()
    assert world.switched == 3
    assert [consumer.repeats for consumer in world.consumers] == [0, 0]


def test_a_run_whose_clients_another_run_led_back_has_no_way_back_either(tmp_path: Path) -> None:
    """Its gateways look as before it began."""
    world = at_work()
    first = operator(world, tmp_path)
    assert exit_of(first.forward(until="verify")) == 0
    world.turn()
    world.advance(10.0)
    assert ended(Operator(world, tmp_path / "r-back")) == (0, "kafka_topic_move is complete")
    world.turn()
    world.advance(10.0)
    said = first.back()
    assert said is not None
    assert (said.code, "has no way back" in said.message) == (6, True)
    world.at_rest(world.source)


def test_h23_the_end_stops_the_copiers_and_says_who_still_knows_only_left_ports(tmp_path: Path) -> None:
    world = at_work()
    one = operator(world, tmp_path)
    assert exit_of(one.forward(until="verify")) == 0
    assert all(host.units["old"].running for host in world.hosts.values()), "the way back is kept"
    assert ended(one) == (0, "kafka_topic_move is complete")
    assert not any(unit.running for host in world.hosts.values() for unit in host.units.values())
    assert "switch.left-ports" in (one.run_dir / "journal.jsonl").read_text()


def test_h7_the_right_to_write_on_target_goes_with_the_way_back(tmp_path: Path) -> None:
    world = at_work()
    one = operator(world, tmp_path, Fault(1, "die-after", step="switch.grant"))
    assert one.forward() is None
    assert set(world.granted_at) == {"old", "new"}
    assert exit_of(one.back()) == 0
    assert set(world.granted_at) == {"old"}
    rests(world, world.source)
    assert ended(Operator(world, tmp_path / "r-2")) == (0, "kafka_topic_move is complete")
    assert set(world.granted_at) == {"old", "new"}


def test_h7_a_right_that_nobody_can_take_away_keeps_no_client_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = at_work()
    one = operator(world, tmp_path, Fault(1, "die-after", step="switch.grant"))
    assert one.forward() is None
    monkeypatch.setattr(ModelMirror, "granted", lambda *_: NOBODY)
    assert exit_of(one.back()) == 8
    rests(world, world.source)
    monkeypatch.undo()
    assert ended(one)[0] == 0
    assert set(world.granted_at) == {"old"}


def test_h25_the_plan_shows_each_order_before_the_run() -> None:
    world = at_work()
    plan = make(PLAYBOOK, inventory(world), cast(Look, SwitchLook(world)), ())
    steps = {f"{stage.id}.{step.id}": step for stage in plan.stages for step in stage.steps}
    orders = {name: [c.text for of in step.targets.values() for c in of] for name, step in steps.items()}
    assert plan.unknown == {}
    assert orders["switch.grant"] == [f"grant on target: {WRITE}"]
    route = f"route {world.apps[0]} to {world.target.name}"
    assert set(orders["switch.arm"]) == {f"send the gateway an order: {route}"}
    for step in ("settle", "hold", "seal", "go", "open"):
        assert len(orders[f"switch.{step}"]) == len(world.gateways)
    assert "unhold" in orders["switch.open"][0]
    assert world.switched == 0


def test_h25_the_report_tells_lag_rates_parked_requests_and_who_connected_again(tmp_path: Path) -> None:
    world = at_work(Shape(apps=("orders", "audit")))
    one = replace(operator(world, tmp_path), samples=True)
    assert ended(one) == (0, "kafka_topic_move is complete")
    report = build(read(one.run_dir), PLAYBOOK)
    drawn = {(curve.plot, curve.name): [value for _, value in curve.points] for curve in report.curves}
    assert {("records/s", "old"), ("answers/s", "orders"), ("answers/s", "audit")} <= drawn.keys()
    assert drawn["records behind", "old to new"][-1] == 0.0
    assert max(drawn["parked requests", "PRODUCE"]) == len(world.producers)
    assert drawn["parked requests", "PRODUCE"][-1] == 0.0
    [felt] = [table for table in tables(report) if table.title == "What clients noticed"]
    assert [row[:2] for row in felt.rows] == [
        (app, gw) for app in ("audit", "orders") for gw in world.gateways
    ]
    for _, gateway, parked, longest, again, missing in felt.rows:
        own = {client.id for client in world.clients if client.gateway.name == gateway}
        assert "PRODUCE" in parked
        assert "PRODUCE" in longest
        assert 0 < int(again.partition(" ")[0]) < len(own)
        assert missing == "none"
    text = page(report)
    assert "What clients noticed" in text
    assert "The mirror and the gateways" in text


def test_h25_verify_names_a_client_that_did_not_connect_again(tmp_path: Path) -> None:
    world = at_work()
    world.clients.remove(world.producers[0])
    one = operator(world, tmp_path)
    assert ended(one) == (0, "kafka_topic_move is complete")
    named = f"1 of gw1:orders ({world.producers[0].id} at peer)"
    found = [finding for visit in build(read(one.run_dir), PLAYBOOK).visits for finding in visit.findings]
    [clients] = [finding for finding in found if finding.id == "switch.clients"]
    assert (clients.held, clients.severity) == (Held.NO, Severity.WARN)
    assert clients.seen.endswith(f"not connected again: {named}")


def test_h25_a_rehearsal_leaves_all_as_it_was(tmp_path: Path) -> None:
    world = at_work()
    assert exit_of(operator(world, tmp_path).forward(until="rehearse")) == 0
    rests(world, world.source, 5.0)
    assert all(host.units["new"].running for host in world.hosts.values())
    assert [consumer.repeats for consumer in world.consumers] == [0, 0]


@pytest.mark.parametrize("kind", ["die-before", "die-after"])
@pytest.mark.parametrize("on", [True, False])
def test_h16_an_operator_killed_at_any_change_is_followed_by_one_who_goes_on_or_back(
    tmp_path: Path, kind: str, on: bool
) -> None:
    """After the first application has gone on there is no way back, and the next operator says so."""
    for number in range(1, KILLS, every(4)):
        world = at_work(seed=number)
        one = operator(world, tmp_path / str(number), Fault(number, kind))  # type: ignore[arg-type]
        if one.forward() is not None:
            assert number > 30, "the whole switch has more changes"
            return
        world.advance(number // 4 % 3 * 4.0)
        said = one.resume() if on else one.back()
        for _ in range(3):
            if said is not None and said.code == 0:
                break
            assert said is not None
            assert said.code in (6, 7, 9), said
            said = one.resume() if said.code == 6 else one.forward()
        assert said is not None
        assert said.code == 0, (number, said)
        world.advance(20.0)
        world.at_rest(world.writer)
        shutil.rmtree(tmp_path / str(number))
    raise AssertionError("a switch with so many changes")


def test_h16_status_tells_where_the_applications_of_a_killed_run_stand(tmp_path: Path) -> None:
    world = at_work(Shape(gateways=2))
    one = operator(world, tmp_path)

    def die(_order: GatewayOrder, _fencing: int) -> None:
        raise Killed

    changed(one, "go", die)
    assert one.forward() is None
    world.gateways["gw2"].silent = True
    status = told_by(cast(Look, SwitchLook(world)), PLAYBOOK, inventory(world))
    assert re.fullmatch(r"orders sealed on old, \d+ in flight", status["gw1"])
    assert status["gw2"] == str(NOBODY)
    body = {**of_run(one.run_dir, PLAYBOOK, (), world.wall), "told": status}
    assert [f"  {host}: {text}" for host, text in status.items()] == lines(body)[-2:]


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32 - 1))
def test_whatever_befalls_operators_and_gateways_one_cluster_is_written_and_has_all(seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="switch-") as folder:
        told(drawn(seed), Path(folder))


def test_a_seed_gives_one_run(tmp_path: Path) -> None:
    """What a seed broke can be seen again."""

    def once(name: str) -> Story:
        return told(drawn(5), tmp_path / name)

    assert once("a") == once("b")


@pytest.mark.parametrize("wrong", ["bypass", "on-target"])
def test_h20_the_run_turns_back_by_itself(tmp_path: Path, wrong: str) -> None:
    """A producer beside the gateways, and a group with members on target."""
    world = at_work()
    one = operator(world, tmp_path)
    setattr(world, wrong.replace("-", "_"), world.t + 4.0)
    code, _ = ended(one)
    assert code in (3, 6, 7)
    assert world.switched == 0
    rests(world, world.source, 20.0)


def test_a_copier_that_somebody_starts_again_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would go on writing on target beside the clients."""
    world, compared = at_work(), count(1)
    differences = ModelMirror.differences

    def started(self: ModelMirror, ranges: Mapping[Part, tuple[int, int]]) -> Any:
        if next(compared) == LAST_COMPARED:
            world.hosts["m1"].units[world.target.name].start()
        return differences(self, ranges)

    monkeypatch.setattr(ModelMirror, "differences", started)
    assert ended(operator(world, tmp_path))[0] == 0
    assert next(compared) > LAST_COMPARED
    world.advance(10.0)
    assert not world.hosts["m1"].units["new"].running
    world.at_rest(world.target)


@pytest.mark.parametrize("step", ["drain", "seal", "go", "open", "turn"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_copier_that_comes_back_writes_nothing_on_the_cluster_that_leads(
    tmp_path: Path, step: str, number: int
) -> None:
    """Each mirror host boots, and somebody starts copiers by hand, before some change and at the end."""
    world = at_work()
    one = operator(world, tmp_path)
    send, sent = one._send, Counter[str]()
    stage = "after" if step == "turn" else "switch"

    def back(change: Change, operation: str, fencing: int) -> Outcome | None:
        if operation.startswith(f"{stage}.{step}."):
            sent[step] += 1
            if sent[step] == number:
                return_of_copiers(world)
        return send(change, operation, fencing)

    one._send = back  # type: ignore[method-assign]
    assert exit_of(one.forward(until="verify")) == 0
    return_of_copiers(world)
    rests(world, world.target)
    assert not any(copier.running for copier in world.strangers)
    for host in world.hosts.values():
        assert [(unit.running, unit.enabled) for unit in host.units.values()] == [
            (False, False),
            (True, True),
        ]


def return_of_copiers(world: World) -> None:
    """As often as a mirror host may boot, and an operator may err."""
    for host in world.hosts.values():
        host.reboot()
    world.by_hand()
    world.advance(0.2)


LAST_COMPARED = 4
"""ARM and PROVE compare records, in the rehearsal and in the switch."""


@pytest.mark.parametrize(("seconds", "code"), [(1.0, 0), (4.0, 7)])
def test_a_gateway_that_does_not_reach_target_turns_the_run_back(
    tmp_path: Path, seconds: float, code: int
) -> None:
    """While the applications still wait; a moment is waited for."""
    world = at_work()
    one = operator(world, tmp_path)

    def cut(_go: GatewayOrder, _fencing: int) -> None:
        world.unreached = world.t + seconds

    assert not changed(one, "go", cut)
    assert ended(one)[0] == code
    assert world.switched == (0 if code else 1)
    rests(world, world.source if code else world.target, 20.0)


def changed(one: Operator, order: str, act: Callable[[GatewayOrder, int], None]) -> list[str]:
    """Let something happen before the first order of a kind that goes to a gateway in ``switch``. The list
    gets that order's gateway."""
    seen: list[str] = []
    send = one._send

    def sent(change: Change, operation: str, fencing: int) -> Outcome | None:
        if (
            isinstance(change, GatewayOrder)
            and change.order == order
            and ".switch." in operation
            and not seen
        ):
            seen.append(change.host)
            act(change, fencing)
        return send(change, operation, fencing)

    one._send = sent  # type: ignore[method-assign]
    return seen


def test_h14_a_hold_that_lapsed_is_not_sealed_however_it_looks(tmp_path: Path) -> None:
    """The gateway held again, by an order that came late: between both holds its clients wrote."""
    world = at_work(Shape(gateways=1))
    one = operator(world, tmp_path)

    def lapse(seal: GatewayOrder, fencing: int) -> None:
        world.advance(6.0)
        assert world.gateways["gw1"].real.app("orders").gate is Gate.OPEN
        late = GatewayOrder("gw1", "hold", "orders", ttl_ms=4_000)
        done = world.apply(late, "r-1.late", fencing)
        assert done is not None
        assert done.rc == 0

    seen = changed(one, "seal", lapse)
    code, _ = ended(one)
    assert seen
    assert code == 7
    assert world.switched == 0
    rests(world, world.source, 20.0)


def cutting(world: World) -> Callable[[GatewayOrder, int], None]:
    """End connections on which a producer waits for its answer."""

    def cut(_order: GatewayOrder, _fencing: int) -> None:
        while not world.cut():
            world.advance(0.05)

    return cut


def test_an_answer_that_is_lost_while_consumers_settle_keeps_nobody(tmp_path: Path) -> None:
    """Its producer sends the record again, and the hold begins after the answer to that."""
    world = at_work()
    one = operator(world, tmp_path)
    seen = changed(one, "settle", cutting(world))
    assert ended(one) == (0, "kafka_topic_move is complete")
    assert seen
    rests(world, world.target)


def test_an_answer_that_is_lost_as_the_hold_begins_turns_the_run_back(tmp_path: Path) -> None:
    """The retry waits at the gate. Behind the switch it would be a second record."""
    world = at_work()
    one = operator(world, tmp_path)
    seen = changed(one, "hold", cutting(world))
    code, said = ended(one)
    assert seen
    assert (code, "switch.outcomes" in said) == (7, True), said
    assert one.changes["switch.drain"] == one.changes["switch.seal"] == world.switched == 0
    rests(world, world.source)
    assert ended(Operator(world, tmp_path / "r-2")) == (0, "kafka_topic_move is complete")
    rests(world, world.target)


def test_a_producer_that_does_not_send_again_is_waited_for_before_anybody_waits(tmp_path: Path) -> None:
    """It died, or gave the record up."""
    world = at_work()
    lost = world.producers[0]
    while not lost.flights:
        world.advance(0.05)
    lost.lost()
    world.clients.remove(lost)
    began, one = world.t, operator(world, tmp_path)
    assert ended(one) == (0, "kafka_topic_move is complete")
    found = {f.id: f for event in one.events if isinstance(event, StepEnded) for f in event.findings}
    assert (found["switch.outcomes"].held, found["switch.outcomes"].severity) == (Held.NO, Severity.WARN)
    assert world.t - began > DELIVERY_S


def test_a_request_that_takes_long_is_waited_for(tmp_path: Path) -> None:
    """Its broker answers a second after the hold; nobody turns back for that."""
    world = at_work()
    one = operator(world, tmp_path)

    def slow(_order: GatewayOrder, _fencing: int) -> None:
        def sent() -> list[Flight]:
            return [flight for flight in world.flights if flight.kind == "PRODUCE" and flight.arrives]

        while not sent():
            world.advance(0.05)
        flight = sent()[0]
        flight.arrives, flight.answered = world.t + 0.8, world.t + 1.0

    seen = changed(one, "hold", slow)
    assert ended(one)[0] == 0
    assert seen
    rests(world, world.target)


def test_a_copied_record_that_went_around_the_gateways_turns_the_run_back(
    tmp_path: Path,
) -> None:
    """The next one would be lost."""
    world = at_work()
    one = operator(world, tmp_path)
    send, stops = one._send, Counter[str]()

    def around(change: Change, operation: str, fencing: int) -> Outcome | None:
        if isinstance(change, SetService) and operation.startswith("switch.drain."):
            stops[change.action] += 1
            if stops[change.action] == 1 and change.action == "stop":
                for part in world.parts:
                    world.source.append(part, "around")
                world.advance(0.2)
        return send(change, operation, fencing)

    one._send = around  # type: ignore[method-assign]
    assert ended(one)[0] == 7
    assert stops["stop"] == stops["start"] == 2
    assert world.switched == 0
    rests(world, world.source)


@pytest.mark.parametrize(("verb", "led"), [("seal", False), ("go", True)])
def test_h11_a_record_that_goes_around_the_gateways_after_the_proof_turns_the_run_back(
    tmp_path: Path, verb: str, led: bool
) -> None:
    """No copier runs any more, so it would stay on source alone. It comes before GO, or after it."""
    world = at_work()
    one = operator(world, tmp_path)
    send, written = one._send, Counter[str]()

    def around(change: Change, operation: str, fencing: int) -> Outcome | None:
        done = send(change, operation, fencing)
        if not isinstance(change, GatewayOrder):
            return done
        written[change.order] += 1
        if change.order == verb and written[verb] == 1:
            for part in world.parts:
                world.source.append(part, "around")
        return done

    one._send = around  # type: ignore[method-assign]
    code, said = ended(one)
    assert code == 7
    assert "switch.bypassed" in said
    assert (written["go"] > 0, world.switched) == (led, 0)
    rests(world, world.source, 20.0)


def test_h11_a_run_that_is_resumed_before_go_looks_at_source_again(tmp_path: Path) -> None:
    """The operator died after the proof, and somebody wrote on source meanwhile."""
    world = at_work()
    one = operator(world, tmp_path, Fault(1, "die-before", step="switch.go"))
    assert one.forward() is None
    for part in world.parts:
        world.source.append(part, "around")
    code, said = ended(one)
    assert (code, "switch.bypassed" in said, world.switched) == (7, True, 0)
    rests(world, world.source, 20.0)


def test_h11_a_record_that_goes_around_the_gateways_after_the_check_keeps_all_from_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, check, done = at_work(), CheckStep.check, list[Part]()

    def checked(self: CheckStep, c: Context, f: CheckFacts) -> Verdict:
        verdict = check(self, c, f)
        if isinstance(verdict, Done) and not done:
            done.extend(world.parts)
            for part in done:
                world.source.append(part, "around")
        return verdict

    monkeypatch.setattr(CheckStep, "check", checked)
    one = operator(world, tmp_path)
    code, said = ended(one)
    assert done
    assert (code, "switch.bypassed" in said, one.changes["switch.open"], world.switched) == (7, True, 0, 0)
    rests(world, world.source, 20.0)


def test_a_copier_that_stops_before_the_mirror_is_drained_turns_the_run_back(tmp_path: Path) -> None:
    """What clients wrote since is on source alone."""
    world = at_work()
    one = operator(world, tmp_path)

    def stop(_order: GatewayOrder, _fencing: int) -> None:
        world.hosts["m1"].units[world.target.name].running = False
        world.advance(0.5)

    seen = changed(one, "hold", stop)
    assert ended(one)[0] == 7
    assert seen
    assert one.changes["switch.seal"] == world.switched == 0
    rests(world, world.source)


def altered(world: World, back: int) -> None:
    """A record on target is another one, so many before its end."""
    world.target.logs[world.parts[0]][-back] = "other"


def test_a_record_that_differs_once_the_mirror_is_drained_turns_the_run_back(tmp_path: Path) -> None:
    world = at_work()
    one = operator(world, tmp_path)
    send, done = one._send, Counter[str]()

    def after(change: Change, operation: str, fencing: int) -> Outcome | None:
        if isinstance(change, SetService) and operation.startswith("switch.drain."):
            done[change.action] += 1
            if done.total() == 1:
                altered(world, 1)
        return send(change, operation, fencing)

    one._send = after  # type: ignore[method-assign]
    code, said = ended(one)
    assert (code, done["start"]) == (7, done["stop"])
    assert "switch.prove-records" in said
    assert one.changes["switch.seal"] == world.switched == 0
    rests(world, world.source)


def test_a_record_that_differs_before_the_hold_keeps_all_from_waiting(tmp_path: Path) -> None:
    """The copier sees only the last one."""
    world = at_work()
    altered(world, 5)
    one = operator(world, tmp_path)
    _, said = ended(one)
    assert "switch.arm-records" in said
    assert one.changes["rehearse.settle"] == one.changes["switch.arm"] == world.switched == 0
    rests(world, world.source)


def test_a_group_that_begins_to_read_on_target_turns_the_run_back(tmp_path: Path) -> None:
    """Nobody can commit for it there."""
    world = at_work()
    one = operator(world, tmp_path)
    seen = changed(one, "hold", lambda _order, _fencing: setattr(world, "on_target", world.t))
    assert ended(one)[0] == 7
    assert seen
    assert world.switched == 0
    rests(world, world.source)


def test_an_operator_who_was_replaced_leads_nobody_away(tmp_path: Path) -> None:
    """His order comes when the next switch has sealed one gateway, and is about to seal the other one."""
    world = at_work()
    one = operator(world, tmp_path, Fault(1, "die-before", 0.0, "switch.go"))
    assert one.forward() is None
    old = world.gateways["gw1"].fencing
    two = Operator(world, one.run_dir)
    assert exit_of(two.back()) == 0
    three = Operator(world, one.run_dir)
    send = three._send

    def between(change: Change, operation: str, fencing: int) -> Outcome | None:
        sealed = [g.name for g in world.gateways.values() if g.real.app("orders").gate is Gate.SEALED]
        if sealed:
            world.apply(GatewayOrder(sealed[0], "go", "orders", ttl_ms=5_000), "r-1.late", old)
            raise Killed
        return send(change, operation, fencing)

    three._send = between  # type: ignore[method-assign]
    assert three.forward() is None
    world.advance(20.0)
    four = Operator(world, one.run_dir)
    assert exit_of(four.back()) == 0
    rests(world, world.source)


def test_a_seal_that_comes_late_is_taken_back_with_the_hold(tmp_path: Path) -> None:
    world = at_work(Shape(gateways=1))
    one = operator(world, tmp_path, Fault(1, "die-before", 0.0, "switch.seal"))
    assert one.forward() is None
    gateway, two = world.gateways["gw1"], Operator(world, one.run_dir)
    old = gateway.fencing

    def late(_order: GatewayOrder, _fencing: int) -> None:
        seal = GatewayOrder("gw1", "seal", "orders", hold=gateway.real.app("orders").hold)
        world.apply(seal, "r-1.late", old)
        assert gateway.real.app("orders").gate is Gate.SEALED

    seen = changed(two, "unhold", late)
    assert exit_of(two.back()) == 0
    assert seen
    rests(world, world.source)


def test_consumers_of_a_switch_that_nobody_ends_are_delivered_nothing_twice(tmp_path: Path) -> None:
    """Their FETCH waited for longer than one without a group waits for its SYNC_GROUP."""
    world = at_work(Shape(open_limit_s=12.0))
    one = operator(world, tmp_path, Fault(1, "die-before", 0.0, "switch.open"))
    assert one.forward() is None
    rests(world, world.target, 30.0)
    assert [consumer.repeats for consumer in world.consumers] == [0, 0]


class Heard(list[Event]):
    """What a run tells; ``act`` is called at its first turn."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self.act: Callable[[], None] | None = act

    def append(self, event: Event) -> None:
        super().append(event)
        if isinstance(event, Turned) and event.to == "switch" and self.act is not None:
            act, self.act = self.act, None
            act()


def test_no_client_goes_back_to_source_while_a_gateway_that_is_not_heard_may_be_on_target(
    tmp_path: Path,
) -> None:
    """The check fails, and on the way back a gateway that was led to target is not heard for a while."""
    world = at_work()
    one = operator(world, tmp_path, Fault(2, "dark", math.inf, "switch.go"))
    gateway = world.gateways["gw1"]

    def turned() -> None:
        gateway.silent = True
        world.later(30.0, lambda: setattr(gateway, "silent", False))

    parse_statuses = one.events = Heard(turned)
    said = one.forward()
    assert parse_statuses.act is None, "the run turned back"
    assert said is not None
    assert said.code == 6, "the other one went on by itself meanwhile"
    world.advance(40.0)
    world.dark = 0.0
    assert ended(one)[0] == 0
    rests(world, world.target)


def test_the_run_walks_back_from_a_target_whose_leaders_are_silent(tmp_path: Path) -> None:
    world = at_work(Shape(gateways=3, apps=("orders", "audit")))
    one = operator(world, tmp_path, Fault(2, "dark", 30.0, "switch.go"))
    code, said = ended(one)
    assert code == 8, "the copiers cannot begin before target tells who leads"
    assert "switch.drain" in said
    assert world.switched == 0
    world.advance(30.0)  # consumers that need not join again get nothing for SYNC_S
    world.at_rest(world.source)
    assert not any(host.units["new"].running for host in world.hosts.values())
    assert ended(one)[0] == 7
    assert all(host.units["new"].running for host in world.hosts.values())


def test_an_order_to_go_that_comes_late_leads_nobody_to_target_once_others_are_back(tmp_path: Path) -> None:
    """The first operator's order to one gateway is under way when he dies; the next one walks back."""
    world = at_work()
    one = operator(
        world, tmp_path, Fault(2, "never", 0.0, "switch.go"), Fault(3, "die-before", 0.0, "switch.go")
    )
    assert one.forward() is None
    [left] = [name for name, gateway in world.gateways.items() if gateway.real.app("orders").route == "old"]
    two = Operator(world, one.run_dir)

    def late(_order: GatewayOrder, fencing: int) -> None:
        world.apply(GatewayOrder(left, "go", "orders", ttl_ms=5_000), "r-1.late", fencing - 1)

    seen = changed(two, "unseal", late)
    assert exit_of(two.back()) == 0
    assert seen
    rests(world, world.source, 20.0)


def test_a_way_back_that_is_broken_off_shuts_nobody_out_for_good(tmp_path: Path) -> None:
    """One gateway was sealed on target for the way back when the other one went on there by itself."""
    world = at_work()
    one = operator(world, tmp_path, Fault(1, "die-before", 0.0, "switch.open"))
    assert one.forward() is None
    two = Operator(world, one.run_dir)
    send = two._send

    def only_one(change: Change, operation: str, fencing: int) -> Outcome | None:
        outcome = send(change, operation, fencing) if change.where == "gw1" else None
        if world.gateways["gw1"].real.app("orders").gate is Gate.SEALED:
            raise Killed
        return outcome

    two._send = only_one  # type: ignore[method-assign]
    assert two.back() is None
    world.advance(20.0)
    assert world.writer is world.target
    last = Operator(world, one.run_dir)
    assert ended(last)[0] == 6, "there is no way back"
    assert ended(last)[0] == 0
    rests(world, world.target)


@pytest.mark.parametrize(
    ("step", "fault", "kind", "code"),
    [
        ("rehearse.hold", "die-after", Kind.REOPENED, 0),
        ("switch.drain", "die-before", Kind.REOPENED, 0),
        ("switch.seal", "die-after", Kind.PARTLY, SHUT_OUT),
        ("switch.go", "die-before", Kind.SEALED, SHUT_OUT),
        ("switch.go", "die-after", Kind.GOING, SHUT_OUT),
        ("switch.open", "die-before", Kind.OPENED, 0),
    ],
)
def test_a_killed_switch_says_whose_requests_wait_and_what_resume_does(
    tmp_path: Path, step: str, fault: operators.Kind, kind: Kind, code: int
) -> None:
    world = at_work()
    one = operator(world, tmp_path, Fault(1, fault, 0.0, step))
    assert one.forward() is None
    look, history = cast(Look, SwitchLook(world)), one.history
    now = left_window.judged(history, PLAYBOOK, inventory(world), None, one.wall())
    assert now is not None
    assert now.code == SHUT_OUT, "without the gateways nobody knows better"
    world.advance(30.0)
    stands = left_window.asked(history, PLAYBOOK, inventory(world), look)
    left = left_window.judged(history, PLAYBOOK, inventory(world), stands, one.wall())
    assert left is not None
    assert (left.kind, left.code) == (kind, code)
    lines = "\n".join(left.lines())
    some = "requests still wait at 1 of 2 gateways since" in lines
    assert some is (kind in (Kind.PARTLY, Kind.GOING))
    assert ("requests wait at the gateways since" in lines) is (kind is Kind.SEALED)
    if code:
        assert "requests (a client gives up after 30 s) run out from" in lines
    forward = kind in (Kind.SEALED, Kind.GOING)
    assert ("switch.go and switch.open follow" in left.follows()) is forward
