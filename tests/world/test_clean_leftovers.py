"""Leftovers of a cluster: found, removed by name alone, killed anywhere, and put back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.unit.engine_world import back, forward, homeward, left_by_kills, resume, until
from tests.world.cluster_state import DISK, Flight, Held
from tests.world.leavings import ALL, MARK, ZNODES_AND_SETTINGS, LeftoversDesk, desk, inventory
from zkmigrate.cluster.leftovers.facts import scan
from zkmigrate.cluster.leftovers.rules import Kind, leftovers
from zkmigrate.cluster.reassign.throttle import FOLLOWER_LIST
from zkmigrate.inventory.inventory import digest
from zkmigrate.runbook.engine.events import RunEnded
from zkmigrate.runbook.model.change import Change
from zkmigrate.runbook.model.step import Context
from zkmigrate.zookeeper.changes import DeleteZnode

KEPT_AWAY = {
    "/admin/delete_topics/gone",
    "/admin/reassign_partitions",
    "/admin/preferred_replica_election",
}
"""What Kafka would act on."""


def found(made: LeftoversDesk) -> list[str]:
    c = Context("r-1", made.inventory)
    return [one.name for one in leftovers(c, scan(c, made.look()))]


def test_each_kind_is_found_with_name_size_age_reason_and_cost(tmp_path: Path) -> None:
    """P11: given a deleted topic, the znodes and directories that it left are found, and nothing else."""
    made = desk(tmp_path)
    assert found(made) == list(ALL)
    assert made.process(forward) == RunEnded(0, "kafka_clean_leftovers is complete")
    listed = made.told("leftovers.found")
    by_kind = {one.seen.partition(":")[0]: one.seen for one in listed}
    assert set(by_kind) == set(Kind)
    assert by_kind[Kind.CONFIG] == (
        "config of a topic that does not exist: /config/topics/old: 31 bytes, 24 hours old; no topic old "
        "exists. Removing costs nothing. Not removed: leftovers.remove does not name it"
    )
    assert by_kind[Kind.CHANGE].startswith(
        "notice of a changed config: 3 of them, such as /config/changes/config_change_0000000000: 6 bytes"
    )
    gone = next(one.seen for one in listed if f"broker1:{DISK}/gone-0" in one.seen)
    assert "1,000 bytes, 24 hours old; topic gone does not exist" in gone
    assert gone.endswith(
        "Not removable yet: the broker runs and may have the directory open; stop only broker1"
    )


def test_nothing_named_nothing_removed(tmp_path: Path) -> None:
    made = desk(tmp_path)
    assert made.process(forward).code == 0
    assert made.home
    assert made.cluster.made == []


def test_what_is_named_goes_and_nothing_else_and_comes_back(tmp_path: Path) -> None:
    names = ("/config/topics/old", "/config/changes/*", "topic/live/*", "/brokers/topics/empty")
    made = desk(tmp_path, *names)
    assert made.process(forward).code == 0
    gone = {"/config/topics/old", "/brokers/topics/empty", *ALL[5:8], ALL[11]}
    assert set(made.left) == set(ALL) - gone
    assert not any(path.startswith("/brokers/topics/empty") for path in made.cluster.tree)
    assert made.process(back).code == 0
    assert made.home, "with data and ACL"


@pytest.mark.parametrize("log_dirs", [DISK, "lib/../lib/kafka"], ids=["whole", "relative"])
def test_directories_are_moved_aside_while_their_broker_is_stopped_and_moved_back(
    tmp_path: Path, log_dirs: str
) -> None:
    """A relative log directory is below the one where the unit starts the broker."""
    made = desk(tmp_path, "broker1:*", stopped=(1,), log_dirs=log_dirs)
    assert made.process(forward).code == 0
    assert set(made.left) == set(ALL) - {f"broker1:{DISK}/gone-0", f"broker1:{DISK}/live2-0.{MARK}-delete"}
    assert made.cluster.installed == {"broker1"}, "not where nothing is named"
    assert made.process(back).code == 0
    assert made.home
    assert made.cluster.installed == set()


def test_a_directory_of_a_running_broker_is_not_moved(tmp_path: Path) -> None:
    made = desk(tmp_path, f"broker1:{DISK}/gone-0")
    assert made.process(forward).code == 6
    assert made.told("leftovers.held")[-1].seen == (
        f"broker1:{DISK}/gone-0: the broker runs and may have the directory open; stop only broker1"
    )
    assert made.cluster.hosts["broker1"].aside == {}
    made.cluster.down = {1}
    assert made.process(resume).code == 0
    assert f"broker1:{DISK}/gone-0" not in made.left


def test_a_log_directory_that_is_a_mount_point_has_no_place_for_it(tmp_path: Path) -> None:
    made = desk(tmp_path, f"broker1:{DISK}/gone-0", stopped=(1,))
    made.cluster.mounts = ("/", DISK)
    assert made.process(forward).code == 6
    assert f"{DISK} is a mount point" in made.told("leftovers.held")[-1].seen
    assert "gone-0" in made.cluster.laid("broker1")


def test_an_entry_taken_out_during_the_run_stays_and_one_added_waits_for_another_run(tmp_path: Path) -> None:
    made = desk(tmp_path, f"broker1:{DISK}/gone-0", "/config/topics/old")
    assert made.process(forward).code == 6
    before = made.inventory
    made.inventory = inventory("/config/topics/old", "/brokers/topics/empty")
    assert digest(made.inventory) == digest(before), "the run goes on with it"
    assert made.process(resume).code == 0
    assert set(ALL) - set(made.left) == {"/config/topics/old"}
    assert made.process(back).code == 0
    assert made.home


def test_a_directory_goes_back_only_while_its_broker_is_stopped(tmp_path: Path) -> None:
    made = desk(tmp_path, f"broker1:{DISK}/gone-0", stopped=(1,))
    assert made.process(forward).code == 0
    made.cluster.down.clear()
    assert made.process(back).code == 8
    assert made.cluster.hosts["broker1"].aside, "it stays aside"
    made.cluster.down = {1}
    assert made.process(back).code == 0
    assert made.home


def test_a_directory_that_could_not_be_moved_does_not_hold_up_the_way_back(tmp_path: Path) -> None:
    made = desk(tmp_path, f"broker1:{DISK}/gone-0", "/config/topics/old", stopped=(1,))
    made.cluster.refuses_aside = True
    assert made.process(forward).code == 8
    made.cluster.down.clear()
    assert made.process(back).code == 0
    assert made.home


def test_a_directory_made_anew_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    made = desk(tmp_path, f"broker1:{DISK}/gone-0", stopped=(1,))
    assert made.process(forward).code == 0
    made.cluster.create_topic("gone")
    made.cluster.lay("broker1", "gone-0", 5)
    made.cluster.down.clear()
    assert made.process(back).code == 0
    assert made.cluster.laid("broker1")["gone-0"] == 5
    assert (
        made.told("leftovers.back")[-1].seen == f"broker1:{DISK}/gone-0: another directory has the same path"
    )


def test_p12_a_broker_that_could_not_start_again_is_not_to_be_stopped(tmp_path: Path) -> None:
    made = desk(tmp_path / "1", "broker1:*", stopped=(1,))
    made.cluster.configure("broker1", broker_id="7")
    assert made.process(forward).code == 3
    found = made.told("leftovers.identity")[0]
    assert (found.target, found.blocks) == ("broker1", True)
    assert found.seen == f"{DISK}/meta.properties: broker.id=1, /etc/kafka/server.properties: 7"
    assert len(found.moves) == 2
    assert made.home
    other = desk(tmp_path / "2", "broker1:*", stopped=(1,))
    other.cluster.configure("broker2", broker_id="7")
    assert other.process(forward).code == 0, "a broker that is not touched warns"


def test_the_last_copy_of_a_partition_is_not_moved(tmp_path: Path) -> None:
    made = desk(tmp_path, "broker2:*", stopped=(2,))
    made.cluster.unlay("broker2", "live2-7")
    made.cluster.lay("broker2", "live3-0", 7)
    made.cluster.topics["live3"] = {}
    made.cluster.held["live3", 0] = Held((1, 3), (3,), 3, 1)
    assert made.process(forward).code == 6
    assert "may be the last copy" in made.told("leftovers.held")[-1].seen
    made.cluster.held["live3", 0] = Held((1, 3), (1, 3), 3, 1)
    assert made.process(resume).code == 0
    assert made.cluster.laid("broker2") == {}


@pytest.mark.parametrize(
    "entry", ["/controller", "/*", "*", "/contr?ller", "/controller_epoch", "/brokers/*"]
)
def test_the_controller_cannot_be_named(entry: str) -> None:
    """P11: ``/controller`` is never removed."""
    with pytest.raises(ValidationError, match="which is never removed"):
        inventory(entry)


def test_nothing_of_a_live_topic_is_offered(tmp_path: Path) -> None:
    made = desk(tmp_path)
    for path in ("/config/topics/live", "/brokers/topics/live", "/controller", "/brokers/topics/live2"):
        made.cluster.tree[path].changed_s = 0
    assert found(made) == list(ALL)


@pytest.mark.parametrize("knows", ["brokers", "one witness", "ZooKeeper"])
def test_a_topic_lives_by_the_word_of_one_side(tmp_path: Path, knows: str) -> None:
    made = desk(tmp_path)
    made.cluster.create_topic("old")
    if knows != "ZooKeeper":
        del made.cluster.tree["/brokers/topics/old"]
        made.cluster.unnamed = {"old"} if knows == "one witness" else set()
    else:
        del made.cluster.topics["old"]
        del made.cluster.held["old", 0]
    made.cluster.tree["/config/topics/old"].changed_s = 0
    assert "/config/topics/old" not in found(made)


def test_a_topic_whose_description_is_denied_counts_as_live(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.denied = frozenset({"gone"})
    assert not any("gone" in name for name in found(made))


def test_a_topic_under_deletion_is_left_to_kafka(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.put("/admin/delete_topics/old")
    made.cluster.put("/brokers/topics/old", b'{"partitions": {"0": [1, 2]}}')
    assert not any("old" in name for name in found(made))
    assert made.process(forward).code == 0
    assert made.told("leftovers.deletion")[-1].seen.startswith("old: Kafka finishes the deletion once")


def test_what_is_young_is_no_leftover(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.put("/config/topics/old", b"{}", 3599)
    made.cluster.put("/config/changes/config_change_0000000000", b"{}", 3599)
    made.cluster.lay("broker1", "gone-0", 1, made.clock.wall() - 3599)
    young = {"/config/topics/old", "/config/changes/config_change_0000000000", f"broker1:{DISK}/gone-0"}
    assert set(found(made)) == set(ALL) - young


def test_krafts_own_log_is_no_leftover(tmp_path: Path) -> None:
    made = desk(tmp_path)
    made.cluster.lay("broker1", "__cluster_metadata-0")
    assert found(made) == list(ALL)


def test_a_future_replica_of_a_live_partition_is_a_move_and_no_leftover(tmp_path: Path) -> None:
    made = desk(tmp_path)
    for topic in ("live-0", "gone-1"):
        made.cluster.lay("broker1", f"{topic}.{MARK}-future")
    assert set(found(made)) - set(ALL) == {f"broker1:{DISK}/gone-1.{MARK}-future"}


def before_nth_delete(number: int, act: Callable[[], object]) -> Callable[[Change], None]:
    numbers = iter(range(1, 1000))

    def heeded(change: Change) -> None:
        if isinstance(change, DeleteZnode) and next(numbers) == number:
            act()

    return heeded


def test_a_topic_created_meanwhile_keeps_its_config(tmp_path: Path) -> None:
    made = desk(tmp_path, "/admin/delete_topics/gone", "/config/topics/old")
    made.before_change = before_nth_delete(1, lambda: made.cluster.create_topic("old"))
    assert made.process(forward).code == 0
    assert "/config/topics/old" in made.cluster.tree
    assert made.told("leftovers.left")[-1].seen == (
        "not removed, because they are missing or in use again: /config/topics/old"
    )


def test_a_topic_created_right_before_the_removal_keeps_its_config(tmp_path: Path) -> None:
    """The delete names what was read, so it fails; the next look finds no leftover."""
    made = desk(tmp_path, "/config/topics/old")
    made.before_change = before_nth_delete(1, lambda: made.cluster.create_topic("old"))
    made.process(forward)
    assert "/config/topics/old" in made.cluster.tree
    assert made.process(resume).code == 0


def test_a_pattern_takes_nothing_that_appears_later(tmp_path: Path) -> None:
    made = desk(tmp_path, "/config/topics/*", "/config/changes/*")
    late = "/config/topics/later"
    made.before_change = before_nth_delete(1, lambda: made.cluster.put(late, b"{}"))
    assert made.process(forward).code == 0
    assert late in made.cluster.tree


def test_a_reassignment_stops_it(tmp_path: Path) -> None:
    made = desk(tmp_path, "/config/topics/old")
    made.cluster.flights["live", 0] = Flight((1, 3), (1, 2), {3: -(10**15)})
    assert made.process(forward).code == 3
    assert made.told("leftovers.in-flight")[-1].seen == "1: live-0"
    assert made.home


def test_a_reassignment_that_begins_meanwhile_stops_the_rest(tmp_path: Path) -> None:
    made = desk(tmp_path, "/admin/delete_topics/gone", "/config/topics/old")
    flights = made.cluster.flights
    made.before_change = before_nth_delete(
        1, lambda: flights.update({("live", 0): Flight((1, 3), (1, 2), {3: -(10**15)})})
    )
    assert made.process(forward).code == 6
    assert "/config/topics/old" in made.cluster.tree
    flights.clear()
    assert made.process(resume).code == 0
    assert "/config/topics/old" not in made.cluster.tree


def test_brokers_that_do_not_list_reassignments_stop_it(tmp_path: Path) -> None:
    made = desk(tmp_path, "/config/topics/old")
    made.cluster.old = True
    assert made.process(forward).code == 3
    assert made.home


def test_a_controller_that_changes_during_the_look_stops_it_and_is_waited_for(tmp_path: Path) -> None:
    made = desk(tmp_path, "/config/topics/old")
    made.cluster.elected = 2
    assert made.process(forward).code == 3
    assert made.told("leftovers.controller")[-1].blocks
    assert made.process(until("preflight.scan")).code == 0
    made.cluster.elected = 4
    assert made.process(resume).code == 0
    assert made.clock.pauses == 2
    assert "/config/topics/old" not in made.cluster.tree


def test_the_controller_must_stay_before_each_removal(tmp_path: Path) -> None:
    made = desk(tmp_path, "/admin/delete_topics/gone", "/config/topics/old")

    def vanish() -> None:
        del made.cluster.tree["/controller"]

    made.before_change = before_nth_delete(1, vanish)
    assert made.process(forward).code != 0
    assert "/config/topics/old" in made.cluster.tree


def test_another_cluster_is_refused(tmp_path: Path) -> None:
    made = desk(tmp_path, "/config/topics/old")
    made.cluster.tree["/cluster/id"].data = b'{"id": "other"}'
    assert made.process(forward).code == 3
    assert made.told("leftovers.cluster")[-1].seen.endswith("other")
    assert made.cluster.made == []


def test_an_entry_that_names_nothing_is_refused(tmp_path: Path) -> None:
    made = desk(tmp_path, "/config/topics/live")
    assert made.process(forward).code == 3
    assert made.told("leftovers.names")[-1].seen == "no leftover has the name /config/topics/live"


def test_what_kafka_would_act_on_is_not_put_back(tmp_path: Path) -> None:
    made = desk(tmp_path, *ZNODES_AND_SETTINGS)
    assert made.process(forward).code == 0
    assert set(made.left) == set(ALL[12:])
    assert made.process(back).code == 0
    assert set(ALL) - set(made.left) == KEPT_AWAY
    assert "/admin/delete_topics/gone: Kafka would act on this znode" in made.told("leftovers.back")[-1].seen


def test_nothing_is_put_back_into_a_topic_that_lives_now(tmp_path: Path) -> None:
    made = desk(tmp_path, "/config/topics/old", "topic/live/*")
    assert made.process(forward).code == 0
    made.cluster.create_topic("old")
    del made.cluster.tree["/config/topics/old"]
    made.cluster.topics["live"][FOLLOWER_LIST] = "0:1"
    assert made.process(back).code == 0
    assert "/config/topics/old" not in made.cluster.tree
    assert made.cluster.topics["live"][FOLLOWER_LIST] == "0:1", "of another tool"


def test_killed_anywhere_there_and_back(tmp_path: Path) -> None:
    names = (*ZNODES_AND_SETTINGS[1:8], *ZNODES_AND_SETTINGS[10:], "broker1:*")
    whole = desk(tmp_path, *names, stopped=(1,))
    for made in left_by_kills(whole, forward):
        assert made.process(resume).code == 0, made.run_dir
        assert set(made.left) == {ALL[0], ALL[8], ALL[9], f"broker2:{DISK}/live2-7"}, made.run_dir
        assert made.process(back).code == 0, made.run_dir
        assert made.home, made.run_dir
    again = whole.copy(tmp_path / "back")
    assert len(list(homeward(left_by_kills(again, back)))) > 20


def test_a_lost_answer_is_looked_at(tmp_path: Path) -> None:
    made = desk(tmp_path, "/config/topics/old")
    made.cluster.wrong = ["lost"]
    made.process(forward)
    assert made.process(resume).code == 0
    assert "/config/topics/old" not in made.cluster.tree
    assert made.process(back).code == 0
    assert made.home


def test_without_ssh_brokers_tell_of_their_directories_and_nothing_is_moved(tmp_path: Path) -> None:
    made = desk(tmp_path, "broker1:*", ssh=False)
    here = {name for name in ALL if name.startswith("broker") and MARK not in name and "/" + "var" in name}
    assert {name for name in found(made) if name.startswith("broker") and ":" in name} == here
    assert made.process(forward).code == 6
    assert "the inventory has no section ssh" in made.told("leftovers.held")[-1].seen
    assert made.home
