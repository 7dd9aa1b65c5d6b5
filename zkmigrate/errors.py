"""Define the errors that are shown to the operator.

Each message of a ``ZkmigrateError`` says what was seen, what was needed and what to do next. ``exit_code`` is
the exit code of the command line (docs/reference/exit-codes.md).
"""

from __future__ import annotations


class ZkmigrateError(Exception):
    """The base class of all errors that are shown to the operator."""

    exit_code = 8


class UsageError(ZkmigrateError):
    """A flag, file or value from the operator is wrong; nothing was touched."""

    exit_code = 2


class InventoryError(UsageError):
    """``migration.yml`` is wrong: one line per mistake, each with file:line and the reason."""


class LockedError(ZkmigrateError):
    """Another run or operator holds the lock, or this one has been fenced off."""

    exit_code = 5


class JournalError(ZkmigrateError):
    """The journal cannot be read, written or trusted."""

    exit_code = 8


class LostJournalError(JournalError):
    """A run's journal is lost or damaged, and the operator has to choose a direction.

    seen: what is wrong with the journal, without a full stop. run: the run's id. place: the journal's file.
    also: a further sentence for the message, or empty.
    """

    def __init__(self, seen: str, run: str, place: str, also: str = "") -> None:
        super().__init__(seen, run, place, also)
        self.seen, self.run, self.place, self.also = seen, run, place, also

    def __str__(self) -> str:
        return self.told("")

    def told(self, options: str) -> str:
        """Return the message.

        options: the options that name inventory and playbook, for the commands in the message.
        """
        words = ("zkmigrate resume", options, "--run-id", self.run, "--journal-lost")
        command = " ".join(word for word in words if word)
        return "\n".join(
            (
                f"{self.seen}. Nothing was changed. Next: run one of these commands. Both keep the lines "
                "that are intact, also those of copies on hosts, and ask the hosts for the rest.",
                f"   go on forward: {command} forward",
                f"   go back: {command} back",
                f"Or put a complete copy of the journal at {self.place}, with mode 0600, if you have one."
                f"{f' {self.also}' if self.also else ''}",
            )
        )


class RecordError(JournalError):
    """A step's record is missing, or this version cannot read it. The message names run, step and field."""


class HostError(ZkmigrateError):
    """A host did not carry out a request, or did not confirm it.

    If the outcome is unknown, read the host's state again.
    """

    exit_code = 8
