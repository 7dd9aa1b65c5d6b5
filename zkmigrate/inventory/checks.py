"""Check ``migration.yml`` for mistakes across keys, such as a myid used twice or a host in two roles.

The checks read raw values and skip those of a wrong type, so that they also work in a file with other
mistakes.
"""

from __future__ import annotations

import functools
import ipaddress
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from zkmigrate.hosts.jump_host import parse_jump_hosts
from zkmigrate.hosts.zkm_host import STATE_DIR
from zkmigrate.inventory import accept as inventory_accept
from zkmigrate.inventory import hooks as inventory_hooks
from zkmigrate.inventory.explain import NEEDED, items_at, value_at
from zkmigrate.inventory.marked_yaml import Document, Mistake, Path

LEASE_MS = {"fence_ttl_ms": 5000, "cut_ttl_ms": 2000, "renew_every_ms": 500}
"""Defaults of ``policy.lease``."""

FENCE_OUTLIVES_CUT_MS = 2000
"""Milliseconds by which the fence must outlast the cut, until the host observes again."""

OWN_SETTINGS = (
    "clientPort", "secureClientPort", "dataDir", "dataLogDir", "dynamicConfigFile", "peerType", "version",
)  # fmt: skip
"""zoo.cfg keys that zkmigrate writes from other keys of the inventory."""


@dataclass(frozen=True)
class HostList:
    """The place in a file where the hosts of a role are listed.

    number: the key that must be unique in the list; empty for none.
    """

    path: Path
    role: str
    number: str = ""


@dataclass(frozen=True)
class _Host:
    path: Path
    role: str
    name: str
    addresses: tuple[tuple[Path, str], ...]
    number: int | None
    """myid or broker id."""


def cross_check(document: Document, lists: Collection[HostList]) -> list[Mistake]:
    """Return every mistake across keys.

    lists: the places where the file lists hosts.
    """
    top = document.value if isinstance(document.value, dict) else {}
    hosts = [host for listed in lists for host in _hosts(top, listed)]
    found = [
        *_chroot(top), *_twice(hosts), *_addresses(hosts), *_operator(top, hosts), *_bastion(top),
        *_myids(hosts, lists), *_dest_count(top), *_settings(top), *_services(top), *_paths(top),
        *_lease(top), *inventory_hooks.wrong(top), *inventory_accept.wrong(top), *_window(top),
    ]  # fmt: skip
    return [Mistake(document.mark(path), path, reason) for path, reason in found]


def missing(document: Document, sections: Collection[str]) -> list[Mistake]:
    """Return a mistake for each of these sections that the file lacks."""
    there = document.value if isinstance(document.value, dict) else {}
    missing = [section for section in sections if section not in there]
    return [Mistake(document.mark((section,)), (section,), _MISSING) for section in missing]


_Wrong = Iterator[tuple[Path, str]]
_MISSING = "missing (needed: this key)"


def _chroot(top: Any) -> _Wrong:
    """Yield a mistake if a file with ZooKeeper hosts does not name Kafka's subtree."""
    kafka = value_at(top, ("kafka",))
    if isinstance(kafka, dict) and "chroot" not in kafka and not {"source", "dest"}.isdisjoint(top):
        yield ("kafka", "chroot"), _MISSING


def _hosts(top: Any, listed: HostList) -> Iterator[_Host]:
    for at, item in enumerate(items_at(top, listed.path)):
        if not isinstance(item, dict):
            continue
        here = (*listed.path, at)
        addresses = [((*here, "address"), item.get("address"))]
        also = item.get("also")
        addresses += [((*here, "also", n), a) for n, a in enumerate(also if isinstance(also, list) else [])]
        name, value = item.get("name"), item.get(listed.number)
        yield _Host(
            here,
            listed.role,
            name if isinstance(name, str) else "",
            tuple((p, a) for p, a in addresses if isinstance(a, str)),
            value if isinstance(value, int) and not isinstance(value, bool) else None,
        )


@functools.lru_cache(maxsize=8192)
def spelled(host: str) -> str:
    """Return the canonical spelling of a host name or address.

    Names are in small letters without a dot at the end. IPv6 is in short form without brackets and zone, and
    IPv4-mapped IPv6 becomes IPv4.
    """
    text = host.strip().strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text.rstrip(".").lower()
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


MAY_SHARE = (frozenset({"source", "broker"}), frozenset({"dest", "broker"}))
"""The roles that one machine may have. Each has a name of its own there, and the machine's address."""


