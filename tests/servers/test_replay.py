"""`zkmigrate replay` between two real ensembles of one server, the second begun from the first one's disk.

The command is killed in the middle and begun again; what came of it is read back from both.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_acl

from tests.servers.ensembles import Member, client, serving
from tests.servers.process import ADDRESS, START_SECONDS
from zkmigrate.clients.replay import MARKER
from zkmigrate.lab.load.zkmessages import CREATE, EPHEMERAL, buffer, create_request
from zkmigrate.lab.waiting import wait_until
from zkmigrate.zkdata.messages import connect_request

OWNER_TIMEOUT_MS = 4000
EXPIRY_SECONDS = 60


def forgotten_owner(member: Member, path: str) -> socket.socket:
    """A session that owns an ephemeral and never says goodbye: it ends by its timeout once this is closed."""
    sock = socket.create_connection((ADDRESS, member.port), timeout=START_SECONDS)
    sock.sendall(connect_request(OWNER_TIMEOUT_MS))
    sock.recv(1000)
    header = (1).to_bytes(4, "big") + CREATE.to_bytes(4, "big")
    sock.sendall(buffer(header + create_request(path, b"", EPHEMERAL)))
    sock.recv(1000)
    return sock


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


def argv(verb: str, source: Member, dest: Member, chroot: str, *more: str) -> list[str]:
    words = ["--source-dir", str(source.data), "--dest-dir", str(dest.data), "--chroot", chroot]
    return [sys.executable, "-m", "zkmigrate", "replay", verb, *words, "--json", *more]


def asked(*words: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, what was printed, what was said beside it."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


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
        with closing(forgotten_owner(source, "/kafka/brokers/ids/7")):
            shutil.copytree(source.folder, dest.folder)
        with serving("3.8.4", dest):
            with client(dest) as on_dest:
                live(on_dest)
            with client(dest) as on_dest:
                session_ends("dest", on_dest)
                expected = tree(on_dest, "/kafka")
        session_ends("source", on_source)
        code, found, said = asked(*argv("list", source, dest, "/kafka"))
        assert (code, [c["id"] for c in found["conditions"] if not c["held"]]) == (0, []), said
        total = found["replay"]["transactions"]
        assert found["replay"]["count"] == 2
        apply = ["--source", f"{ADDRESS}:{source.port}", "--consent", "Ada Owner", "--yes"]

        killed_behind(5, argv("apply", source, dest, "/kafka", *apply, "--rate", "20"), on_source, "/kafka")
        body = json.loads(on_source.get(f"/kafka/{MARKER}")[0])
        assert body["consent"] == "Ada Owner"
        code, found, said = asked(*argv("apply", source, dest, "/kafka", *apply, "--rate", "0"))
        assert code == 0, said
        assert "going on behind" in said
        assert (found["applied"]["transactions"], found["applied"]["held"]) == (total, True)
        seen = tree(on_source, "/kafka")
        chroot, theirs = seen.pop("/kafka"), expected.pop("/kafka")
        assert seen == expected
        assert chroot[:4] == theirs[:4]
        following = on_source.create("/kafka/config/changes/change_", b"", sequence=True)
        assert following == "/kafka/config/changes/change_0000000040"

        code, found, said = asked(*argv("apply", source, dest, "/kafka", *apply))
        assert (code, [c["id"] for c in found["conditions"] if not c["held"]]) == (10, ["source.untouched"])
        assert on_source.exists(f"/kafka/{MARKER}") is None

        killed_behind(3, argv("apply", source, dest, "/stray", *apply, "--rate", "20"), on_source, "/stray")
        on_source.set("/stray/z", b"of somebody else")
        code, found, said = asked(*argv("apply", source, dest, "/stray", *apply, "--rate", "0"))
        assert code == 6
        assert "SetData /stray/z: BadVersionError" in said
        assert on_source.get("/stray/z")[0] == b"of somebody else"
        assert json.loads(on_source.get(f"/stray/{MARKER}")[0])["done"] != "0x0"
