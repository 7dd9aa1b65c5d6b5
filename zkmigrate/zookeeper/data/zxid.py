"""ZooKeeper transaction ids: the epoch in the high 32 bits, a counter in the low 32.

Within an epoch every proposal takes the next counter; the first transaction of an epoch has counter 1.
"""

from __future__ import annotations

from typing import NewType

from zkmigrate.zookeeper.data.errors import MalformedError

Zxid = NewType("Zxid", int)

_COUNTER_BITS = 32
_COUNTER_MASK = (1 << _COUNTER_BITS) - 1
_MAX = (1 << 63) - 1


def parse_zxid(text: str) -> Zxid:
    """Parse "0x1f" (from `srvr`) or "1f" (from file names). Raises MalformedError."""
    digits = text.strip().removeprefix("0x")
    if not digits or any(c not in "0123456789abcdefABCDEF" for c in digits):
        raise MalformedError(f"not a zxid: {text!r}; expected hex digits such as 0x10000002a")
    value = int(digits, 16)
    if value > _MAX:
        raise MalformedError(f"not a zxid: {text!r} does not fit in 63 bits")
    return Zxid(value)


def format_zxid(zxid: int) -> str:
    """Return 0x and lower-case hex without padding, as ZooKeeper prints it."""
    return f"0x{zxid:x}"


def epoch(zxid: int) -> int:
    """Return the leader epoch: the high 32 bits."""
    return zxid >> _COUNTER_BITS


def counter(zxid: int) -> int:
    """Return the low 32 bits. 0 means that the epoch has begun, but no transaction was proposed."""
    return zxid & _COUNTER_MASK


def follows(previous: int, zxid: int) -> bool:
    """Return whether `zxid` may come next after `previous` in a log without a hole.

    The next zxid has the next counter of the same epoch, or is the first of a later epoch.
    """
    if epoch(zxid) == epoch(previous):
        return zxid == previous + 1
    return epoch(zxid) > epoch(previous) and counter(zxid) == 1
