"""zkm-host does for a run what the policy that INSTALL wrote allows, and nothing else.

The ssh account may call zkm-host as root with any words. It is the actor here.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.zkm_net import HELD, Host, encode, need_root
from tests.world.model.host import File
from tests.world.model.host import Host as ModelHost
from tests.world.model.limits import forbidden
from tests.world.operator import quiet_world
from zkmigrate.hosts import zkm_host
from zkmigrate.inventory.inventory import Service
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.steps.arm import arm_spec
from zkmigrate.move.steps.install import move_policy
from zkmigrate.runbook.model import policy
from zkmigrate.runbook.model.change import Arm, HostChange, MoveAside, PutFile, ServiceAction, SetService
from zkmigrate.zookeeper.facts.members import Members

SERVICE = Service(unit="no-such.service", start="/bin/true", stop="/bin/true", status="/bin/false")
OWN = ("start=/bin/true", "stop=/bin/true", "status=/bin/true", "ports=1")


@pytest.fixture
def place() -> Iterator[Path]:
    need_root()
    folder = Path(tempfile.mkdtemp(prefix="zkm-policy-", dir="/dev/shm"))  # where a sync costs nothing
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def host(place: Path) -> Host:
    made = Host(place, [])
    made.allows = False
    return made


def everything(place: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file below, but zkm-host's own records."""
    return {
        str(path): (path.read_bytes(), path.stat().st_mode, path.stat().st_uid)
        for path in place.rglob("*")
        if path.is_file() and "state" not in path.relative_to(place).parts
    }


def put(path: Path | str, mode: str = "0644", owner: str = "root:root") -> tuple[str, ...]:
    """The words of a put of the text "new"."""
    digest = "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437"
    return ("put", "o", str(path), mode, owner, digest, encode("new"))


@pytest.mark.parametrize("verb", [*HELD, "put", "edit", "move-aside", "service", "arm"])
def test_without_a_policy_nothing_acts(host: Host, place: Path, verb: str) -> None:
    answer = host.call(verb, *(() if verb == "renew" else ("o",)), "take" if verb == "lock" else "x", "y")
    assert answer.rc == 3
    assert f"Needed: {host.directory}/policy, which the step install writes" in answer.text
    assert [path for path in place.rglob("*") if path.is_file()] == []
    assert host.status()["phase"] == "idle"


def test_a_file_that_no_line_names_is_not_written(host: Host, place: Path) -> None:
    (place / "etc").mkdir()
    (place / "etc" / "passwd").write_text("old")
    host.allow("lock", policy.put(str(place / "zoo.cfg"), "root:root"))
    assert host.call(*put(place / "zoo.cfg")).rc == 0
    before = everything(place)
    for words in (
        put(place / "etc" / "passwd"),
        put(place / "etc" / "zoo.cfg"),
        put(place / "zoo.cfg", "0666"),
        put(place / "zoo.cfg", owner="nobody:root"),
        put(f"{place}/zoo.cfg/../etc/passwd"),
        put(f"{place}/zoo.cf"),
        put(host.directory / "policy"),
        put("staged/x"),
    ):
        answer = host.call("put", f"o{len(words[2])}", *words[2:])
        assert (answer.rc, answer.text.count("does not allow")) == (3, 1), words
        assert everything(place) == before
    assert (host.directory / "policy").read_text().splitlines() == [
        "lock", f"put {place}/zoo.cfg 0644 root:root"
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["4755", "2755", "1777", "7000"])
def test_no_file_gets_the_bits_of_its_owner(host: Host, place: Path, mode: str) -> None:
    """A file of root's with such a bit would run as root whatever the account puts into it."""
    host.allow("lock", policy.put(str(place / "f"), "root:root", mode))
    assert "set-user, set-group or sticky bit" in host.call(*put(place / "f", mode)).text
    assert everything(place) == {}


def test_a_file_that_is_rewritten_keeps_its_owner_and_mode(host: Host, place: Path) -> None:
    file = place / "server.properties"
    file.write_text("old")
    file.chmod(0o640)
    os.chown(file, 61_234, 0)
    host.allow("lock", policy.rewrite(str(file)))
    for number, words in enumerate((("0644", "61234:0"), ("0640", "root:root"), ("0640", "61234:61234"))):
        answer = host.call("put", f"o{number}", *put(file, *words)[2:])
        assert (answer.rc, "keep its owner and mode" in answer.text) == (3, True)
        assert file.read_text() == "old"
    assert host.call(*put(file, "0640", "61234:0")).rc == 0
    file.unlink()
    assert host.call("put", "again", *put(file, "0640", "61234:0")[2:]).rc == 3, "nothing to keep"


