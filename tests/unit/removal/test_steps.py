"""What a removal asks before it forgets a broker, and before it sets or takes back an exclusion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from tests.unit.removal_world import inventory, world
from zkmigrate.model.change import AlterBrokerConfig, UnregisterBroker
from zkmigrate.model.fact import Reading, Seen, Unknown
from zkmigrate.model.look import KafkaView, Look, Pulse, TopicSetting
from zkmigrate.model.step import Context, Done, Ready, Verdict, Waiting, Way
from zkmigrate.reassign.facts import LOOKS
from zkmigrate.removal.clean_step import CleanFacts, CleanStep
from zkmigrate.removal.exclude_step import Excluded, ExcludeFacts, ExcludeStep
from zkmigrate.removal.rules import CORDON_ALL, UNREGISTER
from zkmigrate.removal.section import Exclusion

UP = Pulse(0.0, apis={UNREGISTER: (0, 0)})
DOWN = Pulse(None, "refused")
DARK: Reading[KafkaView] = Unknown("timeout", "no broker answers")


def context(way: Way = Way.FORWARD, *, shutdown: bool = True, **also: object) -> Context:
    return Context("r-1", inventory(shutdown=shutdown), way=way, **also)  # type: ignore[arg-type]


# --- forgetting ----------------------------------------------------------------------------------------


def view(*down: int) -> Reading[KafkaView]:
    cluster = world()
    cluster.down = set(down)
    return cluster.view()


def forget(
    view: Reading[KafkaView], pulses: Mapping[str, Pulse] | None = None, c: Context | None = None
) -> Verdict:
    first = {f"broker{id}": UP for id in (1, 2, 3)}
    told = {**first, "broker4": DOWN, "broker5": DOWN} if pulses is None else pulses
    return CleanStep().check(c or context(), CleanFacts(view, told))


def targets(verdict: Verdict) -> tuple[str, ...]:
    assert isinstance(verdict, Ready), verdict
    return verdict.targets


def test_the_brokers_that_are_down_are_forgotten_once() -> None:
    verdict = forget(view(4, 5))
    assert targets(verdict) == ("unregister-4", "unregister-5")
    assert CleanStep().plan(context(), CleanFacts(), "unregister-4")[0] == UnregisterBroker("kafka", 4)
    kept = cast(Ready, verdict).keep
    assert isinstance(forget(view(4, 5), c=context(kept=kept)), Done)
    again = context(kept=kept, unconfirmed=frozenset({"unregister-5"}))
    assert targets(forget(view(4, 5), c=again)) == ("unregister-5",)


def test_a_broker_that_lives_is_never_forgotten() -> None:
    """Neither by the cluster's word, nor where the one that tells the view has missed it."""
    assert targets(forget(view(5))) == ("unregister-5",)
    pulses = {"broker1": UP, "broker4": UP, "broker5": Pulse(7.0, "refused")}
    assert targets(forget(view(4, 5), pulses)) == ("unregister-5",)
    verdict = forget(view())
    assert isinstance(verdict, Done)
    assert verdict.findings[0].seen == "none is down"


@pytest.mark.parametrize(
    ("seen", "pulses"),
    [(DARK, None), (view(4, 5), {}), (view(4, 5), {"broker1": DOWN})],
    ids=["no view", "nobody", "nobody answers"],
)
def test_who_is_down_is_waited_for_where_nobody_tells(
    seen: Reading[KafkaView], pulses: Mapping[str, Pulse] | None
) -> None:
    assert isinstance(forget(seen, pulses), Waiting)


def test_with_zookeeper_nothing_is_forgotten() -> None:
    some = {"broker1": UP, "broker2": Pulse(0.0)}
    verdict = forget(view(4, 5), some)
    assert isinstance(verdict, Done)
    assert verdict.findings[0].seen == "4, 5; with ZooKeeper a broker that is down is not registered"


@pytest.mark.parametrize(
    "c", [context(Way.BACK), context(shutdown=False)], ids=["on the way back", "they go on running"]
)
def test_where_no_broker_is_to_stop_none_is_asked_for(c: Context) -> None:
    facts = CleanStep().observe(c, cast(Look, None))
    assert facts == CleanFacts()
    assert isinstance(CleanStep().check(c, facts), Done)


