"""Facts: what hosts and servers say, as typed values; and what is unknown stays unknown."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.preflight_world import (
    FACTS,
    STATUS,
    TIMEOUT,
    WHITELIST,
    WORDS,
    PreflightWorld,
    cons,
    file_entry,
    healthy,
    inventory,
    recorded,
)
from zkmigrate import java_properties
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.facts import keyvalue
from zkmigrate.hosts.facts.properties import properties_of, system_properties
from zkmigrate.hosts.facts.runs import StaysForOthers, other_runs, own_program
from zkmigrate.hosts.facts.sockets import Socket, parse_sockets
from zkmigrate.hosts.facts.status import (
    Drain,
    HostStatus,
    WrittenFile,
    drain,
    host_facts,
    host_status,
    parse_facts,
    parse_status,
    probe,
    stamp,
    unit_status,
)
from zkmigrate.inventory.inventory import Service
from zkmigrate.kafka.facts.cluster import Controller, cluster_id, controller
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.connections import connections, source_clients
from zkmigrate.move.facts.dest import DataState, data_state
from zkmigrate.move.facts.sessions import owning_sessions
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.zxid import Zxid
from zkmigrate.zookeeper.facts.config import parse, zoo_config
from zkmigrate.zookeeper.facts.ensemble import leader_mntr, learners, source_view
from zkmigrate.zookeeper.facts.members import Members, members, source_members
from zkmigrate.zookeeper.questions import Znode

VERSIONS = ("3.4.14", "3.5.8", "3.6.4", "3.8.4", "3.9.3")


def _world(**programs: str) -> PreflightWorld:
    """A world whose host ``h`` answers these verbs."""
    return PreflightWorld(programs={("h", verb): Seen(text) for verb, text in programs.items()})


def _unknown(reading: Reading[object], cause: str, why: str) -> None:
    assert isinstance(reading, Unknown)
    assert reading.cause == cause
    assert why in reading.why


# ---- key=value -----------------------------------------------------------------------------------------


def test_keyvalue() -> None:
    assert keyvalue.parse("a=1\nb.c-d_e= x = y\n") == {"a": "1", "b.c-d_e": " x = y"}
    assert keyvalue.words("a=1 b=2\n") == {"a": "1", "b": "2"}
    for wrong in ("a", "=1", "A=1", "a=1\na=2"):
        with pytest.raises(ValueError, match=r"line 1|twice"):
            keyvalue.parse(wrong)


# ---- zkm-host ------------------------------------------------------------------------------------------


def _status(text: str = STATUS) -> HostStatus:
    reading = host_status(_world(status=text), "h")
    assert isinstance(reading, Seen), reading
    return reading.value


def test_status_of_a_host_at_rest() -> None:
    status = _status()
    assert (status.phase, status.run, status.uptime_s, status.phase_since) == ("idle", "r1", 100.0, 0.0)
    assert (status.client_sockets, status.fence_timeout_s, status.fence_permanent) == (None, None, False)
    assert (status.missing, status.finisher, status.finisher_note, status.image) == ((), "none", "", "none")
    assert status.rest["lease"] == "none"
    assert not status.rules_on_top


def test_status_under_a_lease() -> None:
    text = STATUS.replace("phase=idle\nphase_since=0", "phase=cut\nphase_since=990")
    for chain in ("in4", "out4", "in6", "out6"):
        text = text.replace(f"{chain}=absent", f"{chain}=top")
    text = text.replace("fence_timeout_s=-", "fence_timeout_s=4").replace(
        "cut_timeout_s=-", "cut_timeout_s=permanent"
    )
    text = text.replace("client_sockets=-", "client_sockets=3").replace("unit_since=-", "unit_since=95500000")
    text = text.replace("finisher=none ", "finisher=failed place reached, then died").replace(
        "tools_missing=", "tools_missing=nc,ss"
    )
    status = _status(text)
    # Ten seconds ago by the host's clock, so at 90 of its 100 s of uptime.
    assert (status.phase, status.phase_since, status.unit_since) == ("cut", 90.0, 95.5)
    assert (status.fence_timeout_s, status.cut_permanent, status.client_sockets) == (4.0, True, 3)
    assert (status.finisher, status.finisher_note) == ("failed", "place reached, then died")
    assert status.missing == ("nc", "ss")
    assert status.rules_on_top


@pytest.mark.parametrize("clock", ["940.000", "1000.000", "4600.000"])
def test_a_clock_that_was_set_moves_no_phase_on_the_boots_clock(clock: str) -> None:
    text = STATUS.replace("phase=idle\nphase_since=0", "phase=cut\nphase_since=990\nphase_up_ms=90000")
    assert _status(text.replace("time=1000.000", f"time={clock}")).phase_since == 90.0


def test_the_file_that_was_written_last_is_dated_on_the_boots_clock() -> None:
    text = STATUS + "written=5a4e6b0c 95010 990.000000001 /etc/kafka/server.properties\n"
    written = WrittenFile("5a4e6b0c", 95.01, 990_000_000_001, "/etc/kafka/server.properties")
    assert _status(text).written == written
    assert _status().written is None
    _unknown(host_status(_world(status=STATUS + "written=then\n"), "h"), "garbled", "written='then'")


@pytest.mark.parametrize(
    ("in6", "out6", "on_top"),
    [("top", "top", True), ("noipv6", "noipv6", True), ("noipv6", "top", False), ("changed", "top", False)],
)
def test_rules_are_on_top_in_every_version_that_the_host_has(in6: str, out6: str, on_top: bool) -> None:
    text = STATUS.replace("in4=absent\nout4=absent", "in4=top\nout4=top")
    text = text.replace("in6=absent", f"in6={in6}").replace("out6=absent", f"out6={out6}")
    assert _status(text).rules_on_top is on_top


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("phase=idle", "phase=unreadable", "phase='unreadable' is none of"),
        ("boot_id=", "boot=", "no boot_id"),
        ("fence_entries=0", "fence_entries=two", "is not a whole number"),
        ("lapsed=no", "lapsed=maybe", "is none of yes, no"),
        ("in4=absent", "in4=gone", "in4='gone' is none of"),
        ("uptime_s=100.000", "uptime_s=-1", "is not a number of seconds"),
        ("version=1", "sudo: a password is required", "is not key=value"),
        ("fencing=0", "fencing=0\nfencing=1", "occurs twice"),
    ],
)
def test_a_status_that_does_not_parse_is_unknown(old: str, new: str, why: str) -> None:
    assert old in STATUS
    _unknown(host_status(_world(status=STATUS.replace(old, new)), "h"), "garbled", why)


def test_what_zkm_host_really_prints_is_understood(tmp_path: Path) -> None:
    program = tmp_path / "zkm-host"
    program.write_bytes(zkm_host.program())

    def say(*words: str) -> str:
        argv = ["sh", str(program), "--run", "r1", *words]
        env = {**os.environ, "ZKM_STATE": str(tmp_path / "state")}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60).stdout

    status = parse_status(say("status"))
    assert (status.phase, status.run, status.image) == ("idle", "r1", "none")
    assert status.uptime_s > 0
    unit = parse_status(say("status", "zkmigrate-no-such.service"))
    assert unit.unit_pid == 0
    facts = parse_facts(say("facts", "-", str(tmp_path), f"{tmp_path}/absent"))
    assert (facts.disk_free[str(tmp_path)] or 0) > 0
    assert facts.disk_free[f"{tmp_path}/absent"] is None
    assert facts.root is (os.geteuid() == 0)
    assert "127.0.0.1" in facts.addresses


def test_unit_status_names_the_unit() -> None:
    world = _world(status=STATUS.replace("unit_state=inactive", "unit_state=active"))
    reading = unit_status(world, "h", "kafka.service")
    assert isinstance(reading, Seen)
    assert reading.value.unit_state == "active"
    unit_status(world, "h", "kafka", ("start=/bin/k start", "ports=9092"))
    words = ("start=L2Jpbi9rIHN0YXJ0", "ports=9092")
    assert world.asked == [("zkm", "h", "status", "kafka.service"), ("zkm", "h", "status", "kafka", *words)]


def test_facts_of_a_host() -> None:
    reading = host_facts(
        _world(facts=FACTS.replace("tool.nc=present", "tool.nc=missing")), "h", "zk.service", "/d"
    )
    assert isinstance(reading, Seen)
    facts = reading.value
    assert facts.missing == ("nc",)
    assert facts.tools["iptables"] == "iptables v1.8.9 (nf_tables)"
    assert facts.addresses == ("127.0.0.1", "10.71.0.21")
    assert facts.disk_free == {"/var/lib/zookeeper": 1 << 30}
    assert (facts.root, facts.socket_kill, facts.clock) == (True, True, 1000.25)
    assert facts.unit == {"LoadState": "loaded", "ActiveState": "inactive"}


@pytest.mark.parametrize(
    "text", ["", "nonsense", FACTS.replace("uid=0", "uid=root"), FACTS.replace("time=", "when=")]
)
def test_facts_that_do_not_parse_are_unknown(text: str) -> None:
    assert isinstance(host_facts(_world(facts=text), "h", "-"), Unknown)


def test_drain() -> None:
    said = _world(drain="outstanding=3 zxid=0x10000002a mode=observer\n")
    assert drain(said, "h") == Seen(Drain(3, Zxid(0x10000002A), "observer"))
    assert isinstance(drain(_world(drain="unserving\n"), "h"), Absent)
    _unknown(drain(_world(drain="outstanding=3 mode=observer\n"), "h"), "garbled", "no zxid")
    _unknown(drain(_world(drain="outstanding=3 zxid=0xzz mode=observer\n"), "h"), "garbled", "not a zxid")
    assert drain(PreflightWorld(programs={("h", "drain"): TIMEOUT}), "h") == TIMEOUT


def test_probe() -> None:
    text = "probe 10.0.0.1 2181 refused\nprobe fd00::1 3888 open\n"
    assert probe(_world(probe=text), "h") == Seen({"10.0.0.1:2181": "refused", "fd00::1:3888": "open"})
    _unknown(probe(_world(probe="probe 10.0.0.1 2181 maybe\n"), "h"), "garbled", "not a probe")


def test_stamp() -> None:
    digest = "ab" * 32
    assert stamp(_world(stamp=f"stamp={digest}\nboot_id=x\n"), "h") == Seen(digest)
    _unknown(stamp(_world(stamp="stamp=\nboot_id=x\n"), "h"), "garbled", "not a SHA-256")


@given(st.text(max_size=80))
def test_no_answer_of_a_host_breaks_a_fact(text: str) -> None:
    world = _world(status=text, facts=text, probe=text, stamp=text, drain=text)
    facts = (host_status, lambda look, host: host_facts(look, host, "-"), probe, stamp, drain)
    for fact in facts:
        reading: Reading[object] = fact(world, "h")
        assert isinstance(reading, Seen | Absent | Unknown)


# ---- ensembles, clients, sessions ------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_an_ensemble_of_each_version(version: str) -> None:
    world = PreflightWorld()
    for host, role in (("source1", "follower"), ("source2", "leader"), ("source3", "follower")):
        for word in ("srvr", "mntr"):
            world.words[host, word] = Seen(
                (WORDS.parent.parent / version / "words" / f"{role}.{word}").read_text()
            )
    view = source_view(inventory(), world)
    assert view.leader == "source2"
    assert view.modes() == {"source1": "follower", "source2": "leader", "source3": "follower"}
    assert len(set(view.zxids().values())) == 1
    mntr = leader_mntr(world, "source2")
    assert isinstance(mntr, Seen)
    # Two followers in sync, and an observer that counts as a learner only.
    assert (mntr.value.synced_followers, mntr.value.learners) == (2, 3)
    assert learners(mntr) == 1
    assert learners(TIMEOUT) is None
    follower = leader_mntr(world, "source1")
    assert isinstance(follower, Seen)
    assert (follower.value.synced_followers, follower.value.learners) == (None, None)
    assert learners(follower) is None
    assert (
        learners(Seen(replace(mntr.value, values={**mntr.value.values, "zk_synced_followers": "NaN"})))
        is None
    )


def test_a_host_that_does_not_serve_is_told_from_one_that_does_not_answer() -> None:
    world = healthy()
    world.words["source1", "srvr"] = Seen(recorded("unserving.srvr"))
    world.words["source3", "srvr"] = Seen("srvr" + WHITELIST)
    view = source_view(inventory(), world)
    assert view.modes()["source1"] == "not serving"
    _unknown(view.servers["source3"], "denied", "whitelist")
    world.words["source3", "srvr"] = Seen("")
    _unknown(source_view(inventory(), world).servers["source3"], "garbled", "empty")


def test_two_leaders_are_none() -> None:
    world = healthy()
    world.words["source1", "srvr"] = world.words["source2", "srvr"]
    assert source_view(inventory(), world).leader is None


def test_clients_of_source() -> None:
    world = healthy()
    world.words["source1", "cons"] = Seen(cons("10.71.0.31", "10.71.0.99"))
    world.words["source2", "cons"] = Seen("cons" + WHITELIST)
    world.socket_lists["source2"] = Seen(
        "0 0 10.71.0.12:2181 10.71.0.98:50000\n0 0 10.71.0.12:22 10.71.0.97:1\n"
    )
    names = inventory().source_names
    seen = source_clients(inventory(), KAFKA, world, {name: connections(world, name) for name in names})
    assert seen.at == {"source1": ("10.71.0.31", "10.71.0.99"), "source2": ("10.71.0.98",), "source3": ()}
    assert seen.members == {"broker1": ("client of source1",), "broker2": (), "broker3": ()}
    assert seen.unknown == ()


def test_sockets_are_read_in_one_spelling() -> None:
    text = (
        "0      0                10.0.0.1:2181          10.0.0.2:50000 \n"
        "0      36     [::ffff:10.0.0.1]:2181 [::ffff:10.0.0.3]:50001\n"
        "0      0              [fd00::1%eth0]:22 [fd00:0:0:0::2]:50002 timer:(keepalive,1min,0)\n"
    )
    assert parse_sockets(text) == (
        Socket("10.0.0.1", 2181, "10.0.0.2", 50000),
        Socket("10.0.0.1", 2181, "10.0.0.3", 50001),
        Socket("fd00::1", 22, "fd00::2", 50002),
    )
    assert parse_sockets("") == ()
    for wrong in ("ss: command not found", "0 0 a:b c:d", "0 0 10.0.0.1:2181 nowhere:50000"):
        with pytest.raises(ValueError, match=r"not a|does not appear"):
            parse_sockets(wrong)


@pytest.mark.parametrize("version", VERSIONS)
def test_timeouts_of_owning_sessions(version: str) -> None:
    """Since 3.5 a learner's dump tells timeouts; with 3.4 only ``cons`` does, and only of those connected."""
    world = PreflightWorld()
    for host, role in (("source1", "follower"), ("source2", "leader")):
        world.words[host, "dump"] = Seen(
            (WORDS.parent.parent / version / "words" / f"{role}.dump").read_text()
        )
        world.words[host, "cons"] = Seen(cons())
    reading = owning_sessions(world, ("source1", "source2"), Chroot("/kafka"))
    assert isinstance(reading, Seen)
    ((owner, paths),) = reading.value.owners.items()
    assert sorted(paths) == ["/kafka/brokers/ids/1", "/kafka/controller"]
    assert reading.value.smallest_timeout_ms == (None if version == "3.4.14" else 20000)
    line = cons("10.0.0.9").replace("sid=0x1000000000001", f"sid={owner:#x}").replace("to=20000", "to=6000")
    world.words["source1", "cons"] = Seen(line)
    reading = owning_sessions(world, ("source1", "source2"), Chroot("/kafka"))
    assert isinstance(reading, Seen)
    assert reading.value.smallest_timeout_ms == 6000


