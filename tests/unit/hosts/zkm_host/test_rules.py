"""zkm-host: fence, cut and their lease, with real rules, sets and sockets in namespaces."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.zkm_net import SYSTEM_PYTHON, Dest, Net, as_user, eventually, lying, net

ADDRESSES = ("10.77.0.1", "fd77::1")
SOURCES = ("10.77.0.5", "fd77::5")
ALL_TOP = {"in4": "top", "out4": "top", "in6": "top", "out6": "top"}
ALL_ABSENT = {"in4": "absent", "out4": "absent", "in6": "absent", "out6": "absent"}


@pytest.fixture
def dest(tmp_path: Path) -> Iterator[Dest]:
    with net() as made:
        yield Dest(tmp_path, made)


@pytest.fixture
def source(dest: Dest) -> None:
    """A source host that accepts and holds connections on ZooKeeper's three ports and on another."""
    code = (
        "import socket,selectors\n"
        "s=[socket.create_server(('::',p),family=socket.AF_INET6,dualstack_ipv6=True)\n"
        "   for p in (2181,2888,3888,8730)]\n"
        "print('up',flush=True)\n"
        "held=[]\nsel=selectors.DefaultSelector()\n"
        "for x in s: sel.register(x,1)\n"
        "while True: held+=[k.fileobj.accept() for k,_ in sel.select()]\n"
    )
    child = subprocess.Popen(
        dest.net.inside("source", "python3", "-c", code), stdout=subprocess.PIPE, text=True
    )
    dest.net.children.append(child)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"


def chains(dest: Dest) -> dict[str, str]:
    return {key: value for key, value in dest.status().items() if key in ALL_TOP}


def rules(made: Net) -> str:
    """Every rule of both families and every set on dest."""
    said = ""
    for argv in (["iptables", "-S"], ["ip6tables", "-S"], ["ipset", "list", "-n"]):
        said += subprocess.run(made.inside("dest", *argv), check=True, capture_output=True, text=True).stdout
    return said


def test_arm_puts_our_chains_first_and_lets_everything_through(dest: Dest, source: None) -> None:
    subprocess.run(dest.net.inside("dest", "iptables", "-A", "INPUT", "-j", "ACCEPT"), check=True)
    dest.armed()
    said = dest.status()
    assert 0 < int(said["phase_up_ms"]) / 1000 <= float(said["uptime_s"]), "a clock that is set moves it not"
    assert chains(dest) == ALL_TOP
    for address in ADDRESSES:
        assert dest.net.reaches("client", address) == "open"
    for address in SOURCES:
        assert dest.net.reaches("dest", address, 2888) == "open"


def test_disarm_leaves_rules_and_files_as_they_were(dest: Dest) -> None:
    subprocess.run(
        dest.net.inside("dest", "iptables", "-A", "INPUT", "-p", "icmp", "-j", "ACCEPT"), check=True
    )
    before, tree = rules(dest.net), dest.tree()
    dest.armed()
    dest.do("disarm")
    assert rules(dest.net) == before
    assert dest.tree() == tree
    assert not list(dest.data.glob(".zkm*"))
    assert not list(dest.log.glob(".zkm*"))
    seen = dest.status()
    assert chains(dest) == ALL_ABSENT
    assert (seen["phase"], seen["image"]) == ("idle", "none")


def test_arm_twice_leaves_one_jump(dest: Dest) -> None:
    dest.armed()
    once = rules(dest.net)
    dest.do("arm", dest.spec())
    assert rules(dest.net) == once


NOBODY = 65534
LOCAL = ("127.0.0.1", "::1", *ADDRESSES)


