"""``--until``: a name of the playbook, or a time."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from playbooks.kafka_reassign import PLAYBOOK
from zkmigrate.errors import UsageError
from zkmigrate.runbook.engine.until import Until, parse, words

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime.fromisoformat("2026-11-26T21:00Z").timestamp()


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("22:30", "2026-11-26T21:30Z"),
        ("06:00", "2026-11-27T05:00Z"),
        ("22:00", "2026-11-27T21:00Z"),
        ("2026-11-28T06:00", "2026-11-28T05:00Z"),
        ("2026-11-28T06:00Z", "2026-11-28T06:00Z"),
        ("2026-11-28T06:00-05:00", "2026-11-28T11:00Z"),
    ],
)
def test_a_time_is_the_next_one_by_the_clocks_of_the_machine(text: str, when: str) -> None:
    assert parse(PLAYBOOK, text, NOW, BERLIN) == Until(at=at(when))


def test_a_night_in_which_the_clocks_change() -> None:
    assert parse(PLAYBOOK, "06:00", at("2026-03-28T21:00Z"), BERLIN).at == at("2026-03-29T04:00Z")
    assert parse(PLAYBOOK, "06:00", at("2026-10-24T20:00Z"), BERLIN).at == at("2026-10-25T05:00Z")
    assert parse(PLAYBOOK, "02:30", at("2026-10-25T00:45Z"), BERLIN).at == at("2026-10-26T01:30Z")


def test_a_name_stays_a_name() -> None:
    assert parse(PLAYBOOK, "move.replicas", NOW) == Until("move.replicas")
    assert parse(PLAYBOOK, "", NOW) == Until()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2026-11-26T20:59Z", "is past"),
        ("2026-11-26T21:00Z", "is past"),
        ("2026-13-01T06:00", "needed: a time such as"),
        ("2026-11-28Tnoon", "needed: a time such as"),
        ("25:00", "is not a stage or step of kafka_reassign"),
        ("6:00", "is not a stage or step of kafka_reassign"),
    ],
)
def test_what_is_neither_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(PLAYBOOK, text, NOW)


def test_a_time_without_a_zone_is_of_this_machine() -> None:
    found = parse(PLAYBOOK, "2026-11-28T06:00", NOW).at
    assert found == datetime(2026, 11, 28, 6).astimezone().timestamp()
    assert words(at("2026-11-27T05:00Z"), BERLIN) == "2026-11-27T06:00+0100"
