"""What the tests of the engine begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.engine_world import Tiny


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    """A run of the tiny playbook that has not begun."""
    return Tiny(tmp_path / "r")