def test_fence_refuses_whoever_is_on_the_host_but_not_root(dest: Dest, source: None) -> None:
    """A broker beside dest would write between FENCE and CUT; root asks the host's own server."""
    dest.armed()
    clients = [dest.net.connect("dest", address, user=NOBODY) for address in LOCAL]
    java = dest.net.connect("dest", "::ffff:10.77.0.1", user=NOBODY)
    process(dest, "peer", "2181")
    to_peer = dest.net.connect("dest", "10.77.0.2", user=NOBODY)
    kept = [dest.net.connect("dest", address) for address in (*LOCAL, "10.77.0.2")]
    assert dest.status()["client_sockets"] == "6"
    assert dest.do("fence", "600000").startswith("killed=6 left=0")
    for client in (*clients, java):
        assert client.wait(60) != 0
    for address in LOCAL:
        assert dest.net.reaches("dest", address, user=NOBODY) == "ConnectionRefusedError"
        assert dest.net.reaches("dest", address) == "open"
    assert to_peer.wait(60) != 0
    assert dest.net.reaches("dest", "10.77.0.2", user=NOBODY) == "ConnectionRefusedError"
    assert dest.net.reaches("dest", "10.77.0.2") == "open"
    assert dest.net.reaches("dest", "10.77.0.5", 2888, user=NOBODY) == "open"
    assert [child.poll() for child in kept] == [None] * 5
    assert dest.status()["client_sockets"] == "0"
    assert "mode=observer" in dest.call("drain").text
    dest.do("reopen")
    for address in (*LOCAL, "10.77.0.2"):
        assert dest.net.reaches("dest", address, user=NOBODY) == "open"


def test_a_broker_beside_dest_keeps_source_while_dest_is_rehearsed(dest: Dest, source: None) -> None:
    dest.armed(cut="zookeeper", cut_ports="2888,3888")
    broker = dest.net.connect("dest", SOURCES[0], 2181, user=NOBODY)
    dest.do("fence", "60000")
    dest.do("cut", "60000")
    assert broker.poll() is None
    assert dest.net.reaches("dest", SOURCES[0], 2181, user=NOBODY) == "open"
    assert dest.net.reaches("dest", ADDRESSES[0], user=NOBODY) == "ConnectionRefusedError"
    assert dest.status()["source_sockets"] == "0"
    for port in (2888, 3888):
        assert dest.net.reaches("dest", SOURCES[0], port) == "ConnectionRefusedError"


def test_more_local_clients_than_one_filter_names_are_all_ended(dest: Dest) -> None:
    dest.armed()
    held = " ".join(["10.77.0.1/2181"] * 70).split()
    many = process(dest, "dest", "8731", *held, user=NOBODY)
    assert dest.status()["client_sockets"] == "70"
    assert dest.do("fence", "600000").startswith("killed=70 left=0")
    assert dest.status()["client_sockets"] == "0"
    many.kill()


def test_local_clients_that_come_back_without_end_make_the_fence_fail(dest: Dest) -> None:
    dest.armed()
    again = "ESTAB 0 0 127.0.0.1:5 127.0.0.1:2181 uid:65534 ino:1 sk:1 <->"
    lying(
        dest,
        ss=f"#!/bin/sh\ncase $1 in -Hnte) echo '{again}' ;; *) exec {dest.folder}/real-ss \"$@\" ;; esac\n",
    )
    assert "1 client sockets stay open" in dest.refused("fence", "600000", rc=5)


def test_facts_say_what_the_kernel_does_not_take_and_leave_no_rule(dest: Dest) -> None:
    """The rules are tried in a network namespace of its own."""
    before = rules(dest.net)
    assert "rules=yes" in dest.call("facts", "--rules", "-").lines()
    assert rules(dest.net) == before
    lying(dest, **{"iptables-restore": "#!/bin/sh\necho 'no owner here' >&2\nexit 2\n"})
    assert "rules=no no owner here" in dest.call("facts", "--rules", "-").lines()
    # As iptables-nft says it, with the exit code that it also has for a lock held by others.
    missing = "Warning: Extension owner revision 0 not supported, missing kernel module?"
    lying(dest, **{"iptables-restore": f"#!/bin/sh\necho '{missing}' >&2\nexit 4\n"})
    assert f"rules=no {missing}" in dest.call("facts", "--rules", "-").lines()
    held = "Another app is currently holding the xtables lock"
    lying(dest, **{"iptables-restore": f"#!/bin/sh\necho '{held}' >&2\nexit 4\n"})
    assert "rules=unknown" in dest.call("facts", "--rules", "-").lines()
    assert rules(dest.net) == before


