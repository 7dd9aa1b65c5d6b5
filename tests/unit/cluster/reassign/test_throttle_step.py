"""What the throttle's step asks again before it is taken for set, or for gone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.world.reassigning import inventory
from zkmigrate.cluster.reassign.facts import LOOKS
from zkmigrate.cluster.reassign.moves import Move, Originals
from zkmigrate.cluster.reassign.throttle import (
    FOLLOWER_LIST,
    FOLLOWER_RATE,
    LEADER_LIST,
    LEADER_RATE,
    Limits,
    SentRates,
    Throttles,
)
from zkmigrate.cluster.reassign.throttle_step import ThrottleFacts, ThrottleStep
from zkmigrate.cluster.reassign.unthrottle_step import UnthrottleStep
from zkmigrate.inventory.accept import Accept
from zkmigrate.kafka.changes import AlterBrokerConfig, AlterTopicConfig
from zkmigrate.kafka.questions import TopicSetting
from zkmigrate.kafka.rates import Rate
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.step import Blocked, Context, Done, Ready, Verdict, Waiting, Way

MOVE = Move("a", 0, (1, 2), (3, 2), 100, 1)
PLAN = Originals((MOVE,))
Now = dict[str, dict[str, str | None]]

FOUND: Now = {
    "broker-1": {LEADER_RATE: "77", FOLLOWER_RATE: None},
    "broker-3": {LEADER_RATE: None, FOLLOWER_RATE: None},
    "topic-a": {LEADER_LIST: None, FOLLOWER_LIST: "7:9"},
}
ON: Now = {
    "broker-1": {LEADER_RATE: "500", FOLLOWER_RATE: "500"},
    "broker-3": {LEADER_RATE: "500", FOLLOWER_RATE: "500"},
    "topic-a": {LEADER_LIST: "0:1,0:2,0:3", FOLLOWER_LIST: "7:9,0:3"},
}
ALL = frozenset(FOUND)
RECORD = Throttles(FOUND, {1: Rate(500, 500), 3: Rate(500, 500)})
DARK = Unknown("timeout", "no answer")


def context(way: Way = Way.FORWARD, *, accept: tuple[Accept, ...] = (), **also: Any) -> Context:
    given = inventory({("a", 0): (3, 2)}).model_copy(update={"accept": accept})
    return Context("r-1", given, way=way, **also)


def facts(
    now: Now | Unknown,
    *silent: str,
    way: Way = Way.FORWARD,
    set_since: tuple[str, ...] = (),
    limits: bool = True,
) -> ThrottleFacts:
    """What is set now; of those that are silent nothing is known."""
    seen: Reading[Any] = (
        now
        if isinstance(now, Unknown)
        else Seen(
            {
                t: {key: DARK if t in silent else Seen(TopicSetting(v)) for key, v in own.items()}
                for t, own in now.items()
            }
        )
    )
    made = Limits.of(RECORD, SentRates({}), PLAN.moves, way) if limits else None
    return ThrottleFacts(PLAN, made, RECORD.encode(), seen, set_since=set_since)


def check(c: Context, f: ThrottleFacts, step: type[ThrottleStep] = ThrottleStep) -> Verdict:
    return step().check(c, f)


def targets(verdict: Verdict) -> tuple[str, ...]:
    assert isinstance(verdict, Ready), verdict
    return verdict.targets


def kept(found: Now) -> Now:
    return {target: dict(own) for target, own in found.items()}


def test_what_is_missing_is_set_with_its_record_and_as_it_was_found() -> None:
    f = facts(kept(FOUND))
    verdict = check(context(), f)
    assert set(targets(verdict)) == ALL
    assert isinstance(verdict, Ready)
    assert verdict.record == RECORD.encode()
    made = ThrottleStep().plan(context(), f, "broker-1")
    assert made == (
        AlterBrokerConfig("kafka", 1, LEADER_RATE, "500", "77"),
        AlterBrokerConfig("kafka", 1, FOLLOWER_RATE, "500", None),
    )
    lists = ThrottleStep().plan(context(), f, "topic-a")
    assert [c.value for c in lists if isinstance(c, AlterTopicConfig)] == ["0:1,0:2,0:3", "7:9,0:3"]


def test_a_change_is_sent_once_then_looked_for_and_sent_again_where_it_stays_away() -> None:
    now = {**kept(ON), "broker-3": kept(FOUND)["broker-3"]}
    assert targets(check(context(), facts(now))) == ("broker-3",)
    waits = check(context(unrestored=ALL), facts(now))
    assert isinstance(waits, Waiting)
    assert (waits.progress, waits.keep) == ("broker-3", {"looks": 1})
    unsure = context(unrestored=ALL, unconfirmed=frozenset({"broker-3"}))
    assert targets(check(unsure, facts(now))) == ("broker-3",)
    assert targets(check(context(unrestored=ALL, kept={"looks": LOOKS}), facts(now))) == ("broker-3",)


def test_no_move_begins_before_every_broker_tells_its_limit() -> None:
    """However often it was looked: a broker that copies without a limit takes what clients need."""
    for looks in (0, LOOKS, 10 * LOOKS):
        verdict = check(context(unrestored=ALL, kept={"looks": looks}), facts(kept(ON), "broker-3"))
        assert isinstance(verdict, Waiting)
        assert verdict.progress == "broker-3"
        assert verdict.deadline_s == context().inventory.policy.step_deadline_s + LOOKS
    done = check(context(unrestored=ALL), facts(kept(ON)))
    assert isinstance(done, Done)
    assert (done.findings[-1].claim, done.findings[-1].seen) == (
        "the brokers of the moves are throttled", "brokers: 2; topics: 1"
    )  # fmt: skip


def test_without_an_answer_nothing_is_set() -> None:
    for f in (facts(DARK), facts(kept(FOUND), "broker-1", limits=False)):
        assert isinstance(check(context(), f), Waiting)


def test_a_limit_that_another_hand_has_set_since_the_preflight_is_not_recorded_as_found() -> None:
    since = ("broker-1: x is 9 (at the preflight: unset)",)
    verdict = check(context(), facts(kept(FOUND), set_since=since))
    assert isinstance(verdict, Blocked)
    assert (verdict.findings[0].id, verdict.findings[0].seen) == ("reassign.throttle-changed", since[0])
    assert isinstance(check(context(Way.BACK), facts(kept(FOUND), set_since=since)), Done)


def test_without_its_plan_it_is_lost_unless_nothing_was_sent() -> None:
    none = ThrottleFacts(None, None, {}, Seen({}))
    assert isinstance(check(context(), none), Blocked)
    assert isinstance(check(context(Way.BACK, begun=True), none), Blocked)
    assert isinstance(check(context(Way.BACK), none), Done)


# --- taking it off -------------------------------------------------------------------------------------


def test_on_the_way_back_every_limit_of_the_run_goes_and_what_was_found_comes_back() -> None:
    f = facts(kept(ON), way=Way.FORWARD)
    c = context(Way.BACK, unrestored=ALL)
    assert set(targets(check(c, f))) == ALL
    back = ThrottleStep().undo(c, f, "broker-1", ())
    assert [change.value for change in back if isinstance(change, AlterBrokerConfig)] == ["77", None]
    lists = ThrottleStep().undo(c, f, "topic-a", ())
    assert [change.value for change in lists if isinstance(change, AlterTopicConfig)] == [None, "7:9"]


def test_what_another_hand_has_set_since_stays_when_the_throttle_goes() -> None:
    now: Now = {**kept(ON), "broker-3": {LEADER_RATE: "9", FOLLOWER_RATE: "500"}}
    now["topic-a"][FOLLOWER_LIST] = "7:9,0:3,8:1"
    c = context(Way.BACK, unrestored=ALL)
    back = ThrottleStep().undo(c, facts(now), "broker-3", ())
    assert back == (AlterBrokerConfig("kafka", 3, FOLLOWER_RATE, None, "500"),)
    lists = {change.key: change.value for change in ThrottleStep().undo(c, facts(now), "topic-a", ())
             if isinstance(change, AlterTopicConfig)}  # fmt: skip
    assert lists == {LEADER_LIST: None, FOLLOWER_LIST: "7:9,8:1"}
    left: Now = {**kept(FOUND), "broker-3": {LEADER_RATE: "9", FOLLOWER_RATE: None}}
    verdict = check(c, facts(left))
    assert isinstance(verdict, Done)
    assert (verdict.findings[-1].held, verdict.findings[-1].seen) == (
        Held.NO, f"broker-3: {LEADER_RATE} is 9"
    )  # fmt: skip


def test_a_limit_that_brokers_go_on_telling_is_waited_for_and_not_without_end() -> None:
    c = context(Way.BACK)
    waits = check(c, facts(kept(ON)))
    assert isinstance(waits, Waiting)
    assert waits.keep == {"looks": 1}
    assert isinstance(check(context(Way.BACK, kept={"looks": LOOKS}), facts(kept(ON))), Done)


def test_a_broker_that_may_keep_a_limit_holds_the_end_up_by_name() -> None:
    now = kept(FOUND)
    c = context(Way.BACK, unrestored=frozenset({"broker-3"}))
    waits = check(c, facts(now, "broker-3"))
    assert isinstance(waits, Waiting)
    looked = context(Way.BACK, unrestored=frozenset({"broker-3"}), kept={"looks": LOOKS})
    verdict = check(looked, facts(now, "broker-3"))
    assert isinstance(verdict, Blocked)
    assert [(f.id, f.target) for f in verdict.findings] == [("reassign.throttle-stays", "broker-3")]
    untouched = context(Way.BACK, kept={"looks": LOOKS})
    assert isinstance(check(untouched, facts(now, "broker-3")), Done), "it was given none"


def test_going_forward_the_end_asks_every_broker_whatever_was_sent() -> None:
    looked = context(kept={"looks": LOOKS})
    verdict = check(looked, facts(kept(FOUND), "broker-1", way=Way.BACK), UnthrottleStep)
    assert isinstance(verdict, Blocked)
    assert [f.target for f in verdict.findings] == ["broker-1"]
    accept = (
        Accept(
            finding="reassign.throttle-stays",
            target="broker-1",
            who="ann",
            why="burnt",
            until="2099-01-01T00:00:00Z",
        ),
    )
    accepted = check(context(kept={"looks": LOOKS}, accept=accept),
                     facts(kept(FOUND), "broker-1", way=Way.BACK), UnthrottleStep)  # fmt: skip
    assert isinstance(accepted, Done)


@pytest.mark.parametrize("step", [ThrottleStep, UnthrottleStep])
def test_a_target_that_the_run_did_not_find_is_left_alone(step: type[ThrottleStep]) -> None:
    now = {**kept(ON if step is ThrottleStep else FOUND), "broker-9": {LEADER_RATE: "1", FOLLOWER_RATE: None}}
    c = context(unrestored=ALL)
    way = Way.FORWARD if step is ThrottleStep else Way.BACK
    assert isinstance(check(c, facts(now, way=way), step), Done)


def test_a_broker_that_may_keep_a_limit_is_waited_for_by_its_looks_and_no_clock() -> None:
    c = context(Way.BACK, unrestored=frozenset({"broker-3"}))
    waits = check(c, facts(kept(FOUND), "broker-3"))
    assert isinstance(waits, Waiting)
    assert waits.deadline_s == math.inf, "the clock would end it without the broker's name"


def test_a_broker_whose_rate_was_changed_later_may_keep_that_one_too() -> None:
    sent = SentRates({3: (Rate(900, 900),)})
    c = context(Way.BACK, kept={"looks": LOOKS}, records={SentRates.step: sent.encode()})
    verdict = check(c, facts(kept(FOUND), "broker-3"))
    assert isinstance(verdict, Blocked)
    assert [f.target for f in verdict.findings] == ["broker-3"]


@pytest.mark.parametrize(("way", "held"), [(Way.FORWARD, False), (Way.BACK, True)])
def test_a_broker_that_the_run_has_stopped_keeps_its_limit_until_it_is_back(way: Way, held: bool) -> None:
    """Going back it was started again, so that it can answer."""
    step = UnthrottleStep if way is Way.FORWARD else ThrottleStep
    c = context(way, kept={"looks": LOOKS}, unrestored=frozenset({"broker-3"}))
    f = facts(kept(FOUND), "broker-3", way=Way.BACK if way is Way.FORWARD else Way.FORWARD)
    verdict = step(leave=lambda _inventory: (3,)).check(c, f)
    assert isinstance(verdict, Blocked if held else Done)
    assert isinstance(step(leave=lambda _inventory: (1,)).check(c, f), Blocked)
