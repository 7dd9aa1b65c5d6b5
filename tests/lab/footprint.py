"""The state of hosts that a way back must restore, and the trees on dest's disks."""

from __future__ import annotations

from collections.abc import Iterable

from zkmigrate.hosts import zkm_host
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.render import ZOOKEEPER_DATA
from zkmigrate.lab.spec import Role
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.data.tree import diff, load_tree

VERSION_2 = f"{ZOOKEEPER_DATA.lstrip('/')}/version-2"
NO_PHASE = "none"
_SETTINGS = "/etc/zookeeper /etc/kafka /etc/sudoers.d /etc/systemd/system /usr/local/sbin"
_RECORDS = f"/var/lib/zookeeper {zkm_host.STATE_DIR}"
_LOOK = (
    "find %s -not -type d -exec sha256sum {} + 2>/dev/null | sort -k2; "
    "stat -c '%%a %%U:%%G %%n' /etc/kafka/server.properties /etc/zookeeper/conf 2>/dev/null; "
    "iptables-save | grep ^-A; ip6tables-save 2>/dev/null | grep ^-A; ipset list -n; true"
)


def footprint(lab: Lab) -> dict[str, str]:
    """Return digests of files, modes, rules and names of sets of dest hosts and brokers.

    It is one text by host, with one entry per line.
    """
    return _seen(lab, f"{_SETTINGS} {_RECORDS}")


def configs(lab: Lab) -> dict[str, list[str]]:
    """Return the footprint's lines by host, without data and zkm-host's records, which keep changing."""
    return {host: text.splitlines() for host, text in _seen(lab, _SETTINGS).items()}


def _seen(lab: Lab, folders: str) -> dict[str, str]:
    hosts = (*lab.role(Role.DEST), *lab.role(Role.BROKER))
    return {host.name: lab.exec(host.name, ["sh", "-c", _LOOK % folders]).stdout for host in hosts}


def phases(lab: Lab, run: str, hosts: Iterable[str] = ()) -> dict[str, str]:
    """Return the phase in the phase file of each of these hosts, or of all dest hosts.

    The phase is ``none`` without a file.
    """
    found = {}
    for name in hosts or lab.names(Role.DEST):
        path = lab.host(name).root / f"{zkm_host.run_dir(run).lstrip('/')}/phase"
        found[name] = path.read_text().split()[0] if path.exists() else NO_PHASE
    return found


def tree_differences(lab: Lab) -> list[str]:
    """Return the differences between the subtree on each dest host's disk and source's.

    Both are read up to that host's newest transaction. An empty subtree counts as a difference.
    """
    chroot = lab.spec.chroot
    source = FileDirectory(lab.host("source1").root / VERSION_2)
    found = []
    for host in lab.role(Role.DEST):
        dest = FileDirectory(host.root / VERSION_2)
        upto = newest(dest).zxid
        right = load_tree(dest, chroot=Chroot(chroot), upto=upto)
        left = load_tree(source, chroot=Chroot(chroot), upto=upto)
        if not left.zxid == right.zxid == upto:
            found.append(f"{host.name}: read to {right.zxid:#x}, source to {left.zxid:#x}, asked {upto:#x}")
        if not left.nodes:
            found.append(f"{host.name}: the subtree is empty")
        found += [f"{host.name}: {line}" for line in diff(left, right)]
    return found


def without_process(text: str) -> list[str]:
    """Return the lines of one host's state without its server process, for a server that was restarted."""
    return [line for line in text.splitlines() if not line.startswith(("MainPID=", "ExecMainStart"))]
