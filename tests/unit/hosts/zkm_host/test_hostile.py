"""zkm-host beside an account that wants root: it owns the directories, races us there and chooses all names.

Whatever it does, root writes, gives away and changes nothing outside of what that account owns.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.examples import examples
from tests.namespaces import kill_all
from tests.unit.zkm_net import CLIENT_PORT, Dest, Host, Net, encode, eventually, lying, net

ACCOUNT = 61_234
"""A user that owns nothing else on this machine."""

RACE = """
import ctypes, os, sys
home, secret, kind = sys.argv[1:]
os.setgroups([]); os.setgid(61234); os.setuid(61234)
os.chdir(home)
libc = ctypes.CDLL(None)
def swap(one, two):  # the two names change places in one step
    libc.renameat2(-100, one.encode(), -100, two.encode(), 2)
print("ready", flush=True)
number = 0
while True:
    number += 1
    try:
        if kind == "directory":
            swap("conf", "link")
        elif kind == "file":
            swap("conf/zoo.cfg", "conf/link")
        else:  # what root has just made is put away, and a link to the secrets takes its place
            os.rename("conf/.zkm-stage", f"conf/aside.{number}")
            os.symlink(secret, "conf/.zkm-stage")
    except OSError:
        pass
"""


def told(place: Path) -> dict[str, tuple[object, ...]]:
    """Everything under it: content, mode and owner by path."""
    return {
        str(path): (path.read_bytes() if path.is_file() else b"", s.st_mode, s.st_uid, s.st_gid, s.st_nlink)
        for path in (place, *place.rglob("*"))
        for s in [path.lstat()]
    }


def give(*paths: Path) -> None:
    """Everything there belongs to the account."""
    for top in paths:
        for path in (top, *top.rglob("*")):
            os.chown(path, ACCOUNT, ACCOUNT, follow_symlinks=False)


@pytest.fixture
def host(open_folder: Path) -> Host:
    return Host(open_folder, [])


@pytest.fixture
def home(open_folder: Path, secret: Path) -> Path:
    """The account's home with a config, and links to the secrets ready beside it."""
    place = open_folder / "home"
    (place / "conf").mkdir(parents=True)
    (place / "conf" / "zoo.cfg").write_bytes(b"old")
    (place / "link").symlink_to(secret)
    (place / "conf" / "link").symlink_to(secret / "shadow")
    give(place)
    return place


@contextmanager
def racing(home: Path, secret: Path, kind: str) -> Iterator[None]:
    """The account races us in a process of its own."""
    argv = [sys.executable, "-c", RACE, str(home), str(secret), kind]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as racer:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
        try:
            yield
            assert racer.poll() is None
        finally:
            racer.kill()


def test_a_link_of_the_account_on_the_way_is_refused(host: Host, home: Path, secret: Path) -> None:
    before = told(secret)
    answer = host.put(str(home / "link" / "zoo.cfg"), b"x")
    assert (answer.rc, "is a link in a directory that others than root may write" in answer.text) == (3, True)
    assert "home/link" not in host.call("list", str(secret)).text
    assert told(secret) == before


def test_facts_tell_before_where_a_link_would_be_refused(host: Host, home: Path, open_folder: Path) -> None:
    (open_folder / "roots").symlink_to(home / "conf")
    fine = [str(home / "conf"), str(home / "none"), str(open_folder / "roots")]
    wrong = str(home / "link")
    told = [line for line in host.call("facts", "-", *fine, wrong).text.splitlines() if "refused=" in line]
    [line] = told
    assert line.startswith(f"refused=zkm-host: {wrong}: link is a link in a directory that others")


def test_links_that_root_made_are_followed(host: Host, home: Path, open_folder: Path) -> None:
    (open_folder / "one").symlink_to("two/../current")
    (open_folder / "two").mkdir()
    (open_folder / "current").symlink_to(home / "conf")
    assert host.put(str(open_folder / "one" / "zoo.cfg"), b"new").rc == 0
    assert (home / "conf" / "zoo.cfg").read_bytes() == b"new"
    (open_folder / "round").symlink_to("round")
    assert host.put(str(open_folder / "round" / "zoo.cfg"), b"new").rc == 5


