"""Comparison of host names and addresses by what they resolve to, not by their text."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from zkmigrate.inventory.checks import spelled
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look

Resolve: TypeAlias = Callable[[str], Reading[tuple[str, ...]]]
"""A function that returns the addresses of a name; Absent for a name without addresses."""
Names: TypeAlias = Mapping[str, Reading[tuple[str, ...]]]
"""Name → its addresses, as one host resolves them."""
Resolved: TypeAlias = Mapping[tuple[str, str], Reading[tuple[str, ...]]]
"""(host, name) → the addresses of the name on that host. The host "" is the operator's machine."""


def is_address(text: str) -> bool:
    """Return whether the text is a numeric address."""
    try:
        ipaddress.ip_address(spelled(text))
    except ValueError:
        return False
    return True


def same_host(named: str, own: Iterable[str], resolve: Resolve) -> bool | None:
    """Return whether ``named`` is the host that has the names and addresses ``own``.

    Returns None if this is unknown because a name does not resolve. named: a name or address that was read on
    some machine. resolve: resolves a name as that machine does.
    """
    text, known = spelled(named), {spelled(one) for one in own}
    if text in known:
        return True
    addresses = _addresses(text, resolve)
    if addresses is None:
        return None
    others = [_addresses(one, resolve) for one in sorted(known)]
    if any(addresses & other for other in others if other is not None):
        return True
    return False if any(map(is_address, known)) or None not in others else None


def _addresses(text: str, resolve: Resolve) -> set[str] | None:
    if is_address(text):
        return {text}
    found = resolve(text)
    return {spelled(one) for one in found.value} if isinstance(found, Seen) and found.value else None


def unresolved(name: str, reading: Reading[tuple[str, ...]], where: str) -> str:
    """Return a text that says that a name does not resolve on a host, or why this is unknown.

    reading: the result of resolving the name. where: the name of the host.
    """
    if isinstance(reading, Unknown):
        return f"cannot resolve {name} on {where}: {reading}"
    return f"{name} does not resolve on {where}"


def all_unresolved(names: Names, where: str) -> str:
    """Return a text that says which of these names do not resolve on a host, or for which this is unknown.

    The text is empty if all names resolve. where: the name of the host.
    """
    lost = ((n, told) for n, told in names.items() if not isinstance(told, Seen) or not told.value)
    return "; ".join(unresolved(name, reading, where) for name, reading in lost)


def resolve_all(look: Look, names: Mapping[str, Iterable[str]]) -> Resolved:
    """Resolve names on the hosts that use them.

    names: host → names to resolve there; "" is the operator's machine. Numeric addresses among the names are
    left out.
    """
    wanted = {host: sorted({spelled(n) for n in of if n and not is_address(n)}) for host, of in names.items()}
    hosts = [host for host, of in wanted.items() if of]
    found = look.each(hosts, lambda host: {name: look.addresses(host, name) for name in wanted[host]})
    return {(host, name): reading for host, told in found.items() for name, reading in told.items()}


def resolver(resolved: Resolved, host: str, own: Iterable[str] = ()) -> Resolve:
    """Return a function that resolves names as a host does.

    own: the host's addresses, which replace a loopback address.
    """
    addresses = tuple(own)

    def resolve(name: str) -> Reading[tuple[str, ...]]:
        reading = resolved.get((host, spelled(name)), Absent(name))
        if not isinstance(reading, Seen):
            return reading
        parts = (addresses if _is_loopback(one) else (one,) for one in reading.value)
        return Seen(tuple(one for part in parts for one in part))

    return resolve


def asked_names(look: Look, host: str, own: Iterable[str], question: Callable[[Resolve], object]) -> Names:
    """Return the addresses of every name that a function resolves on a host.

    question: the function, called once with a function that resolves names. With the returned addresses it
    can be called again later without the host. own: the host's addresses, see :func:`resolver`.
    """
    found: dict[str, Reading[tuple[str, ...]]] = {}
    addresses = tuple(own)

    def resolve(name: str) -> Reading[tuple[str, ...]]:
        if name not in found:
            found[name] = resolver({(host, name): look.addresses(host, name)}, host, addresses)(name)
        return found[name]

    question(resolve)
    return found


def _is_loopback(text: str) -> bool:
    return is_address(text) and ipaddress.ip_address(spelled(text)).is_loopback
