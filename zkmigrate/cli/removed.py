"""Name what replaces each word that was removed from the command line."""

from __future__ import annotations

from collections.abc import Mapping

import click

REMOVED: Mapping[tuple[str, str], str] = {
    ("--playbook", "kafka_topic_config"): (
        "Set topic configs with Kafka's kafka-configs.sh --alter --entity-type topics. "
        "Finish or roll back an open run with the version that began it."
    ),
}
"""What to do instead, by the verb or option that a removed word followed, and the word."""


def refuse(place: str, word: str) -> None:
    """Raise UsageError if ``word`` was removed at this place."""
    if successor := REMOVED.get((place, word)):
        raise click.UsageError(f"{word} was removed. {successor}")
