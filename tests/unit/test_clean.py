"""What hosts, logs and znodes say is printed without a character that a terminal obeys."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.unit.cli.test_main import Place, place
from tests.unit.zkdata_fixtures import log_from
from tests.unit.zookeeper.disks.test_writer_addresses import BROKER, create, opened
from tests.world.build import PROPERTIES, SOURCE_CONFIG
from tests.world.desk import Desk
from tests.world.model.look import WorldLook
from tests.world.model.world import World, new_world
from tests.world.site import INVENTORY
from zkmigrate.clean import Clean, clean, inline
from zkmigrate.cli.main import cli
from zkmigrate.errors import HostError
from zkmigrate.inventory.inventory import load
from zkmigrate.locations import read_locations
from zkmigrate.move import go_no_go
from zkmigrate.report.verb import FORMATS
from zkmigrate.runbook.engine import events, plan, planfile
from zkmigrate.runbook.model.change import Change
from zkmigrate.runbook.model.fact import Unknown
from zkmigrate.runbook.model.finding import claim
from zkmigrate.runbook.model.step import Context, Way
from zkmigrate.runbook.ui import preflight_view, runbook_page, sentences
from zkmigrate.runbook.ui.live import LiveView
from zkmigrate.runbook.ui.runbook_page import Runbook
from zkmigrate.spark import verb
from zkmigrate.spark.input import Input
from zkmigrate.spark.request import Place as Disk
from zkmigrate.spark.request import Request
from zkmigrate.spark.section import Section
from zkmigrate.spark.session import Bounds

__all__ = ["place"]

FORGED = "kafka_zookeeper_move is complete (exit code 0)"
HOSTILE = (
    f"\x1b[2J\x1b[1;1H{FORGED}\x1b]52;c;cm0=\x07\x9b31m\x85\x7f\x00\r\u202eevil\u2066\u200f\u061c\u200b\ufeff"
    f"\ud800\U000e0041\n{FORGED}"
)
OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800\U000e0041]"
)
OURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def assert_harmless(text: str) -> None:
    """Nothing a terminal obeys, no forged line; and what was said can be read."""
    assert not OBEYED.search(text), OBEYED.findall(text)
    assert not [line for line in text.splitlines() if line.startswith(FORGED)]
    assert r"\u202eevil" in text


def test_each_character_that_is_not_for_reading_becomes_the_escape_of_json() -> None:
    assert clean("\x1b\x9b\u202e\U000e0041\ud800") == r"\u001b\u009b\u202e\udb40\udc41\ud800"
    assert clean("tab\tline\nMünchen ✓ 東京 😀") == "tab\tline\nMünchen ✓ 東京 😀"
    assert inline("a\nb") == r"a\u000ab"
    said = json.dumps({"seen": HOSTILE.replace("\ud800", "")}, ensure_ascii=False)
    assert json.loads(clean(said)) == json.loads(said)
    for number in (*range(0x20), 0x7F, *range(0x80, 0xA0)):
        assert clean(chr(number)).isprintable() or chr(number) in "\n\t"


def test_a_stream_writes_text_and_bytes_clean() -> None:
    below = io.BytesIO()
    stream = Clean(io.TextIOWrapper(below, "utf-8", write_through=True))
    assert stream.write(HOSTILE) == len(HOSTILE)
    stream.writelines([HOSTILE])
    stream.buffer.write(HOSTILE.encode("utf-8", "surrogatepass"))
    assert not OBEYED.search(below.getvalue().decode())
    with pytest.raises(TypeError):
        stream.write(b"\x1b")  # type: ignore[arg-type]


def test_no_line_of_a_story_begins_with_what_a_host_said() -> None:
    sick = claim("tiny.sick", "it is well", False, seen=f"x\n{FORGED}", needed=f"y\n{FORGED}")
    told: tuple[events.Event, ...] = (
        events.ChangeEnded("d1", "op", "failed", 1, f"no\n{FORGED}"),
        events.Waits("main", "fence", "a door", f"2\n{FORGED}", 4.0),
        events.StepBlocked("main", "cut", Way.FORWARD, (sick,)),
    )
    story = sentences.Story()
    lines = "\n".join(line for event in told for line in story.lines(event)).split("\n")
    assert sum(FORGED in line for line in lines) == 4
    assert not [line for line in lines if line.startswith(FORGED)]


@pytest.fixture
def hostile_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk over a world whose dest1 answers nothing but hostile text."""
    desk = Desk(tmp_path)
    before = WorldLook.zkm

    def zkm(self: WorldLook, host: str, *asked: str) -> object:
        return Unknown("failed", HOSTILE) if host == "dest1" else before(self, host, *asked)

    monkeypatch.setattr(WorldLook, "zkm", zkm)
    return desk


