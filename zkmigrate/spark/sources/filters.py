"""Which rows the readers may leave out because of Spark's filters."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import datasource as spark
from pyspark.sql.datasource import EqualTo, Filter, In

from zkmigrate.spark.sources.columns import Wanted
from zkmigrate.zookeeper.data.txn import TxnType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def narrowed(wanted: Wanted, one: Filter) -> Wanted:
    """`wanted` with one more filter, as far as the reader can use it. It loses no row that the filter
    passes."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    column = attribute[0] if len(attribute) == 1 else ""
    value: Any = getattr(one, "value", None)
    if column == "zxid" and isinstance(value, int):
        return replace(wanted, zxids=_within(wanted.zxids, one, (value, value)))
    if column == "time" and isinstance(value, datetime):
        return replace(wanted, times_ms=_within(wanted.times_ms, one, _ms(value)))
    if column == "type" and isinstance(one, EqualTo | In):
        names = set(value) if isinstance(one, In) else {value}
        kinds = frozenset(int(kind) for kind in TxnType if kind.name in names)
        return replace(wanted, types=kinds if wanted.types is None else wanted.types & kinds)
    return replace(wanted, prefix=longer_prefix(wanted.prefix, one))


def longer_prefix(prefix: str, one: Filter) -> str:
    """The path prefix that a filter needs, if it is longer. Text that is not ASCII is left to Spark, because
    a log may have other bytes for it."""
    if not isinstance(one, EqualTo | spark.StringStartsWith) or one.attribute != ("path",):
        return prefix
    value = one.value
    return max(prefix, value, key=len) if isinstance(value, str) and value.isascii() else prefix


def _within(bounds: tuple[int, int], one: Filter, value: tuple[int, int]) -> tuple[int, int]:
    """Narrower bounds. value: the nearest whole numbers, below and above."""
    low, high = bounds
    if isinstance(one, EqualTo | spark.GreaterThan | spark.GreaterThanOrEqual):
        low = max(low, value[0])
    if isinstance(one, EqualTo | spark.LessThan | spark.LessThanOrEqual):
        high = min(high, value[1])
    return low, high


def _ms(value: datetime) -> tuple[int, int]:
    """The milliseconds since the epoch around a time. Spark gives it in the machine's zone."""
    micros = (value.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    return micros // 1000, -(-micros // 1000)
