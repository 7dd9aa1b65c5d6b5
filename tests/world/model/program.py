"""zkm-host in the model: what each change does to a model host, and what the reading verbs print.

Follows ``hosts/zkm_host/zkm-host``: the same phases, refusals and exit codes (0 done, 3 refused, 9 fenced
off).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from tests.world.model.disk import Disk
from tests.world.model.host import PID, File, Host
from tests.world.model.limits import forbidden
from tests.world.model.reconfig import write_whole
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.zkm_host import POLICY_NAME, STATE_DIR
from zkmigrate.runbook.model.change import (
    Arm,
    Cut,
    Discard,
    EditLine,
    Fence,
    Go,
    HostChange,
    HostVerb,
    InstallProgram,
    MoveAside,
    PutFile,
    Restore,
    RestoreImage,
    Seal,
    SetService,
    UninstallProgram,
    Unseal,
)

Answer = tuple[int, str]
_HALVES = 4


def run(host: Host, change: HostChange, operation: str, fencing: int, now: float, wall: float) -> Answer:
    """Carry a change out; an operation id that is on record is answered from it and does nothing again."""
    if isinstance(change, InstallProgram):
        host.installed = zkm_host.program()
        host.files[change.path] = File(change.policy.encode(), "0600", "root:root", wall + host.skew_s)
        return 0, "installed"
    if not host.installed:
        return 4, "zkm-host is not installed"
    if fencing < host.fencing:
        return 9, f"fenced off: this host has seen {host.fencing}"
    if why := forbidden(host, change):
        return 3, why
    host.fencing = fencing
    if operation in host.ops:
        known = host.ops[operation]
        return known[1:] if known[0] == _intent(change) else (2, f"operation id {operation} is taken")
    rc, output = _act(host, change, operation, now, wall + host.skew_s)
    if rc == 0 and host.installed:
        host.ops[operation] = (_intent(change), rc, output)
    return rc, output


def _intent(change: HostChange) -> str:
    """What zkm-host writes down of a change: no file content."""
    if isinstance(change, Arm):
        return change.verb
    words = change.arguments()[:-1] if isinstance(change, PutFile | EditLine) else change.arguments()
    return " ".join((change.verb, *words))


def ops(host: Host) -> str:
    """The lines of ``zkm-host ops``."""
    return "".join(f"{id} {intent.split()[0]} {rc}\n" for id, (intent, rc, _) in sorted(host.ops.items()))


def op(host: Host, operation: str) -> str:
    """The lines of ``zkm-host op``."""
    if operation not in host.ops:
        return "none\n"
    intent, rc, output = host.ops[operation]
    return f"verb {intent}\nrc {rc}\n{output}\n"


def _act(host: Host, change: HostChange, operation: str, now: float, wall: float) -> Answer:
    match change:
        case PutFile():
            return _put(host, operation, change, now, wall)
        case EditLine():
            return _edit(host, operation, change, now, wall)
        case MoveAside():
            return _move_aside(host, operation, change.path)
        case Restore():
            return _restore(host, change.operation, now, wall)
        case Discard():
            host.aside.pop(change.operation, None)
            host.before.pop(change.operation, None)
            return 0, f"discarded {change.operation}"
        case SetService():
            return _service(host, change, now)
        case Arm():
            return _arm(host, change, now)
        case Fence():
            return _phase(host, "fence", ("armed", "fenced")) or _fence(host, change.ttl_ms, now)
        case Cut():
            return _phase(host, "cut", ("fenced", "cut")) or _cut(host, change.ttl_ms, now)
        case Seal():
            return _phase(host, "seal", ("stopped", "sealed")) or _seal(host, change, now)
        case Unseal():
            return _phase(host, "unseal", ("sealed", "stopped")) or _unseal(host, change, now)
        case Go():
            return _phase(host, "go", ("sealed", "go")) or _go(host, change, now)
        case RestoreImage():
            return _phase(host, "image", ("sealed",)) or _restore_image(host)
        case HostVerb():
            return _verb(host, change.verb, now)
        case UninstallProgram():
            if (phase := (host.beside or host).phase) != "idle":
                return 3, f"uninstall is refused in phase {phase}"
            others = tuple(p.partition("/ops/")[0] + "/" for p in host.files if "/ops/" in p)
            host.installed = host.installed if others else b""
            host.ops.clear()
            host.before.clear()
            host.fencing = host.fencing if others else 0
            own = [
                (p, f)
                for p, f in host.files.items()
                if p.endswith(f"/{POLICY_NAME}") and not p.startswith(others)
            ]
            host.files |= {f"{run}{POLICY_NAME}": f for run in others for _, f in own} | host.files
            for path in [p for p in host.files if p.startswith(f"{STATE_DIR}/") and not p.startswith(others)]:
                del host.files[path]
            return 0, "uninstalled"
        case InstallProgram():
            return 0, "installed"
        case _:
            return 1, f"this world has no {change.channel} on {change.host}"


def _phase(host: Host, verb: str, allowed: tuple[str, ...]) -> Answer | None:
    if host.phase in allowed:
        return None
    return 3, f"{verb} is refused in phase {host.phase}; it needs {' or '.join(allowed)}"


def _before(host: Host, operation: str, path: str, image: File | Disk | dict[str, File] | None) -> None:
    host.before.setdefault(operation, (path, image))


def _put(host: Host, operation: str, change: PutFile, now: float, wall: float) -> Answer:
    old = host.files.get(change.path)
    _before(host, operation, change.path, old)
    new = File(change.content, change.mode, change.owner, wall)
    if old is not None and replace(old, changed=wall) == new:
        return 0, f"unchanged {change.path}"
    host.files[change.path] = new
    host.written = (change.path, wall, now)
    return 0, f"wrote {change.path}"


def _edit(host: Host, operation: str, change: EditLine, now: float, wall: float) -> Answer:
    old = host.files.get(change.path)
    digest = "" if old is None else hashlib.sha256(old.content).hexdigest()
    if digest == change.after:
        return 0, f"unchanged {change.path}"
    if old is None or digest != change.before:
        return 3, f"{change.path} has sha256 {digest or '-'}"
    _before(host, operation, change.path, old)
    lines = old.content.splitlines(keepends=True)
    lines[change.number - 1] = change.new
    host.files[change.path] = replace(old, content=b"".join(lines), changed=wall)
    host.written = (change.path, wall, now)
    return 0, f"wrote {change.path}"


def _move_aside(host: Host, operation: str, path: str) -> Answer:
    host.aside[operation] = path
    if path.endswith("/version-2"):
        _before(host, operation, path, host.disk)
        host.disk = None
    elif path in host.files:
        _before(host, operation, path, host.files.pop(path))
    else:
        below = {name: file for name, file in host.files.items() if name.startswith(f"{path}/")}
        _before(host, operation, path, below or None)
        for name in below:
            del host.files[name]
    return 0, f"moved {path}"


def _restore(host: Host, operation: str, now: float, wall: float) -> Answer:
    if operation not in host.before:
        return 0, f"nothing to do: no before-image of operation {operation} on this host"
    path, image = host.before[operation]
    host.aside.pop(operation, None)
    if isinstance(image, Disk):
        host.disk = image
    elif isinstance(image, dict):
        host.files |= image
    elif image is None:
        host.files.pop(path, None)
    else:
        host.files[path] = replace(image, changed=wall)
        host.written = (path, wall, now)
    return 0, f"restored {path}"


def names_source(host: Host) -> bool:
    """Whether the config on disk names source."""
    config = host.files.get(host.spec.get("config_path", ""))
    return config is not None and b"peerType=observer" in config.content


def _guard(host: Host) -> str:
    if host.phase == "sealed":
        return "this host is sealed; possible now: go, unseal"
    if host.phase in ("go", "started", "checked", "open") and names_source(host):
        return f"phase {host.phase} and the config names source"
    return ""


def _has_commands(host: Host, words: tuple[str, ...]) -> bool:
    """Whether the service can be controlled and seen: by systemd, or by these words or the spec's."""
    keys = {word.partition("=")[0] for word in words} or set(host.spec)
    return host.systemd or keys >= {"start", "stop", "status", "ports"}


