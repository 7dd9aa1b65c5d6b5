"""Define the lab's own errors."""

from __future__ import annotations

from zkmigrate.errors import ZkmigrateError


class LabError(ZkmigrateError):
    """The lab cannot do what was requested. The message says what was seen and what is needed."""


class NotReady(LabError):
    """The condition of a wait was not met before the wait's deadline. The message names the wait."""