def test_facts_do_not_know_about_rules_where_they_cannot_be_tried(dest: Dest) -> None:
    lying(dest, unshare="#!/bin/sh\nexit 1\n")
    assert "rules=unknown" in dest.call("facts", "--rules", "-").lines()


def test_fence_ends_clients_and_refuses_new_ones_but_not_operator_peers_and_root(dest: Dest) -> None:
    dest.armed()
    clients = [dest.net.connect("client", address) for address in ADDRESSES]
    kept = [dest.net.connect(name, "10.77.0.1") for name in ("operator", "peer", "dest")]
    kept.append(dest.net.connect("operator", "fd77::1"))
    assert dest.status()["client_sockets"] == "2"
    assert dest.do("fence", "600000").startswith("killed=2 left=0")
    for client in clients:
        assert client.wait(60) != 0
    for address in ADDRESSES:
        assert dest.net.reaches("client", address) == "ConnectionRefusedError"
    for name in ("operator", "peer", "dest"):
        assert dest.net.reaches(name, "10.77.0.1") == "open"
    assert [child.poll() for child in kept] == [None] * 4
    seen = dest.status()
    assert (seen["phase"], seen["fence_entries"], seen["client_sockets"]) == ("fenced", "4", "0")
    assert 500 <= int(seen["fence_timeout_s"]) <= 600
    dest.do("reopen")
    for address in ADDRESSES:
        assert dest.net.reaches("client", address) == "open"
    assert dest.phase() == "armed"


def test_fence_covers_the_port_with_tls_too(dest: Dest) -> None:
    dest.armed(client_ports="2181,2281")
    clients = [dest.net.connect("client", "10.77.0.1", port) for port in (2181, 2281)]
    assert dest.status()["client_sockets"] == "2"
    assert dest.do("fence", "600000").startswith("killed=2 left=0")
    for client in clients:
        assert client.wait(60) != 0
    for port in (2181, 2281):
        assert dest.net.reaches("client", "10.77.0.1", port) == "ConnectionRefusedError"
        assert dest.net.reaches("peer", "10.77.0.1", port) == "open"


def test_the_kernel_reopens_by_itself_when_nobody_renews(dest: Dest) -> None:
    dest.armed()
    assert "timeout_s=11" in dest.do("fence", "10001")
    assert dest.net.reaches("client", "10.77.0.1") == "ConnectionRefusedError"
    eventually("the door is open", lambda: dest.net.reaches("client", "10.77.0.1") == "open")
    late = dest.call("renew", "5000", "5000")
    assert late.rc == 3
    assert late.lines()[0] == "lapsed"
    assert dest.status()["fence_entries"] == "0"
    assert "the fence lapsed" in dest.refused("cut", "5000")


def test_renew_keeps_the_fence_shut_past_its_first_timeout(dest: Dest) -> None:
    dest.armed()
    dest.do("fence", "30000")
    assert dest.call("renew", "60000", "60000").text == "renewed fence=60\n"
    assert 55 <= int(dest.status()["fence_timeout_s"]) <= 60
    assert dest.status()["cut_entries"] == "0"


def test_renew_puts_back_no_entry_that_somebody_removed(dest: Dest) -> None:
    dest.armed()
    dest.do("fence", "60000")
    name = f"ZKM-{dest.status()['tag']}-fence6"
    subprocess.run(dest.net.inside("dest", "ipset", "del", name, "::/1"), check=True)
    assert dest.call("renew", "60000", "60000").rc == 3
    assert dest.status()["fence_entries"] == "3"


