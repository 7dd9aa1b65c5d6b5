"""What target's topics need when source's change: partitions, settings, an end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from zkmigrate.topics.mirror.rules.follow import Change, Configure, Grow, Memory, State, Stop, follow
from zkmigrate.topics.mirror.rules.topic import Settings

DEFAULTS = {"a": "0", "b": "0", "c": "0", "min.insync.replicas": "1"}


def state(
    partitions: int = 3, values: Mapping[str, str] = MappingProxyType({}), id: str = "one", replicas: int = 1
) -> State:
    """A topic whose settings are its own: all others are Kafka's defaults."""
    beneath = {key: DEFAULTS.get(key) for key in values}
    return State(id, partitions, replicas, Settings({**DEFAULTS, **values}, frozenset(values), beneath))


def own(one: State) -> dict[str, str]:
    return {key: one.settings.values[key] for key in one.settings.beneath}


def looked(here: State | None, there: State | None, before: Memory) -> tuple[list[Change], Memory]:
    told = follow("orders", here, there, before)
    return list(told.changes), told.memory


def test_h4_new_partitions_are_made_on_target() -> None:
    assert looked(state(5), state(3), Memory("one", 3))[0] == [Grow("orders", 5)]
    assert looked(state(5), state(5), Memory("one", 3))[0] == []


def test_h4_a_topic_with_another_id_is_stopped() -> None:
    [stop], _ = looked(state(id="two"), state(), Memory("one", 3))
    assert stop == Stop("orders", "source's topic was created again: its id is two, and was one")


@pytest.mark.parametrize("there", [state(), None])
def test_h4_an_id_that_one_look_does_not_tell_is_remembered(there: State | None) -> None:
    """A broker of an earlier release tells none."""
    changes, memory = looked(state(id=""), there, Memory("one", 3))
    assert (changes, memory.id) == ([], "one")
    [stop], _ = looked(state(id="two"), there, memory)
    assert isinstance(stop, Stop)


def test_h4_a_topic_with_fewer_partitions_is_stopped_also_without_ids() -> None:
    [stop], _ = looked(state(2, id=""), state(), Memory("", 3))
    assert stop == Stop("orders", "source's topic was created again: it had 3 partitions, now 2")


def test_h4_a_topic_that_two_looks_miss_is_stopped() -> None:
    changes, memory = looked(None, state(), Memory("one", 3))
    assert changes == []
    [stop], _ = looked(None, state(), memory)
    assert isinstance(stop, Stop)
    assert "deleted or renamed" in stop.why
    # Seen again in between, it was only a broker that had just started.
    _, again = looked(state(), state(), memory)
    assert looked(None, state(), again)[0] == []


def test_h4_an_id_is_kept_while_a_look_misses_the_topic() -> None:
    _, memory = looked(None, state(), Memory("one", 3))
    [stop], _ = looked(state(id="two"), state(), memory)
    assert isinstance(stop, Stop)


def test_a_target_that_cannot_be_equal_any_more_is_stopped() -> None:
    [stop], _ = looked(state(3), state(4), Memory("one", 3))
    assert isinstance(stop, Stop)
    assert "4 partitions" in stop.why


def test_a_target_without_the_topic_is_told_and_left_alone() -> None:
    told = follow("orders", state(), None, Memory("one", 3))
    assert told.changes == ()
    assert "start it again" in told.left[""]


def test_h7_source_settings_are_put_on_target() -> None:
    here, there = state(3, {"a": "2", "b": "1"}), state(3, {"a": "1"})
    assert looked(here, there, Memory())[0] == [Configure("orders", {"a": "2", "b": "1"}, ())]


def test_h7_a_setting_that_source_had_in_this_run_is_removed_and_no_other() -> None:
    told = follow("orders", state(), state(3, {"a": "1", "b": "2"}), Memory("one", 3, frozenset({"a"})))
    assert told.changes == (removed := (Configure("orders", {}, ("a",)),))
    first = told.memory
    assert told.left == {"b": "the setting is set on target only, and the mirror does not change it"}
    # A topic whose brokers have another value gets source's instead.
    beneath = replace(state(3, {"a": "1"}).settings, beneath={"a": "7"})
    told = follow("orders", state(), replace(state(), settings=beneath), Memory("one", 3, frozenset({"a"})))
    assert told.changes == (Configure("orders", {"a": "0"}, ()),)
    # It is removed again where that was lost.
    assert follow("orders", state(), state(3, {"a": "1", "b": "2"}), first).changes == removed
    # Once it is gone from target, somebody may set it there.
    _, memory = looked(state(), state(), told.memory)
    assert follow("orders", state(), state(3, {"a": "1"}), memory).changes == ()


def test_h7_what_is_not_copied_is_named_with_its_reason() -> None:
    here = state(3, {"message.timestamp.type": "LogAppendTime", "new": "1"})
    brokers = replace(state(3, {"a": "1"}).settings, beneath={})
    there = replace(state(3), settings=brokers)
    told = follow("orders", here, there, Memory("one", 3))
    assert told.changes == (Configure("orders", {"a": "0"}, ()),), "target's brokers have another default"
    assert told.left == {
        "message.timestamp.type": "target keeps source's timestamps, as CreateTime",
        "new": "target's Kafka has no such setting",
    }


def test_h7_in_sync_replicas_stay_within_targets_replicas() -> None:
    here, there = state(3, {"min.insync.replicas": "2"}, replicas=3), state(3, {"min.insync.replicas": "3"})
    assert looked(here, state(), Memory())[0] == [], "target's one replica is all that can be needed"
    assert looked(here, there, Memory())[0] == [Configure("orders", {"min.insync.replicas": "1"}, ())]


VALUES = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from("12"))


@given(st.lists(st.tuples(VALUES, st.integers(0, 2), VALUES, st.booleans()), min_size=1, max_size=8), VALUES)
@settings(max_examples=examples(60))
def test_h4_h7_target_follows_whatever_happens(
    steps: list[tuple[dict[str, str], int, dict[str, str], bool]], begun: dict[str, str]
) -> None:
    """Source's settings and partitions change, somebody sets others on target, and changes get lost."""
    here, there, memory = state(), state(3, begun), Memory()
    copied = set[str]()
    for values, more, others, lost in steps:
        here = state(here.partitions + more, values)
        there = state(there.partitions, {**own(there), **others})
        copied |= values.keys()
        changes, memory = looked(here, there, memory)
        for change in [] if lost else changes:
            if isinstance(change, Grow):
                there = replace(there, partitions=change.partitions)
            elif isinstance(change, Configure):
                assert set(change.remove) <= copied - values.keys()
                kept = {key: value for key, value in own(there).items() if key not in change.remove}
                there = state(there.partitions, {**kept, **change.put})
            else:
                pytest.fail(f"stopped: {change.why}")
        if not lost:
            assert there.partitions == here.partitions
            assert values.items() <= there.settings.values.items()
            assert looked(here, there, memory)[0] == []
