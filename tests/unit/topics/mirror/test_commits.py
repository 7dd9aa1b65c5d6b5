"""Group offsets on target: never above source's, never above target's end, never of an active group."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from zkmigrate.topics.mirror.rules.commits import Commit, Group, standing, to_commit

P, Q = ("orders", 0), ("orders", 1)


def group(state: str = "Empty", source: int = 7, target: int | None = 3) -> Group:
    there = {} if target is None else {P: Commit(target)}
    return Group("app", state, {P: Commit(source, "mine")}, there)


@pytest.mark.parametrize("target", [None, 3, 9])
def test_h5_targets_commit_becomes_sources(target: int | None) -> None:
    """Also when source's was set back."""
    assert to_commit(group(target=target), {P: 20}) == {P: Commit(7, "mine")}


def test_h5_it_is_never_above_targets_end() -> None:
    assert to_commit(group(), {P: 5}) == {P: Commit(5)}
    assert to_commit(group(target=5), {P: 5}) == {}


def test_h5_an_equal_one_is_not_committed_again() -> None:
    same = Group("app", "Empty", {P: Commit(7)}, {P: Commit(7)})
    assert to_commit(same, {P: 20}) == {}


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", ""])
def test_h5_an_active_group_is_left_alone(state: str) -> None:
    assert to_commit(group(state), {P: 20}) == {}
    assert standing(group(state)).state == "active"


def test_h5_a_failed_partition_gets_no_commit() -> None:
    assert to_commit(group(), {}) == {}


def test_h5_how_a_group_stands() -> None:
    assert (standing(group()).state, standing(group()).behind) == ("behind", 4)
    assert standing(group(target=None)).behind == 7
    assert standing(group(target=8)).state == "ahead"
    assert standing(Group("app", "Dead", {}, {Q: Commit(1)})).state == "ahead"
    assert standing(Group("app", "Dead", {P: Commit(1)}, {P: Commit(1)})).state == "equal"


def test_a_commit_that_source_has_no_more_is_named_with_what_ends_it() -> None:
    """The mirror deletes no commit, so waiting would never help."""
    told = standing(Group("app", "Empty", {P: Commit(1)}, {P: Commit(1), Q: Commit(1)}))
    assert (told.state, told.why) == (
        "ahead",
        "target has a commit for orders-1, but source has none. Next: if the commit on source has "
        "expired, delete the commit on target with kafka-consumer-groups --delete-offsets",
    )


STEP = st.tuples(
    st.integers(0, 5), st.integers(0, 5), st.integers(0, 9), st.sampled_from(["Empty", "Stable", "Dead"])
)


@given(st.lists(STEP, max_size=12))
@settings(max_examples=examples(60))
def test_h5_at_every_sample_target_is_at_most_source_and_its_own_end(
    steps: list[tuple[int, int, int, str]],
) -> None:
    """Source's log and the copy grow, the group goes on at source, sometimes it is set back."""
    log = copied = offset = 0
    there: dict[tuple[str, int], Commit] = {}
    for written, copies, consumed, state in steps:
        log += written
        copied = min(log, copied + copies)
        offset = 0 if consumed == 9 else min(log, offset + consumed)
        now = Group("app", state, {P: Commit(offset)}, dict(there))
        there |= to_commit(now, {P: copied})
        if state == "Stable":
            assert there == now.target
        else:
            assert there[P].offset <= min(offset, copied)
            done = standing(Group("app", state, now.source, there))
            assert done.state == ("equal" if offset <= copied else "behind")
            assert done.behind == max(0, offset - copied)