def _twice(hosts: list[_Host]) -> _Wrong:
    names: dict[str, _Host] = {}
    addresses: dict[str, list[_Host]] = {}
    for host in hosts:
        if host.name:
            first = names.setdefault(host.name, host)
            if first is not host:
                yield (*host.path, "name"), _clash(f"name {host.name!r}", first, host)
        for path, text in host.addresses:
            others = addresses.setdefault(spelled(text), [])
            for first in others:
                if frozenset({first.role, host.role}) not in MAY_SHARE:
                    yield path, _clash(f"address {text}", first, host)
                    break
            others.append(host)


def _clash(what: str, first: _Host, host: _Host) -> str:
    if first.role == host.role:
        return f"{what} occurs twice among the {host.role} hosts (needed: each once)"
    return (
        f"{what} is already a {first.role} host, {first.name or 'without a name'} (needed: each host in "
        "one role; only a broker and a ZooKeeper server may have one address. Check whether "
        f"{first.role} and {host.role} are swapped)"
    )


def _addresses(hosts: list[_Host]) -> _Wrong:
    """Yield a mistake for each host without an IP address, because rules and client lists hold addresses."""
    for host in hosts:
        for path, text in host.addresses:
            looks_numeric = ":" in text or text.replace(".", "").isdigit()
            if looks_numeric and not _is_ip(text):
                yield path, f"not an address (seen {text!r}, needed an IPv4 or IPv6 address, no port)"
            elif path[-2:-1] == ("also",) and not _is_ip(text):
                yield path, f"not an address (seen {text!r}, needed an IPv4 or IPv6 address)"
        if host.addresses and not any(_is_ip(text) or ":" in text for _, text in host.addresses):
            if all(text.replace(".", "").isdigit() for _, text in host.addresses):
                continue
            yield (
                (*host.path, "address"),
                f"only a name (seen {host.addresses[0][1]!r}, needed also: [ADDRESS, …] beside it, because "
                "rules and client lists contain addresses)",
            )


def _operator(top: Any, hosts: list[_Host]) -> _Wrong:
    known = {spelled(text): host for host in hosts for _, text in host.addresses}
    for at, text in enumerate(items_at(top, ("operator",))):
        if not isinstance(text, str):
            continue
        if not _is_ip(text):
            yield ("operator", at), f"not an address (seen {text!r}, needed an IPv4 or IPv6 address)"
        elif host := known.get(spelled(text)):
            yield (
                ("operator", at),
                f"{text} is the {host.role} host {host.name} (needed: the machine that runs zkmigrate, not "
                "one of the hosts, because the fence lets the operator through)",
            )


def _bastion(top: Any) -> _Wrong:
    bastion = value_at(top, ("ssh", "bastion"))
    if isinstance(bastion, str):
        try:
            parse_jump_hosts(bastion)
        except ValueError as error:
            yield ("ssh", "bastion"), f"not a list of jump hosts ({error}; needed {NEEDED['bastion']})"


def _myids(hosts: list[_Host], lists: Collection[HostList]) -> _Wrong:
    for listed in lists:
        seen: dict[int, _Host] = {}
        for host in hosts:
            if host.role != listed.role or host.number is None:
                continue
            first = seen.setdefault(host.number, host)
            if first is not host:
                yield (
                    (*host.path, listed.number),
                    f"{listed.number} {host.number} is already used by {first.name} (needed: each once)",
                )
    source = {h.number: h for h in hosts if h.role == "source" and h.number is not None}
    highest = max(source, default=None)
    dest = [h.number for h in hosts if h.role == "dest" and h.number is not None]
    swapped = bool(source and dest) and max(dest) < min(source)
    for host in hosts:
        if host.role != "dest" or host.number is None:
            continue
        if taken := source.get(host.number):
            yield (
                (*host.path, "myid"),
                f"myid {host.number} belongs to source host {taken.name} (needed: one that source does not "
                "use, because a second use breaks that server's election connections)",
            )
        elif highest is not None and host.number < highest:
            yield (
                (*host.path, "myid"),
                f"myid {host.number} is too low (needed: {highest + 1} to 254, above every myid of source, "
                "because the higher id opens the election connection"
                + (
                    ". All of dest's are below source's. Check whether source and dest are swapped)"
                    if swapped
                    else ")"
                ),
            )


def _dest_count(top: Any) -> _Wrong:
    count = len(items_at(top, ("dest", "hosts")))
    if count >= 3 and count % 2 == 0:
        yield (
            ("dest", "hosts"),
            f"an even number of dest hosts (seen {count}, needed an odd number, {count - 1} or {count + 1}: "
            f"{count} tolerate no more failures than {count - 1})",
        )


