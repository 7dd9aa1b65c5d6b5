"""``watch`` over the model world after a whole move: what is fine, what is not, and what cannot be told."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest
from click.testing import Result

from tests.world.desk import Desk
from tests.world.model.look import WorldLook
from tests.world.model.world import WRITER, World
from tests.world.operator import Operator, copied, quiet_world
from zkmigrate.errors import UsageError
from zkmigrate.kafka.rules.connect import with_connect
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.after_move import LogPosition, look_after_move
from zkmigrate.move.rules import after_move
from zkmigrate.move.verbs import watch as verb
from zkmigrate.move.verbs.watch import Memory, Options, Screen, Watch
from zkmigrate.runbook.engine.clock import Interrupt
from zkmigrate.runbook.model.fact import Reading, Seen
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.look import Look

BACK = "10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181/kafka"


class WatchDesk(Desk):
    """A desk with the run that made its world what it is."""

    def __init__(self, folder: Path, world: World | None = None) -> None:
        super().__init__(folder, world or quiet_world())
        self.runs.mkdir(exist_ok=True)
        self.operator = Operator(self.world, self.runs / "run")

    def watch(self, *words: str, unreachable: frozenset[str] = frozenset()) -> Result:
        done = self.call("watch", *words, unreachable=unreachable)
        print(done.output)
        return done

    def once(self, *words: str, unreachable: frozenset[str] = frozenset()) -> dict[str, str]:
        """One look: claim → whether it held, and ``code``."""
        done = self.watch("--once", "--json", "--run-id", "run", *words, unreachable=unreachable)
        body = json.loads(done.stdout)
        assert body["code"] == done.exit_code
        found = {f["id"] + (f".{f['target']}" if f["target"] else ""): f["held"] for f in body["findings"]}
        return {**found, "code": str(done.exit_code)}

    def bad(self, *words: str, unreachable: frozenset[str] = frozenset()) -> dict[str, str]:
        """One look: the claims that are not fine, and ``code``."""
        return {k: v for k, v in self.once(*words, unreachable=unreachable).items() if v != "yes"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> WatchDesk:
    """A desk after a whole move; source has expired what moved."""
    desk = WatchDesk(tmp_path_factory.mktemp("whole"))
    assert desk.operator.forward().code == 0
    desk.world.advance(40)
    return desk


@pytest.fixture
def moved(whole: WatchDesk, tmp_path: Path) -> WatchDesk:
    """A copy of that desk, for one test to change."""
    shutil.copytree(whole.runs, tmp_path / "runs")
    return WatchDesk(tmp_path, copied(whole.world))


def restart_with(desk: WatchDesk, connect: str) -> None:
    """Somebody's config management writes the file of broker2 and restarts it."""
    host = desk.world.hosts["broker2"]
    path = desk.world.inventory.kafka.config
    host.files[path] = replace(host.files[path], content=with_connect(host.files[path].content, connect))
    host.stop()
    desk.world.advance(1)
    host.start(desk.world.now)
    desk.world.advance(5)


def test_after_a_whole_move_all_claims_hold(moved: WatchDesk) -> None:
    found = moved.once()
    assert set(found.values()) == {"yes", "0"}
    per_broker = ("watch.registered", "watch.config", "watch.left-source")
    wanted = {f"{id}.broker{n}" for id in per_broker for n in (1, 2, 3)}
    assert set(found) == wanted | {"watch.dest", "watch.strays", "watch.writes", "code"}


def test_a_broker_back_on_source_is_named_by_every_sign_of_it(moved: WatchDesk) -> None:
    restart_with(moved, BACK)
    assert moved.bad() == {
        "watch.registered.broker2": "no",
        "watch.config.broker2": "no",
        "watch.left-source.broker2": "no",
        "watch.strays": "no",
        "watch.writes": "no",
        "code": "10",
    }