def test_a_cordon_of_the_run_that_stays_on_a_broker_that_is_down_is_named() -> None:
    record = Excluded(Exclusion.CORDON, {4: None})
    c = context(
        kept={"asked": frozenset({"unregister-4", "unregister-5"})}, records={Excluded.step: record.encode()}
    )
    verdict = forget(view(4, 5), c=c)
    assert isinstance(verdict, Done)
    assert [f.seen for f in verdict.findings] == ["4, 5", "cordoned.log.dirs=* of brokers 4, which are down"]


# --- excluding -----------------------------------------------------------------------------------------


def cordons(**own: str | None) -> dict[int, Reading[TopicSetting]]:
    return {int(id[1:]): Seen(TopicSetting(value, value=value or "")) for id, value in own.items()}


RECORD = Excluded(Exclusion.CORDON, {4: None, 5: "/d"})


def exclude(c: Context, now: dict[int, Reading[TopicSetting]], record: Excluded | None = RECORD) -> Verdict:
    return ExcludeStep().check(c, ExcludeFacts(None, now, record))


def put_back(now: dict[int, Reading[TopicSetting]], target: str) -> AlterBrokerConfig:
    [change] = ExcludeStep().undo(context(Way.BACK), ExcludeFacts(None, now, RECORD), target, ())
    assert isinstance(change, AlterBrokerConfig)
    return change


def test_each_broker_gets_back_what_was_found() -> None:
    now = cordons(b4=CORDON_ALL, b5=CORDON_ALL)
    set_here = frozenset({"broker-4", "broker-5"})
    assert targets(exclude(context(Way.BACK, unrestored=set_here), now)) == ("broker-4", "broker-5")
    assert [put_back(now, t).value for t in ("broker-4", "broker-5")] == [None, "/d"]


@pytest.mark.parametrize("own", [None, "/other"], ids=["taken off", "set to something else"])
def test_what_another_hand_has_set_since_stays_on_the_way_back(own: str | None) -> None:
    set_here = frozenset({"broker-4", "broker-5"})
    now = cordons(b4=own, b5=CORDON_ALL)
    assert targets(exclude(context(Way.BACK, unrestored=set_here), now)) == ("broker-5",)
    assert isinstance(exclude(context(Way.BACK, unrestored=set_here), cordons(b4=own, b5=own)), Done)


def test_a_cordon_that_was_there_before_stays_on_the_way_back() -> None:
    there = Excluded(Exclusion.CORDON, {4: CORDON_ALL})
    assert isinstance(exclude(context(Way.BACK), cordons(b4=CORDON_ALL), there), Done)


def test_brokers_that_tell_nothing_are_waited_for() -> None:
    now: dict[int, Reading[TopicSetting]] = {4: Unknown("timeout", "no answer"), **cordons(b5=CORDON_ALL)}
    for way in Way:
        verdict = exclude(context(way), now)
        assert isinstance(verdict, Waiting)
        assert verdict.progress == "4"


def test_a_setting_is_sent_once_and_waited_for() -> None:
    now, sent = cordons(b4=None, b5=CORDON_ALL), frozenset({"broker-4", "broker-5"})
    assert targets(exclude(context(), now)) == ("broker-4",)
    waits = exclude(context(unrestored=sent), now)
    assert isinstance(waits, Waiting)
    assert waits.keep == {"looks": 1}
    assert targets(exclude(context(unrestored=sent, unconfirmed=frozenset({"broker-4"})), now)) == (
        "broker-4",
    )
    assert targets(exclude(context(unrestored=sent, kept={"looks": LOOKS}), now)) == ("broker-4",)


def test_on_the_way_back_a_setting_that_brokers_never_tell_is_not_waited_for_without_end() -> None:
    now = cordons(b4=CORDON_ALL)
    record = Excluded(Exclusion.CORDON, {4: None})
    assert isinstance(exclude(context(Way.BACK), now, record), Waiting)
    assert isinstance(exclude(context(Way.BACK, kept={"looks": LOOKS}), now, record), Done)


def test_a_run_that_was_killed_before_its_first_change_has_excluded_nobody() -> None:
    assert isinstance(exclude(context(Way.BACK), {}, None), Done)
