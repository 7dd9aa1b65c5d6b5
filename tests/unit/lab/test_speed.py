"""A machine that cannot be measured says why at once."""

from __future__ import annotations

import pytest

from zkmigrate.lab.failure import LabError
from zkmigrate.lab.spec import LabSpec
from zkmigrate.lab.speed import _started, measure


def test_a_server_that_ends_by_itself_is_told_with_what_it_said() -> None:
    java = ["sh", "-c", "echo Could not find or load main class >&2; exit 1"]
    with (
        pytest.raises(LabError, match="ended by itself: Could not find or load main class"),
        _started(java, 1),
    ):
        pytest.fail("it never served")


def test_a_machine_without_java_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LabError, match="java is not on this machine; install the package openjdk-17"):
        measure(LabSpec())
