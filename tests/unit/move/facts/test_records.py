"""What steps record: the same JSON as ever in the journal, and words for what cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.world.operator import inventory
from zkmigrate.errors import RecordError
from zkmigrate.move.facts.records import (
    Checked,
    ChosenLease,
    Drained,
    Proved,
    ReadDelta,
    Stopped,
    Surveyed,
    Timed,
    Verified,
    seconds,
)
from zkmigrate.move.rules.lease import lease_in_force
from zkmigrate.move.rules.window_rules import deadline_s
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.model.step_record import Recorded, known, needed, recorded
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.txnlog import Cursor
from zkmigrate.zookeeper.facts.ownership import Ephemeral, Ownership

DRAINED = Drained(0x5_00000003, "source2", {"dest1": 0x5_00000003, "dest2": 0xF0000000_00000001})
STOPPED = Stopped({"dest1": 0x5_00000004}, {"dest1": "ab12"}, {"dest1": "b-1"})
SESSION = 0xF1000000_00000001 - (1 << 64)
"""Its high bit is set: a server whose id is above 127 makes such ones."""
STATE = Ownership(
    Chroot("/kafka"), 0x5_00000004, 0x5_00000002, {"/kafka/a": Ephemeral(SESSION, 9)}, {SESSION: 18000}
)
PLACE = Cursor("log.500000001", 120, 0x5_00000001)

STATE_TEXT = (
    '{"chroot": "/kafka", "upto": "0x500000004", "newest": "0x500000002", "ephemerals": {"/kafka/a": '
    '{"owner": "-0xeffffffffffffff", "czxid": "0x9"}}, "timeouts": {"-0xeffffffffffffff": 18000}}'
)
PLACE_TEXT = '{"file": "log.500000001", "offset": 120, "zxid": "0x500000001"}'

JOURNALED: list[tuple[Recorded, str]] = [
    (
        DRAINED,
        '{"z": "0x500000003", "leader": "source2",'
        ' "zxids": {"dest1": "0x500000003", "dest2": "0xf000000000000001"}}',
    ),
    (STOPPED, '{"tails": {"dest1": "0x500000004"}, "stamps": {"dest1": "ab12"}, "boots": {"dest1": "b-1"}}'),
    (
        Surveyed(
            "source2",
            5,
            6,
            STATE,
            {"dest1": None, "source2": PLACE},
            18000,
            (SESSION,),
            ChosenLease(7000, 5000),
        ),
        f'{{"leader": "source2", "epoch": 5, "learners": 6, "ownership": {STATE_TEXT},'
        f' "cursors": {{"dest1": null, "source2": {PLACE_TEXT}}}, "smallest_timeout_ms": 18000,'
        ' "lease": {"fence_ttl_ms": 7000, "cut_ttl_ms": 5000}, "on_dest": ["-0xeffffffffffffff"]}',
    ),
    (
        Proved(("dest1", "dest3"), 0x5_00000002, ReadDelta(0x5_00000004, 0x5_00000009, 5), PLACE, STATE),
        '{"first": ["dest1", "dest3"], "needed": "0x500000002",'
        ' "delta": {"after": "0x500000004", "last": "0x500000009", "records": 5},'
        f' "cursor": {PLACE_TEXT}, "baseline": {STATE_TEXT}}}',
    ),
    (Checked("dest2"), '{"leader": "dest2"}'),
    (Verified(("dest3",)), '{"missing": ["dest3"]}'),
    (Timed({"go": {Way.FORWARD: 2.5, Way.BACK: 1.0}}), '{"seconds": {"go": {"forward": 2.5, "back": 1.0}}}'),
]
"""Records as every version so far has written them."""

LATER = {("survey", "lease"), ("verify", "missing")}
"""Fields that journals of the first versions lack."""


def context(**records: Any) -> Context:
    return Context("run", inventory(), records=records)


def places(body: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The place of every value in a record, however deep."""
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, value in items:
        yield (*at, key)
        yield from places(value, (*at, key))


def put(body: Any, at: tuple[str | int, ...], value: object) -> Any:
    """The same with another value in one place; gone where that is ``...``."""
    changed = json.loads(json.dumps(body))
    inside = changed
    for key in at[:-1]:
        inside = inside[key]
    if value is ...:
        del inside[at[-1]]
    else:
        inside[at[-1]] = value
    return changed


