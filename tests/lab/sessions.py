"""Compare the sessions and ephemerals of dest with an earlier baseline."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from zkmigrate.lab.baseline import baseline
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.lab import Lab


def sessions_not_served(lab: Lab, wanted: Collection[str]) -> str | None:
    """Return None if dest serves all these sessions, otherwise the missing ones in words."""
    try:
        away = set(wanted) - set(baseline(lab)["sessions"])
    except LabError as error:
        return str(error)
    return f"sessions {sorted(away)}" if away else None


def lost_since(before: dict[str, Any], after: dict[str, Any], *, new: tuple[str, ...] = ()) -> list[str]:
    """Return what has changed since an earlier baseline, in words.

    That is ephemerals with another owner or czxid, and another controller epoch. Sessions are not compared,
    because a client may be on its way to another host. new: paths that may have a new owner.
    """
    lost = [
        f"{path}: {owner}, now {after['ephemerals'].get(path)}"
        for path, owner in before["ephemerals"].items()
        if path not in new and after["ephemerals"].get(path) != owner
    ]
    if after["controller_epoch"] != before["controller_epoch"]:
        lost.append(f"controller epoch {before['controller_epoch']}, now {after['controller_epoch']}")
    return lost
