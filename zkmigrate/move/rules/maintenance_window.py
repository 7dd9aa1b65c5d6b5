"""``policy.window``: the hours during which members and clients may notice effects of the run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from zkmigrate.inventory.inventory import Window

MOVES = ("wait for the window", "correct policy.window in migration.yml")


@dataclass(frozen=True)
class MaintenanceWindow:
    """The current time compared with the maintenance window.

    inside: now is in the window, and long enough before its end. seen, needed: texts for a finding.
    """

    inside: bool
    seen: str
    needed: str


def maintenance_window(window: Window | None, at: float, length_s: float = 0.0) -> MaintenanceWindow:
    """Compare a time with the maintenance window.

    at: the time, in seconds since the epoch. length_s: more than so many seconds must remain of the window.
    """
    if window is None:
        return MaintenanceWindow(
            True, "policy.window is not set", "no maintenance window, or the current time inside it"
        )
    begin, end = (datetime.fromisoformat(text) for text in (window.begin, window.end))
    now = datetime.fromtimestamp(at, UTC)
    left = (end - now).total_seconds()
    needed = f"from {window.begin} to {window.end}" + (
        f", with {length_s:.0f} s remaining" if length_s else ""
    )
    seen = f"now is {now:%Y-%m-%dT%H:%M:%SZ}" + (
        f", {left:.0f} s remaining" if left > 0 and begin <= now else ""
    )
    return MaintenanceWindow(begin <= now and left > length_s, seen, needed)
