"""Add the time and the version of the schema to each object that ``--json`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

SCHEMA = 1
"""The version of the schema of what ``--json`` prints. New keys do not change it."""


def stamped(body: Mapping[str, Any], at: float | None = None) -> dict[str, Any]:
    """Return the body with the added keys ``schema`` and ``time`` (ISO 8601, UTC).

    at: the time in seconds since the epoch; None for the current time.
    """
    when = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    return {"schema": SCHEMA, "time": when.isoformat(timespec="milliseconds"), **body}
