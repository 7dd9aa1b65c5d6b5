"""Record the state of source that must not change: configs, myid, unit files and the server processes."""

from __future__ import annotations

import re

from zkmigrate.hosts.zkm_host import STATE_DIR
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.render import UNITS, ZOO_CFG, ZOOKEEPER_DATA
from zkmigrate.lab.spec import Role

UNIT = f"{UNITS}/zookeeper.service"
MYID = f"{ZOOKEEPER_DATA}/myid"
_STATE_ABSENT = f"absent  {STATE_DIR}"
_LOOK = (
    f"set -e; sha256sum {ZOO_CFG} {MYID} {UNIT}; there=; "
    "for d in /etc/zookeeper /etc/systemd/system /etc/sudoers.d /usr/local/sbin; do "
    'if [ -d "$d" ]; then there="$there $d"; else echo "absent  $d"; fi; done; '
    "files=$(find $there -type f ! -name '*.dynamic.next' ! -name '*.dynamic*.tmp' | LC_ALL=C sort); "
    "sha256sum $files; "
    f"if [ -e {STATE_DIR} ]; then find {STATE_DIR}; else echo '{_STATE_ABSENT}'; fi; "
    "systemctl show -p MainPID -p ExecMainStartTimestampMonotonic zookeeper.service"
)


def source_state(lab: Lab) -> dict[str, str]:
    """Return digests of source's files and the identity of the server process, for each host.

    ``zoo.cfg.dynamic.next`` is left out, because ZooKeeper 3.5.8 writes this file by itself. Raises LabError
    if a required file is missing, if the server does not run, or if zkmigrate has left state on the host.
    """
    return {
        h.name: complete(h.name, lab.exec(h.name, ["sh", "-c", _LOOK]).stdout) for h in lab.role(Role.SOURCE)
    }


def complete(host: str, text: str) -> str:
    """Return the text if it contains every required part. Raises LabError that names the missing parts."""
    digested = set(re.findall(r"^[0-9a-f]{64}  (\S+)$", text, re.MULTILINE))
    missing = [path for path in (ZOO_CFG, MYID, UNIT) if path not in digested]
    if not re.search(r"^MainPID=[1-9][0-9]*$", text, re.MULTILINE):
        missing.append("a running zookeeper.service")
    if not re.search(r"^ExecMainStartTimestampMonotonic=[1-9][0-9]*$", text, re.MULTILINE):
        missing.append("the start time of zookeeper.service")
    if _STATE_ABSENT not in text.splitlines():
        missing.append(f"the absence of {STATE_DIR}")
    if missing:
        raise LabError(f"{host}: the recorded state of source is incomplete. Missing: {', '.join(missing)}")
    return text
