"""Parser for a chroot on the command line.

This is a separate module, because Spark's machines lack the packages for connections.
"""

from __future__ import annotations

from zkmigrate.errors import UsageError


def parse_chroot(path: str) -> str:
    """Return the given path unchanged. Raises UsageError if ZooKeeper would refuse the path."""
    parts = path.split("/")[1:]
    whole = path == "/" or (path.startswith("/") and not any(part in ("", ".", "..") for part in parts))
    if not whole or "\0" in path:
        raise UsageError(
            f"{path!r} is not the path of a znode. Needed: a path such as /kafka, or / for everything"
        )
    return path
