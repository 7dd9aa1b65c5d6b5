"""zkm-host on real hosts: systemd units, the start guard, detached parts, three real servers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.drills.test_start_order import danger, staggered_orders
from tests.lab.dest_hosts import UNIT, DestHosts, joined
from zkmigrate.hosts import zkm_host
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.render import ZOO_CFG, ZOOKEEPER_DATA
from zkmigrate.lab.spec import LabSpec, Role

pytestmark = pytest.mark.lab


def trees(dests: DestHosts) -> list[str]:
    """Digest, mode and owner of every file of ZooKeeper's on each dest host."""
    command = (
        f"cd {ZOOKEEPER_DATA} && find . -path ./.zkm-image-\\* -prune -o -type f "
        "-exec stat -c '%n %a %U:%G %s' {} + -exec sha256sum {} + | sort; "
        f"stat -c '%a %U:%G' . version-2; sha256sum {ZOO_CFG}*"
    )
    return [dests.lab.exec(c.host, ["sh", "-c", command]).stdout for c in dests.channels]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab.up(LabSpec(), print) as made:
        yield made


@pytest.fixture(scope="module")
def dests(lab: Lab) -> Iterator[DestHosts]:
    made = joined(lab)
    yield made
    made.close()


def unit_state(lab: Lab, host: str) -> str:
    return lab.exec(host, ["systemctl", "is-active", UNIT], check=False).stdout.strip()


def test_the_wrong_start_order_loses_what_the_safe_one_keeps(
    lab: Lab, dests: DestHosts, tmp_path: Path
) -> None:
    """The fence left open: dest1 holds acknowledged creates that dest2 and dest3 lack. No verb comes here."""
    with staggered_orders(lab, dests, ("dest2", "dest3"), tmp_path) as (orders, aside):
        broken = danger(orders, aside)
        assert broken.lost > 0, "the rule would guard against nothing"
        orders.seal()
        for act in (orders.ordered, partial(orders.killed_at, "epoch-of-first"), orders.power_cut):
            assert orders.play(act).lost == 0
        dests.unseal()


def test_reform_and_all_the_way_back_leave_every_byte(lab: Lab, dests: DestHosts) -> None:
    dests.arm()
    dests.seal()
    before = trees(dests)
    host = dests.channels[0].host
    lab.exec(host, ["systemctl", "start", UNIT], check=False)
    assert unit_state(lab, host) in ("failed", "inactive"), "the guard holds against systemctl too"
    lab.exec(host, ["systemctl", "reset-failed", UNIT])
    dests.go(120_000)
    lab.exec(host, ["sh", "-c", "systemctl kill -s KILL 'zkm-finish-*'"])
    dests.wait("all serve", "phase", "started")
    assert trees(dests) != before
    dests.do("halt")
    dests.do("image", "restore")
    assert trees(dests) == before
    dests.do("unseal", "20000", "20000")
    dests.do("started-observer")
    dests.do("uncut")
    dests.observing()
    dests.do("reopen")
    dests.do("disarm")
    for channel in dests.channels:
        assert lab.exec(channel.host, ["find", "/etc/systemd/system", "-name", "zkm-*"]).stdout == ""
        assert "ZKM" not in lab.exec(channel.host, ["iptables-save"]).stdout
        assert "ZKM" not in lab.exec(channel.host, ["ipset", "list", "-n"]).stdout


def test_the_lease_outlives_its_connections(lab: Lab, dests: DestHosts) -> None:
    dests.arm()
    dests.do("fence", "5000")
    dests.do("cut", "2000")
    dests.do("service", UNIT, "kill")
    dests.do("stopped")
    dests.reconnect()
    dests.wait("armed by themselves", "phase", "armed")
    for channel in dests.channels:
        seen = channel.status()
        assert (seen["lapsed"], seen["unit_state"], seen["fence_entries"]) == ("yes", "active", "0")
    dests.observing()


def test_the_hosts_finish_and_open_without_their_operator(lab: Lab, dests: DestHosts) -> None:
    dests.seal()
    dests.go(500)
    dests.reconnect()
    dests.wait("open by themselves", "phase", "open")
    lab.wait_for_quorum(Role.DEST)
    dests.do("finalize")
    dests.do("uninstall")
    for channel in dests.channels:
        left = lab.exec(channel.host, ["ls", zkm_host.INSTALLED_PATH, "/var/lib/zkmigrate"], check=False)
        assert left.stdout == ""
        assert unit_state(lab, channel.host) == "active"