def test_other_chroots_own_nothing_here() -> None:
    reading = owning_sessions(healthy(), ("source1",), Chroot("/kaf"))
    assert isinstance(reading, Seen)
    assert (reading.value.owners, reading.value.smallest_timeout_ms) == ({}, None)


# ---- files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "version"),
    [
        ("tickTime=2000\n", 0),
        ("dynamicConfigFile=/etc/zoo.cfg.dynamic.300000002\n", 0x300000002),
        ("dynamicConfigFile=/etc/zoo.cfg.dynamic\n", 0),
        ("version=100000000\n", 0x100000000),
        ("version=100000000\ndynamicConfigFile=/etc/zoo.cfg.dynamic.2a\n", 0x2A),
        ("version=one\n", 0),
    ],
)
def test_the_version_of_the_members_is_what_zookeeper_takes_for_it(lines: str, version: int) -> None:
    assert parse(lines).version == version


def test_sources_members_are_its_dynamic_files_lines_byte_for_byte() -> None:
    world = PreflightWorld()
    hosts = ("source1", "source2", "source3")
    for host in hosts:
        world.files[host, "/etc/zookeeper/conf/zoo.cfg"] = Seen(b"dynamicConfigFile=/zoo.dynamic.100000000\n")
        world.files[host, "/zoo.dynamic.100000000"] = Seen(b"server.1=a:2888:3888:participant;0.0.0.0:2181\n")
    found = source_members(inventory(), world, inventory().source_names)
    lines, ports = ("server.1=a:2888:3888:participant;0.0.0.0:2181",), (2181, 2888, 3888, 8080)
    assert found == Seen(Members(lines, 0x100000000, ports))
    world.files["source1", "/etc/zookeeper/conf/zoo.cfg"] = TIMEOUT
    assert source_members(inventory(), world, inventory().source_names) == found, "the others agree"
    world.files["source2", "/etc/zookeeper/conf/zoo.cfg"] = Seen(b"server.1=a:2888:3888\n")
    _unknown(
        source_members(inventory(), world, inventory().source_names),
        "failed",
        "source2 0x0, source3 0x100000000",
    )
    del world.files["source3", "/zoo.dynamic.100000000"]
    world.files["source2", "/etc/zookeeper/conf/zoo.cfg"] = TIMEOUT
    _unknown(
        source_members(inventory(), world, inventory().source_names),
        "failed",
        "dynamicConfigFile /zoo.dynamic.100000000",
    )


