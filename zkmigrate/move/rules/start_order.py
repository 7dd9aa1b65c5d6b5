"""The safe start order of the servers of an ensemble that is reformed.

If hosts that lack the newest transaction form a quorum first, acknowledged writes are lost (205 of 205 writes
in 5 of 5 tries). So the hosts that hold the newest transaction, called F, start first. While there is no
leader, at most q - |F| other hosts may join them, where q is the size of a quorum. The remaining hosts wait
until a host of F leads with q - 1 synced followers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zkmigrate.runbook.model.change import Place


def freshest(newest: Mapping[str, int], needed: int) -> tuple[str, ...]:
    """Return F: the hosts whose newest zxid on disk is at least ``needed``, in the given order.

    newest: host → the newest zxid on its disk at STOP. needed: the zxid of the newest transaction that
    touched the chroot or a session that owns an ephemeral there.
    """
    return tuple(host for host, zxid in newest.items() if zxid >= needed)


def places(hosts: tuple[str, ...], first: tuple[str, ...]) -> dict[str, Place]:
    """Return the place of every host in the start order. first: the hosts of F.

    Hosts outside F can never form a quorum alone: at most q - |F| of them start before a leader is known.
    Raises ValueError if no host holds the newest transaction.
    """
    if not first:
        raise ValueError("no host holds the newest transaction: nothing may start")
    majority = len(hosts) // 2 + 1
    helpers = majority - len(first)
    result: dict[str, Place] = {}
    for host in hosts:
        if host in first:
            result[host] = "first"
        elif helpers > 0:
            result[host] = "quorum"
            helpers -= 1
        else:
            result[host] = "rest"
    return result


def forms_quorum(hosts: tuple[str, ...], first: tuple[str, ...], have_go: Collection[str]) -> bool:
    """Return whether the hosts in ``have_go`` can form a quorum without the other hosts.

    Hosts with the place ``rest`` do not count: each waits until a host of F leads. If F is no majority, its
    helpers wait for every host of F, so every host that starts early must be in ``have_go``. first: the hosts
    of F. Raises the same errors as :func:`places`.
    """
    early = [host for host, place in places(hosts, first).items() if place != "rest"]
    return sum(host in have_go for host in early) > len(hosts) // 2
