"""Facts about the load of a host: network traffic and disk activity, from counters in ``/proc``.

Formats: proc(5) for uptime, net/dev, net/route and self/mountinfo; the kernel's iostats.rst for diskstats and
ipv6_route's seq_file (net/ipv6/route.c). GNU and BusyBox ``tail`` print ``==> FILE <==`` before each file,
and skip a missing one. Node exporter gives the same counters as Prometheus text.
"""

from __future__ import annotations

import ipaddress
import math
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from zkmigrate.runbook.model.fact import Reading, Seen, Unknown

_FILES = ("uptime", "diskstats", "self/mountinfo", "net/dev", "net/route", "net/ipv6_route")
COMMAND = ("sh", "-c", f"tail -n +1 {' '.join(f'/proc/{name}' for name in _FILES)} 2>/dev/null || :")
"""One command that prints all counters. A kernel without IPv6 lacks the last file."""

_HEAD = re.compile(r"==> /proc/(\S+) <==")
_OCTAL = re.compile(r"\\([0-7]{3})")
_DISK_FIELDS, _NET_FIELDS = 14, 16
_NO_DISK = "Next: set busy_limit to null and no await_limit_ms, so that only the network counts"
_EXPORTED = ("node_time_", "node_boot_time_", "node_disk_", "node_network_transmit_", "node_network_receive_")
"""The prefixes of the node exporter metrics that are read."""
_WRAP = 1 << 32
"""The value at which a 32-bit counter wraps: a disk's milliseconds and, on 32-bit kernels, bytes."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The counters of one block device.

    requests: completed reads and writes. request_ms: the sum of their durations. busy_ms: the time with at
    least one request in flight.
    """

    requests: int
    request_ms: float
    busy_ms: float


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of a host at one moment.

    at: seconds on a clock of the host. disks: the counters of each log directory's device, by the device's
    number or name. sent, received: bytes over the interfaces.
    """

    at: float
    disks: Mapping[str, Disk]
    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a host between two readings.

    sent, received: bytes per second. busy: the share of the time, 0 to 1, that the busiest disk was working.
    await_ms: the mean duration of a request on the slowest disk; 0 without requests. Both are None if no log
    directory was named.
    """

    sent: float
    received: float
    busy: float | None
    await_ms: float | None


def parse(
    text: str, address: str, log_dirs: Sequence[str], interfaces: Sequence[str] = ()
) -> Reading[Counters]:
    """Parse the output of ``COMMAND`` into the counters that concern a broker.

    address: the broker's address. Its traffic is that of the interface with the longest prefix to the
    address: the bond, not its members, and the bridge, not its ports. interfaces: the interfaces to count
    instead, if any are given. log_dirs: the broker's directories. The devices of their volumes count, as the
    ssh account sees the mounts; symbolic links are not followed. Without a directory, disks do not count.
    """
    files = _files(text)
    if missing := [
        name for name in ("uptime", "diskstats", "self/mountinfo", "net/dev") if name not in files
    ]:
        return Unknown("garbled", f"no /proc/{missing[0]} in the answer {text[-120:]!r}")
    try:
        devices = [_device(files["self/mountinfo"], path) for path in log_dirs]
        disks = _disks(files["diskstats"])
        if lost := [path for path, one in zip(log_dirs, devices, strict=True) if one not in disks]:
            return Unknown("failed", f"the volume of {lost[0]} is on no disk of /proc/diskstats. {_NO_DISK}")
        traffic = _traffic(files["net/dev"])
        chosen = interfaces or _towards(files, address, traffic)
        if missing := [name for name in chosen if name not in traffic]:
            return Unknown(
                "failed", f"/proc/net/dev has no interface {missing[0]}, only {', '.join(traffic)}"
            )
        if not chosen:
            return Unknown("failed", f"no route shows the interface of {address}. Next: name the interface")
        at = float(files["uptime"][0].split()[0])
    except (ValueError, IndexError) as error:
        return Unknown("garbled", f"cannot parse the counters in /proc: {error}")
    received, sent = (sum(traffic[name][side] for name in dict.fromkeys(chosen)) for side in (0, 1))
    return Seen(Counters(at, {device: disks[device] for device in devices}, sent, received))


def parse_metrics(text: str, disks: Sequence[str], interfaces: Sequence[str]) -> Reading[Counters]:
    """Parse node exporter's metrics into a host's counters.

    disks, interfaces: device names, such as ``sda`` and ``eth0``. Lines of other metrics are skipped, so a
    large text costs little. ``Counters.at`` is the exported time minus the exported boot time: a step of the
    clock moves both.
    """
    found: dict[tuple[str, str], float] = {}
    try:
        lines = (line for line in text.splitlines() if line.startswith(_EXPORTED))
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for one in family.samples:
                found[one.name, one.labels.get("device", "")] = float(one.value)
    except (ValueError, KeyError, IndexError) as error:
        return Unknown("garbled", f"not Prometheus text: {error}")
    wanted = {"", *disks, *interfaces}
    if odd := [
        f"{name} is {value}"
        for (name, device), value in found.items()
        if device in wanted and not 0 <= value < math.inf
    ]:
        return Unknown("garbled", f"{odd[0]}, which is not a counter")
    try:
        return Seen(
            Counters(
                found["node_time_seconds", ""] - found["node_boot_time_seconds", ""],
                {name: _exported(found, name) for name in disks},
                int(sum(found["node_network_transmit_bytes_total", name] for name in interfaces)),
                int(sum(found["node_network_receive_bytes_total", name] for name in interfaces)),
            )
        )
    except KeyError as error:
        name, device = error.args[0]
        return Unknown("failed", f"no metric {name}{f' of device {device}' if device else ''}")


