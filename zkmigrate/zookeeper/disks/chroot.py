"""A chroot, as an operator names it. Apart from what needs a connection, so that a cluster's machines need no
package for one."""

from __future__ import annotations

from zkmigrate.errors import UsageError


def parse_chroot(path: str) -> str:
    """A znode's path as it is. Raises UsageError for what ZooKeeper does not take as one."""
    parts = path.split("/")[1:]
    whole = path == "/" or (path.startswith("/") and not any(part in ("", ".", "..") for part in parts))
    if not whole or "\0" in path:
        raise UsageError(
            f"{path!r} is not a path of a znode. Needed: one such as /kafka, or / for everything"
        )
    return path