@pytest.mark.parametrize("anywhere", ["0.0.0.0", "[::]"])
def test_an_own_line_that_listens_anywhere_is_no_address_for_dest(anywhere: str) -> None:
    """Dest copies these lines: 0.0.0.0 would be dest's own host there."""
    world = PreflightWorld()
    text = f"server.1={anywhere}:2888:3888;0.0.0.0:2181\nserver.2=b:2888:3888\n"
    world.files["source1", "/etc/zookeeper/conf/zoo.cfg"] = Seen(text.encode())
    reading = source_members(inventory(), world, inventory().source_names)
    assert isinstance(reading, Seen)
    assert reading.value.lines == ("server.1=10.71.0.11:2888:3888;0.0.0.0:2181", "server.2=b:2888:3888")


@pytest.mark.parametrize(
    ("data_dir", "words", "place"),
    [
        ("data/", {"conf": "clientPort=2181\ndataDir=/opt/zk/./data/version-2\n"}, "/opt/zk"),
        (".", {"conf": "clientPort=2181\ndataDir=/opt/zk/./version-2\n"}, "/opt/zk"),
        ("/data", {"envi": "Environment:\nuser.home=/root\nuser.dir=/srv/zk\n"}, "/srv/zk"),
        (".", {"envi": "Environment:\nuser.dir=/srv/zk\n"}, "/srv/zk"),
        ("../data", {"envi": "Environment:\nuser.dir=/\n"}, ""),
        ("data", {"conf": "clientPort=2181\ndataDir=/elsewhere/version-2\n"}, None),
        ("/data", {"envi": "envi is not executed because it is not in the whitelist.\n"}, None),
    ],
)
def test_a_relative_dynamic_file_is_below_the_directory_where_the_server_works(
    data_dir: str, words: Mapping[str, str], place: str | None
) -> None:
    world = PreflightWorld()
    text = f"dataDir={data_dir}\ndynamicConfigFile=conf/../zoo.dynamic\n"
    world.files["h", "/zoo.cfg"] = Seen(text.encode())
    world.files["h", f"{place}/zoo.dynamic"] = Seen(b"server.1=a:1:2\n")
    world.words |= {("h", word): Seen(answer) for word, answer in words.items()}
    reading = zoo_config(world, "h", "/zoo.cfg")
    if place is None:
        _unknown(reading, "failed", "is a relative path, and the server's working directory is unknown: ")
    else:
        assert isinstance(reading, Seen), reading
        assert list(reading.value.servers) == [1]
        own = members(world, "h", "/zoo.cfg", "10.0.0.1")
        assert isinstance(own, Seen)
        assert own.value.lines == ("server.1=a:1:2",)


