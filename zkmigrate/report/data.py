"""Write the report as JSON, with every value; times are seconds since the epoch."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from zkmigrate.runbook.engine.codec import encode_finding
from zkmigrate.runbook.model.finding import Finding
from zkmigrate.runbook.model.report import Op, Report, Window


def data(report: Report) -> dict[str, Any]:
    """Return the report as JSON values. Changes are described in words, without the contents of files."""
    body = _plain(report)
    assert isinstance(body, dict)
    return body


def _plain(value: Any) -> Any:
    if isinstance(value, Finding):
        return encode_finding(value)
    if isinstance(value, Op):
        told = {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.name != "change"}
        return {**told, "change": value.change.describe(), "verb": value.change.verb}
    if is_dataclass(value) and not isinstance(value, type):
        told = {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.name != "shown"}
        return {**told, "seconds": value.seconds} if isinstance(value, Window) else told
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return value.value if isinstance(value, Enum) else value
