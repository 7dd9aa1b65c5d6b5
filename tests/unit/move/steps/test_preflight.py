"""PREFLIGHT: a blocking check that is false or unknown stops it; a warning or a remark does not."""

from __future__ import annotations

import pytest

from tests.unit.move.steps.facts import context, stopped_by, well
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.steps.preflight import PreflightStep
from zkmigrate.runbook.model.finding import Severity, claim

HOLDS = claim("a.holds", "it is so", True)


@pytest.mark.parametrize("held", [False, None], ids=["false", "unknown"])
def test_only_a_check_that_counts_blocks(held: bool | None) -> None:
    for severity in Severity:
        facts = (HOLDS, claim("a.check", "it is so", held, severity=severity))
        verdict = PreflightStep(KAFKA).check(context(), facts)
        assert stopped_by(verdict) == ([("a.check", "")] if severity is Severity.BLOCK else [])


def test_where_all_holds_it_is_done() -> None:
    assert well(PreflightStep(KAFKA).check(context(), (HOLDS,)))
