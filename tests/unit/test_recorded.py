"""What steps record: the same JSON as ever in the journal, and words for what cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.world.operator import inventory
from zkmigrate.facts.recorded import Drained, Recorded, RecordError, Stopped, known, needed
from zkmigrate.model.step import Context

DRAINED = Drained(0x5_00000003, "source2", {"dest1": 0x5_00000003, "dest2": 0xF0000000_00000001})
STOPPED = Stopped({"dest1": 0x5_00000004}, {"dest1": "ab12"}, {"dest1": "b-1"})

JOURNALED: list[tuple[Recorded, str]] = [
    (
        DRAINED,
        '{"z": "0x500000003", "leader": "source2",'
        ' "zxids": {"dest1": "0x500000003", "dest2": "0xf000000000000001"}}',
    ),
    (
        STOPPED,
        '{"tails": {"dest1": "0x500000004"}, "stamps": {"dest1": "ab12"}, "boots": {"dest1": "b-1"}}',
    ),
]
"""Records as every version so far has written them."""


def context(**records: Any) -> Context:
    return Context("run", inventory(), records=records)


@pytest.mark.parametrize(("record", "text"), JOURNALED)
def test_a_record_is_written_and_read_as_ever(record: Recorded, text: str) -> None:
    assert record.encode() == json.loads(text)
    assert known(type(record), context(**{record.step: json.loads(text)})) == record


@pytest.mark.parametrize(("record", "text"), JOURNALED)
def test_each_field_is_needed_and_one_that_is_not_known_is_left_alone(record: Recorded, text: str) -> None:
    body: dict[str, Any] = json.loads(text)
    assert known(type(record), context(**{record.step: {**body, "later": 1}})) == record
    for field in body:
        without = {key: value for key, value in body.items() if key != field}
        with pytest.raises(RecordError, match=f"record of {record.step} cannot be read: KeyError.'{field}'"):
            known(type(record), context(**{record.step: without}))


def test_a_field_of_another_kind_cannot_be_read() -> None:
    with pytest.raises(RecordError, match="cannot be read"):
        known(Drained, context(drain={**DRAINED.encode(), "z": 7}))
    with pytest.raises(RecordError, match="cannot be read"):
        known(Drained, context(drain={**DRAINED.encode(), "z": "Z"}))


@pytest.mark.parametrize("records", [{}, {"stop": {}}])
def test_a_record_that_is_not_there_is_none_or_refused_by_its_name(records: dict[str, Any]) -> None:
    assert known(Stopped, context(**records)) is None
    with pytest.raises(RecordError, match="no record of stop"):
        needed(Stopped, context(**records))
