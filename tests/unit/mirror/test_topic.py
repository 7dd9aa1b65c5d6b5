"""Topics on target, and how a difference is named."""

from __future__ import annotations

import pytest

from zkmigrate.mirror.rules.difference import first_difference
from zkmigrate.mirror.rules.topic import deletes, differences, refusal, wanted


def test_all_settings_but_those_of_brokers_and_times_are_copied() -> None:
    settings = {"retention.ms": "1", "message.timestamp.type": "LogAppendTime", "min.insync.replicas": "3"}
    assert wanted(settings, 2) == {"retention.ms": "1", "min.insync.replicas": "2"}


def test_settings_that_differ_are_listed() -> None:
    found = {"a": "1", "c": "3", "message.timestamp.type": "CreateTime"}
    assert differences({"a": "1", "b": "2"}, found) == {"b": ("2", None), "c": (None, "3")}


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
def test_the_first_difference_is_named(other: tuple[int, int, bytes] | None, said: str) -> None:
    same = (4, 1, BODY)
    one, two = [same, (5, 1, BODY)], [same] if other is None else [same, other]
    assert first_difference(one, two) == (1, said)


def test_equal_reads_differ_nowhere() -> None:
    assert first_difference([(4, 1, BODY)], [(4, 1, BODY)]) == (1, "")
