"""Stamp each object that ``--json`` prints with the version of its form and the time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

SCHEMA = 1
"""The version of the form of what ``--json`` prints. New keys do not change it."""


def stamped(body: Mapping[str, Any], at: float | None = None) -> dict[str, Any]:
    """Return the body with ``schema`` and ``time`` (ISO 8601, UTC) beside its own keys.

    at: seconds since the epoch, else now.
    """
    when = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    return {"schema": SCHEMA, "time": when.isoformat(timespec="milliseconds"), **body}
