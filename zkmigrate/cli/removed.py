"""Name a replacement for each word that was removed from the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_MEASURE = "Measure sizes and rates with zkmigrate placement measure, and plan with --cluster."
_REPORT = "Use zkmigrate report, which shows a run with times and gaps. --load adds recordings of clients."
_HOLD = "Run zkmigrate hold {} before this command. If the run has not started, pass both the same --run-id."

REMOVED: Mapping[tuple[str, str], str] = {
    ("", "watch"): (
        "Check once with zkmigrate preflight --stage after, from cron for instance. What watch --from-now "
        "confirmed is now accepted in migration.yml."
    ),
    ("", "clean-up"): (
        "Use the playbook kafka_clean_leftovers with leftovers.after_move and leftovers.subtrees. Its "
        "rollback replaces --put-back. Finish or put back a subtree with the version that began to delete it."
    ),
    ("--playbook", "kafka_topic_config"): (
        "Set topic configs with Kafka's kafka-configs.sh --alter --entity-type topics. "
        "Finish or roll back an open run with the version that began it."
    ),
    ("run", "--hold-at"): _HOLD.format("--at PHASE"),
    ("resume", "--hold-at"): _HOLD.format("--at PHASE"),
    ("run", "--pause-after"): _HOLD.format("--at N"),
    ("resume", "--pause-after"): _HOLD.format("--at N"),
    ("analyze", "partitions"): _MEASURE,
    ("analyze", "--broker-dir"): _MEASURE,
    ("analyze", "--cluster"): _MEASURE,
    ("collect", "--broker-dirs"): _MEASURE,
    ("placement rebalance", "--partitions"): _MEASURE,
    ("placement scale", "--partitions"): _MEASURE,
    ("placement rebuild", "--partitions"): _MEASURE,
    ("analyze", "timeline"): _REPORT,
    ("analyze", "--run"): _REPORT,
    ("analyze", "--client-history"): _REPORT,
    ("analyze", "--broker-log"): _REPORT,
    ("analyze", "--broker-log-zone"): _REPORT,
}
"""What to do instead of a removed word.

A key is the verb or option that the word followed, empty for a removed verb, and the word itself.
"""


def refuse(place: str, word: str) -> None:
    """Raise UsageError if ``word`` was removed at this place."""
    if successor := REMOVED.get((place, word)):
        raise click.UsageError(f"{word} was removed. {successor}")


def options(place: str) -> Callable[[F], F]:
    """Return a decorator that makes a command refuse each option that was removed from it."""

    def refused(_context: click.Context, option: click.Parameter, value: str | None) -> None:
        if value is not None:
            refuse(place, option.opts[0])

    def added(command: F) -> F:
        for where, word in REMOVED:
            if where == place and word.startswith("--"):
                make = click.option(
                    word, is_flag=False, flag_value="", is_eager=True, hidden=True, expose_value=False,
                    callback=refused,
                )  # fmt: skip
                command = make(command)
        return command

    return added
