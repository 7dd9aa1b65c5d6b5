"""What is asked a second time before one leftover goes, and before it is put back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.world import leavings
from tests.world.cluster_state import DISK, Flight
from tests.world.leavings import LeftoversDesk, inventory
from zkmigrate.cluster.leftovers.remove_step import Named, RemoveFacts, RemoveStep
from zkmigrate.cluster.leftovers.rules import READ_BY_BROKERS_S
from zkmigrate.cluster.reassign.throttle import FOLLOWER_LIST
from zkmigrate.runbook.model.change import MoveAside
from zkmigrate.runbook.model.step import Blocked, Context, Done, Ready, Verdict, Way
from zkmigrate.zookeeper.changes import DeleteZnode

STEP = RemoveStep()
CONFIG, GONE = "/config/topics/old", f"broker1:{DISK}/gone-0"
TOPIC_THROTTLE = f"topic/live/{FOLLOWER_LIST}"
BROKER_THROTTLE = "broker/2/leader.replication.throttled.rate"


@pytest.fixture
def desk(tmp_path: Path) -> LeftoversDesk:
    return leavings.desk(tmp_path, CONFIG, GONE, stopped=(1,))


def context(desk: LeftoversDesk, *remove: str, **also: Any) -> Context:
    """remove: what the inventory names now."""
    return Context("r-1", inventory(*(remove or (CONFIG, GONE))), **also)


def seen(desk: LeftoversDesk, c: Context) -> RemoveFacts:
    return STEP.observe(c, desk.look())


def target_of(desk: LeftoversDesk, name: str) -> str:
    every = seen(desk, context(desk)).found.values()
    return next(one.target for one in every if one.name == name)


def ready(verdict: Verdict) -> str:
    assert isinstance(verdict, Ready), verdict
    [target] = verdict.targets
    return target


def test_what_was_chosen_is_sent_with_what_the_same_look_saw(desk: LeftoversDesk) -> None:
    c = context(desk)
    f = seen(desk, c)
    assert ready(STEP.check(c, f)) == CONFIG
    [change] = STEP.plan(c, f, CONFIG)
    assert isinstance(change, DeleteZnode)
    assert change.mark == f"{desk.cluster.tree[CONFIG].made:x} {desk.cluster.tree[CONFIG].changed:x} 0"
    [aside] = STEP.plan(c, f, target_of(desk, GONE))
    assert isinstance(aside, MoveAside)


def test_what_the_last_look_no_longer_finds_or_cannot_move_is_not_touched(desk: LeftoversDesk) -> None:
    """A target may be chosen at one look, and be held, or gone, at the one that plans it."""
    c, directory = context(desk), target_of(desk, GONE)
    desk.cluster.down.clear()
    f = seen(desk, c)
    assert f.found[directory].holds
    assert STEP.plan(c, f, directory) == ()
    desk.cluster.create_topic("old")
    assert STEP.plan(c, seen(desk, c), CONFIG) == ()
    assert STEP.plan(c, seen(desk, c), "/config/topics/never") == ()


def test_the_names_are_fixed_by_the_first_removal(desk: LeftoversDesk) -> None:
    c = context(desk, "/config/topics/*")
    first = STEP.check(c, seen(desk, c))
    assert isinstance(first, Ready)
    desk.cluster.put("/config/topics/other", b"{}")
    begun = replace(c, begun=True, records={Named.step: first.record}, unrestored=frozenset({CONFIG}))
    del desk.cluster.tree[CONFIG]
    assert isinstance(STEP.check(begun, seen(desk, begun)), Done), "the new one is for another run"
    again = replace(begun, begun=False, unrestored=frozenset())
    assert ready(STEP.check(again, seen(desk, again))) == "/config/topics/other", "after a way back it counts"


def test_an_entry_taken_out_leaves_what_was_not_removed_and_keeps_what_was(desk: LeftoversDesk) -> None:
    c = context(desk)
    first = STEP.check(c, seen(desk, c))
    assert isinstance(first, Ready)
    out = context(desk, CONFIG, begun=True, records={Named.step: first.record})
    assert ready(STEP.check(out, seen(desk, out))) == CONFIG
    none = context(desk, "/nothing", begun=True, records={Named.step: first.record})
    assert isinstance(STEP.check(none, seen(desk, none)), Done)
    unsure = replace(none, unrestored=frozenset({CONFIG}))
    assert ready(STEP.check(unsure, seen(desk, unsure))) == CONFIG, "its removal was sent, and it is there"


def test_what_is_left_is_told_from_what_was_removed(desk: LeftoversDesk) -> None:
    c = context(desk)
    first = STEP.check(c, seen(desk, c))
    assert isinstance(first, Ready)
    del desk.cluster.tree[CONFIG]
    desk.cluster.unlay("broker1", "gone-0")
    done = STEP.check(
        replace(c, begun=True, records={Named.step: first.record}, unrestored=frozenset({CONFIG})),
        seen(desk, c),
    )
    assert isinstance(done, Done)
    removed, left = done.findings
    assert removed.seen == f"1: {CONFIG}"
    assert left.seen == f"not removed, because they are missing or in use again: {GONE}"


def test_while_something_moves_nothing_is_removed_or_put_back(desk: LeftoversDesk) -> None:
    desk.cluster.flights["live", 0] = Flight((1, 3), (1, 2), {3: -(10**15)})
    for way in Way:
        c = context(desk, way=way, unrestored=frozenset({CONFIG}))
        verdict = STEP.check(c, seen(desk, c))
        assert isinstance(verdict, Blocked)
        assert [f.id for f in verdict.findings if f.blocks] == ["leftovers.in-flight"]


def test_on_the_way_back_nothing_is_asked_where_nothing_was_removed(desk: LeftoversDesk) -> None:
    desk.cluster.flights["live", 0] = Flight((1, 3), (1, 2), {3: -(10**15)})
    c = context(desk, way=Way.BACK)
    assert isinstance(STEP.check(c, seen(desk, c)), Done)


@pytest.mark.parametrize("name", [TOPIC_THROTTLE, BROKER_THROTTLE])
def test_a_throttle_goes_back_only_where_nobody_has_set_it_since(desk: LeftoversDesk, name: str) -> None:
    c = context(desk, name, way=Way.BACK, begun=True, unrestored=frozenset({name}))
    held = STEP.check(c, seen(desk, c))
    assert isinstance(held, Done)
    assert held.findings[0].seen == f"{name}: another person or tool has set this setting since"
    desk.cluster.topics["live"].pop(FOLLOWER_LIST, None)
    desk.cluster.rates.clear()
    assert ready(STEP.check(c, seen(desk, c))) == name


def test_a_throttle_of_a_topic_that_is_gone_stays_gone(desk: LeftoversDesk) -> None:
    name = f"topic/dead/{FOLLOWER_LIST}"
    c = context(desk, name, way=Way.BACK, begun=True, unrestored=frozenset({name}))
    held = STEP.check(c, seen(desk, c))
    assert isinstance(held, Done)
    assert held.findings[0].seen == f"{name}: topic dead does not exist"


def test_a_notice_of_a_changed_config_is_young_as_long_as_brokers_may_read_it(desk: LeftoversDesk) -> None:
    """However young the operator lets other leftovers be."""
    notice = "/config/changes/config_change_0000000007"
    c = Context("r-1", inventory(older_than_s=60))
    for age_s, there in ((READ_BY_BROKERS_S - 1, False), (READ_BY_BROKERS_S + 1, True)):
        desk.cluster.put(notice, b"{}", age_s)
        desk.cluster.put("/config/topics/young", b"{}", 61)
        found = seen(desk, c).found
        assert (notice in found) is there
        assert "/config/topics/young" in found


def test_what_a_deletion_may_still_need_is_no_leftover_before_its_mark_is_gone(desk: LeftoversDesk) -> None:
    mark, config = "/admin/delete_topics/dying", "/config/topics/dying"
    desk.cluster.put(mark)
    desk.cluster.put(config, b"{}")
    found = seen(desk, context(desk)).found
    assert (mark in found, config in found) == (True, False)
    del desk.cluster.tree[mark]
    assert config in seen(desk, context(desk)).found
