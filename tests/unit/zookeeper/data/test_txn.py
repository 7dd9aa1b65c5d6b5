"""A failed multi in an observer's log: operations marked failed keep the bodies they had."""

from __future__ import annotations

import struct

import pytest

from tests.unit.zkdata_fixtures import multi_payload, payload, text
from zkmigrate.zookeeper.data.effect import path_changes
from zkmigrate.zookeeper.data.errors import MalformedError
from zkmigrate.zookeeper.data.txn import ErrorTxn, MultiTxn, decode_txn


def test_an_operation_turned_into_an_error_may_keep_its_old_body() -> None:
    """Seen on a 3.5.8 observer under Kafka: a check of /kafka/controller_epoch behind type -1, 31 bytes."""
    check = text("/kafka/controller_epoch") + struct.pack(">i", 3)
    assert len(check) == 31
    txn = decode_txn(multi_payload(1, payload(0, -1, check), payload(0, -1, struct.pack(">i", -110))))
    assert isinstance(txn.body, MultiTxn)
    assert txn.body.failed
    assert txn.body.txns[1].body == ErrorTxn(-110)
    assert path_changes(txn) == ()


def test_bytes_behind_any_other_operation_are_refused() -> None:
    check = text("/kafka/controller_epoch") + struct.pack(">i", 3)
    with pytest.raises(MalformedError, match="1 bytes follow the check in a multi"):
        decode_txn(multi_payload(1, payload(0, 13, check + b"x")))


def test_an_error_shorter_than_its_number_is_refused() -> None:
    with pytest.raises(MalformedError):
        decode_txn(multi_payload(1, payload(0, -1, b"\0\0")))


@pytest.mark.parametrize("kind", [7, 14, 16, -10, -11, 0, 99])
def test_what_no_server_puts_into_a_multi_is_refused(kind: int) -> None:
    with pytest.raises(
        MalformedError, match=f"a multi contains an operation of type {kind}, which it cannot$"
    ):
        decode_txn(multi_payload(1, payload(0, kind, bytes(40))))
