"""The report's own parts: what it reads and refuses, its times, its pictures, and text that wants to be more
than text."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from tests.world.site import INVENTORY
from zkmigrate.clean import clean
from zkmigrate.cli.main import cli
from zkmigrate.kafka.rules.report import SAMPLE_REPORT
from zkmigrate.kafka.rules.sampling import BROKERS
from zkmigrate.move import host_states
from zkmigrate.move.report import REPORTING
from zkmigrate.report import pictures, plots, svg
from zkmigrate.report.build import build
from zkmigrate.report.data import data
from zkmigrate.report.markdown import markdown, plain
from zkmigrate.report.page import page
from zkmigrate.report.sheet import Sheet
from zkmigrate.report.sources import read
from zkmigrate.report.tables import figures, tables
from zkmigrate.report.timebase import Timebase
from zkmigrate.runbook.engine import chain, process
from zkmigrate.runbook.engine.codec import encode_change, encode_finding
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.model import series
from zkmigrate.runbook.model.change import Fence, Go, HostVerb, SetService
from zkmigrate.runbook.model.entry import Entry
from zkmigrate.runbook.model.finding import Severity, claim
from zkmigrate.runbook.model.report import (
    Beat,
    Curve,
    Report,
    Rows,
    Sampled,
    SampleReport,
    Table,
    Window,
    length,
    of_kind,
)
from zkmigrate.runbook.runs import playbook_files

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "]]></style></svg><b>",
    "&lt;i&gt; &#60;u&#62;",
    "\x1b[31mred\x1b]0;title\x07",
    "\u202egnp.exe\u2066 \u200f",
    "a\n# heading\n- item\r| cell | `code` **bold** _it_ [x](javascript:alert(1)) <a href=x>",
    "\x00\x0b\ud800\ufffe",
)


class Clock:
    """Wall and monotonic time that the test moves."""

    wall, mono = 2_000_000.0, 500.0

    def __call__(self) -> float:
        return self.wall

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.mono += seconds


class Run:
    """A run's directory, written by the journal itself."""

    def __init__(self, base: Path, name: str = "r-1", begin: dict[str, Any] | None = None) -> None:
        self.dir = base / name
        self.clock = Clock()
        self.journal = Journal.create(self.dir, self.clock)
        body = {
            "run": name,
            "name": "n",
            "playbook": playbook_files.DEFAULT,
            "inventory": "i" * 64,
            "plan": "p" * 64,
        }
        hosts = {"source": ["s1"], "dest": ["d1"], "brokers": ["b1"]}
        self.journal.append("begin", {**body, "hosts": hosts, **(begin or {})})

    def step(self, name: str, event: str, way: str = "forward", **more: Any) -> None:
        stage, _, step = name.partition(".")
        body = {"stage": stage, "step": step, "way": way, "event": event, "mono": self.clock.mono}
        self.journal.append("step", {**body, **more})

    def change(
        self, step: str, target: str, change: Any, leg: int, took: float = 1.0, **outcome: Any
    ) -> None:
        stage, _, id = step.partition(".")
        operation = f"{step}.{target}.{leg}.1"
        self.journal.append(
            "intent",
            {
                "stage": stage, "step": id, "target": target, "way": "forward", "leg": leg,
                "operation": operation, "change": encode_change(change), "mono": self.clock.mono,
            },
        )  # fmt: skip
        self.clock.pass_(took)
        body = {"operation": operation, "status": "done", "rc": 0, "output": "", "mono": self.clock.mono}
        self.journal.append("outcome", {**body, **outcome})

    def report(self, load: Path | None = None) -> Report:
        self.journal.close()
        return build(read(self.dir, load), playbook_files.load(playbook_files.DEFAULT))


