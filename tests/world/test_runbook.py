"""``zkmigrate runbook`` over the model world: its commands are what the run sends, and no secret is on it."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.world.desk import Desk
from tests.world.model.look import WorldLook
from tests.world.model.world import World
from tests.world.operator import Operator, quiet_world
from zkmigrate.hosts import zkm_host
from zkmigrate.inventory.inventory import digest
from zkmigrate.move.go_no_go import LINES_OF_A_PAGE
from zkmigrate.runbook.engine import plan, runs
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.model.change import ClusterChange, InstallProgram, PutFile
from zkmigrate.runbook.ui.runbook_page import Block, Runbook, text

RUN, LEG = "night", 7
MADE_HERE = "$("
"""How a word begins that the shell of the person makes from a file or a command."""


def made(world: World) -> Runbook:
    """The page for a world."""
    planned = plan.make(PLAYBOOK, world.inventory, WorldLook(world), ())
    return Runbook(PLAYBOOK, planned, world.inventory, RUN, LEG)


def calls(book: Runbook) -> dict[tuple[str, str], Counter[str]]:
    """``(step, way)`` → the zkm-host calls of the page, host first, without the words that a shell makes."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for part in book.parts():
        if isinstance(part, Block):
            for line in part.lines:
                ssh, host, *words = shlex.split(line)
                if words[:5] == ["sudo", "zkm-host", "--run", RUN, "--as"]:
                    known = (word for word in words[6:] if MADE_HERE not in word)
                    found.setdefault((part.step, part.way.value), Counter())[" ".join((host, *known))] += 1
                    assert (ssh, words[5]) == ("ssh", "N")
    return found


def steps(world: World) -> Iterator[tuple[str, plan.PlannedStep]]:
    planned = plan.make(PLAYBOOK, world.inventory, WorldLook(world), ())
    for stage in planned.stages:
        for step in stage.steps:
            yield f"{stage.id}.{step.id}", step


@pytest.mark.parametrize("own_commands", [False, True], ids=["systemd", "own-commands"])
def test_every_planned_change_stands_there_as_the_engine_sends_it(own_commands: bool) -> None:
    world = quiet_world(own_commands=own_commands)
    found = calls(made(world))
    for name, step in steps(world):
        wanted = Counter[str]()
        for target, changes in step.targets.items():
            for number, planned in enumerate(changes, 1):
                change = planned.change
                if isinstance(change, InstallProgram | ClusterChange):
                    continue
                words = [word.replace("/zkmigrate/RUN/", f"/zkmigrate/{RUN}/") for word in change.arguments()]
                if change.verb in ("put", "edit", "arm"):
                    words = words[:-1]
                elif change.verb == "service":
                    words = [w for w in words if "=" not in w or w.startswith("ports=")]
                sent = (change.where, change.verb, f"{name}.{target}.{LEG}.{number}", *words)
                wanted[" ".join(sent)] += 1
        assert found.get((name, "forward"), Counter()) == wanted, name


def test_the_way_back_of_the_page_is_what_the_steps_undo(tmp_path: Path) -> None:
    """What a run sends on its way back, after a rehearsal and the roll, stands on the page too."""
    world = quiet_world()
    on_page = {
        " ".join((c.split()[0], c.split()[1], *c.split()[3:4]))
        for (_, way), made_ in calls(made(world)).items()
        if way == "back"
        for c in made_
    }
    assert Operator(world, tmp_path / "run").forward(until="roll").code == 0
    assert Operator(world, tmp_path / "run").back().code == 0
    back = [change for change, operation in world.applied if ".back" in operation]
    wanted = {"restore", "halt", "image", "unseal", "uncut", "reopen", "disarm", "uninstall"}
    assert {change.verb for change in back} >= wanted
    for change in back:
        if change.verb in ("restore", "discard"):
            continue  # named by the operation that is undone: compared below
        assert not isinstance(change, ClusterChange)
        assert " ".join((change.where, change.verb, *change.arguments()[:1])) in on_page, change


def test_what_is_put_back_is_named_by_the_operation_that_wrote_it() -> None:
    found = calls(made(quiet_world()))
    for step in ("join.join", "roll.roll", "rehearse.arm", "cutover.arm"):
        there, back = found[step, "forward"], found[step, "back"]
        puts = {(call.split()[0], call.split()[2]) for call in there if call.split()[1] in ("put", "edit")}
        restored = {(call.split()[0], call.split()[3]) for call in back if call.split()[1] == "restore"}
        assert puts == restored
        assert puts


def test_hosts_go_back_in_the_reverse_order() -> None:
    blocks = [part for part in made(quiet_world()).parts() if isinstance(part, Block)]
    for step in ("join.join", "roll.roll"):
        there, back = (
            list(dict.fromkeys(h for b in blocks if (b.step, b.way.value) == (step, way) for h in b.hosts))
            for way in ("forward", "back")
        )
        assert back == there[::-1]
        assert len(back) == 3


