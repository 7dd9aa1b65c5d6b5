"""Find records of source that target's topic would refuse, before they are copied."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from zkmigrate.topics.mirror.rules.gaps import Append
from zkmigrate.topics.mirror.rules.records import Codecs, opened
from zkmigrate.topics.mirror.rules.topic import AFTER, BEFORE, DIFFERENCE, NO_LIMIT, compacts

LARGEST = "max.message.bytes"
_NO_KEY = b"\x01"
"""The first byte of the body of a record without a key: the varint for the key length -1."""


def limit(values: Mapping[str, str], key: str) -> tuple[str, int] | None:
    """Return the setting that limits the timestamps of records, and its value in milliseconds.

    values: the settings of the topic. key: ``BEFORE`` for the limit of old timestamps, or ``AFTER`` for the
    limit of timestamps in the future. Returns None if there is no limit.
    """
    for name in (key, DIFFERENCE):
        if values.get(name, NO_LIMIT) != NO_LIMIT:
            return name, int(values[name])
    return None


def refused(step: Append, values: Mapping[str, str], now_ms: int, codecs: Codecs) -> str:
    """Return why target's topic would refuse a batch; empty if it would accept the batch.

    values: the settings of the topic. now_ms: the current time in milliseconds since the epoch. Raises
    BatchError.
    """
    batch = step.batch
    largest = int(values.get(LARGEST, step.size))
    if step.size > largest:
        return f"the batch at offset {step.offset} has {step.size} bytes, more than {LARGEST}={largest}"
    early, late = limit(values, BEFORE), limit(values, AFTER)
    if late and batch.max_ms > now_ms + late[1]:
        return f"{_time(step.offset, batch.max_ms)}, later than {late[0]}={late[1]} allows"
    if early and batch.base_ms < now_ms - early[1]:
        return f"{_time(step.offset, batch.base_ms)}, earlier than {early[0]}={early[1]} allows"
    if compacts(values):
        for one in opened(batch, codecs):
            if one.body.startswith(_NO_KEY):
                at = batch.base_offset + one.delta
                return (
                    f"the record at offset {at} has no key, which a topic with cleanup.policy=compact needs"
                )
    return ""


def _time(offset: int, ms: int) -> str:
    try:
        text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # the time is outside the calendar
        text = f"{ms} ms"
    return f"the batch at offset {offset} has a record of {text}"
