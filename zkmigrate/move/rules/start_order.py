"""The safe start order of a reforming ensemble.

If hosts that lack the newest transaction form a quorum first, acknowledged writes are lost (205 of 205 in 5
of 5 tries). So the hosts F that hold it start first. While there is no leader, at most q - |F| others may
join them; the rest wait until a host of F leads with q - 1 synced followers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zkmigrate.runbook.model.change import Place


def freshest(newest: Mapping[str, int], needed: int) -> tuple[str, ...]:
    """Return F: the hosts whose newest durable zxid is at least ``needed``, in the order given.

    newest: host → newest durable zxid at STOP. needed: the zxid of the newest transaction that touched the
    chroot or a session that owns part of it.
    """
    return tuple(host for host, zxid in newest.items() if zxid >= needed)


def places(hosts: tuple[str, ...], first: tuple[str, ...]) -> dict[str, Place]:
    """Return the place of every host in the start order.

    Hosts outside F never reach q by themselves: at most q - |F| of them start before a leader is known.
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
    """Return whether the hosts in ``have_go`` can form a quorum without the others. Raises as :func:`places`.

    Hosts with the place ``rest`` do not count: each waits until a host of F leads. If F is no majority, its
    helpers wait for every host of F, so none that starts early may be missing.
    """
    early = [host for host, place in places(hosts, first).items() if place != "rest"]
    return sum(host in have_go for host in early) > len(hosts) // 2
