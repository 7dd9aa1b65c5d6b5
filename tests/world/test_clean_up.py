"""The clean-up of dest after a move, by the playbook kafka_clean_leftovers over a model of dest's znodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from kazoo.security import make_acl, make_digest_acl
from pydantic import ValidationError

from tests.unit.engine_world import CHANGES, Killed, Points, back, forward, resume, until
from tests.unit.znode_server import ZnodeServer
from tests.world import leavings
from tests.world.cluster_desk import at
from tests.world.cluster_look import ClusterLook
from tests.world.leavings import LeftoversDesk
from zkmigrate.cluster.leftovers.section import Leftovers, LeftoversInventory
from zkmigrate.errors import HostError
from zkmigrate.inventory.accept import Accept
from zkmigrate.inventory.inventory import Dest, Ports, ZooKeeperHost, digest
from zkmigrate.kafka.clients import znodes as kafka_znodes
from zkmigrate.move.clients import dest_znodes
from zkmigrate.move.facts.records import Stopped
from zkmigrate.move.questions import Node, ReadContents, ReadCut, ReadTree
from zkmigrate.move.verbs.finished_move import FinishedMoves
from zkmigrate.runbook.engine.history import complete
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.model.change import Change, Outcome
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.zookeeper.changes import DEST, CreateZnodes, DeleteZnodes

OURS = "10.0.0.9"
STRANGER = "10.0.0.77"
MOVE = "moved-1"


@dataclass(frozen=True)
class TenantsLook(ClusterLook):
    """A look that also sees dest."""

    desk: TenantsDesk = field(kw_only=True)

    def tree(self, path: str, deep: bool) -> tuple[Node, ...]:
        self.desk.walked += deep
        return self.desk.answers.tree(ReadTree(path, deep))

    def contents(self, paths: list[str]) -> tuple[Node, ...]:
        self.desk.before_contents()
        return self.desk.answers.contents(ReadContents(paths))

    def cut(self, _run: str) -> Reading[int]:
        return self.desk.cut

    def word(self, host: str, word: str) -> Reading[str]:
        if word == "wchp":
            return self.desk.watches.get(host, Seen("\n"))
        if word == "cons":
            lines = [f" /{OURS}:5000[0](queued=0,recved=1,sent=0)\n"]
            lines += [
                f" /{address}:5000[1](queued=0,recved=1,sent=1,sid=0x{n}7,to=6000)\n"
                for n, address in enumerate(self.desk.clients, 1)
            ]
            return Seen("".join(lines))
        assert word == "dump"
        return Seen("SessionTracker dump:\nephemeral nodes dump:\nSessions with Ephemerals (0):\n")

    def file(self, host: str, path: str) -> Reading[bytes]:
        given = super().file(host, path)
        if isinstance(given, Seen) and path.endswith("server.properties"):
            chroot = self.desk.chroots.get(host, Seen("/kafka"))
            if not isinstance(chroot, Seen):
                return chroot
            return Seen(given.value + f"zookeeper.connect=10.0.0.11:2181{chroot.value}\n".encode())
        return given


@dataclass
class TenantsDesk(LeftoversDesk):
    """cut: the last zxid of dest from source. watches: answers to wchp, by dest host. clients: addresses
    with a session on dest. chroots: of brokers. walked: how often a whole subtree was listed."""

    dest: ZnodeServer = field(default_factory=ZnodeServer)
    cut: Reading[int] = field(default_factory=lambda: Unknown("failed", "no such run"))
    watches: dict[str, Reading[str]] = field(default_factory=dict)
    clients: list[str] = field(default_factory=list)
    chroots: dict[str, Reading[str]] = field(default_factory=dict)
    walked: int = 0
    before_contents: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.answers = dest_znodes.DestAnswers(self.inventory, cast(Any, None))
        self.alter = dest_znodes.Alter(self.inventory, cast(Any, None))

    def look(self) -> Look:
        return cast(Look, TenantsLook(self.cluster, self.chroot, desk=self))

    def _apply(self, change: Change, operation: str, fencing: int) -> Outcome:
        if not isinstance(change, DeleteZnodes | CreateZnodes):
            return super()._apply(change, operation, fencing)
        assert change.cluster == DEST
        self.before_change(change)
        self.points.hit("apply")
        outcome = Outcome(*self.alter(change))
        self.points.hit("applied")
        return outcome

    def name(self, *subtrees: str, **other: Any) -> None:
        self.inventory = named(*subtrees, **other)


def named(*subtrees: str, accept: tuple[Accept, ...] = ()) -> LeftoversInventory:
    plain = leavings.inventory()
    hosts = tuple(ZooKeeperHost(name=f"dest{n}", address=f"10.0.0.1{n}", myid=n) for n in (1, 2, 3))
    return LeftoversInventory(
        version=1,
        name="moved",
        operator=(OURS,),
        ssh=plain.ssh,
        dest=Dest(hosts=hosts, ports=Ports(client=2181)),
        kafka=plain.kafka.model_copy(update={"chroot": "/kafka"}),
        leftovers=Leftovers(zookeeper=plain.leftovers.zookeeper, after_move=MOVE, subtrees=subtrees),
        accept=accept,
    )


def plant(server: ZnodeServer, many: int = 3) -> None:
    """What source's tenants had at the cut."""
    for path in ("/kafka", "/zookeeper", "/solr", "/solr/live", "/solr/live/nodes", "/hbase"):
        server.put(path, path.encode())
    server.put("/solr/null", None)
    server.put("/solr/shared", b"\0\xff", (make_acl("world", "anyone", all=True), make_digest_acl("a", "b")))
    for n in range(many):
        server.put(f"/solr/live/nodes/n{n:04}", b"%d" % n)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TenantsDesk:
    desk = TenantsDesk(tmp_path / "r", leavings.world(), named("/solr"))
    monkeypatch.setattr(dest_znodes, "connect", desk.dest.connect)
    plant(desk.dest)
    desk.cut = Seen(desk.dest.zxid)
    return desk