def test_no_secret_is_on_the_page() -> None:
    world = quiet_world()
    path = world.inventory.kafka.config
    for broker in world.inventory.broker_names:
        file = world.hosts[broker].files[path]
        secret = file.content + b"ssl.key.password=topsecret\n"
        world.hosts[broker].files[path] = replace(file, content=secret)
    settings = {**world.inventory.dest.settings, "ssl.keyStore.password": "topsecret2"}
    dest = world.inventory.dest.model_copy(update={"settings": settings})
    world.inventory = world.inventory.model_copy(update={"dest": dest})
    page = text(made(world).parts())
    for hidden in ("topsecret", base64.b64encode(b"topsecret").decode()[:8]):
        assert hidden not in page
    assert "ssl.keyStore.password=(hidden)" in page


class RunbookDesk(Desk):
    """A desk whose run can be walked first."""

    def walk(self, until: str) -> None:
        """A run of the tool up to there, in the world's own time."""
        run_dir = self.runs / "world-1"
        runs.make(run_dir)
        journal = Journal.create(run_dir, lambda: self.world.wall)
        of = {"playbook": PLAYBOOK.id, "inventory": digest(self.world.inventory), "plan": ""}
        journal.append("begin", {"run": "world-1", "name": "", **of})
        journal.close()
        assert Operator(self.world, run_dir).forward(until=until).code == 0


@pytest.fixture
def desk(tmp_path: Path) -> RunbookDesk:
    return RunbookDesk(tmp_path)


def test_the_page_and_its_program_are_written_whole(desk: RunbookDesk, tmp_path: Path) -> None:
    out = tmp_path / "page.md"
    done = desk.call("runbook", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "zkm-host").read_bytes() == zkm_host.program()
    page = out.read_text()
    assert desk.call("runbook", "--out", str(out)).exit_code == 0
    assert out.read_text() == page, "the same world gives the same page"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["migration.yml", "page.md", "zkm-host"]
    body = json.loads(desk.call("runbook", "--json").stdout)
    wanted = {("cutover.fence", "forward"), ("cutover.go", "back")}
    assert {(box["step"], box["way"]) for box in body["blocks"]} >= wanted
    for b in body["blocks"]:
        head = f"```sh host={b['host']} step={b['step']} way={b['way']}"
        assert f"{head}\n{b['text']}\n```" in page
    for step in PLAYBOOK.step_ids():
        assert f"\n### {step}: " in page
    assert desk.world.applied == []


def test_preferred_leaders_are_elected_by_kafkas_own_program(desk: RunbookDesk) -> None:
    assert "kafka-leader-election.sh" not in desk.call("runbook").stdout
    policy = desk.world.inventory.policy.model_copy(update={"roll_leaders": True})
    desk.world.inventory = desk.world.inventory.model_copy(update={"policy": policy})
    ways = [
        (part.step, part.way.value)
        for part in made(desk.world).parts()
        if isinstance(part, Block) and "kafka-leader-election.sh" in part.lines[0]
    ]
    assert ways == [("roll.roll", "forward"), ("roll.roll", "back")]


def test_a_page_that_is_not_whole_says_so_and_ends_with_8(desk: RunbookDesk) -> None:
    done = desk.call("runbook", unreachable=frozenset({"broker2"}))
    assert done.exit_code == 8
    assert "**THIS PAGE IS INCOMPLETE.**" in done.stdout
    assert "- roll.roll: broker2: " in done.stdout
    assert "Do not go on by hand from here." in done.stdout


def test_a_place_where_nothing_can_be_written_is_refused_before_a_host_is_asked(
    desk: RunbookDesk, tmp_path: Path
) -> None:
    for out in (tmp_path / "none" / "page.md", tmp_path, tmp_path / "zkm-host"):
        done = desk.call("runbook", "--out", str(out))
        assert done.exit_code == 2
        assert "--out" in done.output
    assert desk.call("runbook", "--run-id", "../up").exit_code == 2
    assert desk.call("runbook", "--format", "pdf").exit_code == 2


def test_the_go_no_go_page_is_one_page_with_the_rehearsals_figures(desk: RunbookDesk) -> None:
    before = desk.call("runbook", "--go-no-go").stdout
    assert "**not rehearsed: NO-GO**" in before
    assert desk.call("runbook", "--go-no-go", "--run-id", "nobody").exit_code == 2
    desk.walk("rehearse")
    text = desk.call("runbook", "--go-no-go", "--run-id", "world-1").stdout
    assert "| FENCE to CHECK, as rehearsed | **" in text
    assert "NO-GO**" not in text.replace("**GO / NO-GO**", "")
    assert len(text.splitlines()) <= LINES_OF_A_PAGE
    for wanted in ("turn back at the latest", "no return", "phone", "source owner", "OPEN", "SEAL"):
        assert wanted in text


def test_what_the_tool_has_done_stands_there_with_its_way_back_only(desk: RunbookDesk) -> None:
    """After join by the tool: nothing to do, and the files are put back by the ids that the tool gave."""
    desk.walk("join")
    body = json.loads(desk.call("runbook", "--run-id", "world-1", "--json").stdout)
    boxes = [box for box in body["blocks"] if box["step"] in ("install.install", "join.join")]
    assert {box["way"] for box in boxes} == {"back"}
    assert "Changes: nothing, because everything is already as this step needs it." in body["page"]
    text = "\n".join(box["text"] for box in boxes)
    puts = [o for c, o in desk.world.applied if isinstance(c, PutFile) and o.startswith("join.")]
    assert len(puts) == 6
    assert [o for o in puts if not re.search(rf" restore join\.join\.\S+ {re.escape(o)}$", text, re.M)] == []