WORDS = (
    "a[$(touch${IFS}canary)]",
    ";touch${IFS}canary",
    "x=`touch${IFS}canary`",
    "../../canary",
    "-canary",
    "08",
)


def test_no_word_of_a_served_request_runs_or_leaves_its_place(host: Host, open_folder: Path) -> None:
    """Every verb with a hostile word in each place, on a channel that is held open."""
    verbs = [line.split()[0] for line in host.call("help").lines()]
    good = ("o", "/no/such/place", "1")
    requests = [
        f"{number} {' '.join((verb, *good[:place], word))}"
        for number, (verb, place, word) in enumerate(
            (v, p, w) for v in verbs for p in range(3) for w in WORDS
        )
    ]
    done = subprocess.run(
        host.argv("serve"), input="\n".join(requests) + "\n", cwd=open_folder, env=host.environment(),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    codes = {line.split()[1]: line.split()[2] for line in done.stdout.splitlines() if line.startswith(". ")}
    assert len(codes) == len(requests)
    assert [path.name for path in open_folder.rglob("*canary*")] == []


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_link_where_others_than_root_write_counts_as_theirs(
    host: Host, home: Path, open_folder: Path, mode: int
) -> None:
    shared = open_folder / "shared"
    shared.mkdir()
    shared.chmod(mode)
    (shared / "conf").symlink_to(home / "conf")
    assert host.put(str(shared / "conf" / "zoo.cfg"), b"new").rc == 3
    assert (home / "conf" / "zoo.cfg").read_bytes() == b"old"


def test_a_link_of_the_account_behind_a_link_of_root_is_refused(
    host: Host, home: Path, secret: Path, open_folder: Path
) -> None:
    (open_folder / "conf").symlink_to(home / "link")
    before = told(secret)
    assert host.put(str(open_folder / "conf" / "zoo.cfg"), b"new").rc == 3
    assert told(secret) == before


def test_a_directory_of_the_account_keeps_its_guest_bit(host: Host, home: Path) -> None:
    """What root makes in such a directory has that bit too, and is known as ours all the same."""
    (home / "conf").chmod(0o2775)
    assert host.put(str(home / "conf" / "zoo.cfg"), b"new").rc == 0
    assert sorted(path.name for path in (home / "conf").iterdir()) == ["link", "zoo.cfg"]


@pytest.mark.parametrize("planted", ["zoo.cfg.zkm-op-1.tmp", ".zkm-stage", "zoo.cfg.zkm-new"])
def test_names_that_can_be_foreseen_lead_nowhere(host: Host, home: Path, secret: Path, planted: str) -> None:
    before = told(secret)
    for target in (secret, secret / "shadow"):
        link = home / "conf" / planted
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        assert host.put(str(home / "conf" / "zoo.cfg"), b"new", "0644").rc == 0
        host.do("restore", f"op-{host._count}")
        assert told(secret) == before


@pytest.mark.parametrize("kind", ["directory", "file", "stage"])
def test_an_account_that_races_us_gets_nothing(host: Host, home: Path, secret: Path, kind: str) -> None:
    """He swaps the directory, the file, or what root makes there, while files come and go."""
    target = str(home / "conf" / "zoo.cfg")
    before, around = told(secret), {path.name for path in home.parent.iterdir()} | {"state"}
    with racing(home, secret, kind):
        for number in range(examples(20)):
            host.put(target, f"new {number}".encode(), "0644", f"w{number}")
            host.call("restore", f"r{number}", f"w{number}")
            assert told(secret) == before
    assert {path.name for path in home.parent.iterdir()} == around
    # A copy that turned out to be a link was refused. It is left as .new, and nothing is put back from there.
    kept = [p for p in (host.directory / "before").glob("*/content") if p.parent.suffix != ".new"]
    assert not [path for path in kept if path.is_symlink()]


def once(program: str, act: str, home: Path) -> str:
    """A program in whose place, and just before it, the account acts once."""
    mark = home / "acted"
    return f'#!/bin/sh\n[ -e {mark} ] || {{ {act} && : >{mark}; }}\nexec {home.parent}/real-{program} "$@"\n'


def test_a_directory_that_becomes_a_link_while_it_is_entered_is_refused(
    host: Host, home: Path, secret: Path
) -> None:
    before = told(secret)
    act = f"[ $3$(pwd -P) = .{home} ] && mv conf real && mv link conf"
    lying(host, stat=once("stat", act, home))
    answer = host.put(str(home / "conf" / "zoo.cfg"), b"x")
    assert (answer.rc, "became a link" in answer.text) == (3, True), answer
    assert told(secret) == before


def test_a_file_that_becomes_a_link_is_not_kept_as_what_was_before(
    host: Host, home: Path, secret: Path
) -> None:
    lying(host, cp=once("cp", f"cd {home}/conf && mv link zoo.cfg && cd $OLDPWD", home))
    assert host.put(str(home / "conf" / "zoo.cfg"), b"x", operation="w").rc == 5
    assert not (host.directory / "before" / "w").exists()


@pytest.fixture(scope="module")
def made() -> Iterator[Net]:
    with net() as built:
        yield built


@pytest.fixture
def dest(made: Net, open_folder: Path, request: pytest.FixtureRequest) -> Iterator[Dest]:
    """A dest host whose data and config belong to the account; its /bin/sh is the one that is asked for."""
    host = Dest(open_folder / "site", made)
    if getattr(request, "param", "sh") == "bash":
        host.prefix = [*host.prefix, "bash", "--posix"]
    config = host.folder / "conf" / "zoo.cfg"
    config.parent.mkdir()
    host.config.rename(config)
    host.config = config
    give(host.data, host.log, config.parent)
    yield host
    subprocess.run(made.inside("dest", "sh", "-c", f"{host.kill} 2>&-"), check=False, capture_output=True)
    for program in ("iptables", "ip6tables"):
        for flag in ("-F", "-X"):
            subprocess.run(made.inside("dest", program, flag), check=True)
    subprocess.run(made.inside("dest", "ipset", "destroy"), check=True)
    kill_all(f"{made.prefix}-dest")


def tag(dest: Dest) -> str:
    """Anybody can foresee it."""
    return subprocess.run(
        ["sh", "-c", f"printf %s {dest.run_id} | sha256sum | cut -c1-8"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip


def test_an_image_is_taken_into_no_directory_that_is_not_ours(dest: Dest, secret: Path) -> None:
    dest.stage()
    before = told(secret)
    image = dest.data / f".zkm-image-{tag(dest)}"
    image.symlink_to(secret)
    assert "was not made by zkm-host" in dest.refused("arm", dest.spec(), rc=5)
    assert told(secret) == before
    image.unlink()
    image.mkdir(mode=0o700)
    (image / "version-2").symlink_to(secret)
    give(image)
    assert "was not made by zkm-host" in dest.refused("arm", dest.spec(), rc=5)
    assert told(secret) == before
    shutil.rmtree(image)
    dest.do("arm", dest.spec())
    assert image.stat().st_uid == 0
    dest.do("disarm")
    assert not image.exists()


def test_data_behind_a_link_is_not_read(dest: Dest, secret: Path) -> None:
    dest.stage()
    (dest.data / "version-2").rename(dest.data / "real")
    (dest.data / "version-2").symlink_to(secret / "version-2")
    assert "is a symbolic link" in dest.refused("arm", dest.spec(), rc=5)
    assert not list(dest.data.glob(".zkm-image-*/version-2/*"))


@pytest.mark.parametrize("dest", ["sh", "bash"], indirect=True)
@pytest.mark.parametrize(
    "name", ["log.1 +a[$(touch${IFS}canary)]", "log.7\n+a[`touch${IFS}canary`]", "log.1 ..", "a b"]
)
def test_file_names_are_no_code_and_odd_ones_are_refused(dest: Dest, name: str) -> None:
    dest.stage()
    (dest.log / "version-2" / name).write_bytes(b"x")
    assert "a name that is not ZooKeeper's" in dest.refused("arm", dest.spec(), rc=5)
    assert not Path("canary").exists()


def test_a_config_that_became_a_link_is_not_written_and_gives_no_bits(dest: Dest, secret: Path) -> None:
    """The way back writes the observer's config with the owner and mode of what is there."""
    dest.stopped()
    before = told(secret)
    dest.config.rename(dest.config.with_name("real"))
    dest.config.symlink_to(secret / "zoo.cfg")
    assert "is a link, or no regular file" in dest.refused("started-observer")
    assert told(secret) == before
    dest.config.unlink()
    dest.config.write_bytes(b"another")
    os.chown(dest.config, ACCOUNT, ACCOUNT)
    dest.config.chmod(0o6750)
    dest.config.with_name("zoo.cfg.zkm-new").symlink_to(secret / "shadow")
    dest.do("started-observer")
    assert told(secret) == before
    seen = dest.config.stat()
    assert dest.config.read_bytes() == dest.OBSERVER
    assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o7777) == (ACCOUNT, ACCOUNT, 0o750)


@pytest.mark.parametrize("dest", ["sh", "bash"], indirect=True)
def test_the_whole_way_there_and_back_beside_planted_links(dest: Dest, secret: Path) -> None:
    """Image, both configs, dynamic files and restored data, each with a link where root once wrote."""
    dynamic = dest.config.with_name("zoo.cfg.dynamic.1")
    dynamic.write_bytes(b"left over")
    dest.config.with_name("zoo.cfg.dynamic -v").write_bytes(b"no file of ZooKeeper's")
    give(dest.config.parent)
    dest.stopped()
    owners = {
        str(path): (path.read_bytes(), path.stat().st_uid) for path in (*dest.data.rglob("snap*"), dynamic)
    }
    data, before = dest.data / "version-2", told(secret)
    for link in (
        dest.config.with_name("zoo.cfg.zkm-new"),
        dest.data / "version-2.zkm-new",
        dest.data / "version-2.zkm-old",
    ):
        link.symlink_to(secret)
    dest.seal()
    dest.go()
    eventually("the participant serves", lambda: dest.phase() == "started")
    assert not dynamic.exists()
    assert dest.call("guard").rc == 0, "a file name is no option of a program"
    assert told(secret) == before
    dest.do("halt")
    dynamic.symlink_to(secret / "shadow")
    dest.do("image", "restore")
    assert told(secret) == before
    assert data.stat().st_uid == ACCOUNT
    assert {path: (Path(path).read_bytes(), Path(path).stat().st_uid) for path in owners} == owners
    assert not dynamic.is_symlink()


NAMED = """
import os, socket, sys, time
uid, port, name = sys.argv[1:]
listener = socket.create_server(("", int(port)))
open("/proc/self/comm", "wb").write(name.encode())
os.setuid(int(uid))
print("up", flush=True)
time.sleep(1000)
"""


def listen(dest: Dest, name: str, port: int, uid: int = 0) -> subprocess.Popen[str]:
    """A process of that name and account that listens."""
    child = subprocess.Popen(
        dest.net.inside("dest", sys.executable, "-c", NAMED, str(uid), str(port), name),
        stdout=subprocess.PIPE,
        text=True,
    )
    dest.net.children.append(child)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    return child


@pytest.mark.parametrize("dest", ["sh", "bash"], indirect=True)
@pytest.mark.parametrize("name", [",pid=../tmp/x,", "x) Z 1 2 3", "a\n) S 1 2 3", "1) S a[$(id)]"])
def test_a_process_is_known_by_its_number_whatever_it_is_called(dest: Dest, name: str) -> None:
    child = listen(dest, name, CLIENT_PORT)
    true = encode("true")
    own = (f"start={true}", f"stop={true}", f"status={true}", f"ports={CLIENT_PORT}")
    seen = dest.call("status", "kafka", *own).values()
    ticks = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2].split()[19])
    assert (seen["unit_pid"], seen["unit_since"]) == (str(child.pid), str(ticks * 10_000 + 9_999))
    heard = dest.call("surroundings", "-", str(CLIENT_PORT)).lines()
    assert [line.split()[0] for line in heard if line.startswith("listener=")] == [f"listener={child.pid}"]
    child.kill()
    child.wait()


def test_only_roots_sshd_is_let_through(dest: Dest) -> None:
    """Ports of sshd are never fenced nor cut, so nobody else may call himself that."""
    forged, real = listen(dest, "sshd", 2223, ACCOUNT), listen(dest, "sshd", 2222)
    dest.stage()
    dest.do("arm", dest.spec())
    assert "ssh_ports=2222,22\n" in (dest.directory / "spec").read_text()
    dest.do("disarm")
    for child in (forged, real):
        child.kill()
        child.wait()
