"""The errors for the operator. Each message of a ``ZkmigrateError`` says what was seen, what was needed and
what to do next; ``exit_code`` is the command line's (docs/reference/exit-codes.md)."""

from __future__ import annotations


class ZkmigrateError(Exception):
    """Base of all errors that are meant for the operator."""

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


class RecordError(JournalError):
    """A step's record is missing, or unreadable for this version. Names run, step and field."""


class HostError(ZkmigrateError):
    """A host did not do, or did not confirm, what was asked. The outcome may be unknown: look again."""

    exit_code = 8
