"""Decide whether enough replicas of a partition are in sync for its records to be safe and readable."""

from __future__ import annotations

from collections.abc import Sequence


def below(in_sync: Sequence[int], replicas: Sequence[int], least: int | None, unknown: str = "") -> str:
    """Return why too few replicas of a partition are in sync; empty if enough are.

    in_sync, replicas: broker ids. least: the topic's min.insync.replicas; None if it is not known. unknown:
    the reason why it is not known. Kafka never needs more replicas in sync than the partition has
    (``Partition.effectiveMinIsr``).
    """
    if len(in_sync) >= len(replicas):
        return ""
    seen = f"in sync: {_ids(in_sync)} of replicas {_ids(replicas)}"
    if least is None:
        return f"{seen}, min.insync.replicas is not known: {unknown or 'the broker did not report it'}"
    return "" if len(in_sync) >= least else f"{seen}, min.insync.replicas: {least}"


def held_back(log_end: int | None, end: int | None, short: str) -> str:
    """Return why the last records of a log cannot be read yet; empty if all can be read.

    log_end: the log end offset. end: the high watermark. short: the text that ``below`` returned.
    """
    if log_end is None or end is None or log_end <= end:
        return short
    why = f"source's log ends at {log_end:,}, but consumers can read only up to {end:,}"
    return f"{why}; {short}" if short else why


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "none"
