"""The error of a connection to a host, with its cause."""

from __future__ import annotations

import errno
import socket

from zkmigrate.errors import HostError
from zkmigrate.runbook.model.fact import Cause


class TransportError(HostError):
    """Raised if a host was not reached, or did not answer correctly.

    cause: one of the causes of :class:`zkmigrate.runbook.model.fact.Unknown`. outcome_unknown: whether the
    host may have acted on the request; check the host before repeating the request.
    """

    def __init__(self, host: str, cause: Cause, why: str, *, outcome_unknown: bool = False) -> None:
        note = (
            "; it is unknown whether the request was done. Check the host before you repeat the request"
            if outcome_unknown
            else ""
        )
        super().__init__(f"{host}: {why}{note}")
        self.host = host
        self.cause: Cause = cause
        self.why = why
        self.outcome_unknown = outcome_unknown


def socket_cause(error: OSError) -> Cause:
    """Return the cause of a failed TCP connect or exchange."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN) or isinstance(
        error, socket.gaierror
    ):
        return "unreachable"
    return "failed"


def socket_text(error: OSError) -> str:
    """Return the operating system's description of a failed TCP connect."""
    return "timed out" if isinstance(error, TimeoutError) else error.strerror or str(error)