def test_a_file_that_names_source_again_is_told_before_the_broker_restarts(moved: WatchDesk) -> None:
    host, path = moved.world.hosts["broker2"], moved.world.inventory.kafka.config
    host.files[path] = replace(host.files[path], content=with_connect(host.files[path].content, BACK))
    assert moved.bad() == {"watch.config.broker2": "no", "code": "10"}


def test_a_write_under_the_chroot_on_source_is_told_until_somebody_has_seen_to_it(moved: WatchDesk) -> None:
    moved.world.source.commit("create", WRITER, "/other/x")
    assert moved.bad() == {"code": "0"}
    moved.world.source.commit("create", WRITER, "/kafka/stray")
    for _ in range(2):
        done = moved.watch("--once", "--run-id", "run")
        assert done.exit_code == 10
        assert f"create /kafka/stray by session {WRITER:#x} at 0x1" in done.stdout
    assert moved.bad("--from-now") == {"code": "0"}
    assert moved.bad() == {"code": "0"}


def test_without_a_run_writes_are_told_from_the_first_look_on(moved: WatchDesk, tmp_path: Path) -> None:
    moved.world.source.commit("create", WRITER, "/kafka/earlier")
    shutil.rmtree(tmp_path / "runs")
    done = moved.watch("--once", "--json")
    [writes] = [f for f in json.loads(done.stdout)["findings"] if f["id"] == "watch.writes"]
    assert (done.exit_code, writes["seen"][:13], writes["severity"]) == (0, "not looked at", "info")
    state = ("--state", str(tmp_path / "state.json"))
    first = moved.watch("--once", *state)
    assert first.exit_code == 0
    moved.world.source.commit("create", WRITER, "/kafka/later")
    done = moved.watch("--once", *state)
    assert done.exit_code == 10
    assert "/kafka/later" in done.stdout
    assert "/kafka/earlier" not in done.stdout
    assert not (tmp_path / "runs").exists(), "nothing is written where there is no run"


def test_dest_that_is_not_whole_is_told(moved: WatchDesk) -> None:
    moved.world.hosts["dest1"].stop()
    moved.world.advance(2)
    assert moved.bad() == {"watch.dest": "no", "code": "10"}


def test_a_host_that_does_not_answer_is_unknown_and_not_fine(moved: WatchDesk) -> None:
    assert moved.bad(unreachable=frozenset({"dest1"})) == {"watch.dest": "unknown", "code": "11"}
    silent = frozenset(moved.world.inventory.source_names)
    assert moved.bad(unreachable=silent) == {
        "watch.strays": "unknown",
        "watch.writes": "unknown",
        "code": "11",
    }
    assert moved.bad(unreachable=frozenset({"broker3"})) == {"watch.config.broker3": "unknown", "code": "11"}


def test_a_source_that_has_been_shut_down_holds_nobody(moved: WatchDesk) -> None:
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
    moved: WatchDesk, words: set[str], unknown: set[str]
) -> None:
    """Without cons the sockets of source and brokers tell who is connected."""
    inventory = moved.world.inventory
    look = cast(Look, Whitelisting(moved.world, refused=frozenset(words)))
    seen = look_after_move(inventory, KAFKA, look, None)
    found = {f.id for f in after_move.findings(inventory, seen) if f.held is not Held.YES}
    assert found == unknown


def test_a_log_that_was_purged_leaves_writes_unknown_until_it_is_begun_anew(moved: WatchDesk) -> None:
    inventory, look = moved.world.inventory, cast(Look, WorldLook(moved.world))
    seen = look_after_move(inventory, KAFKA, look, LogPosition("source1", 0x100000002, None))
    moved.world.source.log = moved.world.source.log[-1:]
    gone = look_after_move(inventory, KAFKA, look, LogPosition("source1", 0x100000002, None))
    assert isinstance(seen.written, Seen)
    assert isinstance(gone.written, Seen)
    assert seen.written.value.unproved == ""
    assert "must be continuous from" in gone.written.value.unproved
    [writes] = [f for f in after_move.findings(inventory, gone) if f.id == "watch.writes"]
    assert (writes.held, "--from-now" in writes.moves[0]) == (Held.UNKNOWN, True)
    kept = Memory(inventory.name, LogPosition("source1", 0x100000002, None))
    assert kept.after(gone.written.value, ()) == kept


