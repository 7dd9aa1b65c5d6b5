"""How many examples or seeds a test gets that asks for more than the others, or for fewer."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""Hypothesis' own default: what a count in a test is relative to."""


def examples(count: int) -> int:
    """Scale a count by the profile: fewer in an ordinary run, more where new examples are looked for."""
    return max(1, count * settings().max_examples // USUAL)
