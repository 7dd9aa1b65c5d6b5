"""``accept`` in ``migration.yml``: findings of a gate that somebody answers for, by name and for a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints

from zkmigrate.inventory_types import NEEDED, items_at
from zkmigrate.marked_yaml import Path

NEVER = frozenset({
    "source.quorum", "source.snapshots", "dest.empty", "dest.observing", "dest.members", "dest.cluster-id",
    "kafka.brokers", "kafka.cluster-id", "kafka.left-source", "kafka.retired", "kafka.sessions-on-dest",
    "kafka.session-timeout", "host.one-role", "host.rules", "host.socket-kill", "run.hour", "run.alone",
})  # fmt: skip
"""What nobody can answer for: the proofs, the window and its lease rest on these."""

Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$")]


class Accept(BaseModel):
    """One exception: this finding about this target does not block before ``until``.

    finding: id of a check of the gates. target: as the finding names it, empty for the whole cluster. who
    answers for it, and why.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    finding: Annotated[str, StringConstraints(pattern=r"^(operator|source|dest|host|run|kafka)\.[a-z-]+$")]
    target: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]*$", max_length=253)] = ""
    who: Text
    why: Text
    until: Annotated[
        str,
        StringConstraints(
            pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|[+-][0-9]{2}:[0-9]{2})$"
        ),
    ]

    @property
    def words(self) -> str:
        """Who accepted it, until when and why."""
        return f"accepted by {self.who} until {self.until}: {self.why}"

    @property
    def line(self) -> str:
        """The whole exception in one line."""
        return f"{self.finding}{f' {self.target}' if self.target else ''}: {self.words}"

    @property
    def end(self) -> float:
        """``until`` as seconds since the epoch."""
        return datetime.fromisoformat(self.until).timestamp()


def wrong(top: Any) -> Iterator[tuple[Path, str]]:
    """What the types alone do not show, in the raw values of the file: the path to it and the reason."""
    for at, item in enumerate(items_at(top, ("accept",))):
        if not isinstance(item, dict):
            continue
        if item.get("finding") in NEVER:
            yield (
                ("accept", at, "finding"),
                f"{item['finding']} can never be accepted (needed: the check holds; the proofs or the "
                "window rest on it)",
            )
        until = item.get("until")
        try:
            datetime.fromisoformat(until if isinstance(until, str) else "2000-01-01")
        except ValueError:
            yield ("accept", at, "until"), f"no such moment (seen {until!r}, needed {NEEDED['until']})"
