"""Group clients by their addresses, so that many connections of one attacker displace only each other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Generic, TypeVar

T = TypeVar("T")
_OWN_V6, _NEAR_V6 = 64, 48
"""The bits of an IPv6 address that belong to one client, and to one site (RFC 6177)."""
_MOST_CACHED = 10_000


@lru_cache(_MOST_CACHED)
def share(address: str) -> str:
    """Return the name under which a client's address gets its share of all limits.

    It is an IPv4 address itself, or the /64 of an IPv6 address, because one client may use all addresses in
    it.
    """
    return _block(address, 32, _OWN_V6)


@lru_cache(_MOST_CACHED)
def near(address: str) -> str:
    """Return the block around an address, which often has one owner.

    It is a /24 for IPv4 and a /48 for IPv6.
    """
    return _block(address, 24, _NEAR_V6)


def _block(address: str, v4: int, v6: int) -> str:
    if ":" in address:
        try:
            told = IPv6Address(address)
        except ValueError:
            return address
        if told.ipv4_mapped is None:
            return f"{IPv6Address(int(told) >> 128 - v6 << 128 - v6)}/{v6}"
        address = str(told.ipv4_mapped)
    return address if v4 == 32 else f"{address.rsplit('.', 1)[0]}.0/{v4}"


class Groups(Generic[T]):
    """Items in groups, and the group that has the most items. Each operation takes constant time."""

    def __init__(self) -> None:
        self._items: dict[str, dict[T, None]] = {}
        self._sized: dict[int, dict[str, None]] = {}
        """The groups by the number of their items."""
        self._most = 0

    def __contains__(self, group: str) -> bool:
        return group in self._items

    def add(self, item: T, group: str) -> None:
        """Add an item that the group does not have yet."""
        items = self._items.setdefault(group, {})
        items[item] = None
        self._resize(group, len(items) - 1, len(items))
        self._most = max(self._most, len(items))

    def remove(self, item: T, group: str) -> None:
        """Remove an item that the group has."""
        items = self._items[group]
        del items[item]
        self._resize(group, len(items) + 1, len(items))
        if not items:
            del self._items[group]
        if self._most not in self._sized:
            self._most -= 1

    def _resize(self, group: str, before: int, now: int) -> None:
        if before:
            del self._sized[before][group]
            if not self._sized[before]:
                del self._sized[before]
        if now:
            self._sized.setdefault(now, {})[group] = None

    def largest(self) -> tuple[str, T]:
        """Return a group that has the most items, and its oldest item."""
        group = next(iter(self._sized[self._most]))
        return group, next(iter(self._items[group]))


class Crowd(Generic[T]):
    """Items with the address that each one came from, the oldest first."""

    def __init__(self) -> None:
        self._address: dict[T, str] = {}
        self._near = Groups[T]()
        self._shares: dict[str, Groups[T]] = {}

    def __len__(self) -> int:
        return len(self._address)

    def __iter__(self) -> Iterator[T]:
        return iter(self._address)

    def __contains__(self, item: T) -> bool:
        return item in self._address

    def add(self, item: T, address: str) -> None:
        """Add an item, unless it is there already."""
        if item in self._address:
            return
        self._address[item] = address
        self._near.add(item, near(address))
        self._shares.setdefault(near(address), Groups()).add(item, share(address))

    def discard(self, item: T) -> None:
        """Remove an item, if it is there."""
        address = self._address.pop(item, None)
        if address is not None:
            self._near.remove(item, near(address))
            self._shares[near(address)].remove(item, share(address))
            if near(address) not in self._near:
                del self._shares[near(address)]

    def first(self) -> T:
        """Return the item to remove if there are too many.

        In the block of addresses that has the most items, it is the oldest item of the address that has the
        most.
        """
        block, _ = self._near.largest()
        return self._shares[block].largest()[1]
