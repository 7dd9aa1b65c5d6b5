"""Define groups of operation types by name, from the groups of `zookeeper.data.effect`."""

from __future__ import annotations

from zkmigrate.zookeeper.data import effect
from zkmigrate.zookeeper.data.txn import TxnType

CREATES = tuple(kind.name for kind in effect.CREATES)
DELETES = tuple(kind.name for kind in effect.DELETES)
WRITES = tuple(kind.name for kind in effect.WRITES)
OPENS, CLOSES = TxnType.createSession.name, TxnType.closeSession.name
ENDS = (*DELETES, CLOSES)
"""The operations that may remove a znode."""

CHANGES = (*CREATES, *ENDS, *WRITES, TxnType.setACL.name)
"""The operations that change the znode at their path."""