@pytest.mark.parametrize(("name", "pid", "found"), [("x/../d", 7, 1), ("x/../d", 0, 0), ("../d", 7, 0)])
def test_where_no_word_tells_the_process_does_on_a_host_with_zkm_host(
    name: str, pid: int, found: int
) -> None:
    """zkm-host reads no path that leaves the directory of the process."""
    world = PreflightWorld()
    world.files["h", "/zoo.cfg"] = Seen(f"dataDir=/data\ndynamicConfigFile={name}\n".encode())
    for path in (f"/proc/{pid}/cwd/d", f"/proc/{pid}/d"):
        world.files["h", path] = Seen(b"server.1=a:1:2\n")
    world.programs["h", "status"] = Seen(re.sub("unit_pid=.*", f"unit_pid={pid}", STATUS))
    reading = zoo_config(world, "h", "/zoo.cfg", Service(unit="zookeeper.service"))
    assert isinstance(reading, Seen) == bool(found), reading
    assert isinstance(zoo_config(world, "h", "/zoo.cfg"), Unknown), "nobody may look at the process"


def test_zoo_config_with_its_dynamic_file() -> None:
    world = PreflightWorld()
    world.files["h", "/zoo.cfg"] = Seen(
        b"# comment\ntickTime=2000\ntickTime : 3000\ndynamicConfigFile=/zoo.dynamic\n"
    )
    world.files["h", "/zoo.dynamic"] = Seen(
        b"server.1=a.example:2888:3888:participant;2181\nserver.2=[fd00::2]:2888:3888:observer;0.0.0.0:2181\n"
        b"server.3=a:1:2|b:1:2\ngroup.1=1:2\n"
    )
    reading = zoo_config(world, "h", "/zoo.cfg")
    assert isinstance(reading, Seen)
    config = reading.value
    assert config.values["tickTime"] == "3000"
    assert (config.servers[1].host, config.servers[1].client_port) == ("a.example", 2181)
    assert (config.servers[2].host, config.servers[2].role) == ("fd00::2", "observer")
    assert config.odd == ("server.3=a:1:2|b:1:2", "group.1=1:2")
    del world.files["h", "/zoo.dynamic"]
    _unknown(zoo_config(world, "h", "/zoo.cfg"), "failed", "dynamicConfigFile /zoo.dynamic")
    world.files["h", "/zoo.cfg"] = Seen(b"tickTime=2000\nnonsense\n")
    _unknown(zoo_config(world, "h", "/zoo.cfg"), "garbled", "/zoo.cfg:2")


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("", (6000, 60000)),
        ("tickTime=2000", (4000, 40000)),
        ("tickTime=2000\nminSessionTimeout=-1\nmaxSessionTimeout=90000", (4000, 90000)),
        ("tickTime=fast", None),
    ],
)
def test_session_bounds(text: str, bounds: tuple[int, int] | None) -> None:
    assert parse(text).session_bounds_ms == bounds


