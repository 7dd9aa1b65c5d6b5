"""The drill of version pairs: what it asks the demo for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.drills.test_versions import options_of
from zkmigrate.lab import demo
from zkmigrate.move.preflight.drilled import DRILLED


@pytest.mark.parametrize("drill", DRILLED, ids=str)
def test_the_demo_takes_what_it_is_asked_for(drill: Any) -> None:
    asked = demo.main.make_context("demo", options_of(drill)).params
    names = ("source_version", "dest_version", "kafka_version")
    assert tuple(asked[name] for name in names) == (drill.source, drill.dest, drill.kafka)
