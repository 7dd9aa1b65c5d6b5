"""Throttle settings: ours are merged with those found, and leave what was found byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.cluster.throttle.kafka_settings import EVERY, with_entries, without_entries, without_rate

entries = st.lists(st.builds("{}:{}".format, st.integers(0, 5), st.integers(1, 5)), max_size=6)
found_lists = (
    st.none()
    | st.sampled_from(["", EVERY, ",0:1", " 0:1 , 1:2", "0:1,,1:2", "0:1,0:1"])
    | entries.map(",".join)
)


@given(found_lists, entries)
def test_what_was_found_comes_back_byte_for_byte(found: str | None, ours: list[str]) -> None:
    assert without_entries(found, ours, with_entries(found, ours)) == found


def test_a_list_for_all_replicas_is_left_as_it_is() -> None:
    assert with_entries(EVERY, ["0:1"]) == EVERY


@pytest.mark.parametrize("found", [",0:1,1:2", "0:1,,1:2", "0:1,1:2,"])
def test_an_empty_entry_goes_even_where_ours_are_there(found: str) -> None:
    assert with_entries(found, ["1:2"]) == "0:1,1:2"
    assert without_entries(found, ["1:2"], "0:1,1:2") == found
    assert with_entries(found, []) == found


@given(found_lists, entries)
def test_every_entry_is_throttled_and_none_found_is_lost(found: str | None, ours: list[str]) -> None:
    now = with_entries(found, ours)
    if found == EVERY or not ours:
        assert now == found
        return
    there = (now or "").replace(" ", "").split(",")
    assert set(ours) <= set(there)
    assert "" not in there, "no empty entry, with which 2.8.2 throttles nothing"


@given(found_lists, entries, entries)
def test_entries_that_others_add_meanwhile_stay(
    found: str | None, ours: list[str], others: list[str]
) -> None:
    during = with_entries(with_entries(found, ours), others)
    left = set((without_entries(found, ours, during) or "").split(","))
    assert {one for one in others if one not in ours} <= left or found == EVERY


@given(found_lists, entries)
def test_merging_twice_is_merging_once(found: str | None, ours: list[str]) -> None:
    once = with_entries(found, ours)
    assert with_entries(once, ours) == once


@pytest.mark.parametrize(
    ("found", "now", "left"),
    [
        (None, "0:1,1:2", None),
        ("0:1", "0:1,1:2,3:3", "0:1,3:3"),
        ("9:9", "0:1,1:2", None),
        (EVERY, EVERY, EVERY),
        (None, EVERY, EVERY),
        ("9:9", None, None),
    ],
    ids=["ours only", "others added", "others removed theirs", "all found", "others set all", "others unset"],
)  # fmt: skip
def test_only_our_entries_go(found: str | None, now: str | None, left: str | None) -> None:
    assert without_entries(found, ["0:1", "1:2"], now) == left


@pytest.mark.parametrize(
    ("found", "now", "left"),
    [
        (None, "20", None),
        ("7", "20", "7"),
        ("7", "10", "7"),
        ("7", "99", "99"),
        ("7", None, None),
        (None, None, None),
    ],
    ids=["unset", "a rate", "an earlier rate of ours", "of others", "unset by others", "never set"],
)
def test_a_rate_of_ours_gives_way_to_the_one_found(
    found: str | None, now: str | None, left: str | None
) -> None:
    assert without_rate(found, (10, 20), now) == left
