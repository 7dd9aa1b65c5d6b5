"""Strict parser for zkm-host's ``key=value`` lines."""

from __future__ import annotations

import re

_KEY = re.compile(r"[a-z][a-z0-9_.-]*")


def lines(text: str) -> list[str]:
    """Split an answer at its line feeds.

    Names in it are of others' choice, and may have other characters at which ``splitlines`` splits.
    """
    return text.removesuffix("\n").split("\n") if text else []


def parse(text: str) -> dict[str, str]:
    """Parse ``key=value`` lines in their order. The value is everything after the first ``=``.

    Raises ValueError for a line without a key and for a repeated key.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(lines(text), 1):
        key, equals, value = line.partition("=")
        if not equals or not _KEY.fullmatch(key):
            raise ValueError(f"line {number} is not key=value: {line[:80]!r}")
        if key in found:
            raise ValueError(f"key {key} occurs twice")
        found[key] = value
    return found


def words(line: str) -> dict[str, str]:
    """Parse ``key=value`` words on one line, separated by blanks. Raises ValueError like :func:`parse`."""
    return parse("\n".join(line.split()))
