"""The drill of the roll: its trials, and how it reads what the tool told."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.drills.roll_site import (
    FRESH,
    JOINED,
    REHEARSED,
    ROLLED,
    Unexpected,
    differences,
    require,
    require_finding,
)
from tests.drills.roll_trials import TRIALS, all_texts


def finding(id: str, target: str) -> dict[str, Any]:
    return {"id": id, "target": target, "seen": "acceptedEpoch,\ncurrentEpoch"}


def test_every_trial_has_a_name_of_its_own_and_a_place_to_begin() -> None:
    assert [name for name, times in Counter(trial.name for trial in TRIALS).items() if times > 1] == []
    assert {trial.state for trial in TRIALS} == {FRESH, JOINED, REHEARSED, ROLLED}
    assert all(trial.what and trial.expected for trial in TRIALS)


def test_a_finding_counts_only_on_the_host_it_has_to_be_on() -> None:
    findings = [finding("dest.empty", "dest2"), finding("source.ports", "source2")]
    assert require_finding(findings, "dest.empty", "dest2") == "dest.empty dest2: acceptedEpoch, currentEpoch"
    for id, target in (("dest.empty", "dest1"), ("dest.myid", "dest2")):
        with pytest.raises(Unexpected, match=f"no finding {id} {target}"):
            require_finding(findings, id, target)


def test_what_is_not_right_is_told() -> None:
    require(True, "")
    with pytest.raises(Unexpected, match="seen so"):
        require(False, "seen so")


def test_worlds_are_compared_line_by_line() -> None:
    first, now = {"dest1": "a\nb", "dest2": "c"}, {"dest1": "a\nx", "dest2": "c"}
    assert differences(first, now) == "dest1 -b; dest1 +x"
    assert differences(first, first) == ""


def test_an_operation_is_known_wherever_a_line_of_the_journal_names_it() -> None:
    line = {"kind": "intent", "body": {"ops": [{"id": "roll.roll.broker1.3.1", "n": 2}], "by": {"x.y": "z"}}}
    assert {"roll.roll.broker1.3.1", "x.y", "z", "intent"} <= set(all_texts(line))
