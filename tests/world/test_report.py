"""Reports of whole, turned, rolled back, killed and damaged runs over the model world, held against their
journals as those are read without the tool."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from tests.world.build import PROPERTIES, SOURCE_CONFIG
from tests.world.model.world import new_world
from tests.world.operator import Killed
from tests.world.site import INVENTORY, WorldSite
from tests.world.told import ToldOperator, again, lines, operator_in, report_of
from zkmigrate.cli.main import cli
from zkmigrate.inventory.inventory import Inventory, load
from zkmigrate.report import pictures
from zkmigrate.report.data import data
from zkmigrate.report.markdown import WIDTH, markdown
from zkmigrate.report.page import page
from zkmigrate.report.tables import figures, tables
from zkmigrate.runbook.model.report import Report, Window, length

EPOCH = 1_800_000_000.0
OF_THE_RUN = "-i INVENTORY --playbook kafka_zookeeper_move --run-id run"
DEST, BROKERS = ("dest1", "dest2", "dest3"), ("broker1", "broker2", "broker3")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[ToldOperator, Report]:
    """A move in two calls of the tool, and its report."""
    operator = operator_in(tmp_path_factory.mktemp("whole"))
    assert operator.forward(until="roll").code == 0
    operator = again(operator)
    assert operator.resume().code == 0
    return operator, report_of(operator)


def moments(operator: ToldOperator, stage: str, verb: str) -> dict[str, tuple[float, float]]:
    """Host → (sent, done) of a step's changes of one verb, from the journal's own lines; seconds since the
    epoch by the monotonic clock, which in the model is the wall clock less ``EPOCH``."""
    sent: dict[str, dict[str, Any]] = {}
    out: dict[str, tuple[float, float]] = {}
    for line in lines(operator):
        body = line["body"]
        if line["kind"] == "intent" and body["stage"] == stage and body["way"] == "forward":
            change = body["change"]
            if verb in (change["type"].lower(), change.get("verb"), change.get("action")):
                sent[body["operation"]] = {"host": body["target"], "at": EPOCH + body["mono"]}
        elif line["kind"] == "outcome" and body["operation"] in sent and body["status"] == "done":
            begun = sent[body["operation"]]
            out[begun["host"]] = (begun["at"], EPOCH + body["mono"])
    return out


def state_at(report: Report, lane: str, at: float) -> str:
    [row] = [one for one in report.lanes if one.name == lane]
    found = [s.state for s in row.spans if s.start <= at and (s.end is None or at < s.end)]
    return found[0] if found else ""


def real(report: Report) -> Window:
    [window] = [w for w in report.windows if not w.rehearsal]
    return window


def bars(svg: str) -> list[dict[str, str]]:
    root = ElementTree.fromstring(svg)
    return [e.attrib for e in root.iter() if e.tag.endswith("rect") and "data-lane" in e.attrib]


def test_each_dest_host_is_in_the_state_that_its_last_confirmed_change_made(
    whole: tuple[ToldOperator, Report],
) -> None:
    operator, report = whole
    for verb, state in (("fence", "fenced"), ("cut", "cut"), ("kill", "stopped"), ("open", "open")):
        done = moments(operator, "cutover", verb)
        assert set(done) == set(DEST), verb
        for host, (_, at) in done.items():
            assert state_at(report, host, at + 0.01) == state, (verb, host)
            assert state_at(report, host, at - 0.01) != state, (verb, host)
    for host in DEST:
        [row] = [one for one in report.lanes if one.name == host]
        assert [s.state for s, later in pairwise([*row.spans, row.spans[0]]) if s.state != later.state][
            -1
        ] == "open"
        assert all(a.end == b.start for a, b in pairwise(row.spans)), "no stretch is missing or told twice"


def test_a_broker_is_restarting_from_its_restart_until_the_next_wave(
    whole: tuple[ToldOperator, Report],
) -> None:
    operator, report = whole
    restarts = moments(operator, "roll", "restart")
    assert set(restarts) == set(BROKERS)
    order = sorted(BROKERS, key=lambda broker: restarts[broker])
    for broker, following in pairwise(order):
        [row] = [one for one in report.lanes if one.name == broker]
        assert [s.state for s in row.spans] == ["old ZooKeeper", "restarting", "new ZooKeeper"]
        assert row.spans[1].start == pytest.approx(restarts[broker][0], abs=0.001)
        assert restarts[broker][1] < row.spans[2].start <= restarts[following][0]


def test_the_window_is_from_the_first_fence_sent_to_the_last_door_open_and_its_parts_fill_it(
    whole: tuple[ToldOperator, Report],
) -> None:
    operator, report = whole
    window = real(report)
    fences, opens = moments(operator, "cutover", "fence"), moments(operator, "cutover", "open")
    start, end = min(a for a, _ in fences.values()), max(b for _, b in opens.values())
    assert window.start == pytest.approx(start, abs=0.001)
    assert window.seconds == pytest.approx(end - start, abs=0.001)
    assert window.outcome == "opened"
    assert window.opened_by == dict.fromkeys(DEST, "operator")
    names = ["fence", "drain", "cut", "stop", "prove", "seal", "go", "serve", "check", "open"]
    assert [p.step for p in window.parts] == names
    assert sum(p.seconds or 0.0 for p in window.parts) == pytest.approx(end - start, abs=0.05)
    assert [w.outcome for w in report.windows] == ["rehearsed", "opened"]


def test_the_picture_of_the_window_has_every_bar_where_its_times_say(
    whole: tuple[ToldOperator, Report],
) -> None:
    operator, report = whole
    drawn = bars(pictures.close_up(real(report), report))
    done = moments(operator, "cutover", "fence")
    for host in DEST:
        [fenced] = [b for b in drawn if (b["data-lane"], b["data-state"]) == (host, "fenced")]
        assert float(fenced["data-from"]) == pytest.approx(done[host][1], abs=0.001)
    left, right = drawn[0], max(drawn, key=lambda b: float(b["x"]))
    t0, x0 = float(left["data-from"]), float(left["x"])
    per_second = (float(right["x"]) - x0) / (float(right["data-from"]) - t0)
    for bar in drawn:
        assert float(bar["x"]) == pytest.approx(x0 + (float(bar["data-from"]) - t0) * per_second, abs=0.05)
        if bar["data-to"] and (float(bar["data-to"]) - float(bar["data-from"])) * per_second > 1:
            wide = (float(bar["data-to"]) - float(bar["data-from"])) * per_second
            assert float(bar["width"]) == pytest.approx(wide, abs=0.05)


def test_a_silent_broker_is_a_gap_as_long_as_it_was_not_registered(
    whole: tuple[ToldOperator, Report],
) -> None:
    operator, report = whole
    restarts = moments(operator, "roll", "restart")
    for found in report.latencies:
        sent = restarts[found.broker][0]
        assert found.longest is not None
        assert found.longest.during == ("roll.roll",)
        assert found.longest.why == "connection refused"
        # The model's broker is away for 1.5 s from its restart; it is asked at each tenth of a second.
        assert found.longest.start == pytest.approx(sent, abs=0.3)
        assert found.longest.seconds == pytest.approx(1.5, abs=0.3)
        assert found.asked - found.answered > 0
    root = ElementTree.fromstring(pictures.timeline(report))
    assert {e.attrib["data-silent"] for e in root.iter() if "data-silent" in e.attrib} == set(BROKERS)


def test_source_serves_throughout_and_no_dest_host_was_behind_at_the_proof(
    whole: tuple[ToldOperator, Report],
) -> None:
    _, report = whole
    window = real(report)
    inside = (window.start + (window.end or 0.0)) / 2
    assert state_at(report, "source", inside) == "serves"
    assert state_at(report, "dest, for clients", inside) == "closed to clients"
    assert state_at(report, "dest, for clients", report.end) == "serves"
    assert report.proof is not None
    assert report.proof.stage == "cutover"
    assert set(report.proof.tails) == set(DEST)
    assert min(report.proof.tails.values()) >= (report.proof.z or 0) > 0
    assert {lag.host for lag in report.lags} == set(DEST)
    assert report.lags[-1].behind == 0
    assert max(lag.at for lag in report.lags) <= (report.proof.at or 0.0)


def test_each_proof_is_told_with_its_host_and_its_figures(whole: tuple[ToldOperator, Report]) -> None:
    _, report = whole
    (table,) = [table for table in tables(report) if table.id == "proof"]
    rows = {row[0]: row[1] for row in table.rows}
    for host in DEST:
        assert rows[f"tail: {host}"].startswith("passed: 0x")
        for name in ("digest before the window", "digest of the cut, after OPEN"):
            assert rows[f"{name}: {host}"].startswith("passed: ")
            assert " znodes at 0x" in rows[f"{name}: {host}"]
    assert rows["delta"].startswith("passed: ")


def test_consents_calls_digests_and_what_is_left(whole: tuple[ToldOperator, Report]) -> None:
    operator, report = whole
    consents = [(d.where, d.answer, d.by) for d in report.decisions if d.kind == "consent"]
    assert consents == [(stage, "go", "--yes") for stage in ("rehearse", "roll", "cutover", "finalize")]
    assert [(p.code, p.way) for p in report.processes] == [(0, "forward"), (0, "forward")]
    content = (operator.run_dir / "journal.jsonl").read_bytes()
    assert (report.chain.state, report.chain.lines) == ("intact", len(lines(operator)))
    assert report.chain.file == hashlib.sha256(content).hexdigest()
    assert report.chain.head == json.loads(content.splitlines()[-1])["sum"]
    assert report.state == "complete"
    assert report.way_back.startswith("not taken")
    assert report.left == ("watch source for clients that still connect; shut it down when none do",)


def test_page_markdown_and_json_tell_the_same_and_fetch_nothing(whole: tuple[ToldOperator, Report]) -> None:
    _, report = whole
    html, text = page(report), markdown(report)
    for _, much, _ in figures(report):
        assert much in html
        assert much in text
    for table in tables(report):
        assert f'<section id="{table.id}">' in html
        assert f"## {table.title}" in text
    bare = html.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not any(
        word in bare for word in ("http:", "https:", "src=", "href=", "url(", "@import", "<script")
    )
    assert [line for line in text.splitlines() if len(line) > WIDTH] == []
    told = json.loads(json.dumps(data(report), allow_nan=False))
    assert told["windows"][-1]["seconds"] == real(report).seconds
    assert told["chain"]["state"] == "intact"
    assert len(told["visits"]) == len(report.visits)
    ids = [
        line.split('"')[1] for line in html.replace(" id=", "\n id=").splitlines() if line.startswith(" id=")
    ]
    assert len(ids) == len(set(ids)), "an id names one element"


def test_a_window_that_turned_back_says_so_and_what_to_do(tmp_path: Path) -> None:
    operator = operator_in(tmp_path, answers={"cut": "back"})
    ended = operator.forward(hold_at="cutover.cut")
    assert ended.code == 0
    report = report_of(operator)
    assert report.state == "turned"
    assert report.headline == "turned back to the start of cutover: asked by the operator (exit code 0)"
    window = real(report)
    assert window.outcome == "turned back"
    assert window.seconds is not None
    assert {state_at(report, host, report.end - 0.01) for host in DEST} == {"observing"}
    assert report.way_back.startswith("taken: back to the start of cutover")
    assert report.left[0] == f"fix the cause of the turn, then run: zkmigrate run {OF_THE_RUN}"
    assert any(line.startswith("cutover: Cut over; prompts first: ") for line in report.left)
    assert "Turned back" in page(report)

    following = again(operator)
    assert following.forward().code == 0
    whole = report_of(following)
    assert [w.outcome for w in whole.windows] == ["rehearsed", "turned back", "opened"]
    assert whole.state == "complete"


def test_a_run_that_was_rolled_back_shows_brokers_on_the_old_ensemble_again(tmp_path: Path) -> None:
    operator = operator_in(tmp_path)
    assert operator.forward(until="roll").code == 0
    operator.world.advance(60.0)  # who was restarted last there may be the first on the way back
    operator = again(operator)
    assert operator.back().code == 0
    report = report_of(operator)
    assert report.state == "back"
    for broker in BROKERS:
        [row] = [one for one in report.lanes if one.name == broker]
        there, back = ["old ZooKeeper", "restarting", "new ZooKeeper"], ["restarting", "old ZooKeeper"]
        assert [s.state for s in row.spans] == there + back
    assert {state_at(report, host, report.end + 1) for host in DEST} == {""}, "dest has left source again"
    assert report.left == (f"nothing to undo. Start again: zkmigrate run {OF_THE_RUN}",)
    assert "Rolled back" in page(report)
    assert [p.way for p in report.processes] == ["forward", "back"]


@pytest.mark.parametrize("changes", [5, 30, 44, 48, 70])
def test_a_killed_run_is_unfinished_and_goes_on_as_one_story(tmp_path: Path, changes: int) -> None:
    operator = operator_in(tmp_path, kill_after=changes)
    with pytest.raises(Killed):
        operator.forward()
    killed = report_of(operator)
    assert killed.state in ("open", "turned")
    assert "the tool was killed, so the journal has no end" in killed.headline
    assert killed.processes[-1].ended is None
    assert killed.visits[-1].outcome == "left"
    assert any(f"zkmigrate resume {OF_THE_RUN}" in line for line in killed.left)
    sent = [op for v in killed.visits for op in v.ops]
    assert len([op for op in sent if op.status == "open"]) >= 1
    assert "not confirmed" in page(killed)

    operator = again(operator)
    assert operator.resume().code == 0
    report = report_of(operator)
    assert report.state == "complete"
    assert [p.code for p in report.processes] == [None, 0]
    assert any(v.outcome == "left" for v in report.visits)
    assert real(report).outcome == "opened"


def test_what_unsealed_hosts_did_while_the_tool_was_gone_is_not_known(tmp_path: Path) -> None:
    """Killed between two hosts' STOP; half a minute later all have gone back by themselves."""
    operator = operator_in(tmp_path, kill_after=96)
    with pytest.raises(Killed):
        operator.forward()
    died = operator.world.wall
    assert {state_at(report_of(operator), host, died) for host in DEST} <= {"cut", "stopped"}
    operator.world.advance(30.0)
    operator = again(operator)
    assert operator.resume().code == 7
    report = report_of(operator)
    for host in (*DEST, "dest, for clients"):
        assert state_at(report, host, died + 15) == "not known", host
    assert {state_at(report, host, report.end) for host in DEST} == {"observing"}
    window = real(report)
    assert window.outcome == "turned back"
    assert window.gone_s == pytest.approx(30.0, abs=0.5)
    [row] = [
        row for table in tables(report) for row in table.rows if row[0] == "total without a running process"
    ]
    assert row[-1] == length(window.gone_s)
    assert state_at(report, "source", died + 15) == "", "nobody looked"