def test_cut_ends_connections_both_ways_and_probes_are_refused(dest: Dest, source: None) -> None:
    dest.armed()
    held = [dest.net.connect("dest", address, port) for address in SOURCES for port in (2888, 3888)]
    inward = dest.net.connect("source", "10.77.0.1", 2181)
    dest.do("fence", "60000")
    assert inward.wait(5) != 0
    assert set(dest.call("probe").lines()) == {
        f"probe {address} {port} open" for address in SOURCES for port in (2181, 2888, 3888)
    }
    assert dest.status()["source_sockets"] == "4"
    said = dest.do("cut", "60000").splitlines()
    assert said[0].endswith(" left=0 timeout_s=60")
    assert set(said[1:]) == {
        f"probe {address} {port} refused" for address in SOURCES for port in (2181, 2888, 3888)
    }
    for child in held:
        assert child.wait(5) != 0
    assert dest.net.reaches("source", "10.77.0.1") == "ConnectionRefusedError"
    assert dest.net.reaches("dest", "fd77::5", 2888) == "ConnectionRefusedError"
    seen = dest.status()
    assert (seen["phase"], seen["cut_entries"], seen["source_sockets"]) == ("cut", "2", "0")
    assert seen["lease"] == "running"
    dest.do("uncut")
    assert dest.phase() == "fenced"
    for address in SOURCES:
        assert dest.net.reaches("dest", address, 2888) == "open"


ZOOKEEPER = {"cut": "zookeeper", "cut_ports": "2181,2888,3888"}
LISTEN = (
    "import socket,sys\n"
    "s=[socket.create_server(('::',int(p)),family=socket.AF_INET6,dualstack_ipv6=True)\n"
    "   for p in sys.argv[1].split(',')]\n"
    "held=[socket.create_connection((a,int(p))) for a,p in (x.split('/') for x in sys.argv[2:])]\n"
    "print('up',flush=True)\n"
    "while True: held.append(s[0].accept())\n"
)
"""Listens on ports and holds connections, all in one process; takes what comes on the first port."""


def process(dest: Dest, name: str, ports: str, *held: str, user: int = 0) -> subprocess.Popen[str]:
    argv = dest.net.inside(name, *as_user(user), SYSTEM_PYTHON, "-c", LISTEN, ports, *held)
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    dest.net.children.append(child)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    return child


def test_a_cut_of_zookeepers_ports_ends_them_both_ways_and_nothing_else(dest: Dest, source: None) -> None:
    dest.armed(**ZOOKEEPER)
    process(dest, "dest", "8731,3888")
    ended = [dest.net.connect("dest", address, port) for address in SOURCES for port in (2888, 3888)]
    ended += [dest.net.connect("source", address, 3888) for address in ADDRESSES]
    kept = [dest.net.connect("dest", address, 8730) for address in SOURCES]
    kept += [dest.net.connect("source", address, 8731) for address in ADDRESSES]
    dest.do("fence", "60000")
    assert dest.status()["source_sockets"] == "6"
    said = dest.do("cut", "60000").splitlines()
    assert said[0] == "killed=6 left=0 timeout_s=60"
    assert set(said[1:]) == {
        f"probe {address} {port} refused" for address in SOURCES for port in (2181, 2888, 3888)
    }
    for child in ended:
        assert child.wait(5) != 0
    assert [child.poll() for child in kept] == [None] * 4
    for address in SOURCES:
        assert dest.net.reaches("dest", address, 8730) == "open"
        for port in (2181, 2888, 3888):
            assert dest.net.reaches("dest", address, port) == "ConnectionRefusedError"
    for address in ADDRESSES:
        assert dest.net.reaches("source", address, 8731) == "open"
        assert dest.net.reaches("source", address, 3888) == "ConnectionRefusedError"
    assert dest.status()["source_sockets"] == "0"
    assert chains(dest) == ALL_TOP