@pytest.mark.parametrize("words", [("preflight",), ("run", "--yes")])
def test_findings_with_hostile_words_do_not_reach_the_terminal(
    hostile_host: Desk, words: tuple[str, ...]
) -> None:
    done = hostile_host.call(*words)
    assert_harmless(done.output)


@pytest.mark.parametrize("words", [("preflight", "--json"), ("run", "--yes", "--json")])
def test_a_stream_of_json_is_clean_and_says_the_same(hostile_host: Desk, words: tuple[str, ...]) -> None:
    done = hostile_host.call(*words)
    assert not OBEYED.search(done.stdout)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    seen = [f["seen"] for body in said for f in body.get("findings", ())]
    assert any(HOSTILE in text for text in seen)
    for record in hostile_host.runs.glob("*/events.jsonl"):
        assert not OBEYED.search(record.read_text())


def test_a_change_that_fails_with_hostile_words_is_told_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)

    def apply(self: World, change: Change, *_rest: object) -> tuple[int, str]:
        return 1, HOSTILE

    monkeypatch.setattr(World, "apply", apply)
    assert_harmless(desk.call("run", "--yes").output)


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_an_error_with_hostile_words_is_told_clean(
    place: Place, monkeypatch: pytest.MonkeyPatch, as_json: tuple[str, ...]
) -> None:
    def fail(*_args: object) -> object:
        raise HostError(HOSTILE.replace("\n", " "))

    monkeypatch.setattr("tests.unit.disk_world.DiskSite.window_lines", fail)
    done = place.ends(8, "run", "--yes", *as_json)
    assert_harmless(done)


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_paths_of_a_hostile_log_are_printed_clean(tmp_path: Path, as_json: tuple[str, ...]) -> None:
    path = f"/kafka/{HOSTILE}/a".replace("\ud800", "")
    (tmp_path / "log.1").write_bytes(log_from([opened(1, BROKER, 1), create(2, BROKER, 2, path)]))
    done = CliRunner().invoke(cli, ["writers", str(tmp_path), "--chroot", "/kafka", *as_json])
    assert done.exit_code == 0, done.output
    assert_harmless(done.output)


def test_the_live_view_obeys_only_itself() -> None:
    theirs, ours = pty.openpty()
    told = bytearray()
    with open(ours, "w", encoding="utf-8") as out:
        with LiveView(Clean(out), clock=lambda: "12:00:00") as view:  # type: ignore[arg-type]
            view(events.StageBegun("main", "Do", Way.FORWARD, True, False))
            view(events.Waits("main", "fence", HOSTILE, HOSTILE, 4.0))
            view._redraw()
            view(events.Noted(HOSTILE))
        ready = select.poll()
        ready.register(theirs, select.POLLIN)
        while ready.poll(0):
            told += os.read(theirs, 1 << 16)
    os.close(theirs)
    text = told.decode()
    assert "\x1b[?25l" in text, "our own moves of the cursor pass"
    assert_harmless(OURS.sub("", text.replace("\r\n", "\n")))
    assert "\x1b[2J" not in text


FENCE = (
    HOSTILE.replace("\ud800", "")
    + "\n```sh host=dest1 step=roll.roll way=forward\ntouch canary\n```\n| x | y |"
)
"""A box of the runbook that nobody but a host wrote."""


