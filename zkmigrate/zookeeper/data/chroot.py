"""Decide which znodes belong to a chroot: those at and below a path, or some of those below ``/``.

A system that keeps its znodes directly below ``/`` shares that level with ZooKeeper's own ``/zookeeper`` and,
on a shared ensemble, with other systems. Its znodes are then told apart by the names directly below ``/``.
"""

from __future__ import annotations

from dataclasses import dataclass

from zkmigrate.errors import UsageError

SYSTEM_ROOT = "/zookeeper"
"""The znodes that each server keeps for itself, except the quotas below QUOTAS."""

QUOTAS = f"{SYSTEM_ROOT}/quota"
"""The znode of all quotas. The quota of /kafka consists of the znodes at and below /zookeeper/quota/kafka."""

QUOTA_LIMITS, QUOTA_STATS = "zookeeper_limits", "zookeeper_stats"
"""The names of the two znodes of a quota: what a client allows, and what each server counts.

Each server changes the data of zookeeper_stats without a transaction, also when it starts (measured on 3.5.8
and 3.9.5). Everything else of a quota changes only by transactions.
"""

SERVERS_OWN = ("/", SYSTEM_ROOT, QUOTAS)
"""The paths that a server creates before its first transaction."""

KAFKA_NAMES = (
    "admin", "brokers", "cluster", "config", "consumers", "controller", "controller_epoch",
    "delegation_token", "feature", "isr_change_notification", "kafka-acl", "kafka-acl-changes",
    "kafka-acl-extended", "kafka-acl-extended-changes", "latest_producer_id_block",
    "log_dir_event_notification", "migration",
)  # fmt: skip
"""The names of Kafka's znodes directly below its chroot (kafka.zk.ZkData of 2.8 and 3.9; measured)."""


def is_under(path: str, root: str) -> bool:
    """Return whether `path` is `root` or below it, by complete path elements. Every path is under "/"."""
    return root == "/" or path == root or path.startswith(root + "/")


@dataclass(frozen=True, slots=True)
class Chroot:
    """The znodes of one system.

    path: the znode at their top. names: only for the path ``/``; the names directly below it that belong to
    the system, in order. The znode ``/`` itself is then not part. Without names everything at and below the
    path is part, except `/zookeeper`, unless the path is in it. The quotas of these znodes, and of those
    above them, are part too.
    """

    path: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.path

    @property
    def prefix(self) -> str:
        """The path to put before ``/NAME`` for a znode of the system: empty for the chroot ``/``."""
        return self.path.rstrip("/")

    @property
    def roots(self) -> tuple[str, ...]:
        """The topmost paths of the system's znodes; each znode at or below one of them belongs to it."""
        return tuple(f"/{name}" for name in self.names) or (self.path,)

    @property
    def listed(self) -> str:
        """The `roots` as text for people."""
        return ", ".join(self.roots)

    @property
    def text(self) -> str:
        """The chroot as a string, as the journal stores it: its path, or ``/{NAME,…}`` if it has names."""
        return f"/{{{','.join(self.names)}}}" if self.names else self.path

    @classmethod
    def from_text(cls, text: object) -> Chroot:
        """Return the chroot of a `text`. Raises ValueError for anything else than text."""
        if not isinstance(text, str):
            raise ValueError("should be the path of a chroot")
        if text.startswith("/{"):
            return cls("/", tuple(text[2:-1].split(",")))
        return cls(text)

    def body(self) -> dict[str, object]:
        """Return the chroot as JSON values; ``only`` stands there if it has names."""
        return {"chroot": self.path, **({"only": list(self.names)} if self.names else {})}

    def holds(self, path: str) -> bool:
        """Return whether a znode is part of the system."""
        if path.startswith(f"{QUOTAS}/") and self._holds_quota(path[len(QUOTAS) :]):
            return True
        if self.names:
            return path[1:].partition("/")[0] in self.names
        return is_under(path, self.path) and (
            not is_under(path, SYSTEM_ROOT) or is_under(self.path, SYSTEM_ROOT)
        )

    def _holds_quota(self, below: str) -> bool:
        """Return whether a znode of a quota is part of the system. below: its path below `QUOTAS`."""
        above, _, name = below.rpartition("/")
        of = (above or "/") if name in (QUOTA_LIMITS, QUOTA_STATS) else below
        return any(is_under(of, root) or is_under(root, of) for root in self.roots)


WHOLE_TREE = Chroot("/")
"""Every znode except `/zookeeper`."""


def parse_chroot(path: str, names: str = "") -> Chroot:
    """Return the chroot of a command line.

    names: names directly below ``/``, separated by commas; ``kafka`` stands for those of Kafka. Raises
    UsageError if ZooKeeper would refuse the path, or for names with another path than ``/``.
    """
    parts = path.split("/")[1:]
    whole = path == "/" or (path.startswith("/") and not any(part in ("", ".", "..") for part in parts))
    if not whole or "\0" in path:
        raise UsageError(
            f"{path!r} is not the path of a znode. Needed: a path such as /kafka, or / for everything"
        )
    if names and path != "/":
        raise UsageError(f"--only applies to the chroot /, and the chroot is {path}. Next: leave out --only")
    given = [name for part in names.split(",") for name in (KAFKA_NAMES if part == "kafka" else [part])]
    if names and any(not name or "/" in name or "\0" in name for name in given):
        raise UsageError(
            f"--only {names!r} is not a list of znodes directly below /. Needed: names separated by commas, "
            "such as kafka,schema_registry; kafka stands for Kafka's own"
        )
    return Chroot(path, tuple(sorted(set(given))) if names else ())