def test_a_client_on_sources_machine_is_fenced_until_open_and_the_cut_stays(dest: Dest, source: None) -> None:
    """A broker there uses dest's client port, which has the number of source's own."""
    dest.armed(**ZOOKEEPER)
    before = [dest.net.connect("source", address) for address in ADDRESSES]
    assert dest.status()["source_sockets"] == "0"
    dest.do("fence", "600000")
    for client in before:
        assert client.wait(60) != 0
    dest.do("cut", "600000")
    for address in ADDRESSES:
        assert dest.net.reaches("source", address) == "ConnectionRefusedError"
    dest.do("service", "zookeeper", "kill")
    dest.do("stopped")
    dest.seal()
    dest.go()
    eventually("the participant serves", lambda: dest.phase() == "started")
    assert dest.net.reaches("source", ADDRESSES[0]) == "ConnectionRefusedError"
    dest.do("open")
    after = [dest.net.connect("source", address) for address in ADDRESSES]
    process(dest, "dest", "2888,3888")
    for port in (2181, 2888, 3888):
        for address in SOURCES:
            assert dest.net.reaches("dest", address, port) == "ConnectionRefusedError"
    for port in (2888, 3888):
        for address in ADDRESSES:
            assert dest.net.reaches("source", address, port) == "ConnectionRefusedError"
    assert set(dest.call("probe").lines()) == {
        f"probe {address} {port} refused" for address in SOURCES for port in (2181, 2888, 3888)
    }
    assert dest.status()["source_sockets"] == "0"
    assert [child.poll() for child in after] == [None] * 2


@pytest.mark.parametrize("address", SOURCES)
def test_a_connection_of_zookeeper_on_a_port_that_no_config_tells_is_no_cut(
    dest: Dest, source: None, address: str
) -> None:
    dest.armed(**ZOOKEEPER | {"client_ports": "2182", "cut_ports": "2182,2888,3888"})
    dest.net.connect("dest", SOURCES[0], 8730)
    dest.do("fence", "60000")
    dest.do("cut", "60000")
    dest.do("uncut")
    process(dest, "dest", "2182", f"{address}/8730")
    assert f"probe {address} 8730 open" in dest.call("probe").lines()
    assert "source still answers" in dest.refused("cut", "60000", rc=5)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"cut_ports": "2181,2888"}, "lacks ZooKeeper's own port 3888"),
        (
            {"cut_ports": "2181,2888,3888," + ",".join(map(str, range(9000, 9013)))},
            "at most 15 ports, seen 16",
        ),
        ({"cut": "some"}, "cut needs zookeeper or all"),
        ({"cut_ports": "2181,2888,3888,70000"}, "bad port '70000'"),
    ],
)
def test_a_cut_that_could_not_be_made_is_refused_by_arm(dest: Dest, wrong: dict[str, str], told: str) -> None:
    dest.stage()
    assert told in dest.refused("arm", dest.spec(**ZOOKEEPER | wrong), rc=2)


def test_sshd_is_never_fenced_or_cut(dest: Dest) -> None:
    code = (
        "import socket\ns=socket.create_server(('::',22),family=socket.AF_INET6,dualstack_ipv6=True)\n"
        "print('up',flush=True)\nheld=[]\nwhile True: held.append(s.accept())\n"
    )
    child = subprocess.Popen(
        dest.net.inside("dest", "python3", "-c", code), stdout=subprocess.PIPE, text=True
    )
    dest.net.children.append(child)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    dest.armed()
    session = dest.net.connect("source", "10.77.0.1", 22)
    dest.do("fence", "60000")
    dest.do("cut", "60000")
    for address in ADDRESSES:
        assert dest.net.reaches("source", address, 22) == "open"
        assert dest.net.reaches("client", address, 22) == "open"
    assert session.poll() is None


def last_renewal(dest: Dest) -> None:
    """The lease is renewed for one more second; whatever has to come before its end comes before this."""
    assert dest.call("renew", "60000", "1000").text == "renewed fence=60 cut=1\n"


def test_the_lease_makes_an_observer_again_when_the_operator_is_gone(dest: Dest, source: None) -> None:
    dest.stopped()
    last_renewal(dest)
    eventually("armed again", lambda: dest.phase() == "armed")
    seen = dest.status()
    assert (seen["lapsed"], seen["fence_entries"], seen["cut_entries"]) == ("yes", "0", "0")
    assert seen["unit_state"] == "active"
    assert "Mode: observer" in dest.call("word", "2181", "srvr").text
    assert dest.net.reaches("client", "10.77.0.1") == "open"
    assert dest.net.reaches("dest", "10.77.0.5", 2888) == "open"
    stamp = dest.call("stamp").values()
    assert "seal" in dest.refused("seal", stamp["boot_id"], stamp["stamp"])