def _settings(top: Any) -> _Wrong:
    settings = value_at(top, ("dest", "settings"))
    for key in settings if isinstance(settings, dict) else ():
        if key in OWN_SETTINGS or key.startswith(("server.", "group.", "weight.")):
            yield (
                ("dest", "settings", key),
                "zkmigrate writes this line itself, or does not support it (needed: hosts, ports and "
                "directories in the other keys of dest)",
            )


def _services(top: Any) -> _Wrong:
    for section in top:
        path = (section, "service")
        service = value_at(top, path)
        if not isinstance(service, dict):
            continue
        given = [key for key in ("start", "stop", "status", "kill") if key in service]
        missing = [key for key in ("start", "stop", "status") if key not in service]
        if given and missing:
            yield (
                (*path, given[0]),
                f"{', '.join(given)} without {', '.join(missing)} (needed: start, stop and status, with or "
                "without kill; or none of them, for systemd)",
            )


def _paths(top: Any) -> _Wrong:
    """Yield mistakes in paths, such as files in dest's data directories.

    The data directories are imaged, so they must hold only ZooKeeper's data.
    """
    paths: dict[tuple[str, str], str] = {}
    names = ("config", "java_env", "data_dir", "log_dir")
    for name in names:
        value = value_at(top, ("dest", name))
        if isinstance(value, str) and value.startswith("/"):
            paths[("dest", name)] = value
    elsewhere = [section for section in top if section not in ("dest", "ssh")]
    for path in itertools.product(elsewhere, names):
        value = value_at(top, path)
        if isinstance(value, str) and _odd(value):
            yield path, _odd_path(value)
    for path, value in paths.items():
        if _odd(value):
            yield path, _odd_path(value)
        elif _inside(value, STATE_DIR) or _inside(STATE_DIR, value):
            yield path, f"{value} overlaps {STATE_DIR}, the state of zkm-host (needed: separate)"
    for directory in ("data_dir", "log_dir"):
        outer = paths.get(("dest", directory))
        for path, value in paths.items():
            same = path[1].endswith("_dir") and outer is not None and _parts(value) == _parts(outer)
            if outer is not None and path[1] != directory and not same and _inside(value, outer):
                yield path, f"{value} is inside dest.{directory} (seen {outer}, needed: outside it)"


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _inside(path: str, outer: str) -> bool:
    return _parts(path)[: len(_parts(outer))] == _parts(outer)


def _odd(path: str) -> bool:
    return path.startswith("/") and (len(_parts(path)) < 2 or not {".", ".."}.isdisjoint(_parts(path)))


def _odd_path(path: str) -> str:
    return f"not a usable path (seen {path!r}, needed at least two levels and no . or .. in it)"


def _window(top: Any) -> _Wrong:
    """Yield a mistake if begin or end is no valid time, or the end is not after the begin."""
    path = ("policy", "window")
    ends = {key: value_at(top, (*path, key)) for key in ("begin", "end")}
    moments: dict[str, datetime] = {}
    for key, text in ends.items():
        try:
            moments[key] = datetime.fromisoformat(text if isinstance(text, str) else "")
        except ValueError:
            if isinstance(text, str):
                yield (*path, key), f"not a valid time (seen {text!r}, needed {NEEDED['begin']})"
    aware = all(moment.tzinfo is not None for moment in moments.values())
    if len(moments) == 2 and aware and moments["begin"] >= moments["end"]:
        yield (*path, "end"), f"not after the begin (seen {ends['end']}, needed after {ends['begin']})"


def _lease(top: Any) -> _Wrong:
    lease = value_at(top, ("policy", "lease"))
    lease = lease if isinstance(lease, dict) else {}
    fence, cut, renew = (lease.get(key, default) for key, default in LEASE_MS.items())
    here = ("policy", "lease")
    if all(isinstance(value, int) for value in (fence, cut, renew)):
        if fence < (least := cut + FENCE_OUTLIVES_CUT_MS):
            yield (
                (*here, "fence_ttl_ms"),
                f"too short (seen {fence}, needed at least cut_ttl_ms + {FENCE_OUTLIVES_CUT_MS} = {least}, "
                "because the fence must last until the host observes again)",
            )
        if renew * 2 > cut:
            yield (
                (*here, "renew_every_ms"),
                f"too long (seen {renew}, needed at most half of cut_ttl_ms = {cut // 2}, because one late "
                "renewal must not end the lease)",
            )
