"""What nobody may have touched on source: configs, myid, unit files, and the server processes themselves."""

from __future__ import annotations

from zkmigrate.lab.lab import Lab
from zkmigrate.lab.spec import Role

_FILES = (
    "find /etc/zookeeper /etc/systemd/system /etc/sudoers.d /usr/local/sbin -type f "
    "! -name '*.dynamic.next' ! -name '*.dynamic*.tmp' -exec sha256sum {} + | sort -k2; "
    "sha256sum /var/lib/zookeeper/myid; "
    "systemctl show -p MainPID -p ExecMainStartTimestampMonotonic zookeeper.service"
)


def source_state(lab: Lab) -> dict[str, str]:
    """Digests of source's files and the identity of its server process, by host.

    ``zoo.cfg.dynamic.next`` is left out: ZooKeeper 3.5.8 writes it by itself.
    """
    return {h.name: lab.exec(h.name, ["sh", "-c", _FILES]).stdout for h in lab.role(Role.SOURCE)}