def test_it_is_listed_deleted_by_name_and_put_back(made: TenantsDesk) -> None:
    before = made.dest.state("")
    assert made.process(forward).code == 0
    assert made.dest.state("/solr") == {}
    assert made.dest.state("").keys() == {"/", "/kafka", "/zookeeper", "/hbase"}
    listed = {one.target: one.seen for one in made.told("clean-up.found")}
    assert listed.keys() == {"/solr", "/hbase"}
    assert listed["/solr"].startswith("/solr: 8 znodes, 36 bytes, last written 2023-11-14T22:13:20Z (newest")
    assert listed["/solr"].endswith("can be deleted")
    assert made.process(back).code == 0
    assert made.dest.state("") == before


@pytest.mark.parametrize("named_move", [True, False])
def test_nothing_named_nothing_deleted(made: TenantsDesk, named_move: bool) -> None:
    before = made.dest.state("")
    made.name()
    stranger(made)
    if not named_move:
        plain = made.inventory.leftovers.model_copy(update={"after_move": None})
        made.inventory = made.inventory.model_copy(update={"leftovers": plain})
    assert made.process(forward).code == 0
    assert made.dest.state("") == before
    assert bool(made.told("clean-up.found")) is named_move


@pytest.mark.parametrize("path", ["/kafka", "/zookeeper", "/solr/live", "/none"])
def test_what_is_no_subtree_outside_every_chroot_cannot_be_named(made: TenantsDesk, path: str) -> None:
    made.name("/solr", path)
    before = made.dest.state("")
    assert made.process(forward).code == 3
    assert made.dest.state("") == before
    [found] = made.told("clean-up.names")
    assert (found.seen, found.blocks) == (path, True)


@pytest.mark.parametrize("again", [False, True], ids=["at once", "at its turn"])
def test_the_chroot_that_a_brokers_file_names_is_kept(made: TenantsDesk, again: bool) -> None:
    if again:
        assert made.process(until("preflight")).code == 0
    made.chroots["broker1"] = Seen("/solr/live")
    before = made.dest.state("")
    assert made.process(resume if again else forward).code == (6 if again else 3)
    assert made.dest.state("") == before
    assert made.told("clean-up.names")[-1].seen == "/solr"


def owned(desk: TenantsDesk) -> None:
    desk.dest.nodes["/solr/null"].ephemeralOwner = 0x1000


def watched(desk: TenantsDesk) -> None:
    desk.watches["dest2"] = Seen("/solr/live\n\t0x7\n\n")


def written(desk: TenantsDesk) -> None:
    desk.dest.put("/solr/live", b"x")