def test_what_is_moved_aside_matches_to_the_last_part(host: Host, place: Path) -> None:
    for name in ("zoo.cfg.dynamic.1", "zoo.cfg.dynamic.d/x", "zoo.cfg.x"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("old")
    host.allow("lock", policy.move_aside(f"{place}/zoo.cfg.dynamic*"))
    assert host.call("move-aside", "a", f"{place}/zoo.cfg.dynamic.1").rc == 0
    for number, name in enumerate(("zoo.cfg.dynamic.d/x", "zoo.cfg.x", "zoo.cf")):
        assert host.call("move-aside", f"b{number}", f"{place}/{name}").rc == 3
    assert host.call("move-aside", "c", f"{place}/zoo.cfg.dynamic.d", f"{place}/away").rc == 3
    assert sorted(everything(place)) == [
        f"{place}/zoo.cfg.dynamic.1.zkm-a", f"{place}/zoo.cfg.dynamic.d/x", f"{place}/zoo.cfg.x"
    ]  # fmt: skip


def test_leftovers_come_out_of_a_log_directory_of_kafka_alone(host: Host, place: Path) -> None:
    for disk in ("logs", "other"):
        (place / disk / "old-0").mkdir(parents=True)
        (place / disk / "kept-0").mkdir()
    (place / "logs" / "meta.properties").touch()
    host.allow("lock", policy.leftover(f"{place}/*/old-*"))

    def moved(disk: str, name: str, folder: str) -> int:
        return host.call("move-aside", f"{disk}.{name}", f"{place}/{disk}/{name}", f"{place}/{folder}").rc

    assert moved("other", "old-0", f"other.zkm-{host.run_id}") == 3
    assert moved("logs", "kept-0", f"logs.zkm-{host.run_id}") == 3
    assert moved("logs", "old-0", "elsewhere") == 3
    assert moved("logs", "old-0", f"logs.zkm-{host.run_id}") == 0
    assert not (place / "logs" / "old-0").exists()


def test_commands_that_no_policy_names_are_not_run_even_to_look(host: Host, place: Path) -> None:
    ran = place / "ran"
    evil = tuple(f"{key}={encode(f'touch {ran}')}" for key in ("start", "stop", "status"))
    kind = tuple(f"{key}={encode('true')}" for key in ("start", "stop", "status"))
    fine = tuple(f"{key}=true" for key in ("start", "stop", "status"))
    host.allow("lock", *policy.service("zk.service", ("stop",), (*fine, "ports=1")))
    looks = (("status", "zk.service"), ("recovery", "zk.service"))
    for number, words in enumerate(((*evil, "ports=1"), (*kind, "ports=2"), (*kind[:2], evil[2], "ports=1"))):
        for verb in (("service", f"o{number}", "zk.service", "stop"), *looks):
            answer = host.call(*verb, *words)
            assert (answer.rc, "does not allow 'commands" in answer.text) == (3, True), answer
    assert host.call("status", "other.service", *kind, "ports=1").rc == 3
    assert host.call("service", "p", "zk.service", "start", *kind, "ports=1").rc == 3, "another action"
    assert host.call("status", "zk.service", *kind, "ports=1").rc == 0
    other = Host(host.folder, [], run="return")
    other.allows = False
    assert other.call("status", "zk.service", *kind, "ports=1").rc == 0, "a later run needs no other policy"
    assert not ran.exists()


def test_arm_takes_the_spec_of_the_policy_alone(host: Host) -> None:
    inventory = quiet_world().inventory
    spec = arm_spec(inventory, False, Members(()))
    host.allow("window", *policy.arm(spec))
    wrong = (
        spec.replace("cut=zookeeper", "cut=all"),
        f"{spec}ssh_ports=2181\n",
        f"{spec}source=0.0.0.0\n",
        spec.replace("unit=", "unit=ssh"),
        "".join(line for line in spec.splitlines(keepends=True) if not line.startswith("source=")),
        f"{spec}start={encode('touch x')}\n",
    )
    more = spec.replace("cut_ports=", "cut_ports=9,"), f"{spec}cut_ports=9\n", f"cut_ports=*\n{spec}"
    for number, other in enumerate((*wrong, *more)):
        answer = host.call("arm", f"o{number}", encode(other))
        assert (answer.rc, "needs exactly the lines" in answer.text) == (3, True), other
    free = spec.replace("rehearsal=no", "rehearsal=yes"), spec.replace("cut_ports=2181,", "cut_ports=")
    for number, other in enumerate(free):
        answer = host.call("arm", f"p{number}", encode(other))
        assert "needs exactly the lines" not in answer.text, "it went on from there"


def test_a_policy_of_another_than_root_counts_for_nothing(host: Host, place: Path) -> None:
    host.allow("lock", policy.put(str(place / "zoo.cfg"), "root:root"))
    os.chown(host.directory / "policy", 61_234, 61_234)
    assert host.call(*put(place / "zoo.cfg")).rc == 3
    assert everything(place) == {}


def test_the_policy_goes_with_the_run_and_keeps_the_program_for_another(host: Host) -> None:
    other = Host(host.folder, [], run="run-2")
    for one in (host, other):
        one.allow("lock")
    assert host.call("uninstall", "u").text == "uninstalled\n"
    assert not host.directory.exists()
    assert (other.directory / "policy").exists(), "a run that has only installed is a run"
    assert host.call("uninstall", "u").rc == 0, "whoever did not hear it asks again"
    assert other.call("uninstall", "u").rc == 0
    assert not host.state.exists()


def test_a_later_run_keeps_the_policy_that_it_found(host: Host, place: Path) -> None:
    """INSTALL of a later run writes no second file where this one allows all that it needs."""
    other = Host(host.folder, [], run="return")
    other.allows = False
    host.allow("lock", policy.put(str(place / "zoo.cfg"), "root:root"))
    limits = (host.directory / "policy").read_text()
    assert other.call("discard", "d", "nothing").rc == 0
    assert host.call("uninstall", "u").rc == 0
    assert not host.directory.exists()
    assert other.call(*put(place / "zoo.cfg")).rc == 0
    assert other.call("put", "p", *put(place / "passwd")[2:]).rc == 3
    assert (other.directory / "policy").stat().st_uid == 0
    assert (other.directory / "policy").read_text() == limits
    assert other.call("uninstall", "u").rc == 0
    assert not host.state.exists()


def test_a_run_that_has_a_policy_gets_no_other(host: Host) -> None:
    other = Host(host.folder, [], run="run-2")
    for one in (host, other):
        one.allow("lock", f"put /tmp/{one.run_id} 0644 root:root")
        assert one.call("discard", "d", "nothing").rc == 0
    assert host.call("uninstall", "u").rc == 0
    assert "run-1" not in (other.directory / "policy").read_text()


def test_a_beat_and_a_release_need_no_policy_and_a_lock_does(host: Host) -> None:
    for word in ("beat", "release"):
        assert "nobody holds the lock" in host.call("lock", "o", word).text
    assert "may only look" in host.call("lock", "o", "take", "eve", "1000").text
    assert "may only look" in host.call("lock", "o", "steal", "eve").text


# ---- the words of an account that wants more, by the thousand ------------------------------------------

PARTS = (
    *(
        "/etc/passwd",
        "/etc/sudoers.d/x",
        "/root/.ssh/authorized_keys",
        "/usr/local/sbin/zkm-host",
        "staged/x",
    ),
    *("$(touch${IFS}canary)", "`touch${IFS}canary`", ";touch${IFS}canary", "a[$(touch${IFS}canary)]"),
    *("..", ".", "-", "--run", "=", "0", "08", "-1", "1", "9" * 20, "root:root", "0644", "4755", "*", "?"),
    *("start", "stop", "kill", "take", "steal", "restore", "first", "first,", "10.0.0.1:1", "lock", "window"),
    *("x" * 300, "\x1b]0;x\x07", ".", "= forged", "%s%n", "\\", "'", '"', "é", "\t", "policy", "[!/]*"),
)


def words_of(chance: random.Random, place: Path, good: tuple[tuple[str, ...], ...]) -> list[str]:
    """One hostile request: one that is allowed with words changed, or any words at all."""
    paths = (f"{place}/{name}" for name in ("outside/secret", "state/run-1/policy", "home/zoo.cfg"))
    evil = (f"{key}={encode('touch canary')}" for key in ("start", "stop", "status"))
    own = (*PARTS, *paths, *evil, "ports=1", encode("canary"))
    words = list(chance.choice(good))
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(words) + 1)
        word = chance.choice(own)
        if at < len(words) and chance.random() < 0.5:
            word = words[at][: chance.randrange(len(words[at]) + 1)] + word
        words[at : at + chance.randint(0, 1)] = [word]
    return words


