"""Groups of operations by their names in `sources.columns`; `zookeeper.data.effect` says which they are."""

from __future__ import annotations

from zkmigrate.zookeeper.data import effect
from zkmigrate.zookeeper.data.txn import TxnType

CREATES = tuple(kind.name for kind in effect.CREATES)
DELETES = tuple(kind.name for kind in effect.DELETES)
WRITES = tuple(kind.name for kind in effect.WRITES)
OPENS, CLOSES = TxnType.createSession.name, TxnType.closeSession.name
ENDS = (*DELETES, CLOSES)
"""With which a znode may go."""

CHANGES = (*CREATES, *ENDS, *WRITES, TxnType.setACL.name)
"""Those that change the znode at their path."""
