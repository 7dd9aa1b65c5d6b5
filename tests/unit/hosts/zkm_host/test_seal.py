"""zkm-host: stop, seal, go, the finisher, image, open and the ways back, with real rules and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.zkm_net import Dest, encode, eventually, net
from zkmigrate.hosts.facts.status import parse_phase, parse_status


@pytest.fixture
def dest(tmp_path: Path) -> Iterator[Dest]:
    with net() as made:
        yield Dest(tmp_path, made)


def stamp(dest: Dest) -> tuple[str, str]:
    said = dest.call("stamp").values()
    return said["boot_id"], said["stamp"]


def assert_shut(dest: Dest) -> None:
    seen = dest.status()
    assert (seen["fence_timeout_s"], seen["cut_timeout_s"]) == ("permanent", "permanent")
    assert dest.net.reaches("client", "10.77.0.1") == "ConnectionRefusedError"


def test_stopped_is_refused_while_the_unit_runs(dest: Dest) -> None:
    dest.cut_off()
    assert "is active" in dest.refused("stopped")
    assert dest.phase() == "cut"


def test_seal_makes_the_block_permanent_and_nothing_may_start(dest: Dest) -> None:
    dest.sealed()
    assert dest.phase() == "sealed"
    assert_shut(dest)
    assert dest.call("renew", "1000", "1000").text == "permanent\n"
    assert_shut(dest)
    guard = dest.call("guard")
    assert guard.rc == 3
    assert "sealed" in guard.text
    assert "sealed" in dest.refused(*dest.service("start"))
    assert dest.status()["unit_state"] == "inactive"


def test_seal_compares_boot_stamp_lease_rules_and_unit(dest: Dest) -> None:
    dest.stopped()
    boot, seen = stamp(dest)
    assert "rebooted" in dest.refused("seal", "another-boot", seen)
    (dest.log / "version-2" / "log.100000006").touch()
    assert "data changed" in dest.refused("seal", boot, seen)
    boot, seen = stamp(dest)
    subprocess.run(dest.net.inside("dest", "ip6tables", "-I", "OUTPUT", "-j", "ACCEPT"), check=True)
    assert "out6=present" in dest.refused("seal", boot, seen)
    subprocess.run(dest.net.inside("dest", "ip6tables", "-D", "OUTPUT", "1"), check=True)
    subprocess.run(dest.net.inside("dest", "sh", "-c", dest.start), check=True)
    eventually("it runs", lambda: dest.status()["unit_state"] == "active")
    assert "is active" in dest.refused("seal", boot, seen)
    subprocess.run(dest.net.inside("dest", "sh", "-c", dest.kill), check=True)
    name = f"ZKM-{dest.status()['tag']}-fence6"
    subprocess.run(dest.net.inside("dest", "ipset", "flush", name), check=True)
    assert "the fence lapsed" in dest.refused("seal", boot, seen)
    assert dest.phase() == "stopped"
    assert dest.status()["cut_timeout_s"] != "permanent"


def test_a_seal_whose_outcome_was_lost_is_answered_the_same(dest: Dest) -> None:
    dest.stopped()
    boot, seen = stamp(dest)
    assert dest.call("seal", "s", boot, seen).rc == 0
    dest.forget_outcome("s")
    assert dest.call("seal", "s", boot, seen).text == "sealed\n"
    assert_shut(dest)


def test_unseal_gives_the_lease_back_and_the_way_back_ends_where_it_began(dest: Dest) -> None:
    dest.serve()
    tree = dest.tree()
    dest.stage()
    dest.do("arm", dest.spec())
    dest.do("fence", "60000")
    dest.do("cut", "60000")
    dest.do("service", "zookeeper", "kill")
    dest.do("stopped")
    dest.seal()
    dest.do("unseal", "60000", "60000")
    seen = dest.status()
    assert seen["phase"] == "stopped"
    assert 50 <= int(seen["fence_timeout_s"]) <= 60
    assert 50 <= int(seen["cut_timeout_s"]) <= 60
    assert seen["lease"] == "running"
    dest.do("started-observer")
    dest.do("uncut")
    dest.do("reopen")
    eventually("clients reach it", lambda: dest.net.reaches("client", "10.77.0.1") == "open")
    dest.do("disarm")
    assert dest.tree() == tree


def test_the_lease_guard_runs_again_after_unseal(dest: Dest) -> None:
    dest.sealed()
    dest.do("unseal", "60000", "1000")
    eventually("armed by itself", lambda: dest.phase() == "armed")
    assert dest.status()["unit_state"] == "active"
    assert dest.net.reaches("client", "10.77.0.1") == "open"


def test_go_reforms_behind_the_closed_door_and_open_opens_it(dest: Dest) -> None:
    (dest.folder / "zoo.cfg.dynamic.old").write_bytes(b"left over")
    dest.started()
    assert dest.config.read_bytes() == dest.REFORMED
    assert dest.config.stat().st_mode & 0o7777 == 0o640
    assert not (dest.folder / "zoo.cfg.dynamic.old").exists()
    assert "Mode: leader" in dest.call("word", "2181", "srvr").text
    assert_shut(dest)
    dest.do("checked")
    assert float(dest.status()["served_s"]) >= 0
    dest.do("open")
    seen = dest.status()
    assert "served_s" not in seen
    assert (seen["phase"], seen["fence_entries"], seen["cut_timeout_s"]) == ("open", "0", "permanent")
    assert dest.net.reaches("client", "10.77.0.1") == "open"
    eventually("the finisher has left", lambda: dest.status()["finisher"].startswith("done"))
    assert "refused in phase open" in dest.refused("halt")
    dest.do("finalize")
    assert dest.status()["cut_entries"] == "0"
    assert dest.phase() == "idle"
    assert not list(dest.data.glob(".zkm*"))
    assert "Mode: leader" in dest.call("word", "2181", "srvr").text


def test_the_image_puts_back_every_byte_mode_and_owner(dest: Dest) -> None:
    (dest.folder / "zoo.cfg.dynamic.old").write_bytes(b"left over")
    dest.stopped()
    for path in (dest.log / "version-2").iterdir():
        path.chmod(0o640)
    before = dest.tree()
    dest.seal()
    dest.go()
    eventually("the participant serves", lambda: dest.phase() == "started")
    during = dest.tree()
    assert during != before
    assert set(during) - set(before), "the participant wrote new files"
    dest.do("halt")
    assert dest.status()["unit_state"] == "inactive"
    assert "a participant's" in dest.refused("unseal", "60000", "60000")
    dest.do("image", "restore")
    assert dest.tree() == before
    dest.do("unseal", "60000", "60000")
    dest.do("started-observer")
    assert dest.tree() == before


def test_what_the_participant_did_not_touch_is_not_copied_back(dest: Dest) -> None:
    """Copying years of logs would hold the door shut for as long as they are large."""
    logs = dest.log / "version-2"
    older, newest = logs / "log.100000001", logs / "log.100000006"
    older.write_bytes(b"of long ago")
    dest.stopped()
    before, inodes = dest.tree(), (older.stat().st_ino, newest.stat().st_ino)
    dest.seal()
    dest.go()
    eventually("the participant serves", lambda: dest.phase() == "started")
    dest.do("halt")
    dest.do("image", "restore")
    assert dest.tree() == before
    assert older.stat().st_ino == inodes[0]
    assert newest.stat().st_ino != inodes[1], "the participant edited it in place"


def test_a_second_attempt_after_a_way_back_images_the_new_state(dest: Dest) -> None:
    dest.started()
    for verb in (("halt",), ("image", "restore"), ("unseal", "60000", "60000"), ("started-observer",)):
        dest.do(*verb)
    with (dest.log / "version-2" / "log.100000006").open("ab") as file:
        file.write(b"followed by more")
    (dest.log / "version-2" / "log.100000099").write_bytes(b"newer still")
    dest.do("service", "zookeeper", "kill")
    dest.do("stopped")
    before = dest.tree()
    dest.seal()
    dest.go()
    eventually("the participant serves", lambda: dest.phase() == "started")
    dest.do("halt")
    dest.do("image", "restore")
    assert dest.tree() == before


def test_halt_before_the_host_had_its_turn_leaves_data_untouched(dest: Dest) -> None:
    dest.sealed()
    before = dest.tree()
    dest.do("go", "quorum", "10.77.0.2:2181", "2", "60000")
    eventually("the finisher waits", lambda: dest.status()["finisher"].startswith("running"))
    dest.do("halt")
    assert "the data is unchanged" in dest.do("image", "restore")
    assert dest.tree() == before
    eventually("the finisher has left", lambda: dest.status()["finisher"].startswith("done"))


def test_the_rest_waits_until_one_of_the_first_leads_a_majority(dest: Dest) -> None:
    dest.sealed()
    dest.do("go", "rest", "10.77.0.2:2181", "3", "60000")
    script = (
        "import socket,sys\ns=socket.create_server(('10.77.0.2',2181))\nprint('up',flush=True)\n"
        "while True:\n c,_=s.accept(); c.recv(4)\n"
        " c.sendall(b'Mode: leader\\nzk_server_state\\tleader\\nzk_synced_followers\\t'\n"
        "  +sys.argv[1].encode()+b'\\n')\n"
        " c.close()\n"
    )
    for synced in ("1", "2"):
        assert dest.phase() == "go"
        leader = subprocess.Popen(
            dest.net.inside("peer", "python3", "-c", script, synced), stdout=subprocess.PIPE, text=True
        )
        dest.net.children.append(leader)
        assert leader.stdout is not None
        assert leader.stdout.readline() == "up\n"
        if synced == "1":
            assert dest.call("reach", "10.77.0.2:2181").text == "probe 10.77.0.2 2181 open\n"
            leader.kill()
            leader.wait()
    eventually("it is this host's turn", lambda: dest.phase() == "started")


def test_the_quorum_place_waits_until_every_first_host_looks(dest: Dest) -> None:
    dest.sealed()
    dest.do("go", "quorum", "10.77.0.2:2181", "2", "60000")
    assert dest.phase() == "go"
    script = (
        "import socket\ns=socket.create_server(('10.77.0.2',2181))\n"
        "while True:\n c,_=s.accept(); c.recv(4)\n"
        " c.sendall(b'This ZooKeeper instance is not currently serving requests\\n'); c.close()\n"
    )
    dest.net.children.append(
        subprocess.Popen(dest.net.inside("peer", "python3", "-c", script), stdout=subprocess.PIPE, text=True)
    )
    log = dest.directory / "finish.log"
    eventually("it is this host's turn", lambda: "start 1 of zookeeper" in log.read_text())


def test_phase_says_what_status_says_of_the_run(dest: Dest) -> None:
    """The cheap look of a step that waits, against the whole one, from the first phase to the last."""

    def told() -> dict[str, str]:
        return {key: value for key, value in dest.call("phase").values().items() if key != "served_s"}

    def same() -> str:
        # The finisher goes on between two calls: a status counts that nothing came before or after.
        seen: list[dict[str, str]] = []

        def still() -> bool:
            seen[:] = [told(), dest.status(), told()]
            return seen[0] == seen[2]

        eventually("two calls of phase say the same", still)
        assert seen[0] == {key: seen[1][key] for key in ("run", "phase", "lapsed", "finisher")}
        return seen[0]["phase"]

    assert same() == "idle"
    dest.cut_off()
    assert same() == "cut"
    dest.do("service", "zookeeper", "kill")
    dest.do("stopped")
    dest.seal()
    assert same() == "sealed"
    dest.go()
    eventually("the participant serves", lambda: dest.phase() == "started")
    assert same() == "started"
    one = parse_phase(dest.call("phase").text)
    two = parse_status(dest.call("status").text)
    assert one.finisher == "running"
    assert one.served_s is not None
    assert two.served_s is not None
    assert one.served_s <= two.served_s
    dest.do("open")
    (dest.directory / "lapsed").touch()
    assert same() == "open"
    assert parse_phase(dest.call("phase").text).lapsed


def test_without_an_operator_the_host_opens_by_itself(dest: Dest) -> None:
    dest.sealed()
    dest.go(limit_ms=100)
    eventually("open by itself", lambda: dest.phase() == "open")
    assert dest.net.reaches("client", "10.77.0.1") == "open"
    assert dest.status()["finisher"] == "done opened without the operator"


def test_without_an_operator_a_rehearsal_goes_back_by_itself(dest: Dest) -> None:
    dest.stopped(rehearsal="yes")
    before = dest.tree()
    dest.seal()
    dest.go(limit_ms=100)
    eventually("armed by itself", lambda: dest.phase() == "armed")
    assert dest.tree() == before
    assert "Mode: observer" in dest.call("word", "2181", "srvr").text
    seen = dest.status()
    assert (seen["fence_entries"], seen["cut_entries"]) == ("0", "0")


def test_a_rehearsal_is_never_opened(dest: Dest) -> None:
    dest.started(rehearsal="yes")
    dest.do("checked")
    assert "rehearsal" in dest.refused("open")
    assert_shut(dest)


def test_the_finisher_survives_its_connection_and_a_kill_is_resumed_by_a_new_go(dest: Dest) -> None:
    dest.sealed()
    dest.do("go", "quorum", "10.77.0.2:2181", "2", "60000")
    eventually("the finisher waits", lambda: dest.status()["finisher"].startswith("running"))
    pids = subprocess.run(
        ["ip", "netns", "pids", f"{dest.net.prefix}-dest"], check=True, capture_output=True, text=True
    ).stdout.split()
    killed = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):  # a part of it that has ended meanwhile
            if Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"\x00finish\x00"):
                os.kill(int(pid), signal.SIGKILL)
                killed += 1
    assert killed
    eventually("it is gone", lambda: dest.status()["finisher"].startswith("failed"))
    dest.go()
    eventually("the participant serves", lambda: dest.phase() == "started")


def test_a_participant_that_dies_while_looking_is_started_again(dest: Dest) -> None:
    mark = dest.folder / "died-once"
    dies = f"test -e {mark} || {{ touch {mark}; {dest.start}; kill -9 $!; exit; }}; {dest.start}"
    dest.sealed(start=encode(dies))
    dest.go()
    eventually("the participant serves", lambda: dest.phase() == "started")
    assert "start 2 of zookeeper" in (dest.directory / "finish.log").read_text()


@pytest.mark.parametrize("first", ["10.77.0.2:2181", "10.77.0.1:2181", "10.77.0.2:2181,10.77.0.3:2181"])
def test_a_host_goes_on_only_where_one_of_the_first_leads(dest: Dest, first: str) -> None:
    """It leads here, and is one of the first or not; where they are a majority nobody else can lead."""
    dest.sealed()
    dest.do("go", "first", first, "2", "60000")
    if first == "10.77.0.2:2181":
        seen = "none of the first is seen to lead"
        eventually("it waits", lambda: seen in dest.status()["finisher"])
        assert dest.phase() == "go"
        dest.do("halt")
        dest.do("image", "restore")
    else:
        eventually("the participant serves", lambda: dest.phase() == "started")


def lose_rules(dest: Dest) -> None:
    """Rules and sets are gone, as after a reboot of the host."""
    for argv in (
        ["iptables", "-F"],
        ["iptables", "-X"],
        ["ip6tables", "-F"],
        ["ip6tables", "-X"],
        ["ipset", "destroy"],
    ):
        subprocess.run(dest.net.inside("dest", *argv), check=True)


@pytest.mark.parametrize("after", ["seal", "go"])
def test_a_rebooted_host_walks_back_like_the_others(dest: Dest, after: str) -> None:
    dest.sealed()
    if after == "go":
        dest.go()
        eventually("the participant serves", lambda: dest.phase() == "started")
        subprocess.run(dest.net.inside("dest", "sh", "-c", dest.kill), check=True)
    lose_rules(dest)
    if after == "go":
        dest.do("halt")
    dest.do("image", "restore")
    dest.do("unseal", "60000", "60000")
    assert dest.net.reaches("client", "10.77.0.1") == "ConnectionRefusedError"
    dest.do("started-observer")
    dest.do("uncut")
    dest.do("reopen")
    eventually("clients reach it", lambda: dest.net.reaches("client", "10.77.0.1") == "open")
    dest.do("disarm")


def test_a_rebooted_host_may_not_start_with_its_door_open_until_go_shuts_it(dest: Dest) -> None:
    dest.started()
    subprocess.run(dest.net.inside("dest", "sh", "-c", dest.kill), check=True)
    lose_rules(dest)
    guard = dest.call("guard")
    assert guard.rc == 3
    assert "clients would be let in" in guard.text
    dest.do("halt")
    dest.go()
    eventually("the participant serves", lambda: dest.phase() == "started")
    assert_shut(dest)
    assert dest.call("guard").rc == 0


def test_the_guard_refuses_a_config_that_names_source_after_go(dest: Dest) -> None:
    dest.started()
    assert dest.call("guard").rc == 0
    dest.config.write_bytes(b"server.1=10.77.0.5:2888:3888\n")
    assert "names source" in dest.call("guard").text
    dest.config.write_bytes(b"server.1=10.77.0.55:2888:3888\n")
    assert dest.call("guard").rc == 0
    dynamic = dest.folder / "zoo.cfg.dynamic.100000000"
    dynamic.write_bytes(b"server.1=10.77.0.5:2888:3888:participant\n")
    assert "names source" in dest.call("guard").text, "there it reads its servers, with reconfigEnabled"
    dynamic.write_bytes(b"server.1=10.77.0.55:2888:3888:participant\n")
    assert dest.call("guard").rc == 0


def test_the_guard_passes_where_nothing_is_armed(dest: Dest) -> None:
    assert dest.call("guard").rc == 0
    dest.armed()
    assert dest.call("guard").rc == 0


WRONG = {
    "armed": "cut 1000; stopped; started-observer; seal b s; unseal 1000 1000; checked; open; finalize",
    "fenced": "disarm; arm {spec}; stopped; seal b s; go first 10.77.0.1:2181 1 1000; halt; open",
    "cut": "disarm; fence 1000; reopen; seal b s; go first 10.77.0.1:2181 1 1000; image restore",
    "stopped": "disarm; fence 1000; cut 1000; uncut; reopen; go first 10.77.0.1:2181 1 1000; open",
    "sealed": "disarm; fence 1000; cut 1000; uncut; reopen; stopped; started-observer; open; uninstall",
    "started": "disarm; fence 1000; uncut; reopen; unseal 1000 1000; image restore; finalize; uninstall",
}


def test_every_verb_is_refused_in_a_wrong_phase_and_says_what_is_possible(dest: Dest) -> None:
    def all_refused(phase: str) -> None:
        for line in WRONG[phase].split("; "):
            said = dest.refused(*line.format(spec=dest.spec()).split())
            assert f"refused in phase {phase}" in said
            assert "possible now: " in said
        assert dest.phase() == phase

    dest.armed()
    all_refused("armed")
    dest.do("fence", "60000")
    all_refused("fenced")
    dest.do("cut", "60000")
    all_refused("cut")
    dest.do("service", "zookeeper", "kill")
    dest.do("stopped")
    all_refused("stopped")
    dest.seal()
    all_refused("sealed")
    dest.go()
    eventually("it serves", lambda: dest.phase() == "started")
    all_refused("started")


def test_every_operation_is_completed_after_its_outcome_was_lost(dest: Dest) -> None:
    """A kill after the effect and before the record: the same call again gives the same world."""
    dest.serve()

    def world() -> dict[str, str]:
        seen = dest.status()
        for key in (
            "uptime_s",
            "time",
            "phase_since",
            "phase_up_ms",
            "fence_timeout_s",
            "cut_timeout_s",
            "lease",
            "finisher",
            "served_s",
        ):
            seen.pop(key, None)
        return seen

    def listens() -> bool:
        return dest.status()["unit_pid"] != "0"

    def twice(verb: str, *arguments: str) -> None:
        operation = dest.operation()
        assert dest.call(verb, operation, *arguments).rc == 0
        # Which process it is, is known from its first port: not before it listens.
        eventually("it is down or listens", lambda: dest.status()["unit_state"] != "active" or listens())
        once = world()
        dest.forget_outcome(operation)
        again = dest.call(verb, operation, *arguments)
        assert again.rc == 0, f"{verb}: {again}"
        assert world() == once

    dest.stage()
    for line in ("arm {spec}", "fence 60000", "reopen", "fence 60000", "cut 60000", "uncut", "cut 60000"):
        twice(*line.format(spec=dest.spec()).split())
    for line in (
        "service zookeeper kill",
        "stopped",
        "started-observer",
        "service zookeeper kill",
        "stopped",
    ):
        twice(*line.split())
    boot, seen = stamp(dest)
    for line in (f"seal {boot} {seen}", "unseal 60000 60000", f"seal {boot} {seen}"):
        twice(*line.split())
    dest.go()
    eventually("it serves", lambda: dest.phase() == "started")
    twice("halt")
    twice("image", "restore")
    dest.go()
    eventually("it serves", lambda: dest.phase() == "started")
    for line in ("checked", "open", "finalize"):
        twice(line)


def test_go_is_refused_when_the_data_changed_after_the_seal(dest: Dest) -> None:
    dest.sealed()
    (dest.log / "version-2" / "log.100000006").touch()
    assert "changed since it was sealed" in dest.refused("go", "first", "10.77.0.1:2181", "1", "60000")
    assert dest.phase() == "sealed"


def test_go_again_leaves_a_working_finisher_alone(dest: Dest) -> None:
    dest.sealed()
    dest.do("go", "quorum", "10.77.0.2:2181", "2", "60000")
    eventually("the finisher waits", lambda: dest.status()["finisher"].startswith("running"))
    assert "the finisher already runs" in dest.do("go", "first", "10.77.0.1:2181", "1", "60000")
    assert (dest.directory / "go").read_text().startswith("quorum ")
    dest.do("halt")


def test_kill_at_any_moment_of_an_image_restore_is_completed_by_the_same_operation(dest: Dest) -> None:
    dest.stopped()
    before = dest.tree()
    dest.seal()
    for step in range(8):
        dest.go()
        eventually("the participant serves", lambda: dest.phase() == "started")
        dest.do("halt")
        assert dest.tree() != before
        words = ("image", f"restore-{step}", "restore")
        child = subprocess.Popen(
            dest.argv(*words),
            env=dest.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(step * 0.02)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        assert dest.call(*words).rc == 0
        assert dest.tree() == before
        assert not list(dest.data.glob("version-2.zkm-*"))


def test_a_renewal_is_not_held_up_by_a_server_that_is_slow_to_end(dest: Dest) -> None:
    dest.cut_off()
    release = dest.folder / "release"
    slow = encode(f"while ! test -e {release}; do sleep 0.02; done; {dest.kill}")
    ending = subprocess.Popen(
        dest.argv("service", "slow-kill", *dest.service("kill", kill=slow)[1:]),
        env=dest.environment(),
        stdout=subprocess.DEVNULL,
    )
    eventually("it is under way", lambda: (dest.directory / "ops" / "slow-kill").exists())
    assert dest.call("renew", "60000", "60000").rc == 0
    assert ending.poll() is None
    release.touch()
    assert ending.wait(20) == 0
    dest.do("stopped")