def test_a_damaged_journal_is_told_up_to_the_damage_and_a_torn_one_to_its_last_line(tmp_path: Path) -> None:
    operator = operator_in(tmp_path)
    assert operator.forward(until="roll").code == 0
    file = operator.run_dir / "journal.jsonl"
    content = file.read_bytes()
    file.write_bytes(content[:-20])
    torn = report_of(operator)
    assert torn.chain.state == "torn"
    assert torn.chain.lines == len(content.splitlines()) - 1
    assert torn.state == "open"
    rows = content.splitlines(keepends=True)
    at = len(b"".join(rows[:60])) + 40
    file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    damaged = report_of(operator)
    assert (damaged.chain.state, damaged.chain.lines) == ("damaged", 60)
    assert damaged.state == "damaged"
    [left] = damaged.left
    assert "--journal-lost forward|back" in left
    assert {state_at(damaged, name, damaged.end) for name in (*DEST, *BROKERS)} == {"not known"}
    assert damaged.way_back == "unknown: the journal is damaged"
    assert ("window", "not known", "from FENCE to OPEN") in figures(damaged)
    assert "Journal damaged" in page(damaged)
    assert "line 61 does not match its sum" in markdown(damaged).replace("\n", " ").replace("  ", " ")


def test_without_samples_or_events_the_rest_is_still_told(tmp_path: Path) -> None:
    operator = operator_in(tmp_path)
    assert operator.forward().code == 0
    full = report_of(operator)
    for name in ("samples.jsonl", "events.jsonl"):
        (operator.run_dir / name).unlink()
    report = report_of(operator)
    assert [w.seconds for w in report.windows] == [w.seconds for w in full.windows]
    assert [p.code for p in report.processes] == [0]
    assert (report.latencies, report.lags) == ((), ())
    assert "no samples: this report lacks the brokers' answers, the lag and source's state" in report.remarks
    assert "Answers of the brokers" not in page(report)