def _service(host: Host, change: SetService, now: float) -> Answer:
    if not _has_commands(host, change.commands):
        return 4, f"systemd does not run here and no command for '{change.action}' is given"
    starts = change.action in ("start", "restart") and change.unit == host.spec.get("unit")
    if starts and (why := _guard(host)):
        return 3, f"{change.unit} must not start: {why}"
    host.serve(change, now)
    return 0, f"{change.action} {change.unit}"


def _arm(host: Host, change: Arm, now: float) -> Answer:
    refused = _phase(host, "arm", ("idle", "armed"))
    if refused:
        return refused
    if not _has_commands(host, tuple(change.spec.splitlines())):
        return 4, "systemd does not run here and the spec gives no commands"
    host.spec = dict(line.split("=", 1) for line in change.spec.splitlines())
    host.armed, host.lapsed, host.image_state = True, False, "begun"
    host.set_phase("armed", now)
    return 0, "armed"


def _fence(host: Host, ttl_ms: int, now: float) -> Answer:
    host.lapsed = False
    host.fence.fill(now + ttl_ms / 1000)
    host.set_phase("fenced", now)
    if host.undying_sockets:
        return 5, f"fenced, but {host.undying_sockets} client sockets stay open"
    return 0, "killed=0 left=0"


def _cut(host: Host, ttl_ms: int, now: float) -> Answer:
    if not host.fence.holds(now):
        return 3, "cut is refused: the fence lapsed"
    host.cut.fill(now + ttl_ms / 1000)
    if host.phase != "cut":
        host.cut_since = now
    host.set_phase("cut", now)
    return 0, "killed=0 left=0"


