"""Provide Kafka's message definitions, which kafka-python includes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from kafka.protocol.schemas import load_json

from zkmigrate.topics.gateway.rules.messages import Messages


def _schema(name: str) -> Mapping[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its way to read its own files
        told: Mapping[str, Any] = load_json(name)
    return told


def messages() -> Messages:
    """Return a reader and writer of messages that uses Kafka's definitions."""
    return Messages(_schema)
