"""Describe the gateways and mirrors between two clusters.

They run this source tree with this machine's Python, by the systemd units in docs/examples/systemd. All
functions only compute values, except `program`, which inspects this process.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from zkmigrate.lab import provision, service
from zkmigrate.lab.render import OPS_USER, OWN_USER, UNITS, HostFile
from zkmigrate.lab.spec import KAFKA_PORT, HostPlan, LabSpec, Role, hosts_of, members, shape_of

ROLES = (Role.GATEWAY, Role.MIRROR)
PROGRAM, GATEWAY_FILE = "/usr/local/bin/zkmigrate", "/etc/zkmigrate/gateway.yml"
GATEWAY_PROGRAM = f"/usr/bin/sudo -n -u {OWN_USER} {PROGRAM}"
"""The command with which the ssh account sends orders to the gateway."""
STATE = "/var/lib/zkmigrate-gateway"
APP = LISTENER = "clients"
"""The name of the listener, and of the only application, to which all of its clients belong."""
EXAMPLES = provision.POM.parents[1] / "docs" / "examples" / "systemd"
_MIRROR = "zkmigrate-mirror-new.service"
"""The example unit from which every copier's unit is made. It reads the .env file of the same name."""
_PYTHON, _CODE, _PACKAGES = "/opt/python", "/opt/zkmigrate", "/opt/zkmigrate-packages"
_LAUNCHER = f"""#!/bin/sh
export PYTHONHOME={_PYTHON} PYTHONPATH={_CODE}:{_PACKAGES} LD_LIBRARY_PATH={_PYTHON}/lib
export PYTHONDONTWRITEBYTECODE=1
exec {_PYTHON}/bin/python3 -m zkmigrate "$@"
"""


def program() -> dict[str, Path]:
    """Return the paths on this machine of Python, its packages and this code, by their path inside a host."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    code = Path(__file__).resolve().parents[2]
    found = {
        f"{_PYTHON}/bin/python3": Path(sys.executable).resolve(),
        f"{_PYTHON}/lib/{version}": Path(sysconfig.get_path("stdlib")),
        _PACKAGES: Path(sysconfig.get_path("purelib")),
        **{f"{_CODE}/{name}": code / name for name in ("zkmigrate", "playbooks")},
    }
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        folder, name = (sysconfig.get_config_var(key) for key in ("LIBDIR", "INSTSONAME"))
        found[f"{_PYTHON}/lib/{name}"] = Path(folder) / name
    return found


def other(spec: LabSpec, cluster: str) -> str:
    """Return the name of the other one of the lab's two clusters."""
    [found] = (one.name for one in shape_of(spec).clusters if one.name != cluster)
    return found


def brokers(spec: LabSpec, cluster: str) -> dict[int, str]:
    """Return the `address:port` of each broker of a cluster, by broker id."""
    own = (plan for plan in members(hosts_of(spec), cluster) if plan.role is Role.BROKER)
    return {plan.node_id: f"{plan.address}:{KAFKA_PORT}" for plan in own}


def ports_of(spec: LabSpec) -> dict[str, dict[int, int]]:
    """Return a gateway's port for each broker, by cluster and broker id.

    The ports are 19001 ... for the first cluster and 29001 ... for the second one.
    """
    return {
        cluster.name: {id: 10_000 * number + 9_000 + id for id in brokers(spec, cluster.name)}
        for number, cluster in enumerate(shape_of(spec).clusters, 1)
    }


def ports(spec: LabSpec, cluster: str = "") -> list[tuple[str, int]]:
    """Return address and port of every gateway for each broker, of one cluster or ("") of all clusters."""
    gateways = [plan.address for plan in hosts_of(spec) if plan.role is Role.GATEWAY]
    own = [port for name, of in ports_of(spec).items() if cluster in ("", name) for port in of.values()]
    return [(address, port) for address in gateways for port in own]


def mirror_unit(cluster: str) -> str:
    """Return the name of the systemd unit that copies to this cluster from the other cluster."""
    return _MIRROR.replace("new", cluster)


def mirror_environment(
    spec: LabSpec, target: str, topics: Iterable[str], share: tuple[int, int] = (1, 1)
) -> HostFile:
    """Return the environment file of the unit that copies to a cluster.

    topics: the topics to copy. share: the copier's number from 1, and how many copiers there are.
    """
    source = other(spec, target)
    values = {
        "ZKM_SOURCE": ",".join(brokers(spec, source).values()),
        "ZKM_TARGET": ",".join(brokers(spec, target).values()),
        "ZKM_TOPICS": " ".join(f"--topic {topic}" for topic in topics),
        "ZKM_SHARE": f"{share[0]}/{share[1]}",
    }
    path = f"/etc/zkmigrate/{mirror_unit(target).removesuffix('.service')}.env"
    return HostFile(path, "".join(f"{key}={value}\n" for key, value in values.items()))


def gateway_file(spec: LabSpec, host: HostPlan) -> str:
    """Return the text of a gateway's configuration file. It is JSON, which is also YAML."""
    clusters = shape_of(spec).clusters
    of = ports_of(spec)
    body = {
        "state": STATE,
        "route": clusters[0].name,
        "clusters": {one.name: _by_id(brokers(spec, one.name)) for one in clusters},
        "listeners": {
            LISTENER: {"advertise": host.address, "ports": {name: _by_id(of[name]) for name in of}}
        },
        "apps": {APP: {"route": clusters[0].name, "listener": LISTENER}},
    }
    return json.dumps(body, indent=1) + "\n"


def _by_id(values: Mapping[int, str | int]) -> dict[str, str | int]:
    return {str(id): value for id, value in values.items()}


def files(spec: LabSpec, host: HostPlan) -> Sequence[HostFile]:
    """Return the additional files of a gateway or mirror host; none for other hosts."""
    if host.role not in ROLES:
        return ()
    common = [HostFile(PROGRAM, _LAUNCHER, 0o755), HostFile("/etc/zkmigrate", None, 0o755)]
    if host.role is Role.MIRROR:
        text = (EXAMPLES / _MIRROR).read_text()
        return [*common, *(HostFile(f"{UNITS}/{mirror_unit(name)}", text) for name in ports_of(spec))]
    unit = f"{service.name_of(Role.GATEWAY)}.service"
    orders = f"{OPS_USER} ALL=({OWN_USER}) NOPASSWD: {PROGRAM} gateway *\n"
    return [
        *common,
        HostFile(GATEWAY_FILE, gateway_file(spec, host)),
        HostFile(f"{UNITS}/{unit}", (EXAMPLES / unit).read_text()),
        HostFile(f"/etc/sudoers.d/{OPS_USER}", orders, 0o440),
    ]
