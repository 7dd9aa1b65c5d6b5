"""What a removal asks before it forgets a broker, and before it sets or takes back an exclusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.unit.move.steps.facts import ARMED
from tests.world.cluster_look import ClusterLook
from tests.world.cluster_state import Held
from tests.world.removing import POLICY_FILE, inventory, world
from zkmigrate.cluster.reassign.facts import LOOKS
from zkmigrate.cluster.reassign.moves import LateStragglers
from zkmigrate.cluster.reassign.moves_facts import MovesFacts
from zkmigrate.cluster.removal.clean_step import CleanFacts, CleanStep, Uncordoned
from zkmigrate.cluster.removal.exclude_step import Excluded, ExcludeFacts, ExcludeStep
from zkmigrate.cluster.removal.policy_step import Closed, PolicyFacts, PolicyStep, Word
from zkmigrate.cluster.removal.rules import CORDON_ALL, CORDONED, UNREGISTER
from zkmigrate.cluster.removal.section import Exclusion
from zkmigrate.cluster.removal.stop_step import TRIES, StopStep
from zkmigrate.cluster.removal.sweep_step import ROUNDS, SweepFacts
from zkmigrate.kafka.changes import AlterAtController, AlterBrokerConfig, UnregisterBroker
from zkmigrate.kafka.questions import KafkaView, TopicSetting
from zkmigrate.runbook.model import finding
from zkmigrate.runbook.model.change import SetService
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look, Pulse
from zkmigrate.runbook.model.step import Blocked, Context, Done, Ready, Verdict, Waiting, Way

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
    view: Reading[KafkaView],
    pulses: Mapping[str, Pulse] | None = None,
    c: Context | None = None,
    refused: Mapping[int, Reading[str]] | None = None,
) -> Verdict:
    first = {f"broker{id}": UP for id in (1, 2, 3)}
    told = {**first, "broker4": DOWN, "broker5": DOWN} if pulses is None else pulses
    return CleanStep().check(c or context(), CleanFacts(view, told, refused=refused or {}))


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
    assert verdict.findings[0].seen == "none of the brokers is down"


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


def test_x9_the_cordon_of_a_broker_goes_before_kafka_forgets_it() -> None:
    """5 was cordoned before the run, so that one stays."""
    cordon = Excluded(Exclusion.CORDON, {4: None, 5: CORDON_ALL})
    c = context(records={Excluded.step: cordon.encode()})
    verdict = forget(view(4, 5), c=c, refused={4: Seen("")})
    assert targets(verdict) == ("unregister-4", "unregister-5")
    unset = AlterAtController("kafka", 4, CORDONED, None, CORDON_ALL)
    facts = CleanFacts(refused={4: Seen("")})
    assert CleanStep().plan(c, facts, "unregister-4") == (unset, UnregisterBroker("kafka", 4))
    assert CleanStep().plan(c, facts, "unregister-5") == (UnregisterBroker("kafka", 5),)
    assert "--bootstrap-controller CONTROLLER:PORT" in unset.command
    assert (
        unset.describe()
        == "unset cordoned.log.dirs of broker 4 (found: cordoned.log.dirs=*) at the controller"
    )

    # Killed here: the record tells what was unset, for Kafka takes no question about the broker any more.
    record = cast(Ready, verdict).record
    gone: dict[int, Reading[str]] = {4: Seen("BROKER_ID_NOT_REGISTERED")}
    for records, told in (({Uncordoned.step: record}, finding.Held.YES), ({}, finding.Held.NO)):
        c = context(
            kept={"asked": frozenset({"unregister-4", "unregister-5"})},
            records={Excluded.step: cordon.encode(), **records},
        )
        ended = forget(view(4, 5), c=c, refused=gone)
        assert isinstance(ended, Done)
        assert [f.held for f in ended.findings] == [finding.Held.YES, told]


# --- stopping ------------------------------------------------------------------------------------------


def stopping(way: Way, state: str, view: Reading[KafkaView] | None = None) -> Verdict:
    """broker4 was stopped by this run, and its service is in this state now; empty if its host does not
    answer."""
    told = Seen(replace(ARMED, unit_state=state)) if state else Unknown("timeout", "no answer")
    records = {LateStragglers.step: LateStragglers(stopped=("broker4",)).encode()}
    facts = SweepFacts(MovesFacts(), services={"broker4": told}, view=view)
    return StopStep().check(context(way, records=records), facts)


@pytest.mark.parametrize("way", Way)
def test_a_host_that_does_not_tell_whether_its_broker_runs_is_waited_for(way: Way) -> None:
    """It is neither taken for stopped nor started."""
    verdict = stopping(way, "")
    assert isinstance(verdict, Waiting)
    assert verdict.what == "the hosts report whether their brokers run"


def test_nothing_is_moved_back_before_a_broker_that_was_started_is_registered() -> None:
    assert targets(stopping(Way.BACK, "inactive")) == ("broker4.stop",)
    for seen in (view(4), DARK):
        verdict = stopping(Way.BACK, "active", seen)
        assert isinstance(verdict, Waiting)
        assert (verdict.what, verdict.progress) == (
            "the brokers that were started are registered",
            "broker4",
        )


@pytest.mark.parametrize(
    ("first", "down", "waits"),
    [
        ("active", (), ""),
        ("deactivating", (), "broker4"),
        ("active", (4,), "broker4"),
        ("inactive", (4,), ""),
    ],
)
def test_a_broker_stops_only_once_the_one_before_it_has_stopped(
    first: str, down: tuple[int, ...], waits: str
) -> None:
    """Also once the cluster names that one no more, while its process still ends."""
    cluster = world()
    cluster.held = {name: held for name, held in cluster.held.items() if not {4, 5} & {*held.replicas}}
    cluster.controller = 4
    c = context(kept={"empty": -10.0})
    seen = StopStep().observe(c, cast(Look, ClusterLook(cluster)))
    cluster.down = {*down}
    states = {"broker4": first, "broker5": "active"}
    services = {host: Seen(replace(ARMED, unit_state=state)) for host, state in states.items()}
    verdict = StopStep().check(c, replace(seen, services=services, view=cluster.view()))
    if waits:
        assert isinstance(verdict, Waiting)
        assert (verdict.what, verdict.progress) == ("a broker has stopped", waits)
    else:
        assert targets(verdict) == ("broker5.stop",), "the controller is the last one"


def test_the_end_is_there_once_the_cluster_names_no_stopped_broker() -> None:
    cluster = world()
    cluster.held = {name: held for name, held in cluster.held.items() if not {4, 5} & {*held.replicas}}
    c = context(kept={"empty": -10.0})
    seen = StopStep().observe(c, cast(Look, ClusterLook(cluster)))
    down = Seen(replace(ARMED, unit_state="inactive"))
    seen = replace(seen, services=dict.fromkeys(("broker4", "broker5"), down))
    cluster.down = {4}
    verdict = StopStep().check(c, replace(seen, view=cluster.view()))
    assert isinstance(verdict, Waiting)
    assert (verdict.what, verdict.progress) == ("the cluster no longer names the stopped brokers", "5")
    cluster.down = {4, 5}
    assert isinstance(StopStep().check(c, replace(seen, view=cluster.view())), Done)


@pytest.mark.parametrize(
    ("known", "isr", "min_isr", "able"),
    [
        (False, (4, 1), 1, ["broker4"]),
        (False, (4, 1, 2), 2, ["broker4"]),
        (True, (4, 1), 1, []),
        (False, (4,), 0, []),
        (False, (4, 1), 2, []),
    ],
)
def test_while_topics_come_without_end_a_broker_stops_that_writes_do_not_need(
    known: bool, isr: tuple[int, ...], min_isr: int, able: list[str]
) -> None:
    """What names it was born since the last plan, and is in sync on as many others as writes need."""
    cluster, born = world(), ("born", 0)
    cluster.topics, cluster.min_isr = {"born": {}}, min_isr
    cluster.held = {born: Held((4, 1, 2), isr, isr[0], 1000)}
    c = context(kept={"rounds": ROUNDS, "known": frozenset({born} if known else ())})
    states = {"broker4": "active", "broker5": "inactive"}
    services = {host: Seen(replace(ARMED, unit_state=state)) for host, state in states.items()}
    assert StopStep()._able(c, SweepFacts(MovesFacts(), services=services, view=cluster.view())) == able


def test_a_broker_is_told_to_stop_so_many_times_and_no_more() -> None:
    cluster = world()
    cluster.held.clear()
    c = context(kept={"empty": -10.0, "told": {"broker4": TRIES}})
    seen = StopStep().observe(c, cast(Look, ClusterLook(cluster)))
    cluster.down = {5}
    facts = replace(seen, view=cluster.view())
    states = {"broker4": "active", "broker5": "inactive"}
    services = {host: Seen(replace(ARMED, unit_state=state)) for host, state in states.items()}
    facts = replace(facts, services=services)
    verdict = StopStep().check(c, facts)
    assert isinstance(verdict, Blocked)
    assert [(one.id, one.target) for one in verdict.findings] == [("remove.stopped", "broker4")]
    [stop], [start] = StopStep().plan(c, facts, "broker4.stop"), StopStep().undo(c, facts, "broker4.stop", ())
    assert [cast(SetService, one).action for one in (stop, start)] == ["stop", "start"]


# --- what our policy reads -------------------------------------------------------------------------------


def policy(way: Way, files: Mapping[str, Reading[bytes]], word: Word = "close", **also: Any) -> Verdict:
    own = inventory(exclusion=Exclusion.POLICY, policy_file=POLICY_FILE, shutdown=True)
    c = replace(context(way, **also), inventory=own)
    return PolicyStep(word, "t").check(c, PolicyFacts(files, 90.0))


CLOSES = Seen(b"removal=remove\nbrokers=4,5\nclosed_s=300\n")


def test_every_host_is_told_and_one_that_does_not_answer_is_waited_for() -> None:
    files: dict[str, Reading[bytes]] = {
        "broker1": CLOSES,
        "broker2": Absent(POLICY_FILE),
        "broker3": Seen(b"removal=remove\n"),
    }
    assert targets(policy(Way.FORWARD, files)) == ("broker2", "broker3")
    silent: dict[str, Reading[bytes]] = {"broker1": CLOSES, "broker2": Unknown("timeout", "no answer")}
    assert isinstance(policy(Way.FORWARD, silent), Waiting)
    assert isinstance(policy(Way.FORWARD, {"broker1": CLOSES}), Done)


def test_on_the_way_back_each_file_that_was_written_is_put_back_and_no_other() -> None:
    files = {"broker1": CLOSES, "broker2": CLOSES}
    assert targets(policy(Way.BACK, files, unrestored=frozenset({"broker2"}))) == ("broker2",)
    assert isinstance(policy(Way.BACK, files), Done)


def test_the_seconds_in_which_nothing_is_created_count_from_the_first_file() -> None:
    absent: dict[str, Reading[bytes]] = {"broker1": Absent(POLICY_FILE)}
    records = {Closed.step: Closed(5.0).encode()}
    for begun, at in ((True, 5.0), (False, 90.0)):
        verdict = policy(Way.FORWARD, absent, records=records, begun=begun)
        assert isinstance(verdict, Ready)
        assert verdict.record == Closed(at).encode()
    assert cast(Ready, policy(Way.FORWARD, absent, "refuse", records=records)).record == {}


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