def test_properties() -> None:
    text = "# a\n! b\nkey=value\n  spaced : out \nblank value\ncontinued=a,\\\n   b\npath=C:\\\\\nempty=\n"
    text += "key=last\n"
    assert java_properties.parse(text) == {
        "spaced": "out ", "blank": "value", "continued": "a,b", "path": "C:\\", "empty": "", "key": "last",
    }  # fmt: skip
    world = PreflightWorld(files={("h", "/p"): Seen(b"a=1\nsecret=\\u12")})
    _unknown(properties_of(world.file("h", "/p"), "/p"), "garbled", "line 2 holds a")
    assert isinstance(properties_of(world.file("h", "/q"), "/q"), Absent)


def test_system_properties() -> None:
    text = b'# JVMFLAGS="-Djute.maxbuffer=1"\nJVMFLAGS="-Xmx1g -Djute.maxbuffer=4194304 -Da.b=\'c\'"\n'
    world = PreflightWorld(files={("h", "/e"): Seen(text), ("h", "/denied"): Unknown("denied", "no")})
    reading = system_properties(world, "h", "/e")
    assert isinstance(reading, Seen)
    assert reading.value["jute.maxbuffer"] == "4194304"
    assert system_properties(world, "h", "/absent") == Seen({})
    assert isinstance(system_properties(world, "h", "/denied"), Unknown)