def test_before_the_cut_over_observers_are_fine_and_writes_are_no_strays(tmp_path: Path) -> None:
    desk = WatchDesk(tmp_path)
    assert desk.operator.forward("roll").code == 0
    desk.world.source.commit("create", WRITER, "/kafka/through-dest")
    assert desk.bad() == {"watch.writes": "unknown", "code": "0"}
    desk.world.hosts["dest2"].stop()
    desk.world.advance(1)
    assert desk.bad() == {"watch.dest": "no", "watch.writes": "unknown", "code": "10"}


@dataclass
class Clock:
    """The world's own time: a pause lets it pass. at: what happens in the n-th pause."""

    world: World
    at: dict[int, Callable[[], None]] = field(default_factory=dict)
    pauses: int = 0

    def now(self) -> float:
        return self.world.now

    def wall(self) -> float:
        return self.world.wall

    def pause(self, seconds: float) -> None:
        self.pauses += 1
        self.at.get(self.pauses, lambda: None)()
        self.world.advance(seconds)


def loop(
    desk: WatchDesk, at: dict[int, Callable[[], None]], interrupt: Interrupt, as_json: bool
) -> tuple[int, str]:
    out, inventory = io.StringIO(), desk.world.inventory
    look = cast(Look, WorldLook(desk.world))
    clock = Clock(desk.world, at)
    screen = Screen(out, as_json, once=False)
    made = Watch(inventory, look, clock, interrupt, None, Memory(inventory.name), screen)
    return made.run(Options(every=30, for_s=300)), out.getvalue()


def test_a_watch_tells_what_changes_and_nothing_else(moved: WatchDesk) -> None:
    dest3 = moved.world.hosts["dest3"]
    at = {3: dest3.stop, 5: lambda: dest3.start(moved.world.now)}
    code, said = loop(moved, at, Interrupt(), as_json=False)
    assert code == 10, "it has been wrong, though it is fine again"
    lines = [line[20:] for line in said.splitlines() if line[:2] == "20"]
    assert lines[0] == "12 findings hold"
    assert lines[1].startswith("[NO] watch.dest: Failed: ")
    assert lines[2].startswith("[ok] watch.dest: every dest host serves; ")
    assert lines[3] == "the time is over after 11 looks (exit code 10)"
    assert len(lines) == 4


def test_a_watch_that_is_interrupted_says_so_and_ends_with_130(moved: WatchDesk) -> None:
    interrupt = Interrupt()
    code, said = loop(moved, {2: interrupt.ask}, interrupt, as_json=True)
    assert code == 130
    events = [json.loads(line) for line in said.splitlines()]
    assert [e["event"] for e in events] == ["Looked", "WatchEnded"]
    assert (events[0]["claims"], events[0]["code"], len(events[0]["findings"])) == (12, 0, 12)
    assert (events[1]["code"], events[1]["looks"]) == (130, 2)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"version": 2}', '{"version": 1, "name": "other", "position": null, "writes": []}',
     '{"version": 1, "name": "world", "position": {"host": 1}, "writes": []}'],
)  # fmt: skip
def test_a_state_file_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "state.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=r"is not what watch keeps for world .*--from-now"):
        verb.load(file, "world")


def test_times_are_read_with_their_units_and_others_refused() -> None:
    assert [verb.seconds(text) for text in ("30s", "1.5m", "2h", "3d", "7")] == [30, 90, 7200, 259200, 7]
    for text in ("", "0s", "-1", "x", "nan", "inf", "1w", "s"):
        with pytest.raises(UsageError, match="is not a time"):
            verb.seconds(text)
