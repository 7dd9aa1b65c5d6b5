"""How many examples a test of hypothesis gets that asks for more than the others, or for fewer."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""What the profile of ordinary runs gives (hypothesis' own default)."""


def examples(count: int) -> int:
    """So many in an ordinary run; where the profile looks for new ones, as many times more as it gives."""
    return count * settings().max_examples // USUAL