def test_data_state() -> None:
    dest = inventory().dest
    world = PreflightWorld()
    assert data_state(world, dest, "dest1") == Seen(DataState())
    world.listings["dest1", "/var/lib/zookeeper/version-2"] = Seen(
        (file_entry("log.1"), file_entry("currentEpoch"), file_entry("acceptedEpoch.tmp"))
    )
    world.listings["dest1", "/etc/zookeeper/conf"] = Seen(
        tuple(file_entry(f"zoo.cfg{end}") for end in ("", ".dynamic.100000000", ".bak", ".bak-2020"))
    )
    world.files["dest1", "/var/lib/zookeeper/myid"] = Seen(b"11\n")
    assert data_state(world, dest, "dest1") == Seen(
        DataState(
            ("log.1",),
            ("acceptedEpoch.tmp", "currentEpoch"),
            "11",
            ("/etc/zookeeper/conf/zoo.cfg.bak", "/etc/zookeeper/conf/zoo.cfg.dynamic.100000000"),
        )
    )
    world.files["dest1", "/var/lib/zookeeper/myid"] = TIMEOUT
    assert data_state(world, dest, "dest1") == TIMEOUT


def test_other_runs() -> None:
    world = PreflightWorld()
    assert other_runs(world, "h", "r1") == Seen({})
    state = "/var/lib/zkmigrate"
    entries = tuple(file_entry(name) for name in ("lock", "r1", "r2", "r3"))
    directories = tuple(e if e.name == "lock" else type(e)(e.name, "d", 0, 0) for e in entries)
    world.listings["h", state] = Seen(directories)
    world.files["h", f"{state}/r1/phase"] = Seen(b"armed 1 1\n")
    world.files["h", f"{state}/r2/phase"] = Seen(b"sealed 1 2\n")
    assert other_runs(world, "h", "r1") == Seen({"r2": "sealed"})