def test_torn_and_hostile_samples_and_events_are_left_out_and_counted(tmp_path: Path) -> None:
    operator = operator_in(tmp_path)
    assert operator.forward().code == 0
    full = report_of(operator)
    rows = [
        '{"at":1,"mono":1,"kind":"brokers","ms":{"broker1":"x","broker2":NaN,"broker3":true},"silent":7}',
        '{"at":1e999,"mono":2,"kind":"brokers","ms":{"broker1":1}}',
        '{"at":null,"mono":[],"kind":"ensembles"}',
        '{"at":1800001010,"mono":1010,"kind":"ensembles","servers":{"source1":3,"dest1":["observer","zz"]}}',
        '{"at":1800001010,"mono":1010,"kind":"phases","hosts":{"dest1":["open"],"dest2":"open"}}',
        '{"at":1800001010,"mono":1010,"kind":"kafka","controller":"a","brokers":{},"partitions":1}',
        "[1,2]",
        "[" * 100000,
        '{"at":18000',
    ]
    with open(operator.run_dir / "samples.jsonl", "a") as file:
        file.write("\n".join(rows))
    with open(operator.run_dir / "events.jsonl", "ab") as events:
        events.write(b'{"event":"RunBegun","at":"no"}\n{"event":"RunEnded","code":{}}\n\xff\xfe\n{"event":')
    report = report_of(operator)
    assert report.windows == full.windows
    assert [x.longest for x in report.latencies] == [x.longest for x in full.latencies]
    assert report.processes == full.processes
    assert "3 lines of samples.jsonl cannot be read, ignored" in report.remarks
    assert "2 lines of events.jsonl cannot be read, ignored" in report.remarks
    page(report)


