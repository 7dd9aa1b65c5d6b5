"""Define ``accept`` in ``migration.yml``: findings of a gate that a named person accepts until a set time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints

from zkmigrate.clean import inline
from zkmigrate.inventory.explain import NEEDED, items_at
from zkmigrate.inventory.marked_yaml import Path

ACCEPTABLE = frozenset({
    "source.server-down", "source.zxid-counter", "source.jaas",
    "dest.session-bounds", "dest.client-port", "dest.foreign-client",
    "kafka.controller", "kafka.offline", "kafka.under-replicated", "kafka.replication", "kafka.min-isr",
    "kafka.reassignment", "kafka.admin-work", "kafka.authorizer", "kafka.foreign-znodes",
    "gateway.client-stuck", "gateway.transactions", "switch.app-topics", "switch.other-apps",
    "switch.other-groups", "switch.transactions",
    "clean-up.watches", "clean-up.clients", "clean-up.chroots", "clean-up.children",
    "return.source-owner", "reassign.throttle-stays", "reassign.target-down", "watch.writes",
})  # fmt: skip
"""The checks that can be accepted: a failure costs clients something, or a later check stops the run.

No other check can be accepted: a proof, the block with its lease, or the way back depends on each.
"""

WRITES = "watch.writes"
"""The check with a zxid as target, up to which the writes on source are accepted."""

Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$")]

Instant = Annotated[
    str,
    StringConstraints(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})$"
    ),
]


class Accept(BaseModel):
    """One exception: this finding about this target does not block before ``until``.

    finding: id of a gate's check. target: as the finding names it; empty for the whole cluster. It can be
    any text, because groups and transactional ids can. who: the person responsible. why: the reason.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    finding: Text
    target: str = ""
    who: Text
    why: Text
    until: Instant

    @property
    def words(self) -> str:
        """The person who accepted it, the end of the exception and the reason, as text."""
        return f"accepted by {self.who} until {self.until}: {self.why}"

    @property
    def line(self) -> str:
        """The whole exception as one line of text."""
        return f"{self.finding}{f' {inline(self.target)}' if self.target else ''}: {self.words}"

    @property
    def zxid(self) -> int:
        """The target of a ``WRITES`` exception as a number."""
        return int(self.target, 16)

    @property
    def end(self) -> float:
        """The end of the exception in seconds since the epoch."""
        return datetime.fromisoformat(self.until).timestamp()


def wrong(top: Any) -> Iterator[tuple[Path, str]]:
    """Yield the path and reason of each mistake in ``accept`` that the types do not show.

    top: the raw values of the file.
    """
    for at, item in enumerate(items_at(top, ("accept",))):
        if not isinstance(item, dict):
            continue
        finding = item.get("finding")
        if isinstance(finding, str) and finding not in ACCEPTABLE:
            needed = ", ".join(sorted(ACCEPTABLE))
            yield ("accept", at, "finding"), f"{finding!r} cannot be accepted (needed: one of {needed})"
        if finding == WRITES and not re.fullmatch("0x[0-9a-f]{1,16}", str(item.get("target", ""))):
            yield ("accept", at, "target"), f"not a zxid (needed: as {WRITES} names it, such as 0x100000009)"
        until = item.get("until")
        try:
            datetime.fromisoformat(until if isinstance(until, str) else "2000-01-01")
        except ValueError:
            yield ("accept", at, "until"), f"not a valid time (seen {until!r}, needed {NEEDED['until']})"