PROGRAM = Seen(b"program")
OTHERS: dict[str, tuple[tuple[str, ...], Reading[bytes]]] = {
    "no state": ((), PROGRAM),
    "its own": (("r1/ops", "r2/ops"), PROGRAM),
    "another run's": (("r2/ops", "r3/ops"), StaysForOthers("zkm-host stays installed for r2, r3")),
    "a directory in which nobody acted": (("r2",), PROGRAM),
}


@pytest.mark.parametrize(("directories", "expected"), OTHERS.values(), ids=OTHERS.keys())
def test_the_program_is_for_a_run_to_remove_unless_only_others_have_state(
    directories: tuple[str, ...], expected: Reading[bytes]
) -> None:
    state = "/var/lib/zkmigrate"
    world = PreflightWorld()
    assert own_program(world, "h", "r1") == Absent(zkm_host.INSTALLED_PATH)
    world.files["h", zkm_host.INSTALLED_PATH] = PROGRAM
    entry = file_entry("lock")
    names = {d.partition("/")[0] for d in directories}
    world.listings["h", state] = Seen((entry, *(type(entry)(name, "d", 0, 0) for name in sorted(names))))
    for directory in directories:
        world.listings["h", f"{state}/{directory}"] = Seen(())
    assert own_program(world, "h", "r1") == expected


@pytest.mark.parametrize("silent", ["", "/r2/ops"])
def test_whether_the_program_stays_is_unknown_where_the_state_is_not_told(silent: str) -> None:
    state = "/var/lib/zkmigrate"
    world = PreflightWorld()
    world.files["h", zkm_host.INSTALLED_PATH] = PROGRAM
    world.listings["h", state] = Seen((type(file_entry("r2"))("r2", "d", 0, 0),))
    world.listings["h", state + silent] = TIMEOUT
    assert own_program(world, "h", "r1") == TIMEOUT


# ---- Kafka in ZooKeeper ----------------------------------------------------------------------------------


def _znode(data: bytes, owner: int = 0, children: tuple[str, ...] = ()) -> Reading[Znode]:
    return Seen(Znode(data, 7, 7, 7, owner, 0, children))


def test_kafka_seen_through_a_host() -> None:
    world = PreflightWorld()
    world.znodes["z", "/k/cluster/id"] = _znode(b'{"version":"1","id":"abc"}')
    world.znodes["z", "/k/controller"] = _znode(b'{"version":1,"brokerid":2,"timestamp":"1"}', 0x12)
    world.znodes["z", "/k/controller_epoch"] = _znode(b"4")
    assert cluster_id(world, "z", "/k") == Seen("abc")
    assert controller(world, "z", "/k") == Seen(Controller(2, 0x12, 7, 4))
    assert isinstance(cluster_id(world, "z", "/other"), Absent)


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b'{"id":1}', b"\xff"])
def test_kafka_data_that_is_not_kafkas_is_unknown(data: bytes) -> None:
    world = PreflightWorld()
    for path in ("/k/cluster/id", "/k/controller", "/k/controller_epoch"):
        world.znodes["z", path] = _znode(data)
    _unknown(cluster_id(world, "z", "/k"), "garbled", "/k/cluster/id")
    _unknown(controller(world, "z", "/k"), "garbled", "/k/controller")