def test_a_host_that_lapsed_before_it_was_recorded_stopped_starts_its_observer(dest: Dest) -> None:
    dest.cut_off()
    dest.do("service", "zookeeper", "kill")
    last_renewal(dest)
    eventually("lapsed", lambda: dest.status()["lapsed"] == "yes")
    assert dest.call("stopped", "too-late").rc == 3
    eventually("armed again", lambda: dest.phase() == "armed")
    assert dest.status()["unit_state"] == "active"


def test_the_lease_notices_rules_that_somebody_flushed(dest: Dest) -> None:
    dest.cut_off()
    tag = dest.status()["tag"]
    subprocess.run(dest.net.inside("dest", "ipset", "flush", f"ZKM-{tag}-cut4"), check=True)
    eventually("armed again", lambda: dest.phase() == "armed")
    assert dest.status()["lapsed"] == "yes"


def test_a_new_fence_after_a_lapse_begins_anew(dest: Dest) -> None:
    dest.cut_off()
    last_renewal(dest)
    eventually("armed again", lambda: dest.phase() == "armed")
    dest.do("fence", "60000")
    assert dest.status()["lapsed"] == "no"
    dest.do("cut", "60000")
    dest.do("service", "zookeeper", "kill")
    dest.do("stopped")
    dest.seal()
    assert dest.phase() == "sealed"


def test_drain_tells_outstanding_zxid_and_mode(dest: Dest) -> None:
    dest.armed()
    assert dest.call("drain").text == "outstanding=0 zxid=0x100000007 mode=observer\n"
    dest.do("service", "zookeeper", "kill")
    assert dest.call("drain").text == "unserving\n"


def test_drain_asks_the_admin_server_where_clients_need_tls(dest: Dest) -> None:
    """The port with TLS answers no word in plain text."""
    dest.armed(client_ports="2281", admin_port="8080")
    assert dest.call("drain").text == "outstanding=0 zxid=0x100000007 mode=observer\n"
    dest.do("service", "zookeeper", "kill")
    assert dest.call("drain").text == "unserving\n"


@pytest.mark.parametrize("ports", ["", "2181,2182,2183", "2181,x", "70000"])
def test_arm_refuses_wrong_client_ports(dest: Dest, ports: str) -> None:
    dest.stage()
    assert "port" in dest.refused("arm", dest.spec(client_ports=ports), rc=2)


def test_reach_tells_open_from_refused_and_unreachable(dest: Dest) -> None:
    dest.serve()
    told = dest.call("reach", "10.77.0.1:2181,fd77::1:2182,192.0.2.1:2181")
    assert told.lines() == [
        "probe 10.77.0.1 2181 open", "probe 192.0.2.1 2181 unreachable", "probe fd77::1 2182 refused",
    ]  # fmt: skip
    assert dest.call("reach", "zk.example:2181").rc == 2


def test_surroundings_tell_who_listens_and_in_which_namespace(dest: Dest) -> None:
    dest.serve()
    told = dict(line.split("=", 1) for line in dest.call("surroundings", "-", "2181").lines())
    pid, netns, _name = told["listener"].split(" ")
    assert netns == told["netns"] == str(Path(f"/proc/{pid}/ns/net").readlink())
    assert netns != str(Path("/proc/self/ns/net").readlink()), "the host has a namespace of its own"
    assert told["user"] == "0"
    process(dest, "dest", "8731", user=NOBODY)
    assert f"user={NOBODY}" in dest.call("surroundings", "-", "8731").lines()
    quiet = dest.call("surroundings", "-", "2182").lines()
    assert not [line for line in quiet if line.startswith("listener=")]