def test_no_words_of_the_account_leave_the_policy(host: Host, place: Path) -> None:
    """10,000 requests: each is answered once and by its own number, and what is not named stays as it is."""
    for name in ("outside", "home", "cwd"):
        (place / name).mkdir()
    (place / "outside" / "secret").write_text("secret")
    (place / "outside" / "secret").chmod(0o600)
    (place / "home" / "zoo.cfg").write_text("old")
    inventory = quiet_world().inventory
    host.allow(
        *("lock", "window", policy.rewrite(f"{place}/home/zoo.cfg"), policy.move_aside(f"{place}/home/z*")),
        *policy.service("no-such.service", ("stop",), ("start=true", "stop=true", "status=false", "ports=1")),
        *policy.arm(arm_spec(inventory, False, Members(()))),
    )
    limits = (host.directory / "policy").read_text()
    true = (*(f"{key}={encode('true')}" for key in ("start", "stop")), f"status={encode('false')}")
    good = (
        put(place / "home" / "zoo.cfg"),
        ("move-aside", "o", f"{place}/home/zoo.cfg"),
        ("restore", "o", "p"),
        ("service", "o", "no-such.service", "stop", *true, "ports=1"),
        ("status", "no-such.service", *true, "ports=1"),
        ("arm", "o", encode(arm_spec(inventory, False, Members(())))),
        ("journal", "new", "0" * 64, "="),
        ("lock", "o", "take", "eve", "1000"),
        *((verb, "o", "1000") for verb in HELD if verb not in ("restore", "journal", "lock")),
    )
    chance = random.Random(39)
    total = 10_000
    requests = [(str(number), words_of(chance, place, good)) for number in range(total)]
    # A line break ends a request: then the rest is a request of its own, which these words never are.
    sent = "".join(f"{number} {' '.join(words)}\n" for number, words in requests)
    environment = {**host.environment(), "LC_ALL": "C"}
    done = subprocess.run(
        host.argv("serve"), input=sent.encode(), cwd=place / "cwd", env=environment,
        capture_output=True, check=True,
    )  # fmt: skip
    lines = done.stdout.split(b"\n")[:-1]
    assert [line.split()[1].decode() for line in lines if line.startswith(b". ")] == [n for n, _ in requests]
    assert all(line.startswith((b"= ", b". ")) or line == b"=" for line in lines)
    assert {path.name for path in place.rglob("*canary*")} == set()
    assert list((place / "cwd").iterdir()) == []
    assert {p: c for p, (c, _, _) in everything(place).items() if "/home/" not in p} == {
        f"{place}/outside/secret": b"secret"
    }
    assert (place / "outside" / "secret").stat().st_mode & 0o777 == 0o600
    assert {p.name.partition(".zkm-")[0] for p in (place / "home").iterdir()} <= {"zoo.cfg"}
    assert (host.directory / "policy").read_text() == limits
    assert not Path("/etc/sudoers.d/x").exists()


