"""Read complete records of a transaction log as Arrow columns, thousands at a time.

A row is an operation: each operation of a multi, each ephemeral that a closeSession of 3.6 or later names,
and every other transaction. An empty multi is one row of type multi. `zookeeper.data.txn` defines a record,
`zookeeper.data.effect` its effect. This module reads many records at once with numpy, because reading one at
a time in Python is ten times slower. A test over random logs compares both ways. For a record that these
columns cannot read, `zookeeper.data.txn` raises the error, so that both ways give the same reason.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from zkmigrate.spark.sources import arrays
from zkmigrate.spark.sources.arrays import ACL, Columns, Flags, Longs
from zkmigrate.spark.sources.bodies import ABSENT, Bodies
from zkmigrate.spark.sources.operations import ALL, SCHEMA, Operations, Stretch, Wanted, read_operations
from zkmigrate.zookeeper.data.errors import MalformedError
from zkmigrate.zookeeper.data.jute import JuteInput
from zkmigrate.zookeeper.data.txn import KNOWN_TYPES, TxnType, read_acl


def table(stretch: Stretch, wanted: Wanted = ALL) -> pa.RecordBatch:
    """Return the operations of a stretch in order, with the wanted columns.

    Raises MalformedError with file and offset.
    """
    rows = read_operations(stretch, wanted)
    bodies = Bodies(rows)
    if wanted.bodies:
        bodies.read()
    keep = np.ones(len(rows.record), np.bool_)
    if wanted.types is not None:
        keep &= np.isin(rows.kind, list(wanted.types))
    if wanted.prefix:
        keep &= arrays.begin_with(rows.buffer, bodies.path_at, bodies.path_length, wanted.prefix)
    return _batch(rows, bodies, np.flatnonzero(keep), wanted)


def _batch(rows: Operations, bodies: Bodies, keep: Longs, wanted: Wanted) -> pa.RecordBatch:
    records, record = rows.records, rows.record[keep]
    count = len(keep)
    data_length = bodies.data_length[keep]
    digest_at = records.digest[record]

    def integers(name: str, values: Longs, present: Flags | None = None) -> pa.Array:
        kind = SCHEMA.field(name).type.to_pandas_dtype()
        return pa.array(values.astype(kind), mask=None if present is None else ~present)

    def of_body(name: str) -> pa.Array:
        return integers(name, bodies.numbers[name][keep], bodies.present[name][keep])

    columns: Columns = {
        "server": lambda: pa.repeat(pa.scalar(rows.stretch.server), count),
        "file": lambda: pa.repeat(pa.scalar(rows.stretch.file), count),
        "offset": lambda: pa.array(records.start[record] + rows.stretch.base),
        "zxid": lambda: pa.array(records.zxid[record]),
        "epoch": lambda: integers("epoch", records.zxid[record] >> 32),
        "counter": lambda: pa.array(records.zxid[record] & 0xFFFFFFFF),
        "time": lambda: arrays.timestamps(records.time_ms[record]),
        "session": lambda: pa.array(records.session[record]),
        "cxid": lambda: integers("cxid", records.cxid[record]),
        "type": lambda: _KIND_NAMES.take(pa.array(np.searchsorted(_KINDS, rows.kind[keep]))),
        "path": lambda: arrays.texts(
            rows.buffer, bodies.path_at[keep], bodies.path_length[keep], lambda n: rows.refuse(int(keep[n]))
        ),
        "sequence": lambda: integers("sequence", rows.sequence[keep]),
        "multi": lambda: pa.array(rows.in_multi[keep]),
        "failed": lambda: pa.array(records.failed[record]),
        "data_length": lambda: integers("data_length", data_length, data_length != ABSENT),
        "data": lambda: (
            arrays.binary(rows.buffer, bodies.data_at[keep], data_length)
            if wanted.data
            else pa.nulls(count, pa.binary())
        ),
        "acl": lambda: _acls(rows, bodies, keep),
        **{name: partial(of_body, name) for name in bodies.numbers},
        "digest": lambda: integers(
            "digest",
            arrays.numbers(rows.buffer, np.maximum(digest_at, 0), 8) if count else digest_at,
            digest_at >= 0,
        ),
        "corrupt": lambda: pa.nulls(count, pa.string()),
    }
    return pa.RecordBatch.from_arrays([columns[name]() for name in wanted.schema.names], schema=wanted.schema)


_KINDS = np.asarray(sorted(KNOWN_TYPES), np.int64)
_KIND_NAMES = pa.array([TxnType(int(kind)).name for kind in _KINDS], pa.string())


def _acls(rows: Operations, bodies: Bodies, keep: Longs) -> pa.Array:
    """Return the column of ACLs. There are few different ACLs, so each is decoded once."""
    present = bodies.present["acl"][keep]
    known: dict[bytes, int] = {}
    decoded: list[list[dict[str, object]]] = []
    index = np.zeros(len(keep), np.int64)
    for place in np.flatnonzero(present).tolist():
        row = keep[place]
        raw = rows.stretch.buffer[int(bodies.acl_at[row]) : int(bodies.acl_end[row])]
        if raw not in known:
            try:
                decoded.append(arrays.rights(read_acl(JuteInput(raw))))
            except MalformedError:
                raise rows.refuse(int(row)) from None
            known[raw] = len(known)
        index[place] = known[raw]
    return pa.array(decoded, ACL).take(pa.array(index, mask=~present))
