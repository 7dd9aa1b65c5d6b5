"""Jobs by their names."""

from __future__ import annotations

import sys

import pytest

from zkmigrate.analyze.jobs import job
from zkmigrate.errors import UsageError


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine of a cluster that has only what Spark needs."""
    monkeypatch.delitem(sys.modules, "zkmigrate.analyze.jobs.timeline", raising=False)
    monkeypatch.setitem(sys.modules, "zkmigrate.report.timebase", None)
    with pytest.raises(UsageError, match=r"timeline needs the Python module zkmigrate\.report\.timebase"):
        job("timeline")