def child_gone(desk: TenantsDesk) -> None:
    desk.dest.remove("/solr/live/nodes/n0001")


def locked(desk: TenantsDesk) -> None:
    desk.dest.nodes["/solr/live"].acl = (make_acl("world", "anyone", read=True),)


def not_to_be_created_again(desk: TenantsDesk) -> None:
    desk.dest.nodes["/solr/live"].acl = (make_acl("world", "anyone", read=True, delete=True),)


def of_another_scheme(desk: TenantsDesk) -> None:
    anybody = make_acl("world", "anyone", all=True)
    desk.dest.nodes["/solr/live"].acl = (anybody, make_acl("sasl", "solr", all=True))


def blind(desk: TenantsDesk) -> None:
    desk.watches["dest1"] = Unknown("denied", "wchp is not in 4lw.commands.whitelist")


def stranger(desk: TenantsDesk) -> None:
    desk.clients.append(STRANGER)


def unread(desk: TenantsDesk) -> None:
    desk.chroots["broker2"] = Unknown("denied", "it may not be read")


def no_cut(desk: TenantsDesk) -> None:
    desk.cut = Unknown("failed", "no such run")


IN_USE = {
    "clean-up.owned /solr": owned,
    "clean-up.watched /solr": watched,
    "clean-up.written /solr": written,
    "clean-up.locked /solr": locked,
    "clean-up.locked  /solr": not_to_be_created_again,
    "clean-up.locked   /solr": of_another_scheme,
    "clean-up.cut ": no_cut,
}
UNSEEN = {
    "clean-up.children /solr": child_gone,
    "clean-up.watches dest1": blind,
    f"clean-up.clients {STRANGER}": stranger,
    "clean-up.chroots broker2": unread,
}
EVERY = IN_USE | UNSEEN


@pytest.mark.parametrize(("what", "happens"), EVERY.items(), ids=EVERY.keys())
@pytest.mark.parametrize("again", [False, True], ids=["at once", "at its turn"])
def test_what_keeps_a_subtree(
    made: TenantsDesk, what: str, happens: Callable[[TenantsDesk], None], again: bool
) -> None:
    """It is judged at the first gate, and again behind the question."""
    if again:
        assert made.process(until("preflight")).code == 0
    happens(made)
    before = made.dest.state("")
    assert made.process(resume if again else forward).code == (6 if again else 3)
    assert made.dest.state("") == before
    id, _, target = what.partition(" ")
    [found] = [one for one in made.told(id) if one.blocks]
    assert found.target == target.strip()


@pytest.mark.parametrize(("what", "happens"), EVERY.items(), ids=EVERY.keys())
def test_a_person_may_accept_what_is_not_seen_and_nothing_that_was_seen(
    made: TenantsDesk, what: str, happens: Callable[[TenantsDesk], None]
) -> None:
    happens(made)
    id, _, target = what.partition(" ")
    until = "2099-01-01T00:00Z"
    made.name(
        "/solr", accept=(Accept(finding=id, target=target.strip(), who="Lea", why="it ended", until=until),)
    )
    assert made.process(forward).code == (0 if what in UNSEEN else 3)
    assert (made.dest.state("/solr") == {}) is (what in UNSEEN)


@pytest.mark.parametrize(
    ("happens", "left"),
    [
        (lambda dest: dest.put("/solr/null", b"new"), 25),
        (lambda dest: [dest.remove("/solr/null"), dest.put("/solr/null", None)], 25),
        (lambda dest: dest.put("/solr/live/new"), 26),
        (lambda dest: dest.put("/solr/live/nodes/n0150", b"new"), 175),
    ],
    ids=["changed", "made anew", "a new child", "changed in the batch"],
)
def test_what_is_written_meanwhile_stops_it_and_stays(made: TenantsDesk, happens: Any, left: int) -> None:
    plant(made.dest, many=220)
    made.cut = Seen(made.dest.zxid)
    made.before_change = at(2, DeleteZnodes, lambda: happens(made.dest))
    assert made.process(forward).code == 6
    assert made.told("clean-up.written")[-1].blocks
    assert {"/solr", "/solr/live", "/solr/null"} <= made.dest.state("/solr").keys()
    assert len(made.dest.state("/solr")) == left, "nothing goes after it was seen"
    before = made.dest.state("/solr")
    assert made.process(resume).code == 6
    assert made.dest.state("/solr") == before
    made.name()
    assert digest(named()) == digest(named("/solr")), "the run goes on without it"
    assert made.process(resume).code == 0
    assert made.process(back).code == 0
    assert len(made.dest.state("/solr")) >= 225