def stamp(host: Host) -> str:
    """Digest of the data files and the boot id."""
    return hashlib.sha256(f"{host.disk!r} {host.boot}".encode()).hexdigest()


def _seal(host: Host, change: Seal, now: float) -> Answer:
    reasons = (
        (host.boot != change.boot_id, f"boot id is {host.boot}"),
        (host.lapsed or not host.cut.holds(now) or not host.fence.holds(now), "the lease lapsed"),
        (not host.rules_on_top, "own chains are not on top"),
        (host.running, "the unit is active"),
        (stamp(host) != change.stamp, "the data changed since the proof"),
    )
    for wrong, why in reasons:
        if wrong and host.phase == "stopped":
            return 3, f"seal is refused: {why}"
    host.fence.fill(None)
    host.cut.fill(None)
    host.set_phase("sealed", now)
    return 0, "sealed"


def _unseal(host: Host, change: Unseal, now: float) -> Answer:
    host.fence.fill(now + change.fence_ttl_ms / 1000)
    host.cut.fill(now + change.cut_ttl_ms / 1000)
    host.set_phase("stopped", now)
    return 0, "unsealed"


def _go(host: Host, change: Go, now: float) -> Answer:
    host.go = (change.place, change.first, change.majority, change.open_limit_ms / 1000)
    host.finisher = "running"
    host.set_phase("go", now)
    return 0, "go"


def _restore_image(host: Host) -> Answer:
    if host.running:
        return 3, "image restore is refused: the unit is active"
    if host.image_state == "complete":
        host.disk = host.image
        host.image_state = "begun"
    write_whole(host, "observer.cfg")
    return 0, "image restored"


def _verb(host: Host, verb: str, now: float) -> Answer:
    allowed = {
        "disarm": ("idle", "armed"),
        "reopen": ("armed", "fenced"),
        "uncut": ("armed", "fenced", "cut"),
        "stopped": ("cut", "stopped"),
        "started-observer": ("cut", "stopped"),
        "halt": ("sealed", "go", "started", "checked"),
        "checked": ("started", "checked"),
        "open": ("started", "checked", "open"),
        "finalize": ("open", "idle"),
    }[verb]
    refused = _phase(host, verb, allowed)
    if refused:
        return refused
    if verb == "stopped" and host.running:
        return 3, "stopped is refused: the unit is active"
    if verb in ("disarm", "finalize"):
        _take_down(host)
    elif verb == "halt":
        host.stop()
        host.finisher, host.go = "none", None
    elif verb == "started-observer" and not host.running:
        host.start(now)
    if verb in ("reopen", "open"):
        host.fence.empty()
    if verb == "uncut":
        host.cut.empty()
        host.rules_on_top = host.rules_on_top or host.phase != "armed"
    after = {
        "disarm": "idle",
        "reopen": "armed",
        "uncut": "armed" if host.phase == "armed" else "fenced",
        "stopped": "stopped",
        "started-observer": "cut",
        "halt": "sealed",
        "checked": "checked",
        "open": "open",
        "finalize": "idle",
    }
    host.set_phase(after[verb], now)
    return 0, verb


def _take_down(host: Host) -> None:
    host.fence.empty()
    host.cut.empty()
    host.spec, host.armed, host.image, host.image_state = {}, False, None, "none"


def phase(host: Host, now: float) -> str:
    """The lines of ``zkm-host phase``."""
    values = {
        "run": "run",
        "phase": host.phase,
        "lapsed": "yes" if host.lapsed else "no",
        "finisher": f"{host.finisher} ",
    }
    if host.phase in ("started", "checked") and host.served_since is not None:
        values["served_s"] = f"{now - host.served_since:.1f}"
    return "".join(f"{key}={value}\n" for key, value in values.items())


