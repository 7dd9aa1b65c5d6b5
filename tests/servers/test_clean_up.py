"""`zkmigrate clean-up` on a real ensemble of three: what is listed, refused, kept, deleted, put back.

The command is killed, and interrupted, in the middle and begun again. The broker's host does not answer, so
each call accepts that its chroot is not read.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl, make_digest_acl

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.servers.ensembles import quorum
from tests.servers.process import ADDRESS, START_SECONDS
from tests.unit import sshd
from zkmigrate.errors import LockedError, UsageError, ZkmigrateError
from zkmigrate.inventory import inventory as inventories
from zkmigrate.lab.wait import wait_until
from zkmigrate.move.rules.clean_up import Node
from zkmigrate.move.verbs.clean_up import Options, clean_up
from zkmigrate.move.verbs.deletion import ChangedError, Dest
from zkmigrate.report.build import build
from zkmigrate.report.sources import read
from zkmigrate.runbook.engine import journal as journals
from zkmigrate.runbook.engine import runs
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.engine.lock import LocalLock
from zkmigrate.runbook.runs import run_status
from zkmigrate.runbook.runs.verb_context import VerbContext
from zkmigrate.runbook.site.wiring import Site
from zkmigrate.zookeeper.data.messages import connect_request

TAIL = ADDRESS.partition("127.1")[2]
ADDRESSES = tuple(f"127.{n}{TAIL}" for n in (1, 2, 3))
STRANGER = "127.0.0.77"
RUN = "move-1"
UNREAD = "clean-up.chroots:broker1"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with quorum("3.8.4", tmp_path_factory.mktemp("dest"), ADDRESSES) as port:
        with client(port) as zk:
            zk.ensure_path("/kafka/brokers/ids")
        yield port


@contextmanager
def client(port: int, at: int = 0) -> Iterator[KazooClient]:
    """A session of the operator's on one of the servers."""
    made = KazooClient(f"{ADDRESSES[at]}:{port}")
    made.start(START_SECONDS)
    try:
        yield made
    finally:
        made.stop()
        made.close()


def stranger(port: int) -> socket.socket:
    """A session of somebody else's, which owns and watches nothing."""
    sock = socket.create_connection((ADDRESSES[1], port), START_SECONDS, source_address=(STRANGER, 0))
    sock.sendall(connect_request(30_000))
    sock.recv(1000)
    return sock


class Late(Dest):
    """A session in which something happens between the look at a batch and its multi."""

    def __init__(self, client: KazooClient, happens: Callable[[], object]) -> None:
        super().__init__(client)
        self._happens = happens

    def _as_kept(self, nodes: Sequence[Node]) -> list[Node]:
        there = super()._as_kept(nodes)
        self._happens()
        return there


