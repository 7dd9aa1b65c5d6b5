"""Changes and findings as JSON values, for the journal and the plan.

A change is ``{"type": class name, field: value, ...}``; bytes are ``{"base64": text}``, and in the journal
``{"zlib": base64 of the compressed bytes}``. Decoding refuses an unknown type or field, so that an old
journal is never half understood.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import pkgutil
import zlib
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, cast

from zkmigrate.errors import JournalError
from zkmigrate.runbook.model.change import KINDS, Change, ClusterChange, HostChange
from zkmigrate.runbook.model.finding import Finding, Held, Severity


def encode_change(change: Change, *, pack: bool = False) -> dict[str, Any]:
    """Return a change as a JSON value, which :func:`decode_change` reads.

    pack: whether to compress the contents of files in it.
    """
    body: dict[str, Any] = {"type": type(change).__name__}
    for field in fields(cast(Any, change)):
        body[field.name] = _encode(getattr(change, field.name), pack)
    return body


def decode_change(body: Mapping[str, Any]) -> Change:
    """Return the change that was encoded.

    Raises JournalError for a type or field that this version does not know.
    """
    name = str(body.get("type"))
    kind = KINDS.get(name) or _of_other_playbooks().get(name)
    if kind is None:
        raise JournalError(f"the journal names a change of type {name}; this version knows {sorted(KINDS)}")
    cls: type[Any] = kind
    values = {key: _decode(value) for key, value in body.items() if key != "type"}
    try:
        change: Change = cls(**values)
    except TypeError as error:
        raise JournalError(f"the journal's {name} has other fields than this version's: {error}") from None
    return change


@cache
def _of_other_playbooks() -> Mapping[str, type[HostChange] | type[ClusterChange]]:
    """Import every playbook of this distribution, and return all kinds of change.

    A journal may contain changes of any playbook.
    """
    found = importlib.import_module("playbooks")
    for one in pkgutil.iter_modules(found.__path__, "playbooks."):
        importlib.import_module(one.name)
    return KINDS


def encode_finding(finding: Finding) -> dict[str, Any]:
    """Return a finding as a JSON value with all of its fields."""
    body = {**vars(finding), "held": finding.held.value, "severity": finding.severity.value}
    return {**body, "moves": list(finding.moves)}


def decode_finding(body: Mapping[str, Any]) -> Finding:
    """Return the finding that was encoded. Raises JournalError for a missing field or unknown value."""
    try:
        values = {field.name: body[field.name] for field in fields(Finding)}
        held, severity = Held(values["held"]), Severity(values["severity"])
        return Finding(**{**values, "held": held, "severity": severity, "moves": tuple(values["moves"])})
    except (KeyError, ValueError, TypeError) as error:
        raise JournalError(f"the journal holds a finding that this version cannot read: {error!r}") from None


def _encode(value: Any, pack: bool) -> Any:
    if isinstance(value, bytes):
        made = zlib.compress(value) if pack else value
        return {"zlib" if pack else "base64": base64.b64encode(made).decode("ascii")}
    if isinstance(value, tuple):
        return [_encode(item, pack) for item in value]
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        try:
            if "zlib" in value:
                return zlib.decompress(base64.b64decode(value["zlib"], validate=True))
            return base64.b64decode(value["base64"], validate=True)
        except (KeyError, binascii.Error, TypeError, zlib.error) as error:
            raise JournalError(f"the journal holds content that cannot be read: {error!r}") from None
    if isinstance(value, list):
        return tuple(_decode(item) for item in value)
    return value