def load(before: Counters, after: Counters) -> Reading[Load]:
    """Return the load between two readings, or Unknown if the host or a counter has restarted."""
    elapsed = after.at - before.at
    if elapsed == 0:
        return Unknown(
            "failed", "received the same counters twice. Check whether a cache is in front of the host"
        )
    if elapsed < 0:
        return Unknown("failed", "the host has restarted since the last reading")
    if before.disks.keys() != after.disks.keys():
        return Unknown("failed", "a log directory has moved to another device since the last reading")
    busy, slowest = 0.0, 0.0
    for name, now in after.disks.items():
        was = before.disks[name]
        requests = _grown(was.requests, now.requests)
        took, worked = _grown(was.request_ms, now.request_ms), _grown(was.busy_ms, now.busy_ms)
        if requests is None or took is None or worked is None:
            return Unknown("failed", f"the counters of disk {name} were reset")
        busy = max(busy, min(worked / (elapsed * 1000), 1.0))
        slowest = max(slowest, took / requests if requests else 0.0)
    sent, received = _grown(before.sent, after.sent), _grown(before.received, after.received)
    if sent is None or received is None:
        return Unknown("failed", "the counters of a network interface were reset")
    disks = (busy, slowest) if after.disks else (None, None)
    return Seen(Load(sent / elapsed, received / elapsed, *disks))


def _grown(before: float, after: float) -> float | None:
    """Return how much a counter grew, even across the 32-bit limit; None if the counter was reset."""
    if after >= before:
        return after - before
    beyond = after + _WRAP - before
    return beyond if before < _WRAP and beyond < _WRAP / 2 else None


def _files(text: str) -> dict[str, list[str]]:
    files: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if head := _HEAD.fullmatch(line):
            lines = files.setdefault(head[1], [])
        elif line.strip():
            lines.append(line)
    return {name: lines for name, lines in files.items() if lines}


def _disks(lines: Iterable[str]) -> dict[str, Disk]:
    """Parse ``/proc/diskstats`` into counters by MAJOR:MINOR.

    Kernels before 2.6.25 print fewer fields for a partition; such lines are left out.
    """
    found = {}
    for fields in (line.split() for line in lines):
        if len(fields) >= _DISK_FIELDS:
            reads, read_ms, writes, write_ms, busy = (int(fields[at]) for at in (3, 6, 7, 10, 12))
            found[f"{fields[0]}:{fields[1]}"] = Disk(reads + writes, read_ms + write_ms, busy)
    return found


def _device(mounts: Iterable[str], path: str) -> str:
    """Return MAJOR:MINOR of the volume that holds a path.

    If several volumes are mounted on one directory, the one that was mounted last counts.
    """
    best, device = "", ""
    for fields in (line.split() for line in mounts):
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[4])
        inside = f"{posixpath.normpath(path)}/".startswith(f"{point.rstrip('/')}/")
        if inside and len(point) >= len(best):
            best, device = point, fields[2]
    return device


def _traffic(lines: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return interface → (bytes received, bytes sent)."""
    found = {}
    for line in lines:
        name, colon, rest = line.rpartition(":")
        fields = rest.split()
        if colon and len(fields) >= _NET_FIELDS:
            found[name.strip()] = int(fields[0]), int(fields[8])
    return found


def _towards(files: Mapping[str, Sequence[str]], address: str, traffic: Iterable[str]) -> tuple[str, ...]:
    """Return the interface with the longest prefix to an address.

    For a name instead of an address, return the interface of the default route. The result is empty if there
    is none.
    """
    known = set(traffic) - {"lo"}
    routes = [*_routes4(files.get("net/route", ())), *_routes6(files.get("net/ipv6_route", ()))]
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        wanted = ipaddress.ip_address("0.0.0.0")  # only a default route holds it
    fit = [(net.prefixlen, name) for net, name in routes if name in known and wanted in net]
    return (max(fit)[1],) if fit else ()


def _routes4(lines: Sequence[str]) -> list[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, str]]:
    """Parse ``/proc/net/route``.

    Its addresses are hexadecimal in the host's byte order, which is assumed to be little-endian.
    """
    found = []
    for fields in (line.split() for line in lines[1:]):
        target, mask = (bytes.fromhex(fields[at])[::-1] for at in (1, 7))
        prefix = int.from_bytes(mask, "big").bit_count()
        found.append((ipaddress.ip_network((target, prefix), strict=False), fields[0]))
    return found


def _routes6(lines: Sequence[str]) -> list[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, str]]:
    found = []
    for fields in (line.split() for line in lines):
        network = (bytes.fromhex(fields[0]), int(fields[1], 16))
        found.append((ipaddress.ip_network(network, strict=False), fields[9]))
    return found


def _exported(found: Mapping[tuple[str, str], float], name: str) -> Disk:
    def ms(metric: str) -> float:
        return found[f"node_disk_{metric}_time_seconds_total", name] * 1000

    requests = sum(found[f"node_disk_{kind}_completed_total", name] for kind in ("reads", "writes"))
    return Disk(int(requests), ms("read") + ms("write"), ms("io"))
