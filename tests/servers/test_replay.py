"""A replay between two real ensembles of one server, the second begun from the first one's disk.

The process that sends its changes is killed in the middle, and they are sent again; what came of it is read
back from both.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_acl

from tests.servers.ensembles import Member, client, serving
from tests.servers.process import ADDRESS, START_SECONDS
from zkmigrate.lab.wait import wait_until
from zkmigrate.move.clients import replay
from zkmigrate.move.facts.replay import ReplayDisks, ReplayScope
from zkmigrate.move.facts.replay_disks import Reader
from zkmigrate.zookeeper.changes import SOURCE, BeginReplay, EndReplay, ReplayTransactions
from zkmigrate.zookeeper.clients.login import OPEN
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.proofs import Side
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.replay import MARKER, Mark
from zkmigrate.zookeeper.data.zxid import format_zxid

OWNER_TIMEOUT_S = 4
EXPIRY_SECONDS = 60


@contextmanager
def forgotten_owner(member: Member, path: str) -> Iterator[None]:
    """A session of another process that owns an ephemeral; the process is killed with the block, so that the
    session ends by its timeout."""
    program = (
        f"from kazoo.client import KazooClient; zk = KazooClient('{ADDRESS}:{member.port}', "
        f"timeout={OWNER_TIMEOUT_S}); zk.start({START_SECONDS}); zk.create('{path}', ephemeral=True); "
        "print('owned', flush=True); import time; time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"owned\n"
            yield
        finally:
            process.kill()


def plant(zk: KazooClient) -> None:
    """What both sides have before the cut."""
    for path in ("/kafka/brokers/ids", "/kafka/config/changes", "/stray", "/other"):
        zk.ensure_path(path)
    zk.create("/kafka/old", b"0")
    zk.create("/kafka/gone", b"")
    zk.create("/kafka/secret", b"", acl=[make_acl("world", "anyone", all=True)])
    zk.create("/kafka/config/changes/change_", b"1", sequence=True)
    zk.create("/stray/z", b"")


def live(zk: KazooClient) -> None:
    """What dest does by itself: every kind of change, also those that leave nothing."""
    zk.create("/kafka/brokers/ids/1", b"{}", ephemeral=True)
    for number in range(1, 40):
        zk.set("/kafka/old", str(number).encode())
        zk.create("/kafka/config/changes/change_", b"%d" % number, sequence=True)
    zk.set_acls("/kafka/secret", [make_acl("world", "anyone", read=True, admin=True)])
    zk.create("/kafka/null", b"")
    zk.set("/kafka/null", None)
    zk.create("/kafka/again", b"first")
    zk.delete("/kafka/again")
    zk.create("/kafka/again", b"second")
    zk.delete("/kafka/gone")
    multi = zk.transaction()
    multi.create("/kafka/controller", b"1", ephemeral=True)
    multi.create("/kafka/controller_epoch", b"1")
    multi.set_data("/kafka/controller_epoch", b"2")
    multi.create("/other/of-nobody's-business", b"")
    multi.commit()
    failed = zk.transaction()
    failed.create("/kafka/never", b"")
    failed.delete("/kafka/not-there")
    failed.commit()
    for number in range(20):
        zk.set("/stray/z" if number == 19 else "/stray", b"%d" % number)


def tree(zk: KazooClient, path: str) -> dict[str, tuple[object, ...]]:
    """Path to data, ACL and versions, of all that stays."""
    data, stat = zk.get(path)
    acls, _ = zk.get_acls(path)
    found: dict[str, tuple[object, ...]] = {}
    if not stat.ephemeralOwner:
        found[path] = (data, tuple(acls), stat.version, stat.aversion, stat.cversion)
    for name in zk.get_children(path):
        found |= tree(zk, f"{path}/{name}")
    return found


def session_ends(side: str, zk: KazooClient) -> None:
    """Until the forgotten owner's ephemeral is gone."""

    def missing() -> str | None:
        return "it lives" if "7" in zk.get_children("/kafka/brokers/ids") else None

    wait_until(f"{side} ends the session that nobody closed", missing, EXPIRY_SECONDS)


