"""A run whose journal is lost goes on from what the hosts say: both ways, from wherever it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.model.host import File
from tests.world.model.look import WorldLook
from tests.world.model.world import World
from tests.world.operator import Killed, Operator, quiet_world
from tests.world.test_move import footprint
from zkmigrate.errors import HostError, JournalError
from zkmigrate.inventory.inventory import digest
from zkmigrate.runbook.engine import journal as journals
from zkmigrate.runbook.engine.events import RunEnded, StepEnded, Turned
from zkmigrate.runbook.engine.journal import NAME
from zkmigrate.runbook.engine.runs import copy_path
from zkmigrate.runbook.model.fact import Unknown
from zkmigrate.runbook.model.finding import Held
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.runs.open_run import JournalOpener, OpenJournal


def opening(operator: Operator) -> JournalOpener:
    look = WorldLook(operator.world, operator.unreachable)
    return JournalOpener(
        operator.run_dir, operator.playbook, operator.world.inventory, look, lambda: operator.world.wall
    )


def lose(operator: Operator, lines: int = 0) -> None:
    """Keep so many lines of the journal, as the digest of the real inventory was in their first."""
    file = operator.run_dir / NAME
    kept = file.read_bytes().splitlines(keepends=True)[:lines]
    file.write_bytes(b"".join(kept))


def recover(operator: Operator, asked: Way) -> OpenJournal:
    opened = opening(operator).recover(asked, "tester")
    opened.journal.close()
    return opened


def go_on(operator: Operator, asked: Way) -> RunEnded:
    """``resume --journal-lost forward|back``."""
    opened = recover(operator, asked)
    return operator.back(opened.back_to) if asked is Way.BACK else operator.resume()


def started(directory: Path, world: World | None = None) -> Operator:
    """An operator whose journal names the inventory as the command line does."""
    operator = Operator(world or quiet_world(), directory / "run")
    book = journals.Journal.create(operator.run_dir, lambda: operator.world.wall)
    names = {
        "run": "run",
        "name": "",
        "playbook": operator.playbook.id,
        "inventory": digest(operator.world.inventory),
        "plan": "",
    }
    book.append("begin", names)
    book.close()
    return operator


def kill_after(operator: Operator, verb: str, times: int) -> None:
    """End the operator when the cut-over has sent ``verb`` so often."""
    operator.kill_after_verb = ("cutover", verb, times)
    with pytest.raises(Killed):
        operator.forward()
    operator.kill_after_verb = ("", "", 0)


def modes(world: World) -> list[str]:
    return sorted(world.mode(host) for host in world.inventory.dest_names)


@pytest.mark.parametrize("until", ["install", "join", "rehearse", "roll", "cutover.seal", "cutover.check"])
def test_without_any_line_the_first_world_is_put_back(tmp_path: Path, until: str) -> None:
    operator = started(tmp_path)
    first = footprint(operator.world)
    assert operator.forward(until=until).code == 0
    lose(operator)
    assert go_on(operator, Way.BACK).code == 0
    assert footprint(operator.world) == first
    assert all(p.connected.startswith("source") for p in operator.world.brokers.values())


@pytest.mark.parametrize("until", ["install", "join", "rehearse", "roll.preflight", "roll", "cutover.arm"])
def test_without_any_line_the_move_goes_on_to_its_end(tmp_path: Path, until: str) -> None:
    operator = started(tmp_path)
    assert operator.forward(until=until).code == 0
    lose(operator)
    assert go_on(operator, Way.FORWARD).code == 0
    assert modes(operator.world) == ["follower", "follower", "leader"]
    assert not any(host.installed for host in operator.world.hosts.values())


@pytest.mark.parametrize("lines", [0, 40, 120])
def test_with_dest_open_the_run_goes_on_with_verify_and_finalize(tmp_path: Path, lines: int) -> None:
    operator = started(tmp_path)
    assert operator.forward(until="cutover").code == 0
    lose(operator, lines)
    ended = go_on(operator, Way.FORWARD)
    assert ended.code == 0, ended
    steps = {f"{e.stage}.{e.step}": e for e in operator.events[-400:] if isinstance(e, StepEnded)}
    verified = {f.id: f.held for f in steps["verify.verify"].findings}
    assert verified["verify.baseline"] is Held.UNKNOWN
    assert verified["verify.registered"] is Held.YES
    assert not any(host.installed for host in operator.world.hosts.values())


def test_with_dest_open_the_way_back_is_refused_and_forward_goes_on(tmp_path: Path) -> None:
    operator = started(tmp_path)
    assert operator.forward(until="cutover").code == 0
    lose(operator)
    ended = go_on(operator, Way.BACK)
    assert (ended.code, [f.id for f in ended.findings]) == (6, ["open.no-way-back"])
    assert operator.resume().code == 0


@pytest.mark.parametrize("sent", [1, 3])
def test_hosts_that_have_their_go_finish_without_the_journal(tmp_path: Path, sent: int) -> None:
    operator = started(tmp_path)
    kill_after(operator, "go", sent)
    lose(operator)
    ended = go_on(operator, Way.FORWARD)
    if sent == 1:  # the others are still sealed, and what proved them is lost
        assert ended.code == 7
        assert modes(operator.world) == ["observer"] * 3
        assert operator.forward().code == 0
    else:
        assert ended.code == 0
    assert modes(operator.world) == ["follower", "follower", "leader"]


def test_a_sealed_host_joins_the_others_that_have_opened_without_it(tmp_path: Path) -> None:
    operator = started(tmp_path)
    kill_after(operator, "go", 2)
    operator.world.advance(30.0)
    phases = sorted(operator.world.hosts[h].phase for h in operator.world.inventory.dest_names)
    assert phases == ["open", "open", "sealed"]
    lose(operator)
    assert go_on(operator, Way.FORWARD).code == 0
    assert modes(operator.world) == ["follower", "follower", "leader"]


def test_with_the_program_gone_from_some_hosts_what_is_left_is_finalized(tmp_path: Path) -> None:
    operator = started(tmp_path)
    assert operator.forward(until="verify").code == 0
    operator.kill_before_second = "UninstallProgram"
    with pytest.raises(Killed):
        operator.resume()
    assert len([h.name for h in operator.world.hosts.values() if not h.installed]) == 1
    operator.kill_before_second = ""
    lose(operator)
    assert go_on(operator, Way.FORWARD).code == 0
    assert not any(host.installed for host in operator.world.hosts.values())


def test_a_host_that_does_not_tell_stops_it_before_anything_is_written(tmp_path: Path) -> None:
    operator = started(tmp_path)
    assert operator.forward(until="roll").code == 0
    lose(operator, 3)
    before = (operator.run_dir / NAME).read_bytes()
    operator.unreachable = frozenset({"broker2"})
    with pytest.raises(
        HostError, match=r"1 of 6 hosts did not report theirs: broker2: .*bring these hosts back"
    ) as refused:
        recover(operator, Way.BACK)
    assert refused.value.exit_code == 8
    assert (operator.run_dir / NAME).read_bytes() == before
    operator.unreachable = frozenset()
    assert go_on(operator, Way.BACK).code == 0


def test_silent_hosts_are_not_taken_for_hosts_that_know_nothing(tmp_path: Path) -> None:
    world = quiet_world()
    names = (*world.inventory.dest_names, *world.inventory.broker_names)
    operator = Operator(world, tmp_path / "typo", unreachable=frozenset(names))
    operator.run_dir.mkdir(mode=0o700)
    with pytest.raises(HostError, match="6 of 6 hosts did not report theirs"):
        recover(operator, Way.FORWARD)
    assert list(operator.run_dir.iterdir()) == []


def test_a_recovery_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    operator = started(tmp_path)
    assert operator.forward(until="join").code == 0
    lose(operator, 3)
    journals.Journal.recover(operator.run_dir, lambda: operator.world.wall).close()
    with pytest.raises(JournalError, match="--journal-lost"):
        opening(operator).open(tuple)
    assert go_on(operator, Way.FORWARD).code == 0


def turned_back(directory: Path) -> Operator:
    """Killed on the way back from the roll with two brokers back already; the whole journal is there."""
    operator = started(directory)
    assert operator.forward(until="roll").code == 0
    operator.kill_after_verb = ("roll", "service", 2)
    with pytest.raises(Killed):
        operator.back("roll")
    operator.kill_after_verb = ("", "", 0)
    return operator


def test_a_direction_other_than_the_lines_that_are_left_is_a_turn_with_a_name(tmp_path: Path) -> None:
    operator = turned_back(tmp_path)
    opened = recover(operator, Way.FORWARD)
    history = journals.read(operator.run_dir)
    assert history.way is Way.FORWARD
    why = (
        "asked by tester: --journal-lost forward; the remaining lines say back to the start of roll "
        "(asked by the operator)"
    )
    assert f"turned: {why}" in opened.remarks
    assert (operator.run_dir / NAME).read_text().count('"by":"tester"') == 1
    operator.events.clear()
    assert operator.resume(until="roll").code == 0
    assert [e for e in operator.events if isinstance(e, Turned)] == []
    assert all(p.connected.startswith("dest") for p in operator.world.brokers.values())


def test_the_way_back_that_was_begun_is_finished_where_it_was_going(tmp_path: Path) -> None:
    operator = turned_back(tmp_path)
    assert recover(operator, Way.BACK).back_to == "roll"
    assert operator.back("roll").code == 0
    assert all(p.connected.startswith("source") for p in operator.world.brokers.values())
    assert all(operator.world.mode(h) == "observer" for h in operator.world.inventory.dest_names)


def test_lines_that_end_in_the_way_back_of_the_rehearsal_do_not_turn_a_rolled_cluster(tmp_path: Path) -> None:
    operator = started(tmp_path)
    first = footprint(operator.world)
    assert operator.forward(until="roll").code == 0
    entries = journals.kept_lines(operator.run_dir)
    turn = next(e.seq for e in entries if e.kind == "turn")
    lose(operator, turn + 2)
    assert journals.folded(journals.kept_lines(operator.run_dir)).way is Way.BACK
    assert go_on(operator, Way.BACK).code == 0
    assert footprint(operator.world) == first


def test_a_copy_larger_than_a_look_at_a_file_takes_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the hosts were asked for such a run before: a look at a file takes 1 MiB."""
    operator = started(tmp_path)
    assert operator.forward(until="join").code == 0
    book = journals.Journal.open(operator.run_dir, lambda: operator.world.wall)
    book.append("note", {"text": "x" * (2 << 20)})
    lines = book.history.entries
    operator.world.hosts["dest2"].files[copy_path("run")] = File(book.content(), "0600", "root:root")
    book.close()
    lose(operator)
    monkeypatch.setattr(WorldLook, "file", lambda _look, host, _path: Unknown("failed", f"{host}: too large"))
    opened = recover(operator, Way.FORWARD)
    assert opened.remarks[0].startswith(f"the journal is incomplete: {lines} of its lines are left")
    assert "join.join" in opened.journal.history.done


