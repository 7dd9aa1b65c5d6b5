"""The load of a host by its counters: which disk and interface count; counters that wrap or begin anew."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from zkmigrate.hosts.facts.load import COMMAND, Counters, Disk, Load, load, parse, parse_metrics
from zkmigrate.runbook.model.fact import Seen, Unknown

UPTIME = "==> /proc/uptime <==\n1000.50 3000.00\n\n"
DISKS = """==> /proc/diskstats <==
   8       0 sda 1000 5 80000 4000 2000 9 160000 8000 0 9000 12000 0 0 0 0
   8       1 sda1 10 0 80 40 20 0 160 80 0 90 120
   8      16 sdb 7 7 7 7
 253       0 dm-0 300 0 2400 600 500 0 4000 1500 2 1700 2100 0 0 0 0 12 34

"""
MOUNTS = """==> /proc/self/mountinfo <==
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 8:0 / /data rw - xfs /dev/sda rw
31 30 253:0 /kafka /data/my\\040disk rw master:1 - xfs /dev/mapper/vg-kafka rw
32 22 0:45 / /net rw - nfs nas:/x rw

"""
NET = """==> /proc/net/dev <==
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 99 1 0 0 0 0 0 0 99 1 0 0 0 0 0 0
  eth0: 5000 1 0 0 0 0 0 0 700 1 0 0 0 0 0 0
  eth1:6000 1 0 0 0 0 0 0 800 1 0 0 0 0 0 0
 bond0: 11000 2 0 0 0 0 0 0 1500 2 0 0 0 0 0 0
bond0.7: 300 2 0 0 0 0 0 0 40 2 0 0 0 0 0 0
docker0: 77 2 0 0 0 0 0 0 88 2 0 0 0 0 0 0

"""  # noqa: E501 (as the kernel writes it)
ROUTES = """==> /proc/net/route <==
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
bond0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
bond0\t0000000A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
bond0.7\t0007000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0

