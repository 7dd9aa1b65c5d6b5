"""The error tree: what went wrong, said for the operator.

Every message of a ``ZkmigrateError`` names what was seen, what was needed and what to do next.
``exit_code`` is what the command line returns for it (docs/reference/exit-codes.md).
"""

from __future__ import annotations


class ZkmigrateError(Exception):
    """Base of all errors that are meant for the operator."""

    exit_code = 8


class UsageError(ZkmigrateError):
    """A flag, file or value the operator gave is wrong; nothing was touched."""

    exit_code = 2


class InventoryError(UsageError):
    """``migration.yml`` is wrong; carries one line per mistake, each with file:line and the reason."""


class LockedError(ZkmigrateError):
    """Another run or operator holds the lock, or this one has been fenced off."""

    exit_code = 5


class JournalError(ZkmigrateError):
    """The journal cannot be read, written or trusted."""

    exit_code = 8


class RecordError(JournalError):
    """What a step recorded is not there, or this version cannot read it. Names run, step and field."""


class HostError(ZkmigrateError):
    """A host did not do, or did not confirm, what was asked. The outcome may be unknown: look again."""

    exit_code = 8