def hold_copy(operator: Operator, host: str, content: bytes) -> None:
    operator.world.hosts[host].files[copy_path("run")] = File(content, "0600", "root:root")


def reopen(operator: Operator) -> OpenJournal:
    """As resume and rollback do it."""
    opened = opening(operator).open(lambda: ())
    opened.journal.close()
    return opened


def test_a_journal_restored_from_a_backup_takes_what_hosts_have_more(tmp_path: Path) -> None:
    operator = started(tmp_path)
    assert operator.forward(until="join").code == 0
    whole = (operator.run_dir / NAME).read_bytes()
    hold_copy(operator, "dest2", whole)
    hold_copy(operator, "dest3", b"".join(whole.splitlines(keepends=True)[:9]))
    lose(operator, 5)
    opened = reopen(operator)
    assert (operator.run_dir / NAME).read_bytes().startswith(whole)
    assert len(opened.remarks) == 1
    assert f"lacked {len(whole.splitlines()) - 5:,} lines of its copies on hosts" in opened.remarks[0]
    assert "join.join" in opened.journal.history.done
    assert reopen(operator).remarks == (), "the copies are shorter now"


def test_a_journal_whose_copies_have_other_lines_is_not_opened(tmp_path: Path) -> None:
    operator = started(tmp_path)
    assert operator.forward(until="join").code == 0
    hold_copy(operator, "dest2", (operator.run_dir / NAME).read_bytes())
    lose(operator, 5)
    book = journals.Journal.open(operator.run_dir, lambda: operator.world.wall)
    book.append("note", {"text": "another history"})
    book.close()
    ours = (operator.run_dir / NAME).read_bytes()
    with pytest.raises(JournalError, match=r"the copy on dest2 has other lines\. Nothing was changed"):
        reopen(operator)
    assert (operator.run_dir / NAME).read_bytes() == ours
    recover(operator, Way.FORWARD)
    assert reopen(operator).journal.history.lost, "a recovered journal passes the copy"


def test_a_run_is_not_begun_where_hosts_have_the_journal_of_its_name(tmp_path: Path) -> None:
    operator = started(tmp_path)
    hold_copy(operator, "dest2", (operator.run_dir / NAME).read_bytes())
    (operator.run_dir / NAME).unlink()
    with pytest.raises(JournalError, match="has begun elsewhere: dest2 has a copy of its journal"):
        opening(operator).begin((), None)
    assert not (operator.run_dir / NAME).exists()
