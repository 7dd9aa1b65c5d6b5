"""How long a server is waited for that did not answer last time."""

from __future__ import annotations

from typing import cast

import pytest

from tests.unit.preflight_world import inventory
from zkmigrate import deadline
from zkmigrate.runbook.model.fact import Cause, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.clients import answers
from zkmigrate.zookeeper.questions import SendWord


@pytest.mark.parametrize(
    ("cause", "again_s"), [("timeout", 0.3), ("unreachable", 0.3), ("refused", 3.0), ("", 3.0)]
)
def test_in_a_window_a_server_that_was_silent_is_waited_for_only_briefly(
    monkeypatch: pytest.MonkeyPatch, cause: Cause, again_s: float
) -> None:
    waited: list[float] = []

    def word(_address: str, _port: int, _word: str, within_s: float, _login: object) -> Reading[str]:
        waited.append(within_s)
        return Unknown(cause, "no answer") if cause else Seen("an answer")

    monkeypatch.setattr(answers, "four_letter_word", word)
    asked = answers.ZooKeeperAnswers(inventory(), cast(Look, None))
    for _ in range(2):
        asked.word(SendWord("source1", "srvr"))
    with deadline.within(60.0):
        asked.word(SendWord("source1", "srvr"))
        asked.word(SendWord("source2", "srvr"))
    asked.close()
    assert waited == [3.0, 3.0, again_s, 3.0]