"""
ROUTES6 = """==> /proc/net/ipv6_route <==
fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth1
fd000000000000000000000000000005 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000003 00000000 80200001       lo
"""  # noqa: E501
TEXT = UPTIME + DISKS + MOUNTS + NET + ROUTES + ROUTES6
SDA, LVM = Disk(3000, 12000.0, 9000.0), Disk(800, 2100.0, 1700.0)


def counters(text: str = TEXT, address: str = "10.0.1.5", dirs: tuple[str, ...] = ("/data/a",)) -> Counters:
    told = parse(text, address, dirs)
    assert isinstance(told, Seen), told
    return told.value


def why(told: object) -> str:
    assert isinstance(told, Unknown), told
    return told.why


def test_a_log_directory_counts_on_the_device_of_its_deepest_mount() -> None:
    assert counters().disks == {"8:0": SDA}
    assert counters(dirs=("/data/my disk/log",)).disks == {"253:0": LVM}
    assert counters(dirs=("/data/my disk/", "/data", "/data/b")).disks == {"253:0": LVM, "8:0": SDA}
    assert counters(dirs=("/datafile",)).disks == {"8:1": Disk(30, 120.0, 90.0)}


@pytest.mark.parametrize(
    ("address", "received", "sent"),
    [
        ("10.0.1.5", 11000, 1500),
        ("10.0.7.5", 300, 40),
        ("192.0.2.9", 11000, 1500),
        ("fd00::5", 6000, 800),
        ("broker1.example", 11000, 1500),
    ],
    ids=["bond", "vlan", "default", "IPv6", "name"],
)
def test_traffic_is_of_the_interface_that_has_the_address_and_not_of_its_members(
    address: str, received: int, sent: int
) -> None:
    found = counters(address=address)
    assert (found.received, found.sent) == (received, sent)


def test_named_interfaces_are_taken_instead_once_each() -> None:
    told = parse(TEXT, "10.0.1.5", ["/data"], ["eth0", "eth1", "eth0"])
    assert isinstance(told, Seen)
    assert (told.value.received, told.value.sent) == (11000, 1500)
    assert "/proc/net/dev has no interface eth9" in why(parse(TEXT, "", ["/data"], ["eth9"]))


@pytest.mark.parametrize(
    ("text", "dirs", "told"),
    [
        ("", ["/data"], "no /proc/uptime"),
        (TEXT.replace("/proc/diskstats", "/proc/else"), ["/data"], "no /proc/diskstats"),
        (TEXT.replace("5000 1", "many 1"), ["/data"], "cannot parse the counters"),
        (TEXT, ["/net/kafka"], "the volume of /net/kafka is on no disk of /proc/diskstats"),
        (TEXT.replace("8:0 /", "8:16 /"), ["/data"], "the volume of /data is on no disk"),
        (UPTIME + DISKS + MOUNTS + NET, ["/data"], "no route shows the interface of 10.0.1.5"),
        (TEXT.replace("1000.50 3000.00", "?"), ["/data"], "cannot parse the counters"),
    ],
    ids=["empty", "no diskstats", "no number", "NFS", "old partition line", "no routes", "no clock"],
)
def test_what_is_missing_or_odd_is_named(text: str, dirs: list[str], told: str) -> None:
    assert told in why(parse(text, "10.0.1.5", dirs))


def test_a_kernel_without_ipv6_has_one_file_less() -> None:
    assert counters(TEXT.removesuffix(ROUTES6)) == counters()


BEFORE = Counters(100.0, {"8:0": Disk(1000, 4000.0, 2000.0), "8:16": Disk(10, 50.0, 10.0)}, 1000, 2000)


def test_load_is_what_came_between_two_readings_of_the_busiest_and_the_slowest_disk() -> None:
    disks = {"8:0": Disk(1100, 4500.0, 7000.0), "8:16": Disk(20, 250.0, 20.0)}
    after = Counters(110.0, disks, 51_000, 102_000)
    assert load(BEFORE, after) == Seen(Load(5000.0, 10_000.0, busy=0.5, await_ms=20.0))


def test_a_quiet_host_has_no_load() -> None:
    assert load(BEFORE, replace(BEFORE, at=101.0)) == Seen(Load(0.0, 0.0, 0.0, 0.0))


def test_without_log_directories_only_the_network_counts() -> None:
    found = counters(TEXT.replace("8:0", "0:41"), dirs=())
    assert found.disks == {}
    after = replace(found, at=found.at + 10, sent=found.sent + 500)
    assert load(found, after) == Seen(Load(50.0, 0.0, busy=None, await_ms=None))


def test_a_counter_that_wraps_at_32_bits_goes_on() -> None:
    top = (1 << 32) - 1000
    before = replace(BEFORE, disks={"8:0": Disk(5, 10.0, float(top))}, sent=top)
    after = replace(BEFORE, at=110.0, disks={"8:0": Disk(15, 110.0, 1000.0)}, sent=4000)
    assert load(before, after) == Seen(Load(500.0, 0.0, busy=0.2, await_ms=10.0))


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (replace(BEFORE, at=50.0), "the host has restarted"),
        (replace(BEFORE, at=100.0), "received the same counters twice"),
        (replace(BEFORE, at=110.0, sent=10), "interface were reset"),
        (replace(BEFORE, at=110.0, received=10), "interface were reset"),
        (replace(BEFORE, at=110.0, disks={**BEFORE.disks, "8:0": Disk(0, 0.0, 0.0)}), "disk 8:0 were reset"),
        (replace(BEFORE, at=110.0, disks={"8:0": BEFORE.disks["8:0"]}), "moved to another device"),
    ],
    ids=["restart", "no time", "sent", "received", "disk", "device"],
)
def test_what_begins_anew_gives_no_figures(after: Counters, told: str) -> None:
    assert told in why(load(BEFORE, after))


def test_this_hosts_own_answer_is_understood() -> None:
    text = subprocess.run(COMMAND, capture_output=True, text=True, check=True).stdout
    told = parse(text, "127.0.0.1", [], ["lo"])
    assert isinstance(told, Seen), told
    assert told.value.at > 0
    assert told.value.sent == told.value.received


METRICS = """# HELP node_time_seconds System time in seconds since epoch (1970).
# TYPE node_time_seconds gauge
node_time_seconds 1.7e+09
node_boot_time_seconds 1.6e+09
# TYPE node_disk_io_time_seconds_total counter
node_disk_io_time_seconds_total{device="sda"} 9
node_disk_read_time_seconds_total{device="sda"} 4
node_disk_write_time_seconds_total{device="sda"} 8
node_disk_reads_completed_total{device="sda"} 1000
node_disk_writes_completed_total{device="sda"} 2000
node_network_receive_bytes_total{device="eth0"} 5.0e+03
node_network_receive_bytes_total{device="eth1"} 6.0e+03
node_network_transmit_bytes_total{device="eth0"} 700
node_network_transmit_bytes_total{device="eth1"} 800
"""


def test_node_exporter_tells_the_same() -> None:
    told = parse_metrics(METRICS, ["sda"], ["eth0", "eth1"])
    assert told == Seen(Counters(1e8, {"sda": SDA}, 1500, 11000))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (METRICS.replace('{device="sda"} 9', '{device="sdb"} 9'), "io_time_seconds_total of device sda"),
        (METRICS.replace("node_time_seconds 1", "else 1"), "no metric node_time_seconds"),
        (METRICS.replace("} 9", "} x"), "not Prometheus text"),
        (METRICS.replace("} 700", "} NaN"), "transmit_bytes_total is nan, which is not a counter"),
    ],
    ids=["device", "time", "garbled", "NaN"],
)  # fmt: skip
def test_metrics_without_a_figure_are_named(text: str, told: str) -> None:
    assert told in why(parse_metrics(text, ["sda"], ["eth0"]))
