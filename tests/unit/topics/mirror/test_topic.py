"""Topics on target, and how a difference is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from zkmigrate.topics.mirror.rules.difference import kind, named
from zkmigrate.topics.mirror.rules.topic import (
    AFTER,
    BEFORE,
    DIFFERENCE,
    MIN_ISR,
    NO_LIMIT,
    THEIRS,
    TIME_TYPE,
    Aligned,
    Settings,
    align,
    compacts,
    deletes,
    describe,
    first,
    refusal,
    wanted,
)

HOUR = "3600000"
OLD = {DIFFERENCE: NO_LIMIT}
MIDDLE = {DIFFERENCE: NO_LIMIT, BEFORE: NO_LIMIT, AFTER: NO_LIMIT}
NEW = {BEFORE: NO_LIMIT, AFTER: HOUR}
"""The limits of records' times as Kafka 2.8, 3.9 and 4.3 have them by default."""


def settings(values: Mapping[str, str], *changed: str, own: Sequence[str] = ()) -> Settings:
    return Settings(values, frozenset(changed), dict.fromkeys(own))


def test_all_settings_but_those_of_brokers_and_times_are_copied() -> None:
    here = settings({"retention.ms": "1", TIME_TYPE: "LogAppendTime", MIN_ISR: "3", "new": "1"})
    known = {"retention.ms", TIME_TYPE, MIN_ISR, "other"}
    assert wanted(here, known, 2) == {"retention.ms": "1", MIN_ISR: "2", TIME_TYPE: "CreateTime"}


def test_values_in_force_are_compared_whoever_set_them() -> None:
    """Stock Kafka 4.3 with eligible leader replicas has min.insync.replicas=1 as a cluster's own setting."""
    elr = describe([(MIN_ISR, "1", 3, [(MIN_ISR, "1", 3), (MIN_ISR, "1", 5)])])
    plain = describe([(MIN_ISR, "1", 5, [(MIN_ISR, "1", 5)])])
    assert elr == plain == settings({MIN_ISR: "1"})
    nothing = Aligned({}, (), {}, {})
    assert align(plain, elr, 3) == align(elr, plain, 3) == nothing
    assert first(elr, plain, 3) == first(plain, elr, 3) == {}
    # One that the brokers set otherwise is set on the topic, and is a difference until then.
    two = describe([(MIN_ISR, "2", 4, [(MIN_ISR, "2", 4), (MIN_ISR, "1", 5)])])
    assert align(plain, two, 3) == Aligned({MIN_ISR: "1"}, (), {}, {MIN_ISR: ("1", "2")})
    assert first(plain, two, 3) == {MIN_ISR: "1"}
    assert first(two, None, 3) == {MIN_ISR: "2"}, "where target does not tell what a topic would have"


@pytest.mark.parametrize(
    ("source", "target", "put"),
    [
        (OLD, NEW, {AFTER: NO_LIMIT}),
        (MIDDLE, NEW, {AFTER: NO_LIMIT}),
        (NEW, NEW, {}),
        (OLD, MIDDLE, {}),
        (NEW, MIDDLE, {AFTER: HOUR}),
        (NEW, OLD, {}),
        ({DIFFERENCE: "7"}, NEW, {BEFORE: "7", AFTER: "7"}),
        ({**MIDDLE, DIFFERENCE: "7", AFTER: "9"}, NEW, {BEFORE: "7", AFTER: "9"}),
        ({DIFFERENCE: "7"}, MIDDLE, {DIFFERENCE: "7"}),
        ({**MIDDLE, AFTER: "9"}, MIDDLE, {AFTER: "9"}),
        ({BEFORE: "7", AFTER: HOUR}, OLD, {DIFFERENCE: HOUR}),
        ({BEFORE: NO_LIMIT, AFTER: HOUR}, {**MIDDLE, DIFFERENCE: "7"}, {AFTER: HOUR, DIFFERENCE: NO_LIMIT}),
    ],
)
def test_target_takes_the_times_that_source_takes_whatever_the_release_calls_it(
    source: dict[str, str], target: dict[str, str], put: dict[str, str]
) -> None:
    here, there = settings(source), settings(target)
    told = align(here, there, 1)
    assert (told.put, told.left) == (put, {})
    assert first(here, there, 1) == put
    assert align(here, settings({**target, **put}), 1) == Aligned({}, (), {}, {})


