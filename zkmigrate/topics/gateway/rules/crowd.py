"""Group clients by their addresses, so that many connections of one attacker displace only each other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Generic, TypeVar

T = TypeVar("T")
_OWN_V6, _NEAR_V6 = 64, 48
"""The number of leading bits of an IPv6 address that identify a client, and a site (RFC 6177)."""
_MOST_CACHED = 10_000


@lru_cache(_MOST_CACHED)
def share(address: str) -> str:
    """Return the address block whose clients share one part of every limit.

    That is the IPv4 address itself, or the /64 block of an IPv6 address, because one client may use every
    address of such a block.
    """
    return _block(address, 32, _OWN_V6)


@lru_cache(_MOST_CACHED)
def near(address: str) -> str:
    """Return the larger block around an address: a /24 for IPv4, and a /48 for IPv6.

    All addresses of such a block often have the same owner.
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
    """A collection of items in groups, which finds the group with the most items.

    Each operation takes constant time.
    """

    def __init__(self) -> None:
        self._items: dict[str, dict[T, None]] = {}
        self._sized: dict[int, dict[str, None]] = {}
        """The groups by the number of items in each."""
        self._most = 0

    def __contains__(self, group: str) -> bool:
        return group in self._items

    def add(self, item: T, group: str) -> None:
        """Add an item to a group that does not have it yet."""
        items = self._items.setdefault(group, {})
        items[item] = None
        self._resize(group, len(items) - 1, len(items))
        self._most = max(self._most, len(items))

    def remove(self, item: T, group: str) -> None:
        """Remove an item from a group that has it."""
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
        """Return the name of a group that has the most items, and the oldest item of that group."""
        group = next(iter(self._sized[self._most]))
        return group, next(iter(self._items[group]))


class Crowd(Generic[T]):
    """A collection of items, the oldest first, each with the address that it came from."""

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
        """Add an item that came from an address, unless the collection has it already."""
        if item in self._address:
            return
        self._address[item] = address
        self._near.add(item, near(address))
        self._shares.setdefault(near(address), Groups()).add(item, share(address))

    def discard(self, item: T) -> None:
        """Remove an item if the collection has it."""
        address = self._address.pop(item, None)
        if address is not None:
            self._near.remove(item, near(address))
            self._shares[near(address)].remove(item, share(address))
            if near(address) not in self._near:
                del self._shares[near(address)]

    def first(self) -> T:
        """Return the item to remove when the collection has too many items.

        First the block of addresses with the most items is found, then the address in that block with the
        most items. The result is the oldest item of that address.
        """
        block, _ = self._near.largest()
        return self._shares[block].largest()[1]