def test_surroundings_name_an_agent_that_runs(dest: Dest, tmp_path: Path) -> None:
    """By an argument that is its name or path, not by a text that holds the name."""
    agent = tmp_path / "puppet"
    agent.write_text("#!/bin/sh\necho up\nread -r line\n")
    agent.chmod(0o755)
    for argv in ([str(agent), "agent"], ["sh", "-c", "echo up; read -r puppet_line"]):
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        dest.net.children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        keepers = [line for line in dest.call("surroundings", "-", "2181").lines() if str(child.pid) in line]
        assert keepers == ([f"keeper=process {child.pid} puppet"] if argv[0] == str(agent) else [])


def test_a_changed_or_displaced_chain_is_seen(dest: Dest) -> None:
    dest.armed()
    tag = dest.status()["tag"]
    subprocess.run(dest.net.inside("dest", "iptables", "-I", "INPUT", "-j", "ACCEPT"), check=True)
    subprocess.run(dest.net.inside("dest", "ip6tables", "-D", f"ZKM-{tag}-OUT", "1"), check=True)
    assert chains(dest) == {"in4": "present", "out4": "top", "in6": "changed", "out6": "changed"}
    subprocess.run(dest.net.inside("dest", "iptables", "-D", "OUTPUT", "1"), check=True)
    assert chains(dest)["out4"] == "absent"
    dest.do("arm", dest.spec())
    assert chains(dest) == ALL_TOP


def test_uncut_writes_changed_rules_again_so_that_the_host_can_be_asked(dest: Dest) -> None:
    """Without the rule for loopback the fence refuses the host's own question whether it serves."""
    dest.armed()
    tag = dest.status()["tag"]
    dest.do("fence", "60000")
    before = rules(dest.net)
    dest.do("cut", "60000")
    lost = ("-D", f"ZKM-{tag}-IN", "-i", "lo", "-j", "RETURN")
    subprocess.run(dest.net.inside("dest", "iptables", *lost), check=True)
    assert (chains(dest)["in4"], chains(dest)["in6"]) == ("changed", "top")
    dest.do("uncut")
    assert chains(dest) == ALL_TOP
    assert rules(dest.net) == before
    assert dest.status()["phase"] == "fenced"


def test_uncut_does_not_put_back_rules_that_were_flushed_on_purpose(dest: Dest) -> None:
    dest.armed()
    dest.do("fence", "60000")
    dest.do("cut", "60000")
    subprocess.run(dest.net.inside("dest", "iptables", "-F", "INPUT"), check=True)
    assert chains(dest)["in4"] == "absent"
    dest.do("uncut")
    assert chains(dest)["in4"] == "absent"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": ""}, "source is empty"),
        ({"source": "0.0.0.0/0"}, "whole address family"),
        ({"source": "10.77.0.5/24"}, "single addresses"),
        ({"operator": "somewhere"}, "IPv4 or IPv6"),
        ({"client_ports": "70000"}, "bad port"),
        ({"data_dir": "data"}, "absolute path"),
        ({"config_path": "/etc/../zoo.cfg"}, "not allowed"),
        ({"rehearsal": "maybe"}, "yes or no"),
        ({"surprise": "1"}, "unknown key 'surprise'"),
        ({"dynamic_glob": "/x;reboot"}, "not allowed"),
    ],
)
def test_arm_refuses_a_wrong_spec_before_it_acts(dest: Dest, changed: dict[str, str], message: str) -> None:
    dest.stage()
    before = rules(dest.net)
    assert message in dest.refused("arm", dest.spec(**changed), rc=2)
    assert rules(dest.net) == before
    assert dest.phase() == "idle"


def test_arm_needs_the_staged_configs(dest: Dest) -> None:
    assert "staged/reform.cfg" in dest.refused("arm", dest.spec())


def test_print_of_arm_and_fence_shows_the_commands_and_changes_no_rule(dest: Dest) -> None:
    dest.armed()
    before = rules(dest.net)
    said = dest.call("fence", "p", "5000", options=("--print",)).text
    assert "ipset restore" in said
    assert "0.0.0.0/1 timeout 5" in said
    assert "ss -K" in said
    said = dest.call("disarm", "q", options=("--print",)).text
    assert "iptables -w 5 -D INPUT" in said
    assert rules(dest.net) == before
    assert dest.phase() == "armed"
