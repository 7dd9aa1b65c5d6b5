"""Inventories of other shapes than a move's, and what a playbook says of its hosts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

from playbooks.kafka_zookeeper_move import PLAYBOOK as MOVE
from tests.unit.engine_world import Tiny, TinyInventory, WriteStep
from tests.unit.inventory.test_inventory import GOOD
from tests.unit.preflight_world import PreflightWorld, inventory
from tests.unit.shelf_book import ShelfInventory, ShelfSite
from zkmigrate.cli.main import cli
from zkmigrate.errors import HostError, InventoryError, JournalError, UsageError
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.inventory.inventory import SECTIONS, Inventory, digest, load
from zkmigrate.kafka.changes import AlterTopicConfig, ElectLeaders
from zkmigrate.kafka.clients.answers import KafkaAnswers
from zkmigrate.kafka.questions import DescribeCluster
from zkmigrate.move.verbs.retire import _refuse_no_broker
from zkmigrate.runbook.engine.history import History, NotUndone
from zkmigrate.runbook.engine.lock import UNWITNESSED, HostLock
from zkmigrate.runbook.engine.runs import not_undone_lines
from zkmigrate.runbook.model.change import Changes, Outcome, PutFile
from zkmigrate.runbook.model.entry import Entry
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.playbook import Playbook, Role
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.runs import run_status
from zkmigrate.runbook.runs.open_run import JournalOpener
from zkmigrate.runbook.site.observe import Observe
from zkmigrate.zookeeper.clients.answers import ZooKeeperAnswers
from zkmigrate.zookeeper.questions import ReadZnode, SendWord

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "migration-yml.md"
KAFKA = "version: 1\nname: lab\n" + GOOD[GOOD.index("kafka:\n") :]
CHROOT = "  chroot: /kafka\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "migration.yml"
    path.write_text(text)
    return path


def mistakes(path: Path, *sections: str, shape: type[Inventory] = Inventory) -> list[str]:
    with pytest.raises(InventoryError) as caught:
        load(path, shape, sections or SECTIONS)
    return str(caught.value).replace(f"{path.parent}/", "").splitlines()


# --- the file -------------------------------------------------------------------------------------------


def test_the_digest_of_a_file_of_before_shapes_is_what_it_was(tmp_path: Path) -> None:
    """The open runs of such a file go on."""
    example = REFERENCE.read_text().partition("```yaml\n")[2].partition("```")[0]
    assert (
        digest(load(written(tmp_path, example)))
        == "818814e234e214352393dee9c3b85438160275d46a8b16ef922c1dada843d688"
    )


def test_each_section_that_a_playbook_needs_is_missed_by_its_name(tmp_path: Path) -> None:
    path = written(tmp_path, KAFKA)
    lacking = [f"migration.yml:1: {key}: missing (needed: this key)" for key in SECTIONS[:-1]]
    assert mistakes(path) == sorted(lacking)
    assert mistakes(path, "kafka", "dest") == [lacking[SECTIONS.index("dest")]]
    assert load(path, Inventory, ("kafka",)).broker_names == ("broker1", "broker2", "broker3")


def test_a_move_file_has_more_than_a_playbook_for_kafka_needs(tmp_path: Path) -> None:
    assert load(written(tmp_path, GOOD), Inventory, ("kafka",)) == load(written(tmp_path, GOOD))


def test_an_empty_section_is_no_section_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, f"{KAFKA}ssh:\n")
    assert mistakes(path, "kafka") == [
        "migration.yml:10: ssh: not a mapping (seen nothing, needed keys and values)"
    ]


def test_a_chroot_may_be_left_out_where_no_zookeeper_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, KAFKA.replace(CHROOT, ""))
    found = load(path, Inventory, ("kafka",))
    assert digest(found) != digest(load(written(tmp_path, KAFKA), Inventory, ("kafka",)))
    with pytest.raises(InventoryError, match=r"lacks kafka\.chroot"):
        _ = found.kafka.chroot
    again = Inventory(version=1, name="k", kafka=found.kafka)
    assert again.kafka == found.kafka, "a part that is taken over as it is"
    for section in ("source", "dest"):
        other = "dest" if section == "source" else "source"
        part = GOOD[GOOD.index(f"{section}:\n") :].partition(f"{other if other == 'dest' else 'kafka'}:\n")[0]
        lines = mistakes(written(tmp_path, f"{KAFKA.replace(CHROOT, '')}{part}"), "kafka")
        assert lines == ["migration.yml:3: kafka.chroot: missing (needed: this key)"]


def test_a_section_that_is_not_there_is_told_to_whoever_asks_for_it(tmp_path: Path) -> None:
    found = load(written(tmp_path, KAFKA), Inventory, ("kafka",))
    assert found.has("kafka")
    assert not found.has("kafka", "dest")
    for section in SECTIONS[:-1]:
        with pytest.raises(InventoryError, match=f"the inventory lacks {section} "):
            getattr(found, section)
    with pytest.raises(AttributeError):
        found.colour  # type: ignore[attr-defined]  # noqa: B018


def test_what_is_not_there_is_not_in_a_copy_either(tmp_path: Path) -> None:
    found = load(written(tmp_path, KAFKA), Inventory, ("kafka",))
    again = Inventory.model_validate_json(found.model_dump_json())
    assert again == found
    assert not again.has("dest")
    assert found.model_copy(update={"name": "x"}).broker_names == found.broker_names


def test_a_section_of_a_playbooks_own_is_checked_like_any_other(tmp_path: Path) -> None:
    head = "version: 1\nname: lab\n"
    good = written(tmp_path, f"{head}shelf: {{file: /tmp/x}}\n")
    assert load(good, ShelfInventory, ("shelf",)).shelf.file == "/tmp/x"
    assert mistakes(good, "shelf") == [
        "migration.yml:3: shelf: unknown key (needed one of: version, name, operator, ssh, source, dest, "
        "kafka, zookeeper, policy, hooks, accept)"
    ]
    lines = mistakes(written(tmp_path, f"{head}shelf: {{fil: /tmp/x}}\n"), "shelf", shape=ShelfInventory)
    assert [line.partition("(")[0] for line in lines] == [
        "migration.yml:3: shelf.file: missing ",
        "migration.yml:3: shelf.fil: unknown key ",
    ]
    once = ["migration.yml:1: shelf: missing (needed: this key)"]
    assert mistakes(written(tmp_path, head), "shelf", shape=ShelfInventory) == once


def test_hosts_and_doors_are_those_of_the_sections_that_are_there(tmp_path: Path) -> None:
    whole = load(written(tmp_path, GOOD))
    kafka = load(written(tmp_path, KAFKA), Inventory, ("kafka",))
    assert list(whole.hosts) == ["source", "dest", "brokers"]
    assert kafka.hosts == {"brokers": whole.broker_names}
    assert kafka.doors == {}
    assert (kafka.source_names, kafka.dest_names, kafka.read_only) == ((), (), ())
    assert {name: door.admin_port for name, door in whole.doors.items()} == {
        **dict.fromkeys(whole.source_names, 8080),
        **dict.fromkeys(whole.dest_names, None),
    }
    assert kafka.address("broker2") == "10.71.0.32"
    with pytest.raises(KeyError):
        kafka.address("dest1")


# --- the playbook ---------------------------------------------------------------------------------------


def test_the_move_changes_dest_and_brokers_and_has_its_lock_on_dest() -> None:
    known = inventory()
    assert MOVE.hosts(known) == known.hosts
    assert MOVE.changed(known) == (*known.dest_names, *known.broker_names)
    assert MOVE.witnesses(known) == known.dest_names
    assert (MOVE.many_witnesses, MOVE.many_changed) == ("dest hosts", "dest hosts and brokers")
    assert MOVE.service(known, "dest1") == (known.dest.service.unit, known.dest.commands)
    assert MOVE.service(known, "broker1") == ("", ())
    assert MOVE.retirable == ("brokers",)
    assert MOVE.tells_all(known)


def test_a_retired_host_is_left_out_as_its_role_says() -> None:
    known = inventory()
    assert MOVE.without(known, ()) is known
    assert "broker1" not in MOVE.without(known, ("broker1",)).broker_names


def test_a_playbook_that_names_no_roles_changes_no_host_and_shows_all() -> None:
    known, silent = inventory(), Playbook("p", "p")
    assert silent.hosts(known) == known.hosts
    assert (silent.changed(known), silent.witnesses(known)) == ((), ())
    assert not silent.tells_all(known)
    assert silent.without(known, ("broker1",)) is known
    with pytest.raises(UsageError, match="a run of p cannot continue without a host"):
        _refuse_no_broker(known, silent, "broker1")


def test_a_playbook_shows_the_hosts_of_its_roles_alone_and_in_their_order() -> None:
    known = inventory()
    book = Playbook("p", "p", roles=(Role("brokers", "brokers"), Role("dest", "dest hosts")))
    assert list(book.hosts(known)) == ["brokers", "dest"]
    kafka = load_kafka(known)
    assert list(book.hosts(kafka)) == ["brokers"]


def load_kafka(known: Inventory) -> Inventory:
    return Inventory(version=1, name="k", kafka=known.kafka)


# --- the engine -----------------------------------------------------------------------------------------


class StrayStep(WriteStep):
    """Sends a change that the playbook does not tell of."""

    stray: Any = PutFile("d9", "/one", b"new", "root:root")

    def plan(self, c: object, f: object, target: str) -> Changes:
        return (self.stray,)


@pytest.mark.parametrize(
    ("stray", "why"),
    [
        (PutFile("d9", "/one", b"", "root:root"), "a host that is not in the inventory is read-only"),
        (AlterTopicConfig("store", "t", "k", "v", None), "because tiny does not declare alters_clusters"),
    ],
)
def test_a_change_that_the_playbook_does_not_tell_of_is_refused(tmp_path: Path, stray: Any, why: str) -> None:
    tiny = Tiny(tmp_path / "r")
    step = StrayStep("one", tiny.hosts)
    step.stray = stray
    tiny.steps["one"] = step
    ended = tiny.process(lambda walk: walk.forward())
    assert ended.code == 2
    assert why in ended.message
    assert tiny.hosts.sent == []


def test_a_change_of_a_cluster_with_nothing_to_remember_needs_no_word(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path / "r")
    step = StrayStep("one", tiny.hosts)
    step.stray = ElectLeaders("store")
    tiny.steps["one"] = step
    tiny.hosts.answer = lambda _change: Outcome(5, "not now")
    assert tiny.process(lambda walk: walk.forward()).code == 8
    assert tiny.hosts.sent != []


def test_where_no_host_keeps_the_lock_none_is_asked() -> None:
    def ask(*_words: Any) -> Any:
        raise AssertionError("nobody is asked")

    lock = HostLock((), "anna@desk", ask, 1)
    assert lock.fencing("main", Way.FORWARD) == 0
    assert (lock.hosts, lock.held, lock.lost) == ((), (), False)
    lock.close()


def test_a_lock_that_is_not_given_names_its_hosts_as_the_playbook_does() -> None:
    def ask(host: str, *_words: Any) -> Any:
        raise HostError(f"{host} is silent")

    lock = HostLock(("m1",), "anna@desk", ask, 1, many="machines")
    with pytest.raises(HostError, match="no majority of the machines granted the lock"):
        lock.fencing("main", Way.FORWARD)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"roles": ()}, "no host keeps a record of a run"),
        ({"alters_clusters": True}, "only the journal has the earlier state of a cluster. Nothing was "
         "changed. Next: put the journal of r, or the newest copy that the machines keep, at "),
    ],
)  # fmt: skip
def test_a_lost_journal_is_asked_for_where_hosts_cannot_tell_all(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    tiny = Tiny(tmp_path / "r")
    book = replace(tiny.playbook, **changes)
    known = TinyInventory(version=1, name="tiny", machines={"d1": "192.0.2.1"})
    opening = JournalOpener(tmp_path / "r", book, known, cast(Look, None), lambda: 0.0)
    with pytest.raises(JournalError) as caught:
        opening.recover(Way.BACK, "anna")
    assert why in str(caught.value)
    assert not (tmp_path / "r" / "journal.jsonl").exists()


# --- looks ----------------------------------------------------------------------------------------------


NOBODY: Any = None


def looking(known: Inventory) -> Observe:
    return Observe(known, NOBODY, NOBODY, NOBODY)


def test_a_look_goes_as_far_as_the_sections_do() -> None:
    bare, kafka = looking(Inventory(version=1, name="k")), looking(load_kafka(inventory()))
    for look in (bare, kafka):
        assert look.ask(SendWord("source1", "srvr")) == Unknown(
            "failed", "source1 is not a ZooKeeper host, so it has no four-letter words"
        )
        assert KafkaAnswers(look._inventory, look)._reassignments() is None
    assert bare.here() == Seen(())
    assert bare.ask(DescribeCluster()) == Unknown("failed", "the inventory names no broker")


def test_a_host_that_is_only_read_is_named_by_its_part() -> None:
    said = looking(inventory()).zkm("source1", "status")
    assert said == Unknown("denied", "source1 is a source host: zkm-host never runs there")


def test_reassignments_are_never_asked_of_a_host_that_is_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def znode(_self: ZooKeeperAnswers, request: ReadZnode) -> Unknown:
        asked.append(request.host)
        return Unknown("timeout", request.path)

    monkeypatch.setattr(ZooKeeperAnswers, "znode", znode)
    known = inventory()
    assert KafkaAnswers(known, looking(known))._reassignments() is None
    assert tuple(asked) == known.dest_names


def test_without_ssh_every_host_is_told_to_be_out_of_reach() -> None:
    with Transport(load_kafka(inventory())) as transport, pytest.raises(TransportError) as caught:
        transport.exec("broker1", ["true"])
    assert caught.value.cause == "denied"
    assert "the inventory lacks ssh" in caught.value.why


def test_a_witness_without_a_service_is_asked_for_its_own_state_alone() -> None:
    world, known = PreflightWorld(own_addresses=Seen(("172.17.0.2",))), inventory()
    book = Playbook("p", "p", roles=(Role("dest", "dest hosts", witness=True),))
    world.programs.update({(host, "status"): Unknown("timeout", "silent") for host in known.dest_names})
    said = run_status.of_hosts(world, book, known)
    assert list(said) == list(known.dest_names)
    assert run_status.wrong_machine(world, book, known, said) != ""
    nobody = Inventory(version=1, name="d", dest=known.dest)
    assert run_status.wrong_machine(world, book, nobody, said) == ""


# --- the command line -----------------------------------------------------------------------------------


class Desk:
    """The command line over the shelf's playbook and the real site."""

    def __init__(self, folder: Path, stop_at: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self.store = folder / "store.json"
        self.store.write_text('{"a": "old"}')
        shelf = f"{{file: {self.store}, stop_at: '{stop_at}'}}"
        self.file = written(folder, f"version: 1\nname: tiny\nshelf: {shelf}\n")
        self.runs = folder / "runs"
        self.book = folder / "book.py"
        self.book.write_text("from tests.unit.shelf_book import PLAYBOOK\n")

    def other(self) -> None:
        """Go on with another playbook over the same file."""
        made = "from dataclasses import replace\nfrom tests.unit.shelf_book import PLAYBOOK as FIRST\n"
        self.book = self.book.with_name("other.py")
        stages = "(replace(FIRST.stages[0], id='second'),)"
        self.book.write_text(f"{made}PLAYBOOK = replace(FIRST, id='other', stages={stages})\n")

    def call(self, *words: str) -> Result:
        words = (*words, "-i", str(self.file), "--playbook", str(self.book))
        return CliRunner().invoke(cli, words, obj=ShelfSite, env={"ZKMIGRATE_RUNS": str(self.runs)})

    @property
    def values(self) -> dict[str, str]:
        return cast(dict[str, str], json.loads(self.store.read_text()))


def test_a_runbook_without_a_host_goes_there_and_back(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    planned = desk.call("plan")
    assert (planned.exit_code, planned.output.count(UNWITNESSED)) == (0, 1)
    there = desk.call("run", "--yes")
    assert there.exit_code == 0, there.output
    assert there.output.count(UNWITNESSED) == 1
    assert there.output.index(UNWITNESSED) < there.output.index("main")
    assert desk.values == {"a": "new", "b": "new"}
    assert desk.call("status").exit_code == 0
    told = desk.call("report", "--format", "json", "--out", "-")
    assert (told.exit_code, json.loads(told.output)["run"]) == (0, "tiny-1")
    assert desk.call("rollback", "--yes").exit_code == 0
    assert desk.values == {"a": "old"}


def test_a_runbook_without_a_host_asks_for_its_lost_journal(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.call("run", "--yes", "--run-id", "tiny-1").exit_code == 0
    journal = desk.runs / "tiny-1" / "journal.jsonl"
    kept = journal.read_bytes()
    journal.unlink()
    lost = desk.call("resume", "--yes", "--run-id", "tiny-1", "--journal-lost", "back")
    assert lost.exit_code == 8
    assert "no host keeps a record of a run. Nothing was changed. Next: put the journal" in lost.output
    journal.write_bytes(kept)
    journal.chmod(0o600)
    assert desk.call("rollback", "--yes", "--run-id", "tiny-1").exit_code == 0
    assert desk.values == {"a": "old"}


LEFT = "main.set: 1 change on cluster shelf"


def test_a_run_that_ended_in_the_middle_tells_what_is_not_undone(tmp_path: Path) -> None:
    desk = Desk(tmp_path, stop_at="b")
    assert desk.call("run", "--yes").exit_code == 6
    status = desk.call("status")
    assert f"  not undone: {LEFT}\n" in status.output
    told = json.loads(desk.call("status", "--json").output)
    assert told["stands"] == [{"step": "main.set", "where": "shelf", "cluster": True, "changes": 1}]
    again = desk.call("run", "--yes")
    assert again.exit_code == 2
    assert f"run tiny-1 is not finished (at main.set, forward); not undone: {LEFT}. " in again.output
    assert desk.call("rollback", "--yes").exit_code == 0
    assert "not undone" not in desk.call("status").output


def test_a_new_run_tells_what_an_open_one_of_another_playbook_left(tmp_path: Path) -> None:
    desk = Desk(tmp_path, stop_at="b")
    assert desk.call("run", "--yes").exit_code == 6
    desk.other()
    begun = desk.call("run", "--yes")
    assert f"run tiny-1 of shelf is open as well; not undone: {LEFT}\n" in begun.output
    assert "run tiny-2 of other begun" in begun.output
    again = desk.call("resume", "--yes").output
    assert "run tiny-2 of other resumed" in again, "of two open runs the one of this playbook"
    assert "open as well" not in again, "said once"


def test_a_run_that_is_over_is_not_open_for_another_playbook(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.call("run", "--yes").exit_code == 0
    assert "not undone" not in desk.call("status").output, "complete"
    desk.other()
    whole = desk.call("run", "--yes")
    assert "open as well" not in whole.output
    assert "run tiny-2 of other begun" in whole.output
    back = Desk(tmp_path / "back")
    assert back.call("run", "--yes").exit_code == 0
    assert back.call("rollback", "--yes").exit_code == 0
    back.other()
    assert "open as well" not in back.call("run", "--yes").output


def test_many_hosts_are_counted_and_those_of_a_lost_journal_too() -> None:
    stands = [NotUndone("roll.roll", f"broker{n}", False, 2) for n in range(7)]
    stands += [NotUndone("main.set", "kafka", True, 1)]
    assert not_undone_lines(stands) == [
        "roll.roll: 14 changes on broker0, broker1, broker2, broker3, broker4 and 2 more",
        "main.set: 1 change on cluster kafka",
    ]
    history = History()
    change = {"operation": "a.b.d1.1.1", "step": "a.b", "target": "d1", "verb": "put", "path": "/f"}
    found = {"text": "", "leg": 1, "stages": [], "steps": [], "unrecorded": [], "consented": []}
    body = {**found, "operations": [{**change, "confirmed": True}]}
    history.fold(Entry(1, 0.0, "found", body))
    assert history.not_undone() == (NotUndone("a.b", "d1", False, 1),)