def test_the_command_line_tells_a_run_that_was_recovered_from_its_hosts(tmp_path: Path) -> None:
    """With the files as run and resume leave them: plan, events, samples, and the journal set aside."""
    file = tmp_path / "migration.yml"
    file.write_text(INVENTORY)
    world = new_world(load(file), PROPERTIES, SOURCE_CONFIG)
    environ = {"ZKMIGRATE_RUNS": str(tmp_path / "runs"), "WORLD_SPEED": "20"}

    def call(*words: str) -> str:
        def site(inventory: Inventory, run: str) -> WorldSite:
            return WorldSite(inventory, run, world)

        done = CliRunner().invoke(cli, [*words, "-i", str(file)], obj=site, env=environ)
        assert done.exit_code == 0, done.output
        return done.stdout

    call("run", "--yes", "--until", "join")
    journal = tmp_path / "runs" / "world-1" / "journal.jsonl"
    kept = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(kept[:12]) + b"damaged\n")
    assert json.loads(call("report", "--json"))["state"] == "damaged"
    call("resume", "--yes", "--journal-lost", "forward", "--until", "join")
    told = json.loads(call("report", "--json"))
    assert told["state"] == "open"
    assert told["plan_matches"] == "the same digest"
    assert [(p["way"], p["code"]) for p in told["processes"]] == [("forward", 0), ("forward", 0)]
    assert [d["answer"] for d in told["decisions"] if d["kind"] == "lost"] == [
        "the journal was recovered",
        "the hosts were queried",
    ]
    assert "journal.damaged-1.jsonl exists next to the journal, which was recovered once" in told["remarks"]
    assert {beat["broker"] for beat in told["beats"]} == set(BROKERS)
    assert {lane["name"] for lane in told["lanes"]} == {"source", "dest, for clients", *DEST, *BROKERS}
    assert call("report") == f"{journal.parent / 'report.html'}\n"