def test_a_limit_that_was_set_on_target_alone_stays_unless_source_has_changed_one() -> None:
    """Whatever else source has changed."""
    there = settings({**NEW, AFTER: "9", "retention.ms": "1"}, AFTER, own=[AFTER])
    here = settings({**OLD, "retention.ms": "1"}, "retention.ms")
    assert align(here, there, 3) == Aligned({}, (), {AFTER: THEIRS}, {AFTER: (NO_LIMIT, "9")})
    limited = settings({DIFFERENCE: "7", "retention.ms": "1"}, DIFFERENCE)
    assert align(limited, there, 3).put == {BEFORE: "7", AFTER: "7"}


def test_settings_that_one_release_does_not_have_are_named_and_stop_nothing() -> None:
    here = settings({"gone": "1", "same": "1", "removed": "0"}, "gone")
    there = settings({"same": "1", "new": "9", "stock": "0"}, "new")
    assert align(here, there, 1) == Aligned(
        {},
        (),
        {"gone": "target's Kafka has no such setting", "new": "source's Kafka has no such setting"},
        {},
    )
    assert first(here, there, 1) == {}


def test_a_topic_is_made_with_sources_times_where_targets_brokers_replace_them() -> None:
    here, would = settings({TIME_TYPE: "CreateTime"}), settings({TIME_TYPE: "LogAppendTime"}, TIME_TYPE)
    assert first(here, would, 1) == {TIME_TYPE: "CreateTime"}


def test_only_a_topic_that_is_compacted_takes_no_record_without_a_key() -> None:
    assert compacts({"cleanup.policy": "compact,delete"})
    assert not compacts({"cleanup.policy": "delete"})
    assert not compacts({})


@pytest.mark.parametrize(("policy", "may"), [("delete", True), ("compact,delete", True), ("compact", False)])
def test_only_the_policy_delete_lets_records_be_deleted(policy: str, may: bool) -> None:
    assert deletes({"cleanup.policy": policy}) is may
    assert deletes({})


def test_what_cannot_be_mirrored_is_refused() -> None:
    assert refusal("orders", 3, None, {}) == refusal("orders", 3, 3, {}) == ""
    assert "internal" in refusal("__consumer_offsets", 3, None, {})
    assert "4 partitions" in refusal("orders", 3, 4, {})
    assert "LogAppendTime" in refusal("orders", 3, 3, {"message.timestamp.type": "LogAppendTime"})


BODY = b"\x02k\x02v\x02\x02h\x02x"
"""Key k, value v, one header h with the value x."""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ((6, 1, BODY), "source's next record: offset 5, target's: offset 6"),
        ((5, 2, BODY), "offset 5: source's time is 1, target's 2"),
        ((5, 1, b"\x02K" + BODY[2:]), "offset 5: source's key is b'k', target's b'K'"),
        ((5, 1, BODY[:2] + b"\x01" + BODY[4:]), "offset 5: source's value is b'v', target's None"),
        ((5, 1, BODY[:-1] + b"y"), "offset 5: source's headers is [(b'h', b'x')], target's [(b'h', b'y')]"),
        (None, "source's next record: offset 5, target's: none"),
    ],
)
def test_a_difference_is_named(other: tuple[int, int, bytes] | None, said: str) -> None:
    assert named((5, 1, BODY), other) == said


def test_a_record_that_cannot_be_read_differs_in_its_encoding() -> None:
    other = (5, 1, b"")
    assert named((5, 1, BODY), other).endswith("record cannot be read")
    assert kind((5, 1, BODY), other) == "encoding"