def status(
    host: Host, now: float, wall: float, service: tuple[str, ...], clients: int, source_sockets: int
) -> str:
    """The lines of ``zkm-host status [UNIT [KEY=VALUE…]]``; the world counts ``clients`` and
    ``source_sockets``."""
    chain = ("top" if host.rules_on_top else "present") if host.armed else "absent"
    six = "noipv6"
    sources = len(host.spec.get("source", "").split(","))
    known = (service or host.spec.get("unit")) and _has_commands(host, service[1:])
    values = {
        "version": "model",
        "boot_id": host.boot,
        "uptime_s": f"{now:.3f}",
        "time": f"{wall + host.skew_s:.3f}",
        "phase_since": f"{wall - now + host.phase_since + host.skew_s:.3f}" if host.phase_since else "0",
        "fencing": host.fencing,
        "tag": "model",
        "in4": chain,
        "out4": chain,
        "in6": six,
        "out6": six,
        "fence_entries": host.fence.entries(now, _HALVES),
        "fence_timeout_s": _left(host.fence.until, host.fence.holds(now), now),
        "cut_entries": host.cut.entries(now, sources),
        "cut_timeout_s": _left(host.cut.until, host.cut.holds(now), now),
        "client_sockets": clients + host.undying_sockets if host.armed else "-",
        "source_sockets": source_sockets if host.armed else "-",
        "unit_state": ("active" if host.running else "inactive") if known else "unknown",
        "unit_pid": PID if host.running else 0,
        "unit_since": round(host.started * 1e6) if host.running else "-",
        "lease": "none",
        "image": host.image_state,
        "tools_missing": "",
    }
    if host.written is not None:
        path, changed, at = host.written
        seconds, rest = divmod(round(changed * 1e9), 10**9)
        values["written"] = f"{host.boot} {int(at * 1000)} {seconds}.{rest:09} {path}"
    return phase(host, now) + "".join(f"{key}={value}\n" for key, value in values.items())


_TOOLS = ("sh", "ipset", "iptables", "ip6tables", "ss", "flock", "timeout", "nc", "bash", "systemctl", "java")


def facts(host: Host, wall: float, directories: tuple[str, ...]) -> str:
    """The lines of ``zkm-host facts``: a host that has everything."""
    lines = [f"tool.{tool}=present" for tool in _TOOLS]
    lines += [
        "tool.systemd-run=present",
        "ss_kill=yes",
        "rules=yes",
        "uid=0",
        f"time={wall + host.skew_s:.9f}",
    ]
    lines.append(f"address=eth0 {host.address}/24")
    lines += [f"disk_free_kib=50000000 {directory}" for directory in directories]
    if host.systemd:
        lines += ["unit.LoadState=loaded", f"unit.ActiveState={'active' if host.running else 'inactive'}"]
        lines += ["unit.TimeoutStopUSec=3min"]
        for path, file in host.files.items():
            if path.endswith(".service"):
                start = re.search(rb"^ExecStart=(.*)$", file.content, re.MULTILINE)
                command = start[1].decode() if start else ""
                lines.append(f"unit.FragmentPath={path}")
                lines += [f"unit.WorkingDirectory={directory}"] if (directory := works_in(host)) else []
                lines.append(f"unit.ExecStart={{ argv[]={command} ; ignore_errors=no ; }}")
    return "".join(f"{line}\n" for line in lines)


def works_in(host: Host) -> str:
    """The directory in which its unit starts the service; empty where the unit names none."""
    units = [file.content for path, file in host.files.items() if path.endswith(".service")]
    found = re.search(rb"^WorkingDirectory=(.*)$", b"\n".join(units), re.MULTILINE)
    return found[1].decode() if found else ""


def plain(host: Host, path: str) -> str:
    """A path in which the directory of the running service is written out."""
    here = f"/proc/{PID}/cwd/"
    return f"{works_in(host).rstrip('/')}/{path[len(here) :]}" if path.startswith(here) else path


def surroundings(host: Host) -> str:
    """The lines of ``zkm-host surroundings``: nobody else acts on the host."""
    process = "100 net:[1] java\n"
    running = f"listener={process}user={host.user}\nmain={process}" if host.running else ""
    return f"netns=net:[1]\n{running}slow_fsyncs=0 {100 if host.running else 0}\n"


def _left(until: float | None, holds: bool, now: float) -> str:
    if not holds:
        return "-"
    return "permanent" if until is None else f"{until - now:.0f}"