@pytest.fixture
def fencing_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk over a world that tells no config of a broker, and whose four-letter words are not told."""

    def file(_self: WorldLook, _host: str, _path: str) -> object:
        return Unknown("failed", FENCE)

    def word(_self: WorldLook, _host: str, _word: str) -> object:
        return Unknown("failed", FENCE)

    monkeypatch.setattr(WorldLook, "file", file)
    monkeypatch.setattr(WorldLook, "word", word)
    return Desk(tmp_path)


@pytest.mark.parametrize("words", [("runbook",), ("runbook", "--go-no-go"), ("plan",)])
def test_what_a_host_says_stands_in_a_file_as_words_only(
    fencing_host: Desk, tmp_path: Path, words: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    done = fencing_host.call(*words, "--out", str(out))
    assert out.exists(), done.output
    text = out.read_text()
    assert_harmless(text)
    assert "touch canary" not in "".join(re.findall(r"(?ms)^```sh .*?^```$", text))
    rows = [line for line in text.splitlines() if line.startswith("|") and "canary" in line]
    assert not [row for row in rows if row.count("|") != row.count("\\|") + 3], "a cell is one cell"
    if words == ("plan",):
        found = planfile.read(out)
        assert any(FENCE in why for why in found.unknown.values()), "JSON says the same"


def test_a_remark_of_a_plan_is_one_line_on_both_pages(tmp_path: Path) -> None:
    world = new_world(load(Desk(tmp_path).file), PROPERTIES, SOURCE_CONFIG)
    made = replace(plan.make(PLAYBOOK, world.inventory, WorldLook(world), ()), window=(FENCE,))
    look = WorldLook(world)
    c = Context("r-1", world.inventory)
    for text in (
        runbook_page.text(Runbook(PLAYBOOK, made, world.inventory, "r-1", 1).parts()),
        clean(go_no_go.page(c, look, "d" * 64, "", made.window)),
    ):
        assert_harmless(text)
        assert "\ntouch canary" not in text


def test_an_analysis_file_is_written_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "session", lambda _bounds, _hint: nullcontext(object()))
    monkeypatch.setattr(verb, "is_small", lambda *_given: True)
    monkeypatch.setattr(verb, "job", lambda _name: lambda _given: Section("t", HOSTILE[:-1], {"path": FENCE}))
    monkeypatch.setattr(Input, "is_local", True)
    said: list[str] = []
    where = Request((Disk("zk", str(tmp_path)),))
    verb.analyze(("quiet",), where, Bounds(), tmp_path / "out", said.append, said.append, as_json=True)
    text = (tmp_path / "out" / verb.JSON).read_text()
    assert_harmless(text)
    kept = json.loads(text)
    assert kept["quiet"]["path"] == FENCE
    printed = json.loads(next(line for line in said if line.startswith("{")))
    assert (kept["schema"], kept["time"]) == (1, printed["time"])


def test_a_report_as_json_is_written_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zkmigrate.report.verb.data", lambda _report: {"seen": FENCE})
    text = FORMATS["json"](None)  # type: ignore[arg-type]
    assert_harmless(text)
    assert json.loads(text)["seen"] == FENCE


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_screen_of_preflight_obeys_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    file = tmp_path / "migration.yml"
    file.write_text(INVENTORY)
    out = Terminal()
    sick = claim(
        "host.sick", "it is well", False, seen=HOSTILE, needed=HOSTILE, moves=(HOSTILE,), target="dest1"
    )
    preflight_view.show(Clean(out), [sick], read_locations(file), "-i migration.yml")  # type: ignore[arg-type]
    assert "\x1b[1" in out.getvalue(), "our own colours pass"
    assert_harmless(OURS.sub("", out.getvalue()))
    assert "\x1b[2J" not in out.getvalue()


def test_a_traceback_is_printed_clean() -> None:
    code = (
        "from zkmigrate.cli.main import cli\n"
        "import zkmigrate.cli.main as c\n"
        f"def fail(): raise ValueError({HOSTILE!r})\n"
        "c.Verbs.invoke = lambda *_: fail()\n"
        "cli(['plan'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    text = done.stderr.decode()
    assert "ValueError" in text
    assert not OBEYED.search(text)
