"""What a look for leftovers finds, and what it makes of answers that are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.answers import Answering
from tests.world import leavings
from tests.world.cluster_state import DISK
from tests.world.leavings import ALL, LeftoversDesk, inventory
from zkmigrate.cluster.leftovers import facts
from zkmigrate.cluster.leftovers.facts import Scan
from zkmigrate.cluster.leftovers.rules import leftovers
from zkmigrate.cluster.leftovers.section import Leftovers
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.kafka.questions import ClusterTopics, LogDir, ReplicaLog
from zkmigrate.runbook.model.fact import Absent, Reading, Seen, Unknown
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context

SILENT = Unknown("timeout", "nobody answers")
Answer = Callable[..., Any]
"""Takes the real question and its words."""


class Heard(Answering):
    """A look of which some answers are others. asked: the questions with their words."""

    def __init__(self, look: Look, answers: Mapping[str, Answer]) -> None:
        self._look, self._answers = look, answers
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._look, name)

        def ask(*words: Any) -> Any:
            self.asked.append((name, words))
            return self._answers[name](real, *words) if name in self._answers else real(*words)

        return ask

    def words(self, name: str) -> list[tuple[Any, ...]]:
        return [words for one, words in self.asked if one == name]


@pytest.fixture
def desk(tmp_path: Path) -> LeftoversDesk:
    return leavings.desk(tmp_path)


def scanned(desk: LeftoversDesk, **answers: Answer) -> tuple[Scan, Heard]:
    heard = Heard(desk.look(), answers)
    return facts.scan(Context("r-1", desk.inventory), cast(Look, heard)), heard


def silent(*wanted: Any, at: int = 0) -> Answer:
    """Nobody answers where the word at this place is one of these; where none is given, never."""
    return lambda real, *words: SILENT if not wanted or words[at] in wanted else real(*words)


def told(reading: Reading[Any]) -> Any:
    assert isinstance(reading, Seen), reading
    return reading.value


# -- the whole look


@pytest.mark.parametrize("part", ["cluster", "in_flight", "tree", "partitions", "throttles"])
def test_an_answer_that_is_missing_is_told(desk: LeftoversDesk, part: str) -> None:
    scan, _ = scanned(desk)
    assert scan.missing_answer is None
    missing: dict[str, Any] = {part: SILENT}
    assert replace(scan, **missing).missing_answer == SILENT


def test_a_topic_lives_by_the_list_of_topics_alone_and_who_was_not_asked_is_not_gone(
    desk: LeftoversDesk,
) -> None:
    scan, _ = scanned(desk)
    assert replace(scan, partitions=SILENT).live == {"live", "live2"}
    assert scan.told("gone") == Absent("gone")
    assert isinstance(scan.told("nobody"), Unknown)
    lives = replace(scan, cluster=Seen(ClusterTopics("c", ("gone",))))
    assert isinstance(lives.told("gone"), Unknown)


def test_the_inventory_of_another_playbook_is_a_mistake(desk: LeftoversDesk) -> None:
    other = Inventory.model_validate(desk.inventory.model_dump(exclude={"leftovers"}))
    with pytest.raises(TypeError, match="section leftovers"):
        facts.section(Context("r-1", other))


def test_without_zookeeper_there_is_no_tree_to_miss(desk: LeftoversDesk) -> None:
    desk.inventory = desk.inventory.model_copy(update={"leftovers": Leftovers()})
    scan, _ = scanned(desk)
    assert isinstance(scan.tree, Absent)
    assert scan.missing_answer is None


def test_topics_are_looked_at_last_and_each_that_anything_names_is_asked_for(desk: LeftoversDesk) -> None:
    """A topic that is born during the look is no leftover."""
    names = iter((("live",), ("live", "born")))
    desk.cluster.lay("broker1", "only.here-0")
    scan, heard = scanned(desk, topics=lambda _real, _cluster: Seen(ClusterTopics("c", next(names))))
    assert told(scan.cluster).names == ("live", "born")
    [(_, asked, _)] = heard.words("topic_partitions")
    assert {"born", "only.here", "empty", "old", "gone"} < {*asked}
    assert "" not in asked


def test_throttles_are_asked_of_topics_that_are_there(desk: LeftoversDesk) -> None:
    scan, heard = scanned(desk)
    assert {topic for _, _, topics in heard.words("topic_settings") for topic in topics} == {"live", "live2"}
    assert told(scan.throttles)
    scan, _ = scanned(desk, topic_partitions=silent())
    assert scan.throttles == Seen({})
    assert scan.partitions == SILENT
    scan, _ = scanned(desk, broker_settings=silent())
    assert scan.throttles == SILENT


# -- znodes


def test_who_names_no_topics_leaves_the_tree_unknown(desk: LeftoversDesk) -> None:
    scan, _ = scanned(desk, topics=silent())
    assert isinstance(scan.tree, Unknown)


def test_the_next_server_is_asked_where_one_does_not_answer(desk: LeftoversDesk) -> None:
    first, second = desk.inventory.leftovers.doors
    scan, heard = scanned(desk, znode=silent(first))
    assert told(scan.tree).found
    assert {door for door, _ in heard.words("acls")} == {second}


@pytest.mark.parametrize(
    "path", ["/cluster/id", "/brokers/topics", "/config/changes", "/admin/delete_topics/gone"]
)
def test_a_znode_that_cannot_be_read_is_not_taken_for_one_that_is_not_there(
    desk: LeftoversDesk, path: str
) -> None:
    scan, _ = scanned(desk, znode=silent(f"/kafka{path}", at=1))
    assert scan.tree == SILENT


def test_rights_that_cannot_be_read_and_a_wrong_chroot_leave_the_tree_unknown(desk: LeftoversDesk) -> None:
    assert scanned(desk, acls=silent())[0].tree == SILENT
    del desk.cluster.tree["/cluster/id"]
    scan, _ = scanned(desk)
    assert isinstance(scan.tree, Unknown)
    assert scan.tree.why.endswith("has no /kafka/cluster/id; check the chroot")


def test_where_nothing_may_be_left_no_rights_are_asked_for(desk: LeftoversDesk) -> None:
    kept = ("/cluster/id", "/controller", "/controller_epoch", "/brokers/topics/live", "/config/topics/live")
    desk.cluster.tree = {path: node for path, node in desk.cluster.tree.items() if path in kept}
    scan, heard = scanned(desk)
    assert told(scan.tree).found == {}
    assert heard.words("acls") == []


def test_a_znode_that_vanishes_during_the_look_is_left_out(desk: LeftoversDesk) -> None:
    def acls(real: Answer, door: str, paths: list[str]) -> Any:
        rights = dict(told(real(door, paths)))
        del rights["/kafka/brokers/topics/empty/partitions"]
        return Seen(rights)

    scan, _ = scanned(desk, acls=acls)
    below = [one.path for one in told(scan.tree).found["/brokers/topics/empty"]]
    assert below[-1] == "/brokers/topics/empty"
    assert "/brokers/topics/empty/partitions" not in below
    gone = silent("/kafka/brokers/topics/empty", at=1)
    scan, _ = scanned(
        desk, znode=lambda real, *words: Absent() if gone(real, *words) == SILENT else real(*words)
    )
    assert "/brokers/topics/empty" not in told(scan.tree).found


def test_what_is_found_is_of_no_topic_that_brokers_name_and_of_none_with_an_assignment(
    desk: LeftoversDesk,
) -> None:
    desk.cluster.put("/brokers/topics/unnamed", b'{"partitions": {"0": [1]}}')
    desk.cluster.put("/brokers/topics/list", b"[1]")
    desk.cluster.put("/brokers/topics/none", b'{"partitions": {}}')
    desk.cluster.put("/config/changes/odd")
    tree = told(scanned(desk)[0].tree)
    assert tree.assigned == {"unnamed"}
    assert {*tree.found} == {*ALL[:10], "/brokers/topics/list", "/brokers/topics/none"}


# -- directories


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("zkm", ("broker1", "status")),
        ("file", ("broker1", "/etc/kafka/server.properties")),
        ("file", ("broker1", "/proc/mounts")),
        ("zkm", ("broker1", "facts")),
        ("listing", ("broker1", DISK)),
    ],
)
def test_a_host_that_does_not_tell_is_named_and_the_others_are_read(
    desk: LeftoversDesk, question: str, words: tuple[str, ...]
) -> None:
    desk.cluster.configure("broker1", log_dirs="lib/../lib/kafka")
    desk.cluster.configure("broker2", log_dirs="lib/../lib/kafka")
    answer: Answer = lambda real, *given: SILENT if given[: len(words)] == words else real(*given)  # noqa: E731
    scan, _ = scanned(desk, **{question: answer})
    assert [one.broker.name for one in scan.disks] == ["broker2"]
    [unread] = scan.unread
    assert unread.startswith("broker1: ")


def test_sizes_are_read_of_strays_alone(desk: LeftoversDesk) -> None:
    scan, heard = scanned(desk, listing=silent(f"{DISK}/live2-7", at=1))
    read = {path for _, path in heard.words("listing") if path != DISK}
    assert f"{DISK}/gone-0" in read
    assert f"{DISK}/live-0" not in read
    sizes = {one.path: one.size for disk in scan.disks for one in disk.directories}
    assert (sizes[f"{DISK}/gone-0"], sizes[f"{DISK}/live2-7"]) == (1000, 0), "the second one has vanished"


def test_where_nobody_tells_of_a_topic_its_directories_are_kept(desk: LeftoversDesk) -> None:
    def partitions(real: Answer, *words: Any) -> Any:
        found = told(real(*words))
        return Seen(replace(found, topics={"live": found.topics["live"]}))

    scan, _ = scanned(desk, topic_partitions=partitions)
    names = [one.name for one in leftovers(Context("r-1", desk.inventory), scan)]
    assert f"broker1:{DISK}/gone-0" not in names


def test_without_ssh_no_host_is_asked_and_what_brokers_do_not_tell_is_named(desk: LeftoversDesk) -> None:
    desk.inventory = inventory(ssh=False)
    logs = (ReplicaLog("gone", 0, 5, 0, future=False), ReplicaLog("live", 0, 5, 0, future=True))
    dirs = {"/d": Seen(LogDir(logs)), "/broken": Unknown("failed", "KAFKA_STORAGE_ERROR")}
    scan, heard = scanned(desk, log_dirs=lambda *_: Seen({1: Seen(dirs), 2: SILENT}))
    [disk] = scan.disks
    assert (disk.broker.name, disk.runs, disk.looked) == ("broker1", True, False)
    assert [(one.path, one.mark, one.size) for one in disk.directories] == [
        ("/d/gone-0", "", 5),
        ("/d/live-0", "future", 5),
    ]
    assert scan.unread == (f"broker2: {SILENT}",)
    assert heard.words("listing") == []
    scan, _ = scanned(desk, log_dirs=silent())
    assert (scan.disks, scan.unread) == ((), (str(SILENT),))
