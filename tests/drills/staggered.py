"""Create dest hosts whose disks end at different transactions, which the fence and the drain prevent.

The fence stays open: some dest hosts are cut off first, and clients of the others are still acknowledged.
Then every server is killed. No verb of the tool brings a cluster into this state.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.drills.acknowledged import Missing, Promised, missing_in, promised
from tests.lab.dest_hosts import SERVES_S, UNIT, observer_config, reformed_config, write
from tests.lab.footprint import VERSION_2
from zkmigrate.lab import fault
from zkmigrate.lab.commands import run
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.json_lines import Follower, load_recording
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.render import ZOO_CFG
from zkmigrate.lab.spec import Role
from zkmigrate.lab.wait import wait_until
from zkmigrate.move.rules.start_order import freshest
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.tail import newest
from zkmigrate.zookeeper.data.tree import load_tree

FLOWING_S = 60.0
RAW_RATE = 100.0


@dataclass(frozen=True)
class Staggered:
    """Dest with dead servers.

    tails: newest durable zxid by host. needed: the zxid of the newest acknowledged create. first: the hosts
    that hold all acknowledged creates. only_on_first: how many acknowledged creates no other host holds.
    """

    promise: Promised
    tails: Mapping[str, int]
    needed: int
    first: tuple[str, ...]
    only_on_first: int


def stagger(lab: Lab, laggards: Sequence[str], at_least: int, history: Path) -> Staggered:
    """Kill observing dest hosts so that ``laggards`` lack at least this many acknowledged creates.

    history: a new directory for the raw writers' recordings. Raises LabError if the others do not hold all.
    """
    hosts = list(lab.names(Role.DEST))
    fresh = [host for host in hosts if host not in laggards]
    load = runner_for(lab, history, raw_rate=RAW_RATE)
    try:
        load.start(("raw",))
        load.wait_flowing(("raw",), FLOWING_S)
        for host in laggards:
            for source in lab.role(Role.SOURCE):
                fault.partition(lab, host, source.name)
        follower = Follower(history, "raw")
        follower.more()
        counted = 0

        def missing() -> str | None:
            nonlocal counted
            counted += sum(e["event"] == "ack" and e["host"] in fresh for e in follower.more())
            return None if counted >= at_least else f"{counted} of {at_least} creates acknowledged"

        wait_until("creates that the laggards lack", missing, FLOWING_S, 0.05)
    finally:
        load.kill()
    acks = load_recording(history, "raw").of("ack")
    needed = max(int(event["zxid"], 16) for event in acks)
    wait_until("fresh disks hold every acknowledged create", lambda: _behind(lab, fresh, needed), 10.0, 0.02)
    kill_servers(lab, hosts)
    for host in laggards:
        for source in lab.role(Role.SOURCE):
            fault.heal(lab, host, source.name)
    tails = {host: tail(lab, host) for host in hosts}
    first = freshest(tails, needed)
    if set(first) != set(fresh):
        raise LabError(f"wanted {fresh} to hold everything up to {needed:#x}, seen {tails}")
    above = max(tails[host] for host in laggards)
    lacking = sum(int(event["zxid"], 16) > above for event in acks)
    return Staggered(promised(acks, ()), tails, needed, first, lacking)


def tail(lab: Lab, host: str) -> int:
    """Return the newest durable zxid on a host's disk."""
    return int(newest(FileDirectory(lab.host(host).root / VERSION_2)).zxid)


def _behind(lab: Lab, hosts: Sequence[str], needed: int) -> str | None:
    behind = [host for host in hosts if tail(lab, host) < needed]
    return f"{behind} below {needed:#x}" if behind else None


def kill_servers(lab: Lab, hosts: Sequence[str]) -> None:
    """Kill ZooKeeper on these hosts at once; it is gone when this returns, and does not restart."""
    for host in hosts:
        for pid in server_pids(lab, host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for host in hosts:
        lab.exec(host, ["systemctl", "stop", UNIT], check=False)
        lab.exec(host, ["systemctl", "reset-failed", UNIT], check=False)


def server_pids(lab: Lab, host: str) -> list[int]:
    """Return the ZooKeeper processes of a host, as pids of this machine."""
    pids = run(["ip", "netns", "pids", lab.host(host).netns]).split()
    return [int(pid) for pid in pids if _command(int(pid)) == "java"]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def missing_on(lab: Lab, promise: Promised) -> dict[str, Missing]:
    """Return the promises that each dest host's disk does not keep."""
    chroot = lab.spec.chroot
    disks = {host.name: FileDirectory(host.root / VERSION_2) for host in lab.role(Role.DEST)}
    return {
        name: missing_in(load_tree(disk, chroot=Chroot(chroot)), promise, chroot)
        for name, disk in disks.items()
    }


def lost(lab: Lab, promise: Promised) -> int:
    """Count the acknowledged creates that are missing on at least one dest host."""
    return len({create for found in missing_on(lab, promise).values() for create in found.creates})


def held_by_none(lab: Lab, promise: Promised) -> int:
    """Count the acknowledged creates that are missing on every dest host."""
    found = [set(missing.creates) for missing in missing_on(lab, promise).values()]
    return len(set.intersection(*found))


def wait_until_serving(
    lab: Lab, hosts: Sequence[str], wanted: Sequence[str] = ("leader", "follower")
) -> None:
    """Wait until each of these hosts is in one of the modes."""

    def missing() -> str | None:
        seen = lab.zookeeper_modes(hosts)
        return None if all(mode in wanted for mode in seen.values()) else str(seen)

    wait_until("dest serves", missing, SERVES_S, 0.05)


def reformed_in_the_wrong_order(lab: Lab, staggered: Staggered, aside: Path) -> int:
    """Start the laggards first, and the freshest once they serve, which the rules forbid and no verb does.

    Returns how many acknowledged creates are missing on every dest host. Afterwards disks and configs are as
    before, and the servers dead.
    """
    hosts = list(lab.names(Role.DEST))
    laggards = [host for host in hosts if host not in staggered.first]
    for host in hosts:
        run(["cp", "-a", "--sparse=always", str(lab.host(host).root / VERSION_2), str(aside / host)])
        write(lab, host, ZOO_CFG, "0644", reformed_config(lab))
    for group in (laggards, list(staggered.first)):
        for host in group:
            lab.exec(host, ["systemctl", "start", UNIT])
        wait_until_serving(lab, group)
    found = held_by_none(lab, staggered.promise)
    kill_servers(lab, hosts)
    for host in hosts:
        live = lab.host(host).root / VERSION_2
        shutil.rmtree(live)
        run(["cp", "-a", "--sparse=always", str(aside / host), str(live)])
        shutil.rmtree(aside / host)
        lab.exec(host, ["sh", "-c", f"rm -f {ZOO_CFG}.dynamic*"])
        write(lab, host, ZOO_CFG, "0644", observer_config(lab))
    return found
