"""The proofs of a switch: each wrong fact alone keeps a step from being done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from tests.answers import answered
from tests.unit.topics.topic_move.facts import (
    BOTH,
    DRAINED,
    EQUAL,
    OTHER,
    SAME,
    SILENT,
    UNHEARD,
    C,
    P,
    Q,
    app,
    compared,
    copiers,
    ends,
    groups,
    sent,
    short,
    warned,
    way,
    why,
)
from tests.world.switch.look import SwitchLook
from tests.world.switch.operator import inventory
from tests.world.switch.site import WRITE, Shape, World
from zkmigrate.errors import RecordError
from zkmigrate.kafka.rights import Acl
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Blocked, Context, Done, Ready, Step, Verdict, Waiting, Way
from zkmigrate.topics.gateway.rules.outcomes import DELIVERY_S
from zkmigrate.topics.mirror.changes import MIRRORED, SetDirection
from zkmigrate.topics.mirror.questions import BothEnds, Granted, GroupPair, RangeCompared
from zkmigrate.topics.topic_move.arm_step import ArmFacts, ArmStep
from zkmigrate.topics.topic_move.check_step import CheckFacts, CheckStep
from zkmigrate.topics.topic_move.direction import DIRECTION
from zkmigrate.topics.topic_move.drain_step import OFFSETS, DrainFacts, DrainStep
from zkmigrate.topics.topic_move.facts import Armed, Drained, Looked, Part, offsets
from zkmigrate.topics.topic_move.go_step import GoFacts, GoStep
from zkmigrate.topics.topic_move.grant_step import RIGHTS, GrantFacts, GrantStep
from zkmigrate.topics.topic_move.open_step import OpenStep
from zkmigrate.topics.topic_move.prove_step import ProveFacts, ProveStep
from zkmigrate.topics.topic_move.section import move_of

# -- arm

ARM = ArmFacts(app("open"), ends(), 10.0, compared())


def test_arm_is_done_where_all_is_well() -> None:
    verdict = ArmStep().check(C, ARM)
    assert isinstance(verdict, Done)
    assert verdict.record == Armed(offsets(EQUAL)).encode()
    assert ArmStep().check(C, replace(ARM, gateways=app("open", staged=""))) == Ready(("gw2",))


@pytest.mark.parametrize(("last", "end"), [((9, 4, 5), 4), ((9, 9, 5), 5), ((9, 4, 4), 4)])
def test_h11_what_arm_records_as_compared_was_compared(last: tuple[int, ...], end: int) -> None:
    verdict = ArmStep().check(C, replace(ARM, ends=ends(*last)))
    assert isinstance(verdict, Done)
    assert verdict.record == Armed((("orders", 0, 9), ("orders", 1, end))).encode()


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"gateways": UNHEARD}, ("switch.gateway", "gw2")),
        ({"gateways": app("open", gate="held")}, ("switch.arm-gate", "gw2:orders")),
        ({"gateways": app("open", route="new")}, ("switch.arm-gate", "gw2:orders")),
        ({"compared": compared(OTHER)}, ("switch.arm-records", "")),
        ({"compared": compared(SILENT)}, ("switch.arm-records", "")),
        ({"compared": SILENT}, (BOTH, "")),
    ],
)
def test_arm_is_blocked_by_each_wrong_fact(wrong: dict[str, Any], found: tuple[str, str]) -> None:
    assert why(ArmStep().check(C, replace(ARM, **wrong))) == [found]


def test_arm_waits_until_clients_know_the_outcome_of_each_batch() -> None:
    kept = {"before": (8.0, 9), "close": 2}
    verdict = ArmStep().check(replace(C, kept=kept), replace(ARM, gateways=app("open", unsure="producer 5")))
    assert isinstance(verdict, Waiting)
    assert (verdict.progress, verdict.keep) == ("producer 5", kept)
    assert verdict.deadline_s > DELIVERY_S, "by then they are known, or clients have given up"


def test_arm_waits_for_clusters_that_do_not_tell_their_ends_and_has_nothing_to_take_back() -> None:
    assert isinstance(ArmStep().check(C, replace(ARM, ends=SILENT)), Waiting)
    assert isinstance(DrainStep().check(C, replace(DRAIN, ends=SILENT)), Waiting)
    assert ArmStep().check(BACK, replace(ARM, gateways=UNHEARD)) == Done()


@pytest.mark.parametrize("target", [False, True])
def test_arm_names_partitions_with_too_few_replicas_in_sync(target: bool) -> None:
    assert why(ArmStep().check(C, replace(ARM, ends=short(target=target)))) == [("switch.in-sync", "")]


def test_records_that_differ_are_named_before_those_that_nobody_could_read() -> None:
    both: dict[Part, Reading[RangeCompared]] = {P: SILENT, Q: OTHER}
    verdict = ArmStep().check(C, replace(ARM, compared=Seen(both)))
    assert isinstance(verdict, Blocked)
    assert [(one.held, one.seen) for one in verdict.findings] == [(Held.NO, "orders-1: offset 3")]


@pytest.mark.parametrize(
    ("behind", "before", "close"),
    [(0, 0, 1), (0, 1, 2), (5, 1, 2), (6, 1, 0)],
)
def test_h14_the_mirror_is_close_at_looks_in_a_row(behind: int, before: int, close: int) -> None:
    """Source got 10 records/s, and the limit is half a second."""
    facts = replace(ARM, ends=ends(20, 20, 20 - behind), compared=None)
    verdict = ArmStep().check(replace(C, kept={"before": (8.0, 9), "close": before}), facts)
    assert isinstance(verdict, Waiting)
    assert verdict.keep == {"before": (10.0, 29), "close": close}


def test_h14_records_are_compared_after_the_second_close_look() -> None:
    world = World(1, Shape())
    world.advance(3.0)
    context, look = Context("run", inventory(world)), cast(Look, SwitchLook(world))
    told = [ArmStep().observe(replace(context, kept={"close": close}), look).compared for close in (1, 2)]
    assert told == [None, Seen({part: Seen(RangeCompared("", 0)) for part in world.parts})]


@pytest.mark.parametrize("last", [(4, None, 4), (4, 4, None)])
def test_h11_records_are_compared_only_once_every_partition_tells_its_ends(
    last: tuple[int | None, ...],
) -> None:
    """A partition that is left out here would not be compared at all."""
    told = Told(ends(*last))
    context = replace(C, kept={"close": 2})
    asked = ArmStep().observe(context, cast(Look, told))
    assert asked.compared is None
    assert isinstance(ArmStep().check(context, replace(ARM, ends=asked.ends, compared=None)), Waiting)


@dataclass
class Told:
    """A look that tells these ends, and that all records are equal. asked: the ranges that were compared."""

    told: Any
    asked: dict[Part, tuple[int, int]] = field(default_factory=dict)

    def now(self) -> float:
        return 10.0

    def ask(self, request: Any) -> Any:
        return answered(self, request, skip=2)

    def ends(self, _topics: Any) -> Any:
        return self.told

    def commits(self, *_: Any) -> Any:
        return groups()

    def granted(self, _acls: Any) -> Any:
        return SILENT

    def differences(self, ranges: dict[Part, tuple[int, int]]) -> Any:
        self.asked = ranges
        return Seen(dict.fromkeys(ranges, SAME))

    def program(self, *_: str) -> Any:
        return SILENT

    def zkm(self, _host: str, *_words: str) -> Any:
        return SILENT

    def each(self, hosts: Any, _ask: Any) -> Any:
        return dict.fromkeys(hosts, SILENT)


def test_h11_all_that_came_since_arm_is_compared_again_however_much_it_is() -> None:
    """P got 5,000 records since, Q none, and R is a partition that ARM did not see."""
    most = move_of(C.inventory).topic_move.proved
    at = {P: BothEnds(9_000, 9_000, 9_000), Q: BothEnds(5, 4, 5), R: BothEnds(7_001, 7_001, 7_000)}
    armed = replace(C, records={Armed.step: Armed((("orders", 0, 4_000), ("orders", 1, 4))).encode()})
    look = Told(Seen(at))
    ProveStep().observe(armed, cast(Look, look))
    assert look.asked == {P: (4_000, 9_000), R: (7_000 - most, 7_000)}
    arm = Told(Seen(at))
    ArmStep().observe(replace(C, kept={"close": 2}), cast(Look, arm))
    assert arm.asked == {P: (9_000 - most, 9_000), Q: (0, 4), R: (7_000 - most, 7_000)}


R = ("orders", 2)

# -- drain

DRAIN = DrainFacts(app("held"), ends(), copiers(), groups(), way("none"))
TWICE = replace(C, kept={"before": {P: 9, Q: 4}, "equal": 1})
"""The second look at equal ends."""


def test_drain_is_done_where_all_is_well() -> None:
    verdict = DrainStep().check(TWICE, DRAIN)
    assert isinstance(verdict, Done)
    assert verdict.record == Drained(offsets(EQUAL)).encode()


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"gateways": UNHEARD}, ("switch.gateway", "gw2")),
        ({"gateways": app("held", gate="open")}, ("switch.lapsed", "gw2:orders")),
        ({"gateways": app("held", lapsed=True)}, ("switch.lapsed", "gw2:orders")),
        ({"ends": ends(5, 5, 5)}, ("switch.bypassed", "")),
        ({"copiers": copiers("")}, ("switch.copier", "m2")),
        ({"copiers": copiers("unknown")}, ("switch.copier", "m2")),
        ({"direction": SILENT}, (BOTH, "")),
        ({"groups": SILENT}, (BOTH, "")),
        ({"groups": groups("active")}, ("switch.commits", "")),
        ({"groups": groups("ahead")}, ("switch.commits", "")),
        ({"groups": groups("unknown")}, ("switch.commits", "")),
        ({"groups": groups("refused")}, ("switch.commits", "")),
    ],
)
def test_drain_is_blocked_by_each_wrong_fact(wrong: dict[str, Any], found: tuple[str, str]) -> None:
    assert why(DrainStep().check(TWICE, replace(DRAIN, **wrong))) == [found]


BACK = replace(C, way=Way.BACK, fencing=7)


@pytest.mark.parametrize("copies", ["", "forward", "backward", "mixed"])
def test_drain_lets_no_copier_write_while_the_copiers_are_stopped(copies: str) -> None:
    """Also one that is on no mirror host, or that comes back after a boot."""
    facts = replace(DRAIN, copiers=copiers("active"), direction=way(copies), groups=None)
    verdict = DrainStep().check(TWICE, facts)
    assert isinstance(verdict, Ready)
    assert verdict.targets == ("m2", DIRECTION)
    [change] = DrainStep().plan(replace(C, fencing=7), facts, DIRECTION)
    assert change == SetDirection(MIRRORED, "none", ("orders",), 7)
    assert DrainStep().undo(BACK, facts, OFFSETS, ()) == (), "commits that were copied stay"
    stopped = replace(facts, copiers=copiers())
    assert DrainStep().check(TWICE, stopped) == Ready((DIRECTION,), keep=verdict.keep)


@pytest.mark.parametrize("copies", ["none", "backward", "mixed"])
def test_on_the_way_back_copiers_may_write_before_they_are_started(copies: str) -> None:
    facts = replace(DRAIN, direction=way(copies))
    assert DrainStep().check(BACK, facts) == Ready((DIRECTION,))
    [change] = DrainStep().undo(BACK, facts, DIRECTION, ())
    assert change == SetDirection(MIRRORED, "forward", ("orders",), 7)


@pytest.mark.parametrize("copies", ["", "forward"])
def test_on_the_way_back_a_direction_that_lets_them_write_stays(copies: str) -> None:
    assert DrainStep().check(BACK, replace(DRAIN, direction=way(copies))) == Ready(("m1", "m2"))
    running = replace(DRAIN, direction=way(copies), copiers=copiers("active", "active"))
    assert DrainStep().check(BACK, running) == Done()


def test_on_the_way_back_clients_do_not_wait_for_a_cluster_that_does_not_tell_who_leads() -> None:
    verdict = DrainStep().check(BACK, replace(DRAIN, direction=SILENT))
    assert isinstance(verdict, Blocked)
    assert verdict.others_back
    assert why(verdict) == [(BOTH, "")]


def kept(verdict: Verdict) -> int:
    """How many looks in a row have seen equal ends."""
    assert isinstance(verdict, Waiting)
    count: int = verdict.keep["equal"]
    return count


@pytest.mark.parametrize("last", [(4, 4, 3), (4, 3, 4), (4, 4, None), (4, 4, 5)])
def test_the_mirror_is_drained_at_equal_ends_alone(last: tuple[int | None, ...]) -> None:
    assert kept(DrainStep().check(TWICE, replace(DRAIN, ends=ends(*last)))) == 0


def test_records_that_too_few_replicas_have_are_named_and_not_waited_for() -> None:
    held = {"before": {P: 9, Q: 5}, "equal": 0}
    assert why(DrainStep().check(replace(C, kept=held), replace(DRAIN, ends=short(5)))) == [
        ("switch.in-sync", "")
    ]
    # A follower that is in sync gets them at once.
    soon = Seen({**EQUAL, Q: BothEnds(5, 4, 4, "source's log ends at 5")})
    verdict = DrainStep().check(replace(C, kept=held), replace(DRAIN, ends=soon))
    assert isinstance(verdict, Waiting)
    assert verdict.progress == "behind: orders-1: 1 (source's log ends at 5)"
    opened = Seen({**EQUAL, Q: BothEnds(5, 4, 4)})
    verdict = DrainStep().check(replace(C, kept=held), replace(DRAIN, ends=opened))
    assert isinstance(verdict, Waiting)
    assert verdict.progress == "behind: orders-1: 1 (a transaction is open from offset 4 on)"
    # Nothing is left to copy.
    assert isinstance(DrainStep().check(TWICE, replace(DRAIN, ends=short())), Done)


def test_a_leader_of_source_that_is_silent_for_a_moment_is_waited_for() -> None:
    """It is no sign of a producer beside the gateways."""
    dark = replace(DRAIN, ends=ends(None, None, 4))
    first = DrainStep().check(replace(C, kept={}), dark)
    assert isinstance(first, Waiting)
    assert (first.progress, first.keep) == ("no response: orders-1", {})
    assert kept(DrainStep().check(TWICE, dark)) == 0


def test_the_ends_are_equal_at_two_looks_before_copiers_are_asked() -> None:
    assert kept(DrainStep().check(replace(C, kept={}), DRAIN)) == 1
    assert kept(DrainStep().check(TWICE, replace(DRAIN, copiers=None, groups=None))) == 2
    context, look = Context("run", inventory(World(1, Shape()))), cast(Look, SwitchLook(World(1, Shape())))
    asked = [DrainStep().observe(replace(context, kept={"equal": equal}), look).copiers for equal in (1, 2)]
    assert [one is not None for one in asked] == [False, True]


def test_copiers_are_stopped_and_then_commits_that_are_behind_are_copied() -> None:
    running = DrainStep().check(TWICE, replace(DRAIN, copiers=copiers("active"), groups=None))
    assert isinstance(running, Ready)
    assert running.targets == ("m2",)
    behind = DrainStep().check(TWICE, replace(DRAIN, groups=groups("behind")))
    assert isinstance(behind, Ready)
    assert behind.targets == (OFFSETS,)
    for state in ("active", "refused"):
        mixed = Seen({**groups("behind").value, "audit": GroupPair(state, 0, "has members")})
        assert why(DrainStep().check(TWICE, replace(DRAIN, groups=mixed))) == [("switch.commits", "")]


# -- prove

PROVE = ProveFacts(app("held"), ends(), compared(), groups(), copiers())


def test_prove_is_done_where_all_is_well() -> None:
    verdict = ProveStep().check(DRAINED, PROVE)
    assert isinstance(verdict, Done)
    [told] = [one for one in verdict.findings if one.id == "switch.prove-records"]
    assert (
        told.claim
        == "the records written since the step `arm` are equal, where both clusters still have them"
    )
    assert told.seen == "8 records, 2 partitions"
    assert isinstance(ProveStep().check(DRAINED, replace(PROVE, compared=Seen({}))), Done)


@pytest.mark.parametrize(("step", "facts"), [(ArmStep(), ARM), (ProveStep(), PROVE)], ids=["arm", "prove"])
def test_h11_what_retention_has_deleted_is_named_as_not_compared(step: Step[Any], facts: Any) -> None:
    record_direction = "target lacks source's records from offset 0 to 2, where its log begins"
    verdict = step.check(
        DRAINED, replace(facts, compared=compared(Seen(RangeCompared("", 2, record_direction))))
    )
    assert isinstance(verdict, Done)
    [told] = [one.seen for one in verdict.findings if one.id.endswith("-records")]
    assert told == f"6 records, 2 partitions; not compared: orders-1: {record_direction}"


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"gateways": UNHEARD}, ("switch.gateway", "gw2")),
        ({"gateways": app("held", lapsed=True)}, ("switch.lapsed", "gw2:orders")),
        ({"gateways": app("held", gate="settling")}, ("switch.lapsed", "gw2:orders")),
        ({"ends": SILENT}, (BOTH, "")),
        ({"ends": ends(5, 5, 5)}, ("switch.bypassed", "")),
        ({"ends": Seen({P: EQUAL[P]})}, ("switch.bypassed", "")),
        ({"ends": Seen({**EQUAL, ("orders", 2): BothEnds(0, 0, 0)})}, ("switch.bypassed", "")),
        ({"ends": ends(4, 4, 5)}, ("switch.prove-ends", "")),
        ({"ends": ends(4, 4, None)}, ("switch.prove-ends", "")),
        ({"ends": ends(4, 3, 4)}, ("switch.prove-ends", "")),
        ({"compared": compared(OTHER)}, ("switch.prove-records", "")),
        ({"compared": compared(SILENT)}, ("switch.prove-records", "")),
        ({"compared": SILENT}, ("switch.prove-records", "")),
        ({"groups": groups("behind")}, ("switch.commits", "")),
        ({"groups": groups("ahead")}, ("switch.commits", "")),
        ({"groups": SILENT}, (BOTH, "")),
        ({"copiers": copiers("active")}, ("switch.prove-copiers", "")),
        ({"copiers": copiers("")}, ("switch.copier", "m2")),
    ],
)
def test_prove_is_blocked_by_each_wrong_fact(wrong: dict[str, Any], found: tuple[str, str]) -> None:
    assert why(ProveStep().check(DRAINED, replace(PROVE, **wrong))) == [found]


# -- check

CHECK = CheckFacts(app("gone", target=True), ends())
OPEN = app("gone", target=True, gate="open")
UNREACHED = replace(CHECK.gateways, brokers={"gw2": {"new": {1: "TimeoutError"}}})


def test_check_is_done_where_all_is_well() -> None:
    assert isinstance(CheckStep().check(DRAINED, CHECK), Done)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"gateways": UNHEARD}, ("switch.gateway", "gw2")),
        ({"gateways": app("gone", target=True, route="old")}, ("switch.check-route", "gw2:orders")),
        ({"ends": SILENT}, (BOTH, "")),
        ({"ends": ends(4, 4, None)}, ("switch.check-leaders", "")),
        ({"ends": Seen({P: EQUAL[P]})}, ("switch.bypassed", "")),
        ({"ends": ends(4, 4, 5)}, ("switch.check-ends", "")),
        ({"ends": ends(4, 4, 3)}, ("switch.check-ends", "")),
        ({"ends": ends(4, 4, None), "gateways": OPEN}, ("switch.check-leaders", "")),
        ({"ends": ends(5, 4, 4)}, ("switch.bypassed", "")),
        ({"ends": Seen({**EQUAL, ("orders", 2): BothEnds(0, 0, 0)})}, ("switch.bypassed", "")),
    ],
)
def test_check_is_blocked_by_each_wrong_fact(wrong: dict[str, Any], found: tuple[str, str]) -> None:
    assert why(CheckStep().check(DRAINED, replace(CHECK, **wrong))) == [found]


def test_h20_a_broker_that_a_gateway_does_not_reach_is_waited_for_until_clients_go_on() -> None:
    waiting = CheckStep().check(DRAINED, replace(CHECK, gateways=UNREACHED))
    assert isinstance(waiting, Waiting)
    assert waiting.progress == "gw2: broker 1: TimeoutError"
    gone_on = replace(OPEN, brokers=UNREACHED.brokers)
    assert isinstance(CheckStep().check(DRAINED, CheckFacts(gone_on, ends(4, 4, 7))), Done)


def test_h11_a_leader_of_source_that_is_silent_is_waited_for_before_clients_go_on() -> None:
    """Nobody knows whether somebody wrote there."""
    verdict = CheckStep().check(DRAINED, replace(CHECK, ends=ends(None, None, 4)))
    assert isinstance(verdict, Waiting)
    assert verdict.progress == "no response: orders-1"
    assert isinstance(CheckStep().check(DRAINED, CheckFacts(OPEN, ends(None, None, 4))), Done)


def test_h11_source_that_grew_is_a_warning_once_clients_have_gone_on() -> None:
    found = warned(CheckStep().check(DRAINED, CheckFacts(OPEN, ends(5, 5, 7))), "switch.bypassed")
    assert found.seen == "orders-1: 4, now 5"


# -- grant

READ = WRITE._replace(operation="READ")
GRANTING = replace(C, records={Looked.step: Looked((tuple(WRITE), tuple(READ))).encode()})


def has(everywhere: set[Acl], somewhere: set[Acl]) -> GrantFacts:
    """Where target has the two ACLs that it lacked."""
    return GrantFacts(frozenset({WRITE, READ}), Seen(Granted(frozenset(everywhere), frozenset(somewhere))))


def test_rights_are_granted_once_and_every_broker_of_target_must_know_them() -> None:
    step, one, both = GrantStep(), {WRITE}, {WRITE, READ}
    assert step.check(GRANTING, has(one, one)) == Ready((RIGHTS,), keep={"sent": True})
    assert sent(step.plan(GRANTING, has(one, both), RIGHTS)) == [f"grant on target: {READ}"]
    assert isinstance(step.check(replace(GRANTING, kept={"sent": True}), has(one, both)), Waiting)
    assert isinstance(step.check(GRANTING, has(both, both)), Done)
    assert step.plan(GRANTING, has(both, both), RIGHTS) == ()


def test_on_the_way_back_each_right_that_a_broker_of_target_knows_is_taken_away() -> None:
    step, back = GrantStep(), replace(GRANTING, way=Way.BACK)
    assert step.check(back, has(set(), {WRITE})) == Ready((RIGHTS,))
    assert sent(step.undo(back, has(set(), {WRITE}), RIGHTS, ())) == [f"revoke on target: {WRITE}"]
    assert step.check(back, has(set(), set())) == Done()
    assert step.undo(back, has(set(), set()), RIGHTS, ()) == ()


def test_a_target_that_does_not_tell_its_rights_keeps_nobody_waiting_on_the_way_back() -> None:
    for c in (GRANTING, replace(GRANTING, way=Way.BACK)):
        verdict = GrantStep().check(c, GrantFacts(frozenset({WRITE}), SILENT))
        assert why(verdict) == [(BOTH, "")]
        assert cast(Blocked, verdict).others_back


def test_only_rights_that_the_first_look_found_missing_are_asked_for() -> None:
    nobody = cast(Look, None)
    for record in ({Looked.step: Looked().encode()}, {}):
        c = replace(BACK, records=record)
        assert GrantStep().check(c, GrantStep().observe(c, nobody)) == Done()
    with pytest.raises(RecordError):
        GrantStep().observe(C, nobody)
    found = GrantStep().observe(GRANTING, cast(Look, Told(None)))
    assert found == GrantFacts(frozenset({WRITE, READ}), SILENT)


# -- go, open

GO = GoFacts(app("sealed"), ends())
OPENING = GoFacts(app("gone", target=True), ends())
LEADING = [(GoStep(), GO), (OpenStep(), OPENING)]


def test_go_and_open_send_their_orders_where_source_ends_as_it_was_drained() -> None:
    assert GoStep().check(DRAINED, GO) == Ready(("gw1", "gw2"))
    half = app("sealed", route="new", gate="gone")
    assert GoStep().check(DRAINED, replace(GO, gateways=half)) == Ready(("gw1",))
    assert OpenStep().check(DRAINED, OPENING) == Ready(("gw1", "gw2"))


@pytest.mark.parametrize(("step", "facts"), LEADING)
@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (SILENT, (BOTH, "")),
        (ends(5, 4, 4), ("switch.bypassed", "")),
        (ends(5, 5, 5), ("switch.bypassed", "")),
        (Seen({P: EQUAL[P]}), ("switch.bypassed", "")),
    ],
)
def test_h11_go_and_open_are_blocked_by_each_wrong_end(
    step: Any, facts: GoFacts, wrong: Any, found: tuple[str, str]
) -> None:
    assert why(step.check(DRAINED, replace(facts, ends=wrong))) == [found]
    half = app("sealed", route="new", gate="gone")
    assert why(GoStep().check(DRAINED, GoFacts(half, wrong))) == [found]


@pytest.mark.parametrize(("step", "facts"), LEADING)
def test_h11_go_and_open_wait_for_a_silent_leader_of_source(step: Any, facts: GoFacts) -> None:
    verdict = step.check(DRAINED, replace(facts, ends=ends(None, None, 4)))
    assert isinstance(verdict, Waiting)
    assert verdict.progress == "no response: orders-1"


def test_h11_an_application_that_went_on_by_itself_is_followed_whatever_the_ends_are() -> None:
    half = app("sealed", route="new", gate="open")
    assert GoStep().check(DRAINED, GoFacts(half, ends(5, 5, 9))) == Ready(("gw1",))
    one = app("gone", target=True, gate="open")
    assert OpenStep().check(DRAINED, GoFacts(one, ends(5, 5, 9))) == Ready(("gw1",))
    begun = replace(DRAINED, begun=True)
    assert OpenStep().check(begun, replace(OPENING, ends=ends(5, 5, 4))) == Ready(("gw1", "gw2"))