# ---- the model of the world tests answers alike --------------------------------------------------------


def test_the_model_refuses_what_the_program_refuses(host: Host, place: Path) -> None:
    """Each change of a dest host as INSTALL's policy allows it, and with one word changed."""
    found = quiet_world().inventory
    here: dict[str, object] = {"config": f"{place}/zoo.cfg", "data_dir": f"{place}/data", "service": SERVICE}
    here |= {"user": "root", "group": "root"}
    inventory = found.model_copy(update={"dest": found.dest.model_copy(update=here)})
    lines = move_policy(KAFKA, inventory, "dest1")
    host.allow(*(line.replace(zkm_host.STATE_DIR, str(host.state)) for line in lines))
    model = ModelHost("dest1", "10.0.0.21")
    model.files[zkm_host.policy_path("run-1")] = File(policy.text(lines).encode(), "0600", "root:root", 0.0)
    dest = inventory.dest
    actions: tuple[ServiceAction, ...] = ("stop", "kill", "reload", "enable")
    changes: list[HostChange] = [
        *(PutFile("dest1", path, b"x", one, mode)
          for path in (dest.config, f"{dest.data_dir}/myid", f"{place}/passwd", f"{dest.config}x")
          for one in ("root:root", "root:daemon") for mode in ("0644", "0640")),
        *(MoveAside("dest1", path) for path in (f"{dest.data_dir}/version-2", f"{dest.config}.dynamic.7",
                                                f"{dest.config}.dynamic/7", dest.config)),
        *(SetService("dest1", unit, action, commands) for unit in (dest.service.unit, "sshd.service")
          for action in actions for commands in (dest.commands, OWN)),
        *(Arm("dest1", spec) for spec in (
            *(arm_spec(inventory, True, Members((), ports=ports)) for ports in ((), (9,))),
            "unit=sshd.service\n",
        )),
    ]  # fmt: skip
    for number, change in enumerate(changes):
        answer = host.call(change.verb, f"o{number}", *change.arguments())
        refused = "does not allow" in answer.text or "needs exactly the lines" in answer.text
        assert refused == bool(forbidden(model, change)), (change, answer)