def asked(*words: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, what was printed, what was said beside it."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def side(member: Member) -> Side:
    folder = FileDirectory(member.data / "version-2")
    return Side(member.folder.name, folder, folder)


def looking(source: Member, dest: Member, chroot: str) -> ReplayDisks:
    return ReplayDisks(lambda: [side(source), side(dest)], Chroot(chroot))


def changes(found: ReplayScope) -> list[ReplayTransactions]:
    path, cut = found.chroot.path, format_zxid(found.cut)
    return [
        ReplayTransactions(SOURCE, path, found.dest, cut, format_zxid(b.upto), b.count, b.fingerprint)
        for b in found.batches
    ]


def begin(found: ReplayScope) -> BeginReplay:
    return BeginReplay(SOURCE, found.chroot.path, found.dest, format_zxid(found.cut), "Ada Owner")


def sent(
    source: Member, dest: Member, *todo: BeginReplay | ReplayTransactions | EndReplay
) -> list[tuple[int, str]]:
    """What each of the changes answered."""
    disk = side(dest)
    reader = Reader(Chroot(todo[0].chroot), lambda _host: (disk.data, disk.logs))
    return [replay.alter([Server(ADDRESS, source.port)], OPEN, reader, change) for change in todo]


def slowly(source: Member, dest: Member, chroot: str) -> list[str]:
    """A process that sends all of it, 20 transactions a second."""
    program = (
        "import sys; from pathlib import Path; import tests.servers.test_replay as t; "
        "from zkmigrate.move.clients import replay; replay._RATE = 20.0; t.ADDRESS = sys.argv[6]; "
        "one = lambda at, port: t.Member(1, Path(at), port=int(port)); "
        "a, b = one(*sys.argv[1:3]), one(*sys.argv[3:5]); "
        "found = t.looking(a, b, sys.argv[5]).examine(); "
        "t.sent(a, b, t.begin(found), *t.changes(found))"
    )
    words = (source.folder, source.port, dest.folder, dest.port, chroot, ADDRESS)
    return [sys.executable, "-c", program, *map(str, words)]


def killed_behind(version: int, words: list[str], zk: KazooClient, chroot: str) -> None:
    """Begin the command, and kill it once so many transactions are done."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def missing() -> str | None:
        if process.poll() is not None:
            _, said = process.communicate()
            raise AssertionError(f"it ended with {process.returncode}: {said.decode()[-2000:]}")
        try:
            _, stat = zk.get(f"{chroot}/{MARKER}")
        except NoNodeError:
            return "no marker"
        return None if stat.version >= version else f"{stat.version} done"

    wait_until(f"{version} transactions replayed", missing, START_SECONDS)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_what_dest_did_is_done_again_on_source_once_each(tmp_path: Path) -> None:
    source, dest = Member(1, tmp_path / "source"), Member(1, tmp_path / "dest")
    with serving("3.5.8", source), client(source) as on_source:
        plant(on_source)
        with forgotten_owner(source, "/kafka/brokers/ids/7"):
            shutil.copytree(source.folder, dest.folder)
        with serving("3.8.4", dest):
            with client(dest) as on_dest:
                live(on_dest)
            with client(dest) as on_dest:
                session_ends("dest", on_dest)
                expected = tree(on_dest, "/kafka")
        session_ends("source", on_source)
        code, found, said = asked(
            *(sys.executable, "-m", "zkmigrate", "replay", "list", "--json", "--chroot", "/kafka"),
            *("--source-dir", str(source.data), "--dest-dir", str(dest.data)),
        )
        assert (code, [c["id"] for c in found["conditions"] if not c["held"]]) == (0, []), said
        total = found["replay"]["transactions"]
        assert found["replay"]["count"] == 2

        killed_behind(5, slowly(source, dest, "/kafka"), on_source, "/kafka")
        body = json.loads(on_source.get(f"/kafka/{MARKER}")[0])
        assert body["consent"] == "Ada Owner"
        disks = looking(source, dest, "/kafka")
        mark = Mark.decode(*_shown(on_source, f"/kafka/{MARKER}"))
        plan = disks.examine(mark)
        assert all(c.held for c in plan.conditions), plan.conditions
        assert disks.is_of(f"/kafka/{MARKER}", mark.created)
        for _ in range(2):  # sent twice it does nothing twice
            answers = sent(source, dest, begin(plan), *changes(plan))
            assert answers[1:] == [(0, f"{total} transactions are replayed")]
        same = disks.compare(plan.dest, plan.upto, on_source.last_zxid)
        assert same.held, same.seen
        for _ in range(2):
            assert sent(source, dest, EndReplay(SOURCE, "/kafka"))[0][0] == 0
        seen = tree(on_source, "/kafka")
        chroot, theirs = seen.pop("/kafka"), expected.pop("/kafka")
        assert seen == expected
        assert chroot[:4] == theirs[:4]
        following = on_source.create("/kafka/config/changes/change_", b"", sequence=True)
        assert following == "/kafka/config/changes/change_0000000040"

        failing = [c.id for c in looking(source, dest, "/kafka").examine().conditions if not c.held]
        assert failing == ["source.untouched"]
        assert on_source.exists(f"/kafka/{MARKER}") is None
        code, said = sent(source, dest, *changes(plan))[0]
        assert (code, "no replay has begun" in said) == (1, True)

        stray = looking(source, dest, "/stray").examine()
        other = [replace(change, fingerprint="0" * 32) for change in changes(stray)]
        assert sent(source, dest, begin(stray), *other)[1][0] == 1
        assert on_source.get(f"/stray/{MARKER}")[1].version == 0
        killed_behind(3, slowly(source, dest, "/stray"), on_source, "/stray")
        on_source.set("/stray/z", b"of somebody else")
        code, said = sent(source, dest, *changes(stray))[0]
        assert code == 1
        assert "SetData /stray/z: BadVersionError" in said
        assert on_source.get("/stray/z")[0] == b"of somebody else"
        assert json.loads(on_source.get(f"/stray/{MARKER}")[0])["done"] != format_zxid(stray.cut)


def _shown(zk: KazooClient, path: str) -> tuple[bytes, int, int]:
    data, stat = zk.get(path)
    return data, stat.version, stat.czxid
