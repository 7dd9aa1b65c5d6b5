"""What tests of the mirror's verbs share."""

from __future__ import annotations

import pytest

from zkmigrate.topics.mirror.clients import answers
from zkmigrate.topics.mirror.verbs import run, show


@pytest.fixture(autouse=True)
def every_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The account of a copier or a run lacks no right: the models of clusters do not know rights."""
    for module in (answers, run, show):
        monkeypatch.setattr(module, "missing_rights", lambda *_: [])
