"""Which run a verb means, what it goes on with, and what is refused before anything is done."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from pathlib import Path

import pytest

from tests.unit.cli.test_main import ALL, PLAYBOOK, Place, place
from tests.unit.inventory.test_inventory import GOOD
from zkmigrate.runbook.engine import chain, journal
from zkmigrate.runbook.engine.lock import LocalLock
from zkmigrate.runbook.runs import run_options

__all__ = ["place"]


def test_run_refuses_a_plan_that_is_stale_or_applied_with_4(place: Place, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(place.call("plan", "--json").output)
    place.file.write_text(GOOD.replace("/kafka", "/kafka2"))
    stale = place.call("run", "--yes", "--plan", str(plan))
    assert stale.exit_code == 4
    assert "is stale" in stale.output
    place.file.write_text(GOOD)
    assert place.call("run", "--yes", "--plan", str(plan)).exit_code == 0
    applied = place.call("run", "--yes", "--plan", str(plan))
    assert applied.exit_code == 4
    assert "run lab-1 has applied the plan" in applied.output
    plan.write_text("{}")
    assert place.call("run", "--yes", "--plan", str(plan)).exit_code == 2


def test_a_run_is_begun_again_with_no_other_plan_than_the_one_that_is_given(place: Place) -> None:
    (place.world / "sick").touch()
    assert place.call("run", "--yes").exit_code == 3
    (place.world / "sick").unlink()
    plan = place.root / "plan.json"
    plan.write_text(place.call("plan", "--json").stdout)
    place.file.write_text(GOOD.replace("/kafka", "/kafka2"))
    words = ("run", "--yes", "--run-id", "lab-1", "--plan", str(plan))
    assert "is stale" in place.ends(4, *words)
    plan.write_text(place.call("plan", "--json").stdout)
    assert place.call(*words).exit_code == 0
    assert place.files() == ALL


def test_a_run_with_a_name_of_its_own_is_found_by_what_its_journal_says(place: Place) -> None:
    assert place.call("run", "--yes", "--run-id", "demo", "--until", "install").exit_code == 0
    for words in ((), ("--run-id", "other")):
        assert "run demo is not finished (at prepare.slow, forward)" in place.ends(2, "run", "--yes", *words)
    assert sorted(p.name for p in place.runs.iterdir()) == ["demo"]
    assert "run demo of disk: open" in place.call("status", "--offline").output
    assert place.call("resume", "--yes").exit_code == 0
    assert place.files() == ALL
    assert place.call("run", "--yes", "--until", "install").exit_code == 0, "demo is complete"
    assert "run lab-1 of disk: open" in place.call("status", "--offline").output, "the open one"


def test_a_run_of_another_inventory_stands_in_nobodys_way(place: Place) -> None:
    assert place.call("run", "--yes", "--run-id", "demo", "--until", "install").exit_code == 0
    place.file.write_text(GOOD.replace("name: lab", "name: other"))
    assert place.call("status", "--offline").exit_code == 2
    assert place.call("run", "--yes", "--until", "install").exit_code == 0
    assert (place.runs / "other-1").is_dir()


def test_which_of_two_open_runs_is_meant_has_to_be_said(place: Place) -> None:
    place.call("run", "--yes", "--run-id", "one", "--until", "install")
    (place.runs / "one").rename(place.root / "one")
    place.call("run", "--yes", "--run-id", "two", "--until", "install")
    (place.root / "one").rename(place.runs / "one")
    for verb in ("status", "resume", "rollback"):
        assert "2 runs of lab are open: one, two. Next: name one with --run-id" in place.ends(
            2, verb, *(() if verb == "status" else ("--yes",))
        )


def test_a_run_whose_journal_is_damaged_counts_as_open_whatever_its_name(place: Place) -> None:
    place.call("run", "--yes", "--run-id", "demo")
    file = place.runs / "demo" / journal.NAME
    file.write_bytes(file.read_bytes().replace(b"prepare", b"prepara", 1))
    refused = place.ends(8, "run", "--yes")
    assert "run demo may have changed hosts, and its journal cannot be read" in refused
    assert f"then move {file.parent} out of {place.runs}" in refused
    file.parent.rename(place.root / "demo")
    assert place.call("run", "--yes").exit_code == 0


@pytest.mark.parametrize("verb", ["resume", "rollback", "run"])
def test_a_run_that_changed_nothing_goes_on_with_a_corrected_inventory(place: Place, verb: str) -> None:
    (place.world / "sick").touch()
    assert place.call("run", "--yes").exit_code == 3
    (place.world / "sick").unlink()
    begun = place.file.read_text()
    place.file.write_text(GOOD.replace("/kafka", "/kafka2"))
    assert "no host had been changed" in place.ends(0, verb, "--yes", "--run-id", "lab-1")
    assert place.files() == (set() if verb == "rollback" else ALL)
    history = journal.read(place.runs / "lab-1")
    assert history.plan == json.loads((place.runs / "lab-1/plan.json").read_text())["digest"]
    if verb != "rollback":
        place.file.write_text(begun)
        assert place.call("rollback", "--yes").exit_code == 4, "now it has changed hosts"


def test_a_run_goes_on_only_with_the_inventory_it_was_begun_with(place: Place) -> None:
    place.call("run", "--yes", "--until", "install")
    place.file.write_text(GOOD.replace("/kafka", "/kafka2"))
    for words in (("resume",), ("rollback",), ("run", "--run-id", "lab-1")):
        done = place.ends(4, *words, "--yes")
        assert "was begun with inventory" in done
        assert "hosts have been changed" in done


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("run", "--until", "prepare.3"), "'prepare.3' is not a stage or step of disk; possible: pre"),
        (("run", "--plan", "missing.json"), "missing.json is not a plan ([Errno 2]"),
        (("run", "--run-id", "Demo"), "run id 'Demo' is invalid"),
        (("resume", "--until", "nowhere"), "'nowhere' is not a stage or step"),
        (("rollback", "--to", "nowhere"), "'nowhere' is not a stage or step"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything(
    place: Place, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], expected: str
) -> None:
    def nobody(*_: object) -> None:
        raise AssertionError("a host was asked")

    monkeypatch.setattr("tests.unit.disk_world.DiskSite.__init__", nobody)
    assert expected in place.ends(2, *words, "--yes")
    assert not place.runs.exists(), "nothing was made"


@pytest.mark.parametrize("way", ["forward", "back"])
def test_a_run_of_which_nothing_tells_has_no_lost_journal(place: Place, way: str) -> None:
    assert "there is no trace of a run typo" in place.ends(
        2, "resume", "--yes", "--journal-lost", way, "--run-id", "typo"
    )
    assert place.files() == set()
    assert not (place.runs / "typo").exists()


@pytest.mark.parametrize(("words", "times"), [((), 2), (("--run-id", "lab-1"), 1)])
def test_status_reads_a_journal_once_and_once_more_to_find_the_run(
    place: Place, words: tuple[str, ...], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place.call("run", "--yes", "--until", "install").exit_code == 0
    parse, read = chain.parse, []

    def counted(data: bytes) -> chain.Parsed:
        read.append(len(data))
        return parse(data)

    monkeypatch.setattr(chain, "parse", counted)
    assert "run lab-1 of disk: open" in place.call("status", "--offline", *words).output
    assert len(read) == times


@pytest.mark.parametrize("verb", ["resume", "rollback"])
def test_a_journal_that_was_emptied_is_no_run_that_changed_nothing(place: Place, verb: str) -> None:
    assert place.call("run", "--yes", "--until", "install").exit_code == 0
    there = place.files()
    (place.runs / "lab-1" / journal.NAME).write_bytes(b"")
    said = place.ends(8, verb, "--yes", "--run-id", "lab-1")
    file = place.runs / "lab-1" / journal.NAME
    assert f"journal line 1 is missing, though this run has begun; no line is intact ({file})" in said
    assert place.files() == there
    refused = place.ends(8, "run", "--yes")
    assert "run lab-1 may have changed hosts, and its journal cannot be read: journal line 1" in refused
    assert f"then move {place.runs / 'lab-1'} out of {place.runs}" in refused
    for call in (said, refused, place.ends(8, "status", "--offline"), place.ends(8, "report")):
        back = re.search(r"^   go back: zkmigrate (.*)$", call, re.M)
        assert back is not None, call
        assert shlex.split(back[1]) == [
            *place.words("resume", "--run-id", "lab-1", "--journal-lost", "back")
        ], "the command as it can be pasted"
    place.ends(0, "resume", "--yes", "--run-id", "lab-1", "--journal-lost", "back")
    assert place.files() == set()


def test_preflight_does_not_look_as_if_nothing_was_begun_where_a_journal_cannot_be_read(place: Place) -> None:
    assert place.call("run", "--yes", "--until", "install").exit_code == 0
    file = place.runs / "lab-1" / journal.NAME
    whole = file.read_bytes()
    for damaged in (b"", whole.replace(b"begin", b"bogin", 1), whole[:-40] + b"x" * 40 + b"\n"):
        file.write_bytes(damaged)
        assert "run lab-1 may have changed hosts" in place.ends(8, "preflight")
    file.write_bytes(whole)
    file.chmod(0o644)
    assert "is not a private file" in place.ends(8, "preflight")
    file.chmod(0o600)
    place.ends(0, "preflight")


def turned(place: Place, to: str = "prepare") -> None:
    """Leave a complete run as a process that died right after it turned back."""
    assert place.call("run", "--yes").exit_code == 0
    book = journal.Journal.open(place.runs / "lab-1", lambda: 1.7e9)
    body = {"way": "back", "to": to, "then": "end", "why": "asked by the operator", "code": 0}
    book.append("turn", {**body, "reset": ["prepare"] if to else ["preflight", "install", "prepare"]})
    book.close()


@pytest.mark.parametrize("given", ["--until install", "--until 06:00"])
def test_a_resume_that_goes_back_refuses_options_of_the_way_forward(place: Place, given: str) -> None:
    turned(place)
    options, words = given.split(), f"-i {place.file} --playbook {PLAYBOOK} --run-id lab-1"
    said = place.ends(2, "resume", "--yes", *options)
    assert (
        f"run lab-1 is on its way back to the start of prepare (asked by the operator), and {given} is for "
        f"the way forward. Nothing was changed. Next: zkmigrate resume {words} finishes the way back, "
        f"then zkmigrate run {words} {given} goes forward"
    ) in said
    assert place.files() == ALL
    assert place.call("resume", "--yes").exit_code == 0
    said = place.ends(2, "resume", "--yes", *options)
    assert "run lab-1 is back at the start of prepare, and resume does not go forward from there" in said
    assert f"Next: zkmigrate run {words} {given}" in said


def test_a_resume_that_goes_back_says_so_before_it_changes_anything(place: Place) -> None:
    turned(place)
    said = place.ends(0, "resume", "--yes")
    first = (
        "this resume goes back to the start of prepare (asked by the operator), in 2 steps: prepare.two, "
        "prepare.slow"
    )
    assert said.index(first) < said.index("walking back")
    assert place.files() == {"dest1/one", "dest2/one", "dest3/one"}


def test_a_lost_journal_goes_back_without_options_of_the_way_forward(place: Place) -> None:
    assert place.call("run", "--yes", "--until", "prepare.slow").exit_code == 0
    (place.runs / "lab-1" / journal.NAME).unlink()
    there = place.files()
    words = ("resume", "--yes", "--run-id", "lab-1", "--journal-lost", "back")
    said = place.ends(2, *words, "--until", "prepare")
    assert "--until prepare is for the way forward, and --journal-lost back goes back" in said
    assert place.files() == there
    assert "this resume goes back to the beginning (--journal-lost back)" in place.ends(0, *words)
    assert place.files() == set()


def test_each_command_that_is_offered_names_its_direction_and_keeps_what_was_given(place: Place) -> None:
    (place.world / "sick").touch()
    words = f"-i {place.file} --playbook {PLAYBOOK} --run-id lab-1"
    metrics = place.root / "m.prom"
    said = place.ends(3, "run", "--yes", "--until", "install", "--metrics", str(metrics))
    offered = f"go on forward: zkmigrate resume {words} --yes --until install --metrics {metrics}\n"
    assert offered in said
    assert f"go back to the beginning: zkmigrate rollback {words}\n" in said
    status = place.ends(0, "status", "--offline")
    assert offered in status
    assert "That command runs every remaining stage." not in status
    (place.runs / "lab-1" / run_options.NAME).write_text('{"yes": true, "until": 7}')
    status = place.ends(0, "status", "--offline")
    assert f"go on forward: zkmigrate resume {words}\n" in status, "a damaged file keeps nothing"
    assert "That command runs every remaining stage. Add --until STAGE to stop earlier." in status
    (place.world / "sick").unlink()
    said = place.ends(0, "resume", "--yes", "--until", "install")
    assert f"go on forward: zkmigrate resume {words}\n" in said, (
        "it was reached: further only after questions"
    )
    said = place.ends(0, "rollback", "--yes", "--to", "install")
    offered = f"go on forward: zkmigrate run {words} --until install\n"
    assert offered in said, "--yes was for the way back, --until was of the way forward before it"
    assert offered in place.ends(0, "status", "--offline")


def test_a_time_given_to_until_is_offered_with_its_date(place: Place) -> None:
    """The same clock time means another moment on the next day."""
    (place.world / "sick").touch()
    place.ends(3, "run", "--yes", "--until", "23:59")
    (offered,) = (x for x in place.ends(0, "status", "--offline").splitlines() if "go on forward" in x)
    assert re.search(r" --yes --until \d{4}-\d\d-\d\dT23:59[+-]\d{4}$", offered)
    sent = shlex.split(offered.partition("zkmigrate ")[2])
    assert place.call(*sent[:1], *sent[3:]).exit_code == 3


def test_status_and_preflight_name_the_direction_in_which_a_run_goes_on(place: Place) -> None:
    turned(place)
    words = f"-i {place.file} --playbook {PLAYBOOK} --run-id lab-1"
    said = place.ends(0, "status", "--offline")
    assert f"go on back to the start of prepare: zkmigrate resume {words} --yes\n" in said
    assert (
        json.loads(place.ends(0, "status", "--offline", "--json"))["heading"]
        == "back to the start of prepare"
    )
    assert "lab-1 is on its way back to the start of prepare. Next: zkmigrate resume" in place.ends(
        2, "run", "--yes", "--run-id", "lab-1"
    )


@pytest.mark.parametrize("verb", ["resume", "rollback", "status"])
@pytest.mark.parametrize("left", [0, 2, -1], ids=["emptied", "two lines left", "the last line gone"])
def test_a_journal_that_was_shortened_is_a_damaged_one(place: Place, verb: str, left: int) -> None:
    """Cut between two lines its chain is whole."""
    assert place.call("run", "--yes", "--until", "install").exit_code == 0
    there, file = place.files(), place.runs / "lab-1" / journal.NAME
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:left]))
    words = () if verb == "status" else ("--yes",)
    said = place.ends(8, verb, *words, "--run-id", "lab-1")
    kept = left % len(lines)
    expected = f", although {len(lines)} lines were written" if left else ", though this run has begun"
    assert f"journal line {kept + 1} is missing{expected}" in said
    assert place.files() == there
    place.ends(0, "resume", "--yes", "--run-id", "lab-1", "--journal-lost", "back")
    assert place.files() == set()
    assert "back at the beginning" in place.ends(0, "status", "--offline", "--run-id", "lab-1")


@pytest.mark.parametrize(
    "words",
    ["resume --yes", "resume --yes --journal-lost back", "rollback --yes", "status", "report"],
)
def test_a_journal_of_an_earlier_version_is_refused(place: Place, words: str) -> None:
    assert place.call("run", "--yes", "--until", "install").exit_code == 0
    there, file = place.files(), place.runs / "lab-1" / journal.NAME
    file.write_bytes(earlier := Path("tests/recorded/journal/short-lines.jsonl").read_bytes())
    said = place.ends(8, *words.split(), "--run-id", "lab-1")
    assert "was written by an earlier version, and this version does not read it" in said
    assert "finish the run with the version that began it" in said
    assert (place.files(), file.read_bytes()) == (there, earlier)
    assert f"then move {place.runs / 'lab-1'} out of {place.runs}" in place.ends(8, "run", "--yes")


def test_a_torn_last_line_is_no_shortened_journal(place: Place) -> None:
    assert place.call("run", "--yes", "--until", "install").exit_code == 0
    file = place.runs / "lab-1" / journal.NAME
    file.write_bytes(file.read_bytes()[:-20])
    place.ends(0, "resume", "--yes", "--run-id", "lab-1")
    assert place.files() == ALL


def test_a_second_run_names_the_process_at_work_and_offers_no_way_back(place: Place) -> None:
    """It said only that the run was not finished, and offered resume and rollback."""
    assert place.call("run", "--yes", "--until", "install").exit_code == 0
    with contextlib.closing(LocalLock(place.runs / "lab-1")):
        said = place.ends(5, "run", "--yes")
    assert re.search(r"process \d+ works on run lab-1 of this inventory. Next: zkmigrate status", said)
    assert "rollback" not in said
    assert "lab-1 is not finished" in place.ends(2, "run", "--yes")


def test_a_run_that_there_is_not_is_answered_with_those_that_there_are(place: Place) -> None:
    assert "; it has none" in place.ends(2, "status", "--run-id", "lab-2")
    assert place.call("run", "--yes", "--until", "install").exit_code == 0
    said = place.ends(2, "resume", "--yes", "--run-id", "lab-2")
    assert f"no run lab-2 in {place.runs}; it has lab-1. Next: name one with --run-id" in said