def test_what_somebody_else_deletes_meanwhile_is_no_error(made: TenantsDesk) -> None:
    plant(made.dest, many=120)
    made.cut = Seen(made.dest.zxid)
    rest = [f"/solr/live/nodes/n{n:04}" for n in range(40)]
    made.before_change = at(1, DeleteZnodes, lambda: [*map(made.dest.remove, rest)])
    assert made.process(forward).code == 0
    assert made.dest.state("/solr") == {}


def test_a_batch_is_small_and_a_subtree_is_listed_once(made: TenantsDesk) -> None:
    plant(made.dest, many=230)
    made.dest.put("/solr/big", b"x" * 400_000)
    made.dest.put("/solr/bigger", b"x" * 400_000)
    made.dest.put("/solr/biggest", b"x" * 900_000)
    made.cut = Seen(made.dest.zxid)
    sizes: list[int] = []
    made.before_change = lambda change: sizes.append(
        sum(len(data or b"") for _, data, _, _ in cast(DeleteZnodes, change).nodes)
    )
    before = made.dest.state("/solr")
    assert made.process(forward).code == 0
    assert made.dest.state("/solr") == {}
    assert made.dest.largest == 50
    assert max(sizes) == 900_000
    assert sorted(sizes)[-2] < 512 << 10
    assert made.walked <= 5, "the subtrees for preflight, then before the first batch and behind the last"
    assert made.process(back).code == 0
    assert made.dest.state("/solr") == before


def test_a_lost_answer_is_looked_at(made: TenantsDesk) -> None:
    before = made.dest.state("")
    made.dest.lost = 1
    assert made.process(forward).code == 0
    assert made.dest.state("/solr") == {}
    assert made.process(back).code == 0
    assert made.dest.state("") == before
    assert made.dest.sessions == 3, "one that reads, and two that write"


def test_a_dest_that_does_not_answer_is_waited_for(
    made: TenantsDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert made.process(until("remove")).code == 0
    failing = iter([HostError("dest was lost")] * 2)

    def connect(name: str, servers: object, _credentials: object) -> Any:
        for error in failing:
            raise error
        return made.dest.connect(name, servers)

    made.answers.close()
    monkeypatch.setattr(dest_znodes, "connect", connect)
    assert made.process(resume).code == 0
    assert made.dest.state("/solr") == {}


def test_killed_anywhere_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(number: int) -> TenantsDesk:
        desk = TenantsDesk(tmp_path / f"r{number}", leavings.world(), named("/solr", "/hbase"))
        monkeypatch.setattr(dest_znodes, "connect", desk.dest.connect)
        plant(desk.dest, many=60)
        desk.cut = Seen(desk.dest.zxid)
        return desk

    whole = begun(0)
    before, there, back_points = whole.dest.state(""), Points(kinds=CHANGES), Points(kinds=CHANGES)
    assert whole.process(forward, there).code == 0
    assert whole.process(back, back_points).code == 0
    assert (there.seen, whole.dest.state("")) == (6, before)
    for way, points in ((forward, there), (back, back_points)):
        for number in range(1, points.seen + 1):
            desk = begun(number + (100 if way is back else 0))
            if way is back:
                assert desk.process(forward).code == 0
            with pytest.raises(Killed):
                desk.process(way, Points(number, kinds=CHANGES))
            assert desk.process(resume).code == 0, (way, number)
            if way is forward:
                assert desk.dest.state("").keys() == {"/", "/kafka", "/zookeeper"}
                assert desk.process(back).code == 0
            assert desk.dest.state("") == before, (way, number)


def test_what_may_no_longer_be_read_is_not_deleted_without_its_data(made: TenantsDesk) -> None:
    """Its ACL changes after the list, which only the read of its data shows."""
    nobody = (make_digest_acl("a", "b", all=True),)
    made.before_contents = lambda: vars(made.dest.nodes["/solr/live/nodes/n0001"]).update(acl=nobody)
    assert made.process(forward).code == 6
    assert made.told("clean-up.locked")[-1].blocks
    assert "/solr/live/nodes/n0001" in made.dest.nodes


def test_changes_of_kafkas_znodes_go_through_no_door_of_dest() -> None:
    """Other runs of the playbook have no dest at all."""
    nobody = cast(Any, None)
    servers = kafka_znodes.alterer(named(), nobody)._servers
    assert [str(server) for server in servers] == ["10.0.0.1:2181", "10.0.0.2:2181"]
    dest_znodes.Alter(leavings.inventory(), nobody).close()


def test_after_the_way_back_it_counts_as_written(made: TenantsDesk) -> None:
    assert made.process(forward).code == 0
    assert made.process(back).code == 0
    assert made.process(forward).code == 3
    assert made.told("clean-up.written")[-1].blocks


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"subtrees": ("/solr",)}, "needs leftovers.after_move"),
        ({"after_move": "moved-1"}, "needs the move's sections operator, ssh and dest"),
        ({"after_move": "moved-1", "subtrees": ("/",)}, "subtrees"),
        ({"after_move": "moved-1", "subtrees": ("solr",)}, "subtrees"),
    ],
)
def test_what_cannot_be_named_is_refused(given: dict[str, Any], why: str) -> None:
    plain = leavings.inventory()
    with pytest.raises(ValidationError, match=why):
        LeftoversInventory(version=1, name="moved", kafka=plain.kafka, leftovers=Leftovers(**given))