@pytest.mark.parametrize(("record", "text"), JOURNALED)
def test_a_record_is_written_and_read_as_ever(record: Recorded, text: str) -> None:
    assert record.encode() == json.loads(text)
    assert known(type(record), context(**{record.step: json.loads(text)})) == record


@pytest.mark.parametrize(("record", "text"), JOURNALED)
def test_each_field_is_needed_and_one_that_is_not_known_is_left_alone(record: Recorded, text: str) -> None:
    body: dict[str, Any] = json.loads(text)
    assert known(type(record), context(**{record.step: {**body, "later": 1}})) == record
    for field in body:
        without = {key: value for key, value in body.items() if key != field} | {"later": 1}
        if (record.step, field) in LATER:
            assert known(type(record), context(**{record.step: without})) is not None
            continue
        with pytest.raises(RecordError, match=f"run run: .* record of {record.step} .*: {field} is missing"):
            known(type(record), context(**{record.step: without}))


@pytest.mark.parametrize(("record", "text"), JOURNALED)
@pytest.mark.parametrize("wrong", [True, 7, 1.5, "Z", [], ["x"], {"x": "y"}, None])
def test_a_value_of_another_kind_is_named_with_its_place_wherever_it_stands(
    record: Recorded, text: str, wrong: object
) -> None:
    body = json.loads(text)
    for at in places(body):
        changed = put(body, at, wrong)
        taken = attempt(type(record), changed)
        if isinstance(taken, str):
            assert f"run run: the journal's record of {record.step} cannot be read: {at[0]}" in taken, at
        else:
            assert same(taken.encode(), changed), at


def attempt(kind: type[Recorded], body: Mapping[str, Any]) -> Recorded | str:
    """The record, or what is said of one that cannot be read."""
    try:
        return recorded(kind, body, "run")
    except RecordError as error:
        return str(error)


def same(written: Any, changed: Any) -> bool:
    """Whether a record that was taken says what stood there: what it names is unchanged."""
    if isinstance(written, Mapping):
        return isinstance(changed, Mapping) and all(same(written[k], changed.get(k)) for k in written)
    return bool(written == changed) and isinstance(written, bool) is isinstance(changed, bool)


def test_a_field_of_another_kind_cannot_be_read() -> None:
    with pytest.raises(RecordError, match=r"cannot be read: z: .*should be hexadecimal text"):
        known(Drained, context(drain={**DRAINED.encode(), "z": 7}))
    with pytest.raises(RecordError, match=r"cannot be read: z: .*'Z'"):
        known(Drained, context(drain={**DRAINED.encode(), "z": "Z"}))
    place = {"file": "log.1", "offset": True, "zxid": "0x1"}
    prove = next(record for record, _ in JOURNALED if isinstance(record, Proved)).encode()
    with pytest.raises(RecordError, match=r"cannot be read: cursor: .*a position in a log"):
        known(Proved, context(prove={**prove, "cursor": place}))


@pytest.mark.parametrize("records", [{}, {"stop": {}}])
def test_a_record_that_is_not_there_is_none_or_refused_by_its_name(records: dict[str, Any]) -> None:
    assert known(Stopped, context(**records)) is None
    with pytest.raises(RecordError, match="run run: the journal holds no record of stop"):
        needed(Stopped, context(**records))


def test_the_way_back_needs_nothing_of_the_survey_but_its_own_terms() -> None:
    """A record of another version must not keep a run from going back."""
    c = context(survey={"smallest_timeout_ms": 18000, "lease": {"fence_ttl_ms": 7000, "cut_ttl_ms": 5000}})
    assert deadline_s(c) < 18
    assert lease_in_force(c).fence_ttl_ms == 7000
    with pytest.raises(RecordError, match="leader is missing; epoch is missing; learners is missing"):
        needed(Surveyed, c)


def test_a_record_of_another_run_is_read_anew() -> None:
    first, second = context(stop=STOPPED.encode()), context(stop=Stopped({}, {}, {}).encode())
    assert [needed(Stopped, c).tails for c in (first, second, first)] == [STOPPED.tails, {}, STOPPED.tails]


def test_the_seconds_of_a_stage_are_those_of_the_steps_walked_that_way() -> None:
    c = context(rehearse={"seconds": {"go": {"forward": 2, "back": 0.5}, "cut": {"forward": 1.0}}})
    assert seconds(c, "rehearse") == {"go": 2.0, "cut": 1.0}
    assert seconds(c, "rehearse", Way.BACK) == {"go": 0.5}
    assert seconds(c, "cutover") == {}
