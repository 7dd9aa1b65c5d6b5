"""``preflight --stage after`` in the model world after a move: what is fine, wrong and unknown."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import Result

from tests.world.desk import Desk
from tests.world.model.look import WorldLook
from tests.world.model.world import WRITER, World
from tests.world.operator import Operator, copied, quiet_world
from tests.world.site import INVENTORY
from zkmigrate.kafka.rules.connect import with_connect
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.after_move import LogPosition, look_after_move
from zkmigrate.move.rules import after_move
from zkmigrate.move.steps.after_move import proof_end
from zkmigrate.runbook.engine import journal
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context

BACK = "10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181/kafka"


class AfterDesk(Desk):
    """A desk with the run that made its world what it is."""

    def __init__(self, folder: Path, world: World | None = None) -> None:
        super().__init__(folder, world or quiet_world())
        self.runs.mkdir(exist_ok=True)
        self.operator = Operator(self.world, self.runs / "world-1")

    def look(self, *words: str, unreachable: frozenset[str] = frozenset()) -> Result:
        done = self.call("preflight", "--stage", "after", *words, unreachable=unreachable)
        print(done.output)
        return done

    def once(self, unreachable: frozenset[str] = frozenset()) -> dict[str, str]:
        """One look: claim → whether it held, and ``code``."""
        done = self.look("--json", unreachable=unreachable)
        body = json.loads(done.stdout)
        assert (body["code"], body["gate"]) == (done.exit_code, "after")
        found = {f["id"] + (f".{f['target']}" if f["target"] else ""): f["held"] for f in body["findings"]}
        return {**found, "code": str(done.exit_code)}

    def bad(self, unreachable: frozenset[str] = frozenset()) -> dict[str, str]:
        """One look: the claims that are not fine, and ``code``."""
        return {k: v for k, v in self.once(unreachable).items() if v != "yes"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> AfterDesk:
    """A desk after a whole move; source has expired what moved."""
    desk = AfterDesk(tmp_path_factory.mktemp("whole"))
    assert desk.operator.forward().code == 0
    desk.world.advance(40)
    return desk


@pytest.fixture
def moved(whole: AfterDesk, tmp_path: Path) -> AfterDesk:
    """A copy of that desk, for one test to change."""
    shutil.copytree(whole.runs, tmp_path / "runs")
    return AfterDesk(tmp_path, copied(whole.world))


def restart_with(desk: AfterDesk, connect: str) -> None:
    """Somebody's config management writes the file of broker2 and restarts it."""
    host = desk.world.hosts["broker2"]
    path = desk.world.inventory.kafka.config
    host.files[path] = replace(host.files[path], content=with_connect(host.files[path].content, connect))
    host.stop()
    desk.world.advance(1)
    host.start(desk.world.now)
    desk.world.advance(5)


def test_after_a_whole_move_all_claims_hold(moved: AfterDesk) -> None:
    found = moved.once()
    assert set(found.values()) == {"yes", "0"}
    per_broker = ("watch.registered", "watch.config", "watch.left-source")
    wanted = {f"{id}.broker{n}" for id in per_broker for n in (1, 2, 3)}
    assert set(found) == wanted | {"watch.dest", "watch.strays", "watch.writes", "code"}


def test_a_broker_back_on_source_is_named_by_every_sign_of_it(moved: AfterDesk) -> None:
    restart_with(moved, BACK)
    assert moved.bad() == {
        "watch.registered.broker2": "no",
        "watch.config.broker2": "no",
        "watch.left-source.broker2": "no",
        "watch.strays": "no",
        f"watch.writes.{writes(moved)['target']}": "no",
        "code": "3",
    }


def test_a_file_that_names_source_again_is_told_before_the_broker_restarts(moved: AfterDesk) -> None:
    host, path = moved.world.hosts["broker2"], moved.world.inventory.kafka.config
    host.files[path] = replace(host.files[path], content=with_connect(host.files[path].content, BACK))
    assert moved.bad() == {"watch.config.broker2": "no", "code": "3"}


def accept(desk: AfterDesk, zxid: str, until: str = "2999-01-01T00:00Z") -> None:
    """Somebody accepts the writes on source up to this zxid."""
    entry = "accept: [{finding: watch.writes, target: '%s', who: Lea, why: repeated on dest, until: '%s'}]\n"
    desk.file.write_text(INVENTORY + entry % (zxid, until))


def writes(desk: AfterDesk) -> dict[str, Any]:
    """The finding about writes on source."""
    done = desk.call("preflight", "--stage", "after", "--json")
    [found] = [f for f in json.loads(done.stdout)["findings"] if f["id"] == "watch.writes"]
    return dict(found)


def test_a_write_under_the_chroot_on_source_blocks_until_somebody_accepts_it(moved: AfterDesk) -> None:
    moved.world.source.commit("create", WRITER, "/other/x")
    assert moved.bad() == {"code": "0"}
    moved.world.source.commit("create", WRITER, "/kafka/stray")
    for _ in range(2):
        done = moved.look()
        assert done.exit_code == 3
        assert f"create /kafka/stray by session {WRITER:#x} at 0x1" in done.stdout
        assert f"zkmigrate preflight --stage after -i {moved.file}" in done.stdout.splitlines()[-1]
    known = writes(moved)["target"]
    accept(moved, known)
    assert moved.bad() == {"code": "0"}
    assert "the earlier writes are accepted by Lea" in writes(moved)["seen"]
    moved.world.source.commit("create", WRITER, "/kafka/later")
    found = writes(moved)
    assert found["held"] == "no", "only what was written before is accepted"
    assert "/kafka/later" in found["seen"]
    assert "/kafka/stray" not in found["seen"]


