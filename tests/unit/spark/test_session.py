"""What a Spark of our own is told."""

from __future__ import annotations

import pytest

from zkmigrate.spark.session import _page_mib


@pytest.mark.parametrize(
    ("memory", "mib"),
    [("512m", 2), ("2g", 2), ("16g", 2), ("17g", 3), ("64G", 8), (" 1tb ", 128), ("900k", 2), ("much", 2)],
)
def test_a_task_may_use_the_whole_heap_in_its_8192_pages(memory: str, mib: int) -> None:
    assert _page_mib(memory) == mib
