"""Jobs by their names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from zkmigrate.errors import UsageError
from zkmigrate.spark.jobs import job


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine of a cluster that has only what Spark needs."""
    monkeypatch.delitem(sys.modules, "zkmigrate.spark.jobs.mirror", raising=False)
    monkeypatch.setitem(sys.modules, "zkmigrate.topics.mirror.rules.scan", None)
    needed = r"mirror needs the Python module zkmigrate\.topics\.mirror\.rules\.scan"
    with pytest.raises(UsageError, match=needed):
        job("mirror")


def test_an_analysis_needs_nothing_that_reaches_hosts() -> None:
    """A cluster gets this code and Spark's own packages, not those that speak SSH."""
    modules = "zkmigrate.spark.verb, zkmigrate.spark.jobs.proof"
    code = f"import sys, {modules}; print({{'paramiko', 'fabric', 'kafka'}} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "set()\n"