def test_a_write_that_was_accepted_blocks_again_once_that_is_over(moved: AfterDesk) -> None:
    moved.world.source.commit("create", WRITER, "/kafka/stray")
    accept(moved, writes(moved)["target"], until="2020-01-01T00:00Z")
    assert moved.bad() == {f"watch.writes.{writes(moved)['target']}": "no", "code": "3"}
    assert "which is over" in writes(moved)["seen"]


def test_the_log_is_read_from_a_proof_only_once_dest_has_opened(moved: AfterDesk) -> None:
    """A rehearsal proves as well, while the brokers still write to source."""
    records = journal.read(moved.operator.run_dir).records()
    c = Context("run", moved.world.inventory, records=records)
    assert proof_end(c) is not None
    assert proof_end(replace(c, records={k: v for k, v in records.items() if k != "cutover"})) is None


def test_without_a_run_source_s_log_is_not_read(moved: AfterDesk, tmp_path: Path) -> None:
    moved.world.source.commit("create", WRITER, "/kafka/earlier")
    shutil.rmtree(tmp_path / "runs")
    found = writes(moved)
    assert (found["held"], found["seen"][:12], found["severity"]) == ("unknown", "source's log", "info")
    assert moved.bad() == {"watch.writes": "unknown", "code": "0"}
    assert not (tmp_path / "runs").exists(), "nothing is written where there is no run"


def test_dest_that_is_not_whole_is_told(moved: AfterDesk) -> None:
    moved.world.hosts["dest1"].stop()
    moved.world.advance(2)
    assert moved.bad() == {"watch.dest": "no", "code": "3"}


def test_a_host_that_does_not_answer_is_unknown_and_not_fine(moved: AfterDesk) -> None:
    assert moved.bad(unreachable=frozenset({"dest1"})) == {"watch.dest": "unknown", "code": "3"}
    silent = frozenset(moved.world.inventory.source_names)
    assert moved.bad(unreachable=silent) == {
        "watch.strays": "unknown",
        "watch.writes": "unknown",
        "code": "3",
    }
    assert moved.bad(unreachable=frozenset({"broker3"})) == {"watch.config.broker3": "unknown", "code": "3"}


def test_a_source_that_has_been_shut_down_holds_nobody(moved: AfterDesk) -> None:
    moved.world.source_down |= set(moved.world.inventory.source_names)
    moved.world.advance(1)
    assert moved.bad() == {"code": "0"}


@dataclass(frozen=True)
class Whitelisting(WorldLook):
    """Source answers these words no more."""

    refused: frozenset[str] = frozenset()

    def word(self, host: str, word: str) -> Reading[str]:
        if word in self.refused and host.startswith("source"):
            return Seen(f"{word} is not executed because it is not in the whitelist.\n")
        return super().word(host, word)


@pytest.mark.parametrize(
    ("words", "unknown"),
    [({"cons"}, set()), ({"dump"}, {"watch.strays"}), ({"srvr"}, {"watch.writes"})],
    ids=["cons", "dump", "srvr"],
)
def test_what_source_does_not_tell_is_unknown_where_nobody_else_tells(
    moved: AfterDesk, words: set[str], unknown: set[str]
) -> None:
    """Without cons the sockets of source and brokers tell who is connected."""
    inventory = moved.world.inventory
    look = cast(Look, Whitelisting(moved.world, refused=frozenset(words)))
    seen = look_after_move(inventory, KAFKA, look, LogPosition("source1", moved.world.source.zxid))
    found = {f.id for f in after_move.findings(inventory, seen) if f.held is not Held.YES}
    assert found == unknown


def test_a_log_that_was_purged_leaves_writes_unknown_and_says_how_to_go_on(moved: AfterDesk) -> None:
    inventory, look = moved.world.inventory, cast(Look, WorldLook(moved.world))
    seen = look_after_move(inventory, KAFKA, look, LogPosition("source1", 0x100000002, None))
    moved.world.source.log = moved.world.source.log[-1:]
    gone = look_after_move(inventory, KAFKA, look, LogPosition("source1", 0x100000002, None))
    assert isinstance(seen.written, Seen)
    assert isinstance(gone.written, Seen)
    assert seen.written.value.unproved == ""
    assert "must be continuous from" in gone.written.value.unproved
    [writes] = [f for f in after_move.findings(inventory, gone) if f.id == "watch.writes"]
    assert writes.held is Held.UNKNOWN
    assert f"accept watch.writes with target {writes.target}" in writes.moves[0]
    assert int(writes.target, 16) == gone.written.value.upto.zxid


def test_before_the_cut_over_observers_are_fine_and_writes_are_no_strays(tmp_path: Path) -> None:
    desk = AfterDesk(tmp_path)
    assert desk.operator.forward("roll").code == 0
    desk.world.source.commit("create", WRITER, "/kafka/through-dest")
    assert desk.bad() == {"watch.writes": "unknown", "code": "0"}
    desk.world.hosts["dest2"].stop()
    desk.world.advance(1)
    assert desk.bad() == {"watch.dest": "no", "watch.writes": "unknown", "code": "3"}
