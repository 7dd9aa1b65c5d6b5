"""Groups of operations by the names that `pipeline.columns` gives them."""

from __future__ import annotations

CREATES = ("create", "create2", "createContainer", "createTTL")
DELETES = ("delete", "deleteContainer")
"""Those that were asked for; a closing session deletes its ephemerals besides."""

WRITES = ("setData", "reconfig")
"""Those that carry data and create nothing."""

OPENS, CLOSES = "createSession", "closeSession"
ENDS = (*DELETES, CLOSES)
"""With which a znode may go."""