class Asking(io.StringIO):
    """A screen on which something happens once a question is shown."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__()
        self._happens = happens

    def write(self, text: str) -> int:
        if "type their names" in text:
            self._happens()
        return super().write(text)


@dataclass
class Place:
    """A run that is at its end, and dest as it was at the cut."""

    folder: Path
    port: int
    top: str

    @property
    def file(self) -> Path:
        return self.folder / "migration.yml"

    @property
    def run_dir(self) -> Path:
        return self.folder / "runs" / RUN

    def begin(
        self, stages: int = len(PLAYBOOK.stages), ssh: str = "", config: str = "/etc/kafka/none"
    ) -> None:
        """ssh: as the inventory says it, where the broker's host answers; config: the broker's file."""
        hosts = "".join(
            f"    - {{name: dest{n}, address: {address}, myid: {n + 10}}}\n"
            for n, address in enumerate(ADDRESSES, 1)
        )
        self.file.write_text(
            "version: 1\nname: move\noperator: [127.0.0.1]\n"
            f"ssh: {{{ssh or 'user: ops, key: key, known_hosts: known_hosts'}}}\n"
            "source:\n  hosts:\n    - {name: source1, address: 127.8.0.1, myid: 1}\n"
            f"dest:\n  ports: {{client: {self.port}}}\n  hosts:\n{hosts}"
            f"kafka:\n  cluster_id: abcdefghijklmnopqrstuv\n  chroot: /kafka\n  config: {config}\n"
            "  brokers:\n"
            "    - {name: broker1, address: 127.9.0.1, id: 1}\n"
        )
        sshd.make_key(self.folder / "key")
        (self.folder / "known_hosts").touch(0o600)
        inventory = inventories.load(self.file)
        runs.make(self.run_dir)
        journal = Journal.create(self.run_dir, time.time)
        names = {"run": RUN, "name": "move", "playbook": PLAYBOOK.id, "plan": ""}
        journal.append("begin", {**names, "inventory": inventories.digest(inventory), "hosts": {}})
        with client(self.port) as zk:
            zk.ensure_path(f"{self.top}/cut")
            cut = zk.exists(f"{self.top}/cut").czxid
        tails = {"tails": {"dest1": hex(cut)}, "stamps": {}, "boots": {}}
        journal.append("record", {"stage": "cutover", "step": "stop", "record": tails})
        for stage in PLAYBOOK.stages[:stages]:
            journal.append("stage", {"stage": stage.id, "event": "done"})
        journal.append("end", {"code": 0, "message": "complete"})
        journal.close()

    def ask(
        self, typed: str | None = None, at_question: Callable[[], object] = tuple, **wishes: Any
    ) -> tuple[int, str]:
        """The verb in this process; typed: what is said to its question, at a terminal."""
        wanted = {"subtrees": (self.top,), "reason": "tenants stay on source", "accept": (UNREAD,)}
        reader, writer = os.pipe()
        out = Asking(at_question)
        try:
            os.write(writer, f"{typed}\n".encode())
            os.close(writer)
            setting = VerbContext(
                self.file,
                PLAYBOOK.id,
                False,
                self.folder / "runs",
                lambda inventory, run: cast(Any, Site(inventory, run)),
                out=out,
                stdin=reader,
                interactive=typed is not None,
                verb="clean-up",
            )
            code = clean_up(setting, Options(RUN, **{**wanted, "yes": typed is None, **wishes}))
        finally:
            os.close(reader)
        return code, out.getvalue()

    def words(self, *more: str) -> list[str]:
        words = ["-i", str(self.file), "--run-id", RUN, "--yes", "--reason", "gone", "--accept", UNREAD]
        return [sys.executable, "-m", "zkmigrate", "clean-up", *words, *more]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "ZKMIGRATE_RUNS": str(self.folder / "runs")}

    def events(self) -> list[tuple[str, str]]:
        told = [e.body for e in journals.kept_lines(self.run_dir) if e.kind == "cleaned"]
        return [(body["subtree"], body["event"]) for body in told]

    def images(self) -> list[Path]:
        return sorted(self.run_dir.glob("clean-up-*.jsonl"))


@pytest.fixture
def place(tmp_path: Path, port: int, request: pytest.FixtureRequest) -> Place:
    """Its subtree has the name of the test."""
    return Place(tmp_path, port, f"/{request.node.name.removeprefix('test_')[:40]}")


def plant(place: Place, many: int = 3) -> None:
    with client(place.port) as zk:
        zk.create(f"{place.top}/live/nodes", b"x" * 10, makepath=True)
        zk.create(f"{place.top}/null", None)
        zk.create(f"{place.top}/bin", bytes(range(256)))
        zk.create(f"{place.top}/open", b"", acl=[make_acl("world", "anyone", all=True)])
        zk.create(f"{place.top}/ours", b"1", acl=[make_acl("world", "anyone", read=True, delete=True)])
        zk.set(f"{place.top}/bin", b"2")
        for n in range(many):
            zk.create(f"{place.top}/live/nodes/n{n}", b"%d" % n)


def tree(port: int, path: str, at: int = 0) -> dict[str, tuple[Any, ...]]:
    with client(port, at) as zk:
        zk.sync("/")
        found: dict[str, tuple[Any, ...]] = {}
        ahead = [path] if zk.exists(path) else []
        while ahead:
            one = ahead.pop()
            with suppress(NoAuthError):
                found[one] = (b"", ())
                found[one] = (zk.get(one)[0], tuple(zk.get_acls(one)[0]))
                ahead += [f"{one.rstrip('/')}/{name}" for name in zk.get_children(one)]
    return found


def test_it_is_listed_deleted_and_put_back(place: Place) -> None:
    plant(place)
    place.begin()
    before = tree(place.port, place.top)

    code, said = place.ask(subtrees=(), yes=False, reason="", accept=())
    assert code == 0
    assert f"{place.top}: {len(before)} znodes, 15 bytes" in said
    assert "/kafka" not in said.replace("Kafka", "")
    assert "/zookeeper" not in said
    assert (place.events(), place.images()) == ([], [])

    code, said = place.ask(typed="/other")
    assert (code, tree(place.port, place.top)) == (130, before), said
    assert place.events() == []

    code, said = place.ask(typed=place.top)
    assert code == 0, said
    assert all(tree(place.port, place.top, at) == {} for at in range(3))
    assert tree(place.port, "/kafka").keys() == {"/kafka", "/kafka/brokers", "/kafka/brokers/ids"}
    assert place.events() == [(place.top, "begin"), (place.top, "done")]
    (kept,) = place.images()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert json.loads(kept.read_text().partition("\n")[0])["path"] == place.top
    begun = journals.read(place.run_dir)
    assert begun.ended == (0, "complete")
    assert begun.cleaned[place.top]["reason"] == "tenants stay on source"
    status = run_status.of_run(place.run_dir, PLAYBOOK, (), time.time)
    assert f"  {place.top}: deleted from dest" in run_status.lines(status)
    story = [(d.kind, d.where) for d in build(read(place.run_dir), PLAYBOOK).decisions]
    assert ("cleaned", place.top) in story

    with client(place.port) as zk:
        zk.ensure_path(f"{place.top}/bin")
        zk.set(f"{place.top}/bin", b"newer")
    code, said = place.ask(put_back=True)
    assert code == 0, said
    after = tree(place.port, place.top)
    assert after.pop(f"{place.top}/bin")[0] == b"newer"
    del before[f"{place.top}/bin"]
    assert after == before
    assert place.events()[2:] == [(place.top, "putting-back"), (place.top, "put-back")]

    kept.write_bytes(kept.read_bytes().replace(b"null", b"NULL", 1))
    with pytest.raises(ZkmigrateError, match="is not the file that was written"):
        place.ask(put_back=True)


def test_both_ways_say_how_far_they_are(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkmigrate.move.verbs.clean_up._PROGRESS_S", 0.0)
    plant(place, many=92)
    place.begin()
    assert len(tree(place.port, place.top)) == 100
    _, deleted = place.ask()
    _, back = place.ask(put_back=True)
    for said, did in ((deleted, "deleted"), (back, "put back")):
        told = [line for line in said.splitlines() if f" of 100 znodes {did}, about " in line]
        assert [line.partition(" of ")[0] for line in told] == [f"{place.top}: 50", f"{place.top}: 100"]
        assert told[-1].endswith("about 0 s left")


def test_a_run_that_is_not_finalized_is_refused(place: Place) -> None:
    place.begin(stages=len(PLAYBOOK.stages) - 1)
    with pytest.raises(UsageError, match="has not ended"):
        place.ask()
    assert place.top in tree(place.port, place.top)


@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        ({"subtrees": ("/kafka",)}, "/kafka cannot be chosen"),
        ({"subtrees": ("/zookeeper",)}, "/zookeeper cannot be chosen"),
        ({"subtrees": ("/",)}, "/ cannot be chosen"),
        ({"put_back": True}, "/refused cannot be chosen"),
        ({"reason": " "}, "--reason is missing"),
        ({"accept": ("clean-up.owned:/a",)}, "cannot be accepted"),
        ({"all": True}, "exclude each other"),
        ({"subtrees": (), "put_back": True}, "--put-back needs"),
        ({"yes": False}, "Cannot prompt"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(place: Place, wishes: dict[str, Any], why: str) -> None:
    place.top = "/refused"
    place.begin()
    before = tree(place.port, "/")
    with pytest.raises(UsageError, match=why):
        place.ask(**wishes)
    assert tree(place.port, "/") == before


def refused(place: Place, id: str, **wishes: Any) -> None:
    """It may not go, for this reason, and nothing is changed."""
    before = tree(place.port, place.top)
    code, said = place.ask(**wishes)
    assert code == 6, said
    assert f"{id} {place.top}" in said or f"{id} {STRANGER}" in said, said
    assert "nothing was deleted" in said
    assert (tree(place.port, place.top), place.events()) == (before, [])


def test_an_ephemeral_keeps_it(place: Place) -> None:
    with client(place.port, at=2) as zk:
        zk.create(f"{place.top}/me", b"", ephemeral=True, makepath=True)
        place.begin()
        refused(place, "clean-up.owned")


def test_a_watch_on_any_server_keeps_it(place: Place) -> None:
    plant(place)
    place.begin()
    with client(place.port, at=2) as zk:
        zk.get(f"{place.top}/bin", watch=print)
        refused(place, "clean-up.watched")


def test_a_write_after_the_cut_keeps_it(place: Place) -> None:
    plant(place)
    place.begin()
    with client(place.port) as zk:
        zk.set(f"{place.top}/bin", b"3")
    refused(place, "clean-up.written")


def test_a_child_that_went_after_the_cut_is_answered_for_by_name(place: Place) -> None:
    plant(place)
    place.begin()
    with client(place.port) as zk:
        zk.delete(f"{place.top}/live/nodes/n0")
    refused(place, "clean-up.children")
    code, said = place.ask(accept=(UNREAD, f"clean-up.children:{place.top}"))
    assert (code, tree(place.port, place.top)) == (0, {}), said


def test_another_client_of_dest_is_answered_for_by_name(place: Place) -> None:
    plant(place)
    place.begin()
    with closing(stranger(place.port)):
        refused(place, "clean-up.clients")
        code, said = place.ask(accept=(UNREAD, f"clean-up.clients:{STRANGER}"))
        assert (code, tree(place.port, place.top)) == (0, {}), said


def test_a_chroot_that_is_not_read_keeps_everything(place: Place) -> None:
    plant(place)
    place.begin()
    code, said = place.ask(accept=())
    assert (code, place.events()) == (6, [])
    assert "clean-up.chroots broker1" in said


def test_what_a_brokers_file_names_is_no_subtree(place: Place) -> None:
    """It is read by the ssh account: finalize has taken the rights of root back."""
    plant(place)
    config = place.folder / "server.properties"
    config.write_text(f"zookeeper.connect={ADDRESSES[0]}:{place.port}{place.top}/live\n")
    with sshd.running(place.folder) as daemon:
        daemon.refuse_sudo()
        pins = daemon.pin(["127.9.0.1"])
        login = f"user: {sshd.user()}, port: {daemon.port}, key: user_key, known_hosts: {pins}"
        place.begin(ssh=login, config=str(config))
        with pytest.raises(UsageError, match=rf"{place.top} cannot be chosen.*{place.top}/bin"):
            place.ask(accept=())
        beside = (f"{place.top}/bin", f"{place.top}/null")
        code, said = place.ask(accept=(), subtrees=beside)
    assert code == 0, said
    left = tree(place.port, place.top)
    assert f"{place.top}/live/nodes/n0" in left
    assert not set(beside) & set(left)


def test_an_acl_that_forbids_it_is_named(place: Place) -> None:
    with client(place.port) as zk:
        zk.create(f"{place.top}/shut/in", b"", makepath=True)
        zk.set_acls(f"{place.top}/shut", [make_digest_acl("solr", "secret", all=True)])
    place.begin()
    refused(place, "clean-up.locked")


def begun(words: list[str], place: Place, left: int) -> subprocess.Popen[bytes]:
    """The command at work, with so few znodes left."""
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=place.environment
    )

    with client(place.port) as zk:

        def missing() -> str | None:
            if process.poll() is not None:
                _, said = process.communicate()
                raise AssertionError(f"it ended with {process.returncode}: {said.decode()[-2000:]}")
            count = len(zk.get_children(f"{place.top}/live/nodes"))
            return None if count <= left else f"{count} znodes left"

        wait_until(f"{left} znodes left", missing, START_SECONDS)
    return process


def test_what_changes_between_the_look_and_the_delete_is_not_deleted(place: Place) -> None:
    plant(place)
    with client(place.port) as zk, client(place.port, at=1) as other:
        late = Late(zk, lambda: other.set(f"{place.top}/bin", b"4"))
        batch = [node for node in late.walk(place.top) if node.path.endswith(("/bin", "/null"))]
        with pytest.raises(ChangedError, match="/bin was changed since it was kept"):
            late.delete(batch)
        assert zk.exists(f"{place.top}/null")
        gone = iter([lambda: other.delete(f"{place.top}/null"), tuple])
        late = Late(zk, lambda: next(gone)())
        batch = [node for node in late.walk(place.top) if node.path.endswith(("/bin", "/null"))]
        assert late.delete(batch) == 1
        assert zk.exists(f"{place.top}/bin") is None


def test_killed_and_begun_again_it_goes_on(place: Place) -> None:
    plant(place, many=300)
    place.begin()
    before = tree(place.port, place.top)
    process = begun(place.words("--subtree", place.top, "--rate", "50"), place, left=250)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert place.events() == [(place.top, "begin")]
    assert 0 < len(tree(place.port, place.top)) < len(before)

    code, said = place.ask(rate=0.0)
    assert (code, tree(place.port, place.top)) == (0, {}), said
    assert place.events()[1:] == [(place.top, "begin"), (place.top, "done")]
    assert len(place.images()) == 1
    code, said = place.ask(put_back=True)
    assert (code, tree(place.port, place.top)) == (0, before), said


def test_interrupted_it_says_so_and_goes_on(place: Place) -> None:
    plant(place, many=300)
    place.begin()
    process = begun(place.words("--subtree", place.top, "--rate", "50"), place, left=250)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert place.events() == [(place.top, "begin"), (place.top, "stopped")]
    code, said = place.ask(rate=0.0)
    assert (code, tree(place.port, place.top)) == (0, {}), said


def test_a_child_that_comes_under_way_stops_it(place: Place) -> None:
    plant(place, many=300)
    place.begin()
    process = begun(place.words("--subtree", place.top, "--rate", "50"), place, left=250)
    with client(place.port) as zk:
        zk.create(f"{place.top}/live/new", b"")
    _, said = process.communicate(timeout=START_SECONDS)
    assert process.returncode == 6, said
    stopped = [e.body for e in journals.kept_lines(place.run_dir) if e.kind == "cleaned"][-1]
    assert stopped["why"] == f"{place.top}/live has a child that was not kept"
    assert f"{place.top}/live/new" in tree(place.port, place.top)
    code, text = place.ask()
    assert code == 6
    assert f"clean-up.written {place.top}" in text


def test_a_znode_that_is_made_anew_under_way_stops_it(place: Place) -> None:
    plant(place, many=300)
    place.begin()
    process = begun(place.words("--subtree", place.top, "--rate", "50"), place, left=250)
    with client(place.port) as zk:
        zk.delete(f"{place.top}/null")
        zk.create(f"{place.top}/null", None)
    _, said = process.communicate(timeout=START_SECONDS)
    assert process.returncode == 6, said
    assert f"{place.top}/null" in tree(place.port, place.top)


def test_a_watch_that_comes_at_the_question_keeps_it(place: Place) -> None:
    """What was listed is proved again behind the question."""
    plant(place)
    place.begin()
    with client(place.port, at=1) as zk:
        code, said = place.ask(place.top, lambda: zk.get(f"{place.top}/bin", watch=print))
    assert code == 6, said
    assert "clean-up.watched" in said
    assert (place.events(), place.images()) == ([], [])
    assert f"{place.top}/bin" in tree(place.port, place.top)


def test_one_that_may_not_go_refuses_the_whole_command(place: Place) -> None:
    plant(place)
    place.begin()
    used = f"{place.top}-used"
    with client(place.port) as zk:
        zk.create(f"{used}/me", b"", ephemeral=True, makepath=True)
        before = tree(place.port, place.top)
        for wishes in ({"subtrees": (place.top, used)}, {"subtrees": (), "all": True}):
            code, said = place.ask(**wishes)
            assert code == 6, said
            assert f"clean-up.owned {used}" in said
    assert (tree(place.port, place.top), place.events()) == (before, [])


def test_what_somebody_else_deleted_under_way_is_no_error(place: Place) -> None:
    plant(place, many=300)
    place.begin()
    process = begun(place.words("--subtree", place.top, "--rate", "50"), place, left=250)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with client(place.port) as zk:
        zk.delete(place.top, recursive=True)
    code, said = place.ask()
    assert code == 0, said
    assert place.events() == [(place.top, "begin"), (place.top, "done")]
    assert "is deleted: 0 znodes now, 308 were gone" in said


def test_a_run_that_is_at_work_or_of_another_inventory_is_refused(place: Place) -> None:
    place.begin()
    alone = LocalLock(place.run_dir, "status")
    with closing(alone), pytest.raises(LockedError):
        place.ask()
    place.file.write_text(place.file.read_text().replace("chroot: /kafka", "chroot: /other"))
    with pytest.raises(runs.StaleError):
        place.ask()
    assert place.top in tree(place.port, place.top)


def test_with_json_it_prints_one_object(place: Place) -> None:
    plant(place)
    place.begin()
    words = [word for word in place.words("--json") if word != "--yes"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=place.environment)
    body = json.loads(done.stdout)
    (mine,) = [one for one in body["subtrees"] if one["path"] == place.top]
    assert (done.returncode, mine["may_go"], mine["znodes"], mine["begun"]) == (0, True, 11, False)
    done = subprocess.run(
        place.words("--json", "--subtree", place.top),
        capture_output=True,
        text=True,
        check=False,
        env=place.environment,
    )
    body = json.loads(done.stdout)
    assert (body["code"], body["deleted"][place.top]) == (0, {"event": "done", "znodes": 11, "gone": 0})
