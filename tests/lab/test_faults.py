"""Faults inside the window on real hosts: a few of the cases of the drill ``window_faults``."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkmigrate.lab.drills.window_faults import chosen, drill

pytestmark = pytest.mark.lab

PLAYED = "^(leak-established-in|dead-cut|source-leader-cut|broker-ask)$"
"""One of each kind that no other lab test has: a leaking block, a dest host without power, a lost leader of
source, a lost broker."""


def test_a_fault_while_cut_turns_back_and_nobody_is_hurt(tmp_path: Path) -> None:
    cases = chosen(PLAYED)
    outcomes = drill(cases, tmp_path / "faults", print)
    assert {outcome.name: outcome.outcome for outcome in outcomes if not outcome.held} == {}
    # The last row is of the lab: what its clients recorded.
    assert [outcome.name for outcome in outcomes] == [*(case.name for case in cases), "nobody-hurt-ask"]
