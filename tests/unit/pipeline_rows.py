"""The rows of a log as the reader of one record at a time gives them: what the columns must equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from zkmigrate.spark.sources.arrays import whole_text
from zkmigrate.spark.sources.operations import SCHEMA
from zkmigrate.zookeeper.data import txn as txns
from zkmigrate.zookeeper.data.effect import owner_of
from zkmigrate.zookeeper.data.txn import Acl, Txn, TxnBody, TxnType
from zkmigrate.zookeeper.data.txnlog import Record

Row = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def expected(records: Iterable[Record], *, data: bool = False) -> list[Row]:
    return [row for record in records for row in _rows(record, data)]


def _rows(record: Record, data: bool) -> Iterator[Row]:
    txn = record.txn()
    common = {
        **dict.fromkeys(SCHEMA.names),
        "server": "s",
        "file": record.file,
        "offset": record.offset,
        "zxid": record.zxid,
        "epoch": record.zxid >> 32,
        "counter": record.zxid & 0xFFFFFFFF,
        "time": _EPOCH + timedelta(milliseconds=record.time_ms),
        "session": record.session,
        "cxid": record.cxid,
        "digest": None if txn.digest is None else txn.digest.tree_digest,
        "multi": False,
        "failed": False,
        "sequence": 0,
    }
    body = txn.body
    if isinstance(body, txns.MultiTxn):
        if not body.txns:
            yield {**common, "type": "multi", "multi": True}
        for number, sub in enumerate(body.txns):
            here = {"sequence": number, "multi": True, "failed": body.failed}
            yield {**common, **here, **_fields(txn, sub.type, sub.body, data)}
    elif isinstance(body, txns.CloseSessionTxn):
        for number, path in enumerate(body.paths or [None]):
            text = None if path is None else plain(path)
            yield {**common, "type": "closeSession", "path": text, "sequence": number}
    else:
        yield {**common, **_fields(txn, txn.header.type, body, data)}


def _fields(txn: Txn, kind: TxnType, body: TxnBody, data: bool) -> Row:
    found: Row = {"type": kind.name}
    for name in ("path", "version", "parent_cversion"):
        if hasattr(body, name):
            found[name] = getattr(body, name)
    if "path" in found:
        found["path"] = plain(found["path"])
    if hasattr(body, "data"):
        found["data_length"] = -1 if body.data is None else len(body.data)
        if data:
            found["data"] = body.data
    if hasattr(body, "acl"):
        found["acl"] = [access(acl) for acl in body.acl]
    match body:
        case txns.CreateTxn() | txns.CreateContainerTxn():
            found["ephemeral_owner"] = owner_of(body, txn.header.session)
        case txns.CreateTTLTxn():
            found["ephemeral_owner"] = owner_of(body, txn.header.session)
            found["ttl_ms"] = body.ttl_ms
        case txns.ErrorTxn():
            found["error"] = body.err
        case txns.CreateSessionTxn():
            found["timeout_ms"] = body.timeout_ms
        case _:
            pass
    return found


def access(acl: Acl) -> dict[str, object]:
    return {"perms": acl.perms, "scheme": plain(acl.scheme), "id": plain(acl.id)}


def plain(text: str) -> str:
    return whole_text(text.encode("utf-8", "surrogatepass"))