class Strict(HTMLParser):
    """Collects every element with its attributes, and all text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def hostile(tmp_path: Path) -> Report:
    """A run in which every text that comes from elsewhere is one of the hostile ones, each somewhere."""
    words = iter(HOSTILE * 9)
    run = Run(tmp_path)
    names = {"source": [next(words)], "dest": [next(words)], "brokers": [next(words)]}
    run.journal.append(
        "begin",
        {
            "run": next(words), "name": next(words), "playbook": playbook_files.DEFAULT,
            "inventory": next(words), "plan": next(words), "hosts": names,
        },
    )  # fmt: skip
    run.step("roll.roll", "begin")
    for leg, broker in enumerate([names["brokers"][0], *HOSTILE], start=1):
        unit = SetService(broker, next(words), "restart")
        run.change("roll.roll", broker, unit, leg, status="failed", output=next(words), rc=3)
    found = [
        encode_finding(claim(next(words), word, False, seen=next(words), needed=next(words), target=word))
        for word in HOSTILE
    ]
    run.step("roll.roll", "blocked", findings=found)
    asked = {key: next(words) for key in ("stage", "question", "answer", "by")}
    run.journal.append("consent", {**asked, "step": "", "to": "", "findings": []})
    turn = {"way": "back", "to": "", "then": "end", "why": next(words), "code": 0, "reset": []}
    run.journal.append("turn", turn)
    run.journal.append("end", {"code": 8, "message": next(words)})
    at, mono = run.clock.wall, run.clock.mono
    silent = {word: word for word in HOSTILE}
    rows = [
        {"at": at, "mono": mono + n, "kind": "brokers", "ms": dict.fromkeys(HOSTILE, 1.5), "silent": silent}
        for n in range(3)
    ]
    (run.dir / "samples.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return run.report()


def test_hostile_text_stays_text_on_the_page(hostile: Report) -> None:
    html = page(hostile)
    parsed = Strict()
    parsed.feed(html)
    known = {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "span", "div", "b", "i", "section",
        "details", "summary", "ul", "li", "figure", "figcaption", "svg", "desc", "line", "rect", "text",
        "circle", "path", "table", "thead", "tbody", "tr", "th", "td",
    }  # fmt: skip
    assert {tag for tag, _ in parsed.elements} <= known
    assert not [
        a for _, attributes in parsed.elements for a in attributes if a.startswith("on") or a == "src"
    ]
    assert sum(tag == "style" for tag, _ in parsed.elements) == 1
    for word in HOSTILE:
        assert clean(word).split("\n")[0] in parsed.text, "what was said can be read"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)


def test_pictures_with_hostile_names_are_whole_xml(hostile: Report) -> None:
    root = ElementTree.fromstring(pictures.timeline(hostile))
    asked = {e.attrib["data-beat"] for e in root.iter() if "data-beat" in e.attrib}
    assert asked == {clean(word).replace("\n", " ").replace("\r", " ") for word in HOSTILE}
    tags = {e.tag.partition("}")[2] for e in root.iter()}
    assert tags <= {"svg", "title", "desc", "rect", "line", "text", "circle", "path"}
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert root.find("{http://www.w3.org/2000/svg}desc") is not None


def test_hostile_text_stays_text_in_markdown(hostile: Report) -> None:
    text = markdown(hostile)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert re.search(r"(?<!\\)<", text) is None
    headings = [line for line in text.splitlines() if re.match(r"\s*#", line)]
    titles = {"To do", "Notes on the data", "Timeline", *(table.title for table in tables(hostile))}
    assert {line.removeprefix("## ") for line in headings[1:]} <= titles
    assert "# heading" not in re.sub(r"\\#", "", text)
    assert plain("a|b\n# c *d* [e](f) `g` <h> _i_ snake_case - j") == (
        r"a\|b \# c \*d\* \[e\](f) \`g\` \<h\> \_i\_ snake_case \- j"
    )


def test_lengths_are_monotonic_and_a_step_of_the_wall_clock_is_told(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.step("install.install", "begin")
    run.clock.pass_(2.0)
    run.clock.wall -= 262.0
    run.step("install.install", "done", seconds=2.0)
    run.clock.pass_(1.0)
    run.journal.append("end", {"code": 0, "message": "stopped"})
    report = run.report()
    [visit] = report.visits
    assert visit.end is not None
    assert visit.end - visit.start == pytest.approx(2.0)
    assert report.decisions[-1].at - visit.end == pytest.approx(1.0)
    [told] = [remark for remark in report.remarks if "wall clock" in remark]
    assert "moved -262.0 s" in told


def test_each_process_is_dated_anew_and_its_samples_with_it(tmp_path: Path) -> None:
    def entry(seq: int, at: float, kind: Any, mono: float | None) -> Entry:
        return Entry(seq, at, kind, {} if mono is None else {"mono": mono})

    times = Timebase(
        [
            entry(1, 100.0, "begin", None),
            entry(2, 101.0, "step", 11.0),
            entry(3, 103.0, "end", None),
            entry(4, 90000.0, "step", 5.0),  # the machine was started again meanwhile
            entry(5, 90001.0, "step", 6.0),
        ]
    )
    assert times.jumps == []
    rows: list[dict[str, Any]] = [
        {"at": 100.5, "mono": 10.5, "kind": "process"},
        {"at": 102.0, "mono": 12.0, "kind": "brokers"},
        {"at": 89999.0, "mono": 4.0, "kind": "process"},
        {"at": 90000.5, "mono": 5.5, "kind": "brokers"},
    ]
    assert [round(t, 3) for t, _ in times.of_rows(rows)] == [100.5, 102.0, 89999.0, 90000.5]


def test_the_axis_leaves_idle_stretches_out_and_keeps_order() -> None:
    axis = svg.Axis([(0.0, 10.0), (86400.0, 86410.0)], 100.0, 500.0)
    assert axis.x(0.0) == 100.0
    assert axis.x(86410.0) == pytest.approx(500.0)
    assert axis.x(5.0) - axis.x(0.0) == pytest.approx(axis.x(86405.0) - axis.x(86400.0))
    assert axis.x(10.0) < axis.x(86400.0) < axis.x(10.0) + 40
    assert axis.x(4000.0) == axis.x(10.0)
    assert "00:00:05" in [words for _, words in axis.ticks()]
    assert [(x, length(seconds)) for x, seconds in axis.left_out()] == [(axis.x(10.0), "23 h 59 min")]
    assert ">23 h 59 min</text>" in Sheet(axis).drawn("idle", "")


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (0, [0.0, 1.0]),
        (6, [0.0, 2.0, 4.0, 6.0]),
        (7, [0.0, 2.0, 4.0, 6.0, 8.0]),
        (4999, [0, 1000, 2000, 3000, 4000, 5000]),
    ],
)
def test_ticks_are_even_and_reach_the_highest(most: int, ticks: list[float]) -> None:
    assert plots.nice(most) == ticks


def test_a_silence_lasts_from_the_last_answer_to_the_next_one() -> None:
    def beat(at: float, ms: float | None) -> Beat:
        return Beat(at, "b1", ms, "" if ms is not None else "refused")

    asked = [beat(0.0, 100.0), beat(0.5, None), beat(1.0, None), beat(1.5, 250.0), beat(2.0, 1.0)]
    [gap] = series.silences(asked, 0.5)
    assert (gap.start, gap.end, gap.why) == (0.1, 1.75, "refused")
    assert gap.seconds == pytest.approx(1.65)
    [open_] = series.silences([*asked[:1], beat(0.5, None), beat(1.0, None)], 0.5)
    assert open_.end is None
    assert open_.seconds == pytest.approx(0.9)
    # Nobody asked for an hour: what was silent before is not told to have been so all the time.
    [cut] = series.silences([beat(0.0, 1.0), beat(0.5, None), beat(3600.0, 1.0)], 0.5)
    assert cut.end is None
    assert cut.seconds == pytest.approx(0.499)


def test_real_clients_are_laid_beside_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.step("roll.roll", "begin")
    run.clock.pass_(4.0)
    run.step("roll.roll", "done", seconds=4.0)
    load = tmp_path / "history"
    load.mkdir()
    acks = [(500.0, 10), (500.5, 20), (502.5, 1500), (503.0, 5)]
    rows = [
        {"event": "ack", "mono_ns": int(t * 1e9), "sent_mono_ns": int(t * 1e9) - ms * 10**6} for t, ms in acks
    ]
    rows.append({"event": "stopping", "mono_ns": int(503.25e9)})
    (load / "producer.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + '\n{"event":"ack","mo')
    report = run.report(load)
    [client] = report.acks
    assert (client.client, client.count) == ("producer", 4)
    assert client.gaps[0].seconds == pytest.approx(2.0)
    assert client.gaps[0].during == ("roll.roll",)
    assert client.gaps[0].start == pytest.approx(2_000_000.5)
    assert [ms for _, ms in client.took] == pytest.approx([10, 20, 1500, 5])
    assert "tenant.jsonl is missing, so this report lacks its content" in report.remarks
    assert "longest gap of the producer" in page(report)


@pytest.mark.parametrize(
    ("held", "outcome", "states"),
    [
        (None, "blocked", ["not known"]),
        (False, "blocked", ["not known"]),
        (True, "blocked", ["old ZooKeeper"]),
        (True, "done", ["old ZooKeeper"]),
    ],
)
def test_a_broker_is_on_the_old_zookeeper_only_where_its_file_was_seen_to_say_so(
    tmp_path: Path, held: bool | None, outcome: str, states: list[str]
) -> None:
    run = Run(tmp_path)
    run.clock.pass_(1.0)
    run.step("preflight.preflight", "begin")
    run.clock.pass_(1.0)
    told = claim("kafka.config", "the file is the broker's", held, seen="no answer in 10 s", target="b1")
    run.step("preflight.preflight", outcome, seconds=1.0, findings=[encode_finding(told)])
    (row,) = (lane for lane in run.report().lanes if lane.kind == "broker")
    assert [span.state for span in row.spans] == states
    assert [span.note for span in row.spans] == (["no answer in 10 s"] if not held else [""])


def test_before_any_look_nothing_is_said_of_a_broker(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.clock.pass_(1.0)
    run.step("preflight.preflight", "begin")
    (row,) = (lane for lane in run.report().lanes if lane.kind == "broker")
    assert [span.state for span in row.spans] == ["not known"]


def test_hosts_that_the_first_line_does_not_name_are_those_that_were_changed(tmp_path: Path) -> None:
    run = Run(tmp_path, begin={"hosts": {}})
    run.clock.pass_(1.0)
    run.step("roll.roll", "begin")
    run.change("roll.roll", "b7", SetService("b7", "kafka.service", "restart"), 1)
    run.step("roll.roll", "done", seconds=1.0)
    run.step("cutover.fence", "begin")
    run.change("cutover.fence", "d7", Fence("d7", 5000), 2)
    said = {"s7": ["leader", "0x1"], "d7": ["observer", "0x1"]}
    row = {"at": run.clock.wall, "mono": run.clock.mono, "kind": "ensembles", "servers": said}
    (run.dir / "samples.jsonl").write_text(json.dumps(row))
    report = run.report()
    rows = {(lane.kind, lane.name): [s.state for s in lane.spans] for lane in report.lanes}
    assert rows[("broker", "b7")] == ["old ZooKeeper", "restarting", "new ZooKeeper"]
    assert rows[("dest", "d7")] == ["fenced"]
    assert rows[("ensemble", "source")] == ["serves"]


def test_a_host_that_opened_alone_is_told_by_samples_to_have_served_and_opened(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.step("cutover.go", "begin")
    run.change("cutover.stop", "d1", SetService("d1", "zookeeper.service", "kill"), 1, 0.5)
    run.change("cutover.go", "d1", Go("d1", "first", ("10.0.0.11:2888",), 1, 10000), 2, 0.5)
    start, mono = run.clock.wall, run.clock.mono
    rows = [
        {"at": start + n, "mono": mono + n, "kind": "phases", "hosts": {"d1": said}}
        for n, said in ((1, ["go", None]), (3, ["started", 0.75]), (8, ["open", 5.75]))
    ]
    (run.dir / "samples.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    report = run.report()
    [lane] = [one for one in report.lanes if one.name == "d1"]
    told = [(s.state, s.note, round(s.start - start, 2)) for s in lane.spans][-2:]
    assert told == [("started", "serves while clients are refused", 2.25), ("open", "opened by itself", 8.0)]


def call(tmp_path: Path, *words: str) -> Result:
    env = {"ZKMIGRATE_RUNS": str(tmp_path)}
    return CliRunner().invoke(cli, ["report", *words], env=env)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path)
    run.step("install.install", "begin")
    run.change("install.install", "d1", HostVerb("d1", "open"), 1)
    run.journal.close()
    return run


def test_the_page_goes_into_the_run_and_is_replaced_the_next_time(tmp_path: Path, run: Run) -> None:
    for _ in range(2):
        done = call(tmp_path, "--run-id", "r-1")
        assert (done.exit_code, done.stdout) == (0, f"{run.dir / 'report.html'}\n")
    assert (run.dir / "report.html").stat().st_mode & 0o777 == 0o600
    assert "<h1>n: run r-1</h1>" in (run.dir / "report.html").read_text()
    assert sorted(p.name for p in run.dir.iterdir()) == ["journal.jsonl", "report.html"]


def test_markdown_and_json_go_to_standard_output_or_to_a_file(tmp_path: Path, run: Run) -> None:
    assert call(tmp_path, "--run-id", "r-1", "--format", "md").stdout.startswith("# n: run r-1\n")
    told = json.loads(call(tmp_path, "--run-id", "r-1", "--json").stdout)
    assert (told["run"], told["state"], told["chain"]["state"]) == ("r-1", "open", "intact")
    out = tmp_path / "told.json"
    assert call(tmp_path, "--run-id", "r-1", "--format", "json", "--out", str(out)).stdout == f"{out}\n"
    assert json.loads(out.read_text()) == {**told, "time": json.loads(out.read_text())["time"]}
    assert call(tmp_path, "--run-id", "r-1", "--out", "-").stdout.startswith("<!doctype html>")


def test_a_run_left_out_is_the_inventorys(tmp_path: Path) -> None:
    file = tmp_path / "migration.yml"
    file.write_text(INVENTORY)
    Run(tmp_path, "world-1").journal.close()
    assert "no run of world" in refused(tmp_path, "-i", str(file), "--format", "md")
    Run(tmp_path, "night", begin={"name": "world"}).journal.close()
    found = call(tmp_path, "-i", str(file), "--format", "md")
    assert found.stdout.startswith("# world: run night\n"), found.output


def refused(tmp_path: Path, *words: str, code: int = 2) -> str:
    done = call(tmp_path, *words)
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done.output


def test_what_is_no_run_is_refused_by_what_it_lacks(tmp_path: Path) -> None:
    assert "no directory" in refused(tmp_path, "--run-id", "absent")
    (tmp_path / "empty").mkdir()
    assert "has no journal.jsonl" in refused(tmp_path, "--run-id", "empty")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for content, why in (
        (b"", "it is empty"),
        (b"\0" * 64, "it is empty"),
        (b"hello\nworld\n", "line 1 does not match its sum"),
        (b'{"a": 1}\n', "line 1 does not match its sum"),
        (os.urandom(4096), "line 1"),
    ):
        (foreign / "journal.jsonl").write_bytes(content)
        assert why in refused(tmp_path, "--run-id", "foreign", code=8)
    (foreign / "journal.jsonl").unlink()
    (foreign / "journal.jsonl").symlink_to(tmp_path / "elsewhere")
    assert "Needed: a plain file" in refused(tmp_path, "--run-id", "foreign")
    (foreign / "journal.jsonl").unlink()
    os.mkfifo(foreign / "journal.jsonl")
    assert "is not a plain file" in refused(tmp_path, "--run-id", "foreign")
    (foreign / "journal.jsonl").unlink()
    (foreign / "journal.jsonl").mkdir()
    assert "journal.jsonl" in refused(tmp_path, "--run-id", "foreign")
    assert "run id '../x' is invalid" in refused(tmp_path, "--run-id", "../x")


def test_a_journal_with_a_line_of_another_version_is_named(tmp_path: Path, run: Run) -> None:
    file = run.dir / "journal.jsonl"
    [*_, last] = chain.parse(file.read_bytes()).entries
    line = chain.render(
        Entry(last.seq + 1, 1.0, "consent", {"stage": "roll"}, chain.parse(file.read_bytes()).last)
    )
    file.write_bytes(file.read_bytes() + line + b"\n")
    done = call(tmp_path, "--run-id", "r-1")
    assert done.exit_code == 8
    assert "this version cannot read" in done.output
    assert "Traceback" not in done.output


def test_a_place_that_must_not_be_written_is_refused_and_nothing_lost(tmp_path: Path, run: Run) -> None:
    journal = (run.dir / "journal.jsonl").read_bytes()
    assert "belongs to the run" in refused(
        tmp_path, "--run-id", "r-1", "--out", str(run.dir / "journal.jsonl")
    )
    around = run.dir / ".." / "r-1" / "journal.jsonl"
    assert "belongs to the run" in refused(tmp_path, "--run-id", "r-1", "--out", str(around))
    assert (run.dir / "journal.jsonl").read_bytes() == journal
    nowhere = str(tmp_path / "none" / "r.html")
    assert "a file in an existing directory" in refused(tmp_path, "--run-id", "r-1", "--out", nowhere)
    assert "no directory" in refused(tmp_path, "--run-id", "r-1", "--load", nowhere)


def test_another_playbook_tells_what_is_left_only_when_it_is_named(tmp_path: Path) -> None:
    own = Run(tmp_path, begin={"playbook": "of_our_own"})
    own.journal.close()
    text = call(tmp_path, "--run-id", "r-1", "--format", "md").stdout
    assert "unknown, because playbook of_our_own is not installed here" in " ".join(text.split())
    named = call(tmp_path, "--run-id", "r-1", "--format", "md", "--playbook", playbook_files.DEFAULT).stdout
    assert "continue at preflight.preflight" in named


def test_holds_and_who_is_at_work_are_told(tmp_path: Path, run: Run) -> None:
    again = Journal.open(run.dir, run.clock)
    where = {"stage": "roll", "step": "roll", "way": "forward"}
    hold = {"at": "roll", "why": "standup first", "by": "ann@ops", "place": "pts/1", "since": 1.0}
    again.append("hold", {**where, "event": "begin", "hold": hold})
    run.clock.pass_(60.0)
    again.append("hold", {**where, "event": "end", "hold": hold, "how": "released", "by": "bob@ops"})
    again.close()
    fd = process.announce(run.dir, process.Process(1, "resume", "ann@ops", "pts/1", 1.0))
    try:
        report = build(read(run.dir), playbook_files.load(playbook_files.DEFAULT))
    finally:
        os.close(fd)
    told = [(d.where, d.what, d.answer, d.by) for d in report.decisions if d.kind == "hold"]
    assert told == [
        ("roll.roll", "standup first", "", "ann@ops"),
        ("roll.roll", "the run continues", "released", "bob@ops"),
    ]
    assert report.headline.endswith("still running: zkmigrate resume by ann@ops")


def test_every_question_is_told_with_who_answered_and_what_was_in_doubt(run: Run) -> None:
    again = Journal.open(run.dir, run.clock)
    doubt = claim("kafka.quiet", "it is quiet", False, seen="orders-0", severity=Severity.WARN)
    asked = {"stage": "roll", "step": "roll", "question": "Roll?", "to": "", "by": "anna"}
    again.append("consent", {**asked, "answer": "go", "findings": [encode_finding(doubt)]})
    again.append("consent", {**asked, "answer": "back", "to": "join", "findings": []})
    stage = {"step": "", "question": "Restart?", "by": "bob"}
    again.append("consent", {**asked, **stage, "answer": "go", "findings": []})
    again.close()
    report = build(read(run.dir), playbook_files.load(playbook_files.DEFAULT))
    told = [(d.kind, d.where, d.answer, d.by) for d in report.decisions if d.kind in ("consent", "answer")]
    assert told == [
        ("answer", "roll.roll", "go", "anna"),
        ("answer", "roll.roll", "back to join", "anna"),
        ("consent", "roll", "go", "bob"),
    ]
    words = "Roll? In doubt: warn kafka.quiet: orders-0; expected: it is quiet"
    assert words in page(report)
    assert re.sub(r"\\|\s+", " ", words.replace("|", "")) in re.sub(r"\\|\s+", " ", markdown(report))
    assert [f["id"] for d in data(report)["decisions"] for f in d["findings"]] == ["kafka.quiet"]


def held_window(tmp_path: Path) -> Report:
    """A roll that was walked back once, then a window that was held for 20 s between FENCE and OPEN."""
    run = Run(tmp_path)
    turn = {
        "way": "back",
        "to": "roll",
        "then": "end",
        "why": "asked by the operator",
        "code": 0,
        "reset": [],
    }
    run.journal.append("turn", turn)
    run.journal.append("turn", {"way": "forward", "why": "asked by the operator", "kept": []})
    run.step("cutover.fence", "begin")
    run.change("cutover.fence", "d1", Fence("d1", 5000), 1)
    run.step("cutover.fence", "done", seconds=1.0)
    where = {"stage": "cutover", "step": "fence", "way": "forward"}
    hold = {"at": "", "why": "look", "by": "ann", "place": "", "since": 1.0}
    run.journal.append("hold", {**where, "event": "begin", "hold": hold})
    run.clock.pass_(20.0)
    run.journal.append("hold", {**where, "event": "end", "hold": hold, "how": "go", "by": "ann"})
    run.step("cutover.open", "begin")
    run.clock.pass_(2.0)
    run.step("cutover.open", "done", seconds=2.0)
    return run.report()


def test_a_hold_is_told_apart_from_what_lies_between_the_steps(tmp_path: Path) -> None:
    report = held_window(tmp_path)
    assert [w.held_s for w in report.windows] == [pytest.approx(20.0)]
    rows = {row[0]: row[1] for table in tables(report) if table.id == "windows" for row in table.rows}
    assert rows["held on request"] == length(20.0)
    assert rows["between the steps"] == length(0.0)


def test_the_way_back_of_the_roll_is_not_told_as_that_of_the_move(tmp_path: Path) -> None:
    report = held_window(tmp_path)
    assert report.way_back.startswith(
        "not taken in the cut-over; taken in other stages: back to the start of roll"
    )
    told = {what: much for what, much, _ in figures(report)}
    assert told["way back"] == "not taken in the cut-over"


def test_hooks_that_decided_or_failed_are_told(run: Run) -> None:
    again = Journal.open(run.dir, run.clock)
    place = {"stage": "roll", "step": "", "way": "forward", "targets": []}
    for number, (moment, stops, code, how) in enumerate(
        (
            ("before_stage", True, 0, "done"),
            ("before_stage", False, 0, "done"),
            ("on_failure", False, None, "timeout"),
        )
    ):
        end = {"code": code, "how": how, "seconds": 1.0, "output": "", "stops": stops}
        again.append("hook", {"moment": moment, "place": place, "number": number, "run": "/h/ask", **end})
    again.close()
    report = build(read(run.dir), playbook_files.load(playbook_files.DEFAULT))
    told = [(d.where, d.what, d.answer, d.by) for d in report.decisions if d.kind == "hook"]
    assert told == [
        ("roll", "before_stage", "exit code 0", "/h/ask"),
        ("roll", "on_failure", "timeout", "/h/ask"),
    ]


def test_the_kept_plan_is_held_against_the_journal(tmp_path: Path, run: Run) -> None:
    for content, said in (
        ('{"digest": "' + "p" * 64 + '"}', "the same digest"),
        ('{"digest": "other"}', "another digest: other"),
        ("{", "no readable plan.json"),
    ):
        (run.dir / "plan.json").write_text(content)
        assert build(read(run.dir), None).plan_matches == said


def test_states_that_are_drawn_all_have_a_colour_that_text_can_be_read_on() -> None:
    states = {*host_states.DEST_STATES, *host_states.BROKER_STATES, *host_states.ENSEMBLE_STATES}
    assert states == set(REPORTING.colours)

    def light(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    # WCAG 2: contrast is (L1 + 0.05) / (L2 + 0.05), at least 4.5 for text of this size.
    for state, colour in REPORTING.colours.items():
        assert (light(colour) + 0.05) / (light(svg.TEXT) + 0.05) >= 4.5, state


def test_hundreds_of_brokers_through_hours_stay_a_page(tmp_path: Path) -> None:
    """300 brokers asked for three hours; what one of them did not answer is still there."""
    names = [f"broker{n}" for n in range(300)]
    run = Run(tmp_path, begin={"hosts": {"source": ["s1"], "dest": ["d1"], "brokers": names}})
    run.clock.pass_(10800.0)
    run.step("roll.roll", "begin")
    beats = tuple(
        Beat(2_000_000.0 + at, name, None if (name, at) == ("broker7", 600) else 1.0 + at % 7, "refused")
        for at in range(0, 10800, 60)
        for name in names
    )
    report = run.report()
    own = series.by_broker(beats)
    gaps = tuple(gap for asked in own.values() for gap in series.silences(asked, 60.0))
    window = Window("cutover", False, 2_000_500.0, 2_000_700.0, "opened", (), None, {})
    told = series.latencies(own, gaps, report.visits)
    many = replace(
        report, beats=beats, silences=gaps, latencies=told, windows=(window,), end=report.start + 10800
    )
    drawn = ElementTree.fromstring(pictures.timeline(many))
    marks = [e for e in drawn.iter() if e.tag.endswith("circle")]
    assert 100 < len(marks) < 2000
    silent = [e.attrib["data-silent"] for e in drawn.iter() if "data-silent" in e.attrib]
    assert sorted(silent) == ["1", "broker7"]
    assert float(drawn.attrib["viewBox"].split()[-1]) < 1400, "300 rows stay one picture"
    assert SAMPLE_REPORT.felt[0](many).rows[0][0] == "broker7", "the longest silence comes first"
    close = ElementTree.fromstring(pictures.close_up(window, many))
    rows = {e.attrib["data-lane"] for e in close.iter() if "data-lane" in e.attrib} & set(names)
    assert rows == {"broker0", "broker1", "broker2", "broker3", "broker7"}
    assert "and 295 more brokers: see the timeline" in "".join(close.itertext())
    assert [x.longest.seconds for x in many.latencies if x.longest] == [pytest.approx(120.0, abs=0.1)]


def test_a_run_without_a_window_or_samples_is_drawn(run: Run) -> None:
    report = build(read(run.dir), playbook_files.load(playbook_files.DEFAULT))
    ElementTree.fromstring(pictures.timeline(report))
    assert "not started" in page(report)


def test_a_host_that_opened_by_itself_is_told_beside_the_window(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.step("cutover.fence", "begin")
    run.change("cutover.fence", "d1", Fence("d1", 4000), 1)
    run.step("cutover.fence", "done", seconds=1.0)
    run.step("cutover.open", "begin")
    run.clock.pass_(1.0)
    run.step("cutover.open", "done", seconds=1.0)
    [window] = run.report().windows
    assert (window.outcome, dict(window.opened_by)) == ("opened", {"d1": "by itself"})


def test_a_way_back_of_which_the_way_there_is_lost_is_no_window(tmp_path: Path) -> None:
    run = Run(tmp_path)
    operation = "cutover.fence.d1.back.1.1"
    run.journal.append(
        "intent",
        {
            "stage": "cutover", "step": "fence", "target": "d1", "way": "back", "leg": 1,
            "operation": operation, "change": encode_change(HostVerb("d1", "reopen")), "mono": run.clock.mono,
        },
    )  # fmt: skip
    run.journal.append("outcome", {"operation": operation, "status": "done", "rc": 0, "output": ""})
    assert run.report().windows == ()


def test_a_sampling_says_its_part_of_the_report(tmp_path: Path) -> None:
    """Its figures stand before those of clients, its tables around theirs. Without it no sample is told."""
    run, load = Run(tmp_path), tmp_path / "load"
    run.journal.close()
    at = {"at": run.clock.wall, "mono": run.clock.mono}
    brokers = {"kind": "brokers", "ms": {"b1": 1.0}, "silent": {}}
    (run.dir / "samples.jsonl").write_text(json.dumps({**at, **brokers}) + "\n")
    load.mkdir()
    acks = [{"event": "ack", "mono_ns": int((run.clock.mono + n) * 1e9)} for n in range(2)]
    (load / "producer.jsonl").write_text("".join(json.dumps(ack) + "\n" for ack in acks))
    playbook, found = playbook_files.load(playbook_files.DEFAULT), read(run.dir, load)

    def made(told: SampleReport | None) -> Report:
        return build(found, replace(playbook, sampling=(replace(BROKERS, report=told),)))

    def table(id: str) -> Table:
        return Table(id, id, ("what",), (("seen",),))

    assert [beat.broker for beat in build(found, playbook).beats] == ["b1"]
    assert (made(None).beats, made(None).shown.felt) == ((), ())
    assert build(found, None).beats == ()
    shards = SampleReport(
        lambda rows, visits, window, paced: Sampled(beats=(Beat(rows[0][0], f"{paced} {window}", None),)),
        lambda report: (("shards", str(len(report.beats)), "of all"),),
        felt=(lambda _: table("felt"),),
        sections=(lambda _: table("seen"),),
        answering="shards",
    )
    report = made(shards)
    assert [beat.broker for beat in report.beats] == ["roll None"]
    assert [what for what, _, _ in figures(report)][:3] == ["window", "shards", "longest gap of the producer"]
    assert [one.id for one in tables(report)][:4] == ["felt", "acks", "seen", "decisions"]
    assert "answers of shards" in page(report)


def test_curves_of_a_playbook_are_drawn_by_plot_and_name(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.journal.close()
    moments = [{"at": run.clock.wall + n, "mono": run.clock.mono + n, "kind": "t"} for n in (0, 1, 400, 401)]
    (run.dir / "samples.jsonl").write_text("".join(json.dumps(one) + "\n" for one in moments))
    playbook, found = playbook_files.load(playbook_files.DEFAULT), read(run.dir, None)

    def told(rows: Rows) -> tuple[Curve, ...]:
        points = tuple((at, 10.0 * n) for n, (at, _) in enumerate(of_kind(rows, "t")))
        return Curve("rate, MB/s", "broker <1>", points), Curve("left, GB", "all", points[:1])

    reporting = replace(playbook.report, curves=told, curved=("Rates", "What each broker may send."))
    made = build(found, replace(playbook, report=reporting))
    drawn = plots.curves(made)
    root = ElementTree.fromstring(drawn)
    dots = [e.attrib for e in root.iter() if "data-curve" in e.attrib]
    assert [(d["data-curve"], float(d["data-value"])) for d in dots] == [
        ("broker <1>", 0.0), ("broker <1>", 10.0), ("broker <1>", 20.0), ("broker <1>", 30.0), ("all", 0.0),
    ]  # fmt: skip
    heights = [float(d["cy"]) for d in dots[:4]]
    assert heights == sorted(heights, reverse=True), "a higher value stands higher"
    joined = [e for e in root.iter() if e.attrib.get("stroke-width") == "1.2"]
    assert len(joined) == 2, "not across the time without samples"
    assert "rate, MB/s" in drawn
    assert "What each broker may send." in page(made)
    assert "What each broker may send." not in page(build(found, playbook))
    assert data(made)["curves"][1]["name"] == "all"
    assert build(found, playbook).curves == ()