def finished(
    folder: Path,
    *,
    name: str = "moved",
    ended: bool = True,
    back: bool = False,
    hosts: tuple[str, ...] = (),
    cut: int = 0x101,
) -> None:
    """The run of a move."""
    journal = Journal.create(folder / MOVE, lambda: 1.0)
    book = "kafka_zookeeper_move"
    journal.append("begin", {"run": MOVE, "name": name, "playbook": book, "inventory": "0", "plan": "0"})
    tails = {host: cut - n for n, host in enumerate(hosts)}
    record = Stopped(tails, dict.fromkeys(hosts, "s"), dict.fromkeys(hosts, "b")).encode()
    journal.append("record", {"stage": "cutover", "step": "stop", "record": record})
    if back:
        turn = {"way": "back", "to": "", "then": "end", "why": "asked", "code": 0, "reset": []}
        journal.append("turn", turn)
    if ended:
        journal.append("end", {"code": 0, "message": complete(book)})
    journal.close()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"hosts": ("dest1", "dest2")}, ""),
        ({"hosts": ("dest1",), "ended": False}, "moved-1 is not a finished move"),
        ({"hosts": ()}, "moved-1 is not a finished move"),
        ({"hosts": ("dest1",), "back": True}, "moved-1 is not a finished move"),
        ({"hosts": ("dest1",), "name": "other"}, "moved-1 is a run of other, not of moved"),
        ({"hosts": ("dest1", "dest9")}, "moved-1 moved to other dest hosts: dest1, dest9"),
        (None, "no run directory"),
    ],
    ids=["finished", "not finished", "no record", "back", "another inventory", "other hosts", "none"],
)
def test_the_cut_comes_from_the_journal_of_the_finished_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any] | None, why: str
) -> None:
    monkeypatch.setenv("ZKMIGRATE_RUNS", str(tmp_path))
    if given is not None:
        finished(tmp_path, **given)
    cut = FinishedMoves(named(), cast(Any, None)).cut(ReadCut(MOVE))
    if why:
        assert isinstance(cut, Unknown)
        assert why in cut.why
    else:
        assert cut == Seen(0x101)


@pytest.mark.parametrize("waited_s", [0.0, 3600.0], ids=["at once", "an hour later"])
def test_users_are_read_again_before_a_batch_that_had_to_wait(made: TenantsDesk, waited_s: float) -> None:
    """A hold between two batches can last for hours, in which a client may begin to use the subtree."""
    plant(made.dest, many=220)
    made.cut = Seen(made.dest.zxid)

    def wait() -> None:
        made.watches["dest2"] = Seen("/solr/live\n\t0x7\n\n")
        made.clock.pause(waited_s)

    made.before_change = at(2, DeleteZnodes, wait)
    assert made.process(forward).code == (6 if waited_s else 0)
    assert (made.dest.state("/solr") == {}) is not bool(waited_s)
