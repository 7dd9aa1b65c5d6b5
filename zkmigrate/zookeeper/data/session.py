"""Conversion of session ids: 64 bits, printed as unsigned hex.

Logs, snapshots and ephemeralOwner store them as a signed long.
"""

from __future__ import annotations

from zkmigrate.zookeeper.data.errors import MalformedError

_BITS = 64


def parse_session(text: str) -> int:
    """Parse "0x10000152e070000" into the signed value of records. Raises MalformedError."""
    try:
        value = int(text.removeprefix("0x"), 16)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << _BITS:
        raise MalformedError(f"not a session id: {text!r}; expected hex digits such as 0x10000152e070000")
    return signed(value)


def format_session(session: int) -> str:
    """Return a session id as ZooKeeper prints it, such as 0x10000152e070000. session: signed or unsigned."""
    return f"0x{unsigned(session):x}"


def signed(session: int) -> int:
    """Return a session id as the signed number of records. session: signed or unsigned."""
    value = unsigned(session)
    return value - (1 << _BITS) if value >> (_BITS - 1) else value


def unsigned(session: int) -> int:
    """Return a session id as the unsigned number of four-letter words. session: signed or unsigned."""
    return session & (1 << _BITS) - 1
