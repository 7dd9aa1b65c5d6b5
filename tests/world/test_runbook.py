"""The exported runbook over the model world: what it types is what the run sends, and no secret is on it.

The page's boxes are run in bash with ``at`` and ``give`` in place of ssh, which print what would be sent.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from playbooks.kafka_zookeeper_move import PLAYBOOK
from tests.world.desk import Desk
from tests.world.model.look import WorldLook
from tests.world.model.world import World
from tests.world.operator import PROPERTIES, Operator, quiet_world
from zkmigrate.hosts import zkm_host
from zkmigrate.inventory.inventory import digest
from zkmigrate.kafka.rules.connect import connect_sed, with_connect
from zkmigrate.move.steps.roll_by_hand import controller_name
from zkmigrate.runbook.byhand import commands, export, page
from zkmigrate.runbook.byhand.commands import with_run_id
from zkmigrate.runbook.byhand.go_no_go import LINES_OF_A_PAGE
from zkmigrate.runbook.engine import plan, runs
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.model.change import (
    Applied,
    ClusterChange,
    HostChange,
    HostVerb,
    InstallProgram,
    PutFile,
    RestoreImage,
    Unseal,
)
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Way

RUN = "night"
LAST = {"roll.roll": "broker2"}
STUBS = """
sent() {
  local kind=$1 host=$2 words; shift 2
  printf '%s\\n' "$kind $host $*"
  words="$*"; words=${words#*--as 5 }
  [ "$words" = "$*" ] || echo "${words%% *}" >"$host.verb"
}
at() { sent AT "$@" | sed 's|$| |'; }
give() { local file=$1; shift; sent AT "$@" | sed "s|\\$| $(base64 -w0 <"$file")|"; }
next() { LEG=7; }; keep() { eval "${1%%=*}=\\${1#*=}"; }
went() {
  local pattern=$1 host verb; shift; wait
  for host; do
    [ -f "$host.verb" ] || continue
    verb=$(cat "$host.verb"); grep -Eq -- "$pattern" "answers/$verb" || echo "WRONG $verb on $host: $pattern"
  done
}
say() { went "$@"; }; never() { :; }; in_time() { :; }; left_ms() { echo "$CUT_MS"; }
for name in until_like until_mode until_zxid until_drained until_dropped until_in_sync until_moved \\
  one_line survey same_source reformed still_owned none_open source_leader source_zxid records sleep
do eval "$name() { :; }"; done
value() { if [ "$2" = stamp ]; then echo STAMP; else echo BOOT-ID; fi; }
digest() { sha256sum <"$1" | cut -d' ' -f1; }
N=5 T_MS=18000 Z=0x1 RECORDS=1 DEST='dest1 dest2 dest3'
"""


RECORDED = Path(__file__).parents[1] / "recorded" / "zkm-host"
ANSWERS = {
    **dict.fromkeys(
        ("cut", "fence", "finalize", "halt", "open", "seal", "stopped", "uninstall", "unseal"), ""
    ),
    "image": "image restored",
    "put": "wrote /etc/kafka/server.properties",
    "restore": "restored /etc/kafka/server.properties (file)",
    "move-aside": "moved /var/lib/zookeeper/version-2 to /var/lib/zookeeper/version-2.zkm-1",
    "arm": "armed tag=0123abcd",
    "disarm": "disarmed",
    "reopen": "reopened",
    "uncut": "uncut",
    "started-observer": "started zookeeper.service",
    "go": "go first",
    "checked": "checked",
    "service": "".join(
        f"{action} {unit}.service\n"
        for action in ("start", "stop", "kill", "restart")
        for unit in ("zookeeper", "kafka")
    ),
}
"""What zkm-host answers, by verb; empty: as recorded."""
GATES = (
    "until_|say |went |never |in_time |same_source|reformed|survey|none_open|"
    "still_owned|source_leader|one_line "
)


def made(world: World, run: str = RUN) -> str:
    """The page for a world."""
    planned = plan.make(PLAYBOOK, world.inventory, WorldLook(world), ())
    return page.page(
        page.Runbook(
            PLAYBOOK, planned, "d1ge57", world.inventory, run, {}, {"roll.roll": "broker2"}, "runbook.md"
        )
    )


def typed(world: World, text: str, folder: Path) -> dict[tuple[str, str], Counter[str]]:
    """``(step, way)`` → the zkm-host calls that the page's boxes make, host first, content of files last."""
    lease = world.inventory.policy.lease
    open_ms = round(world.inventory.policy.open_limit_s * 1000)
    times = f"FENCE_MS={lease.fence_ttl_ms} CUT_MS={lease.cut_ttl_ms} OPEN_MS={open_ms}\n"
    files = "".join(
        f'if [ "$1" = {broker} ]; then echo {base64.b64encode(held(world, broker)).decode()}; fi\n'
        for broker in world.inventory.broker_names
    )
    script = STUBS + times + f"zkm() {{ :\n{files}}}\n"
    for box in export.blocks(text):
        if not box["step"].startswith(("prepare.", "hold.")):
            script += f"echo '@ {box['step']} {box['way']}'\n{box['text']}\nwait\n"
    (folder / "zkm-host").write_bytes(zkm_host.program())
    (folder / "answers").mkdir()
    for verb, said in ANSWERS.items():
        (folder / "answers" / verb).write_text(said or (RECORDED / f"{verb}.txt").read_text())
    argv = ["bash", "-u", "-c", script]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    found: dict[tuple[str, str], Counter[str]] = {}
    at = ("", "")
    for line in done.stdout.splitlines():
        assert not line.startswith("WRONG"), line
        if line.startswith("@ "):
            at = (line.split()[1], line.split()[2])
            found.setdefault(at, Counter())
        elif line.startswith("AT ") and " --run " in line:
            host, program = line.split()[1], f"sudo -n {zkm_host.INSTALLED_PATH} --run {RUN} --as 5 "
            assert program in line
            found[at][f"{host} {line.split(program)[1].strip()}"] += 1
    return found


def held(world: World, broker: str) -> bytes:
    return world.hosts[broker].files[world.inventory.kafka.config].content


def sent(change: HostChange, operation: str) -> str:
    """The words that the engine would send, with the content of a file behind a ``-``."""
    words = change.arguments()
    if isinstance(change, PutFile):
        words = (with_run_id(words[0], RUN), *words[1:-1], "-", words[-1])
    return " ".join((change.where, change.verb, operation, *words))


def steps(world: World) -> Iterator[tuple[str, plan.PlannedStep]]:
    planned = plan.make(PLAYBOOK, world.inventory, WorldLook(world), ())
    for stage in planned.stages:
        for step in stage.steps:
            yield f"{stage.id}.{step.id}", step


@pytest.mark.parametrize("own_commands", [False, True], ids=["systemd", "own-commands"])
def test_every_planned_change_is_typed_as_the_engine_sends_it(tmp_path: Path, own_commands: bool) -> None:
    world = quiet_world(own_commands=own_commands)
    found = typed(world, made(world), tmp_path)
    for name, step in steps(world):
        wanted = Counter(
            sent(planned.change, f"{name}.{target}.7.{number}")
            for target, changes in step.targets.items()
            for number, planned in enumerate(changes, 1)
            if not isinstance(planned.change, InstallProgram | ClusterChange)
        )
        assert found.get((name, "forward"), Counter()) == wanted, name


def test_the_way_back_types_what_the_steps_undo(tmp_path: Path) -> None:
    """What a run sends on its way back, after a rehearsal and the roll, stands on the page too."""
    world = quiet_world()
    found = typed(world, made(world), tmp_path)
    on_page = {
        " ".join((c.split()[0], c.split()[1], *c.split()[3:4]))
        for (_, way), calls in found.items()
        if way == "back"
        for c in calls
    }
    assert Operator(world, tmp_path / "run").forward(until="roll").code == 0
    assert Operator(world, tmp_path / "run").back().code == 0
    back = [change for change, operation in world.applied if ".back" in operation]
    assert {change.verb for change in back} >= {
        "restore",
        "halt",
        "image",
        "unseal",
        "uncut",
        "reopen",
        "disarm",
        "uninstall",
    }
    for change in back:
        if change.verb in ("restore", "discard"):
            continue  # named by the operation that is undone: compared below
        assert not isinstance(change, ClusterChange)
        words = change.arguments()[:1] if change.verb != "service" else ("zookeeper.service",)
        short = " ".join((change.where, change.verb, *words))
        if change.verb == "service" and "broker" in change.where:
            short = f"{change.where} service kafka.service"
        assert short in on_page, short


def test_what_is_put_back_is_named_by_the_operation_that_wrote_it(tmp_path: Path) -> None:
    world = quiet_world()
    found = typed(world, made(world), tmp_path)
    for stage, step in (("join", "join"), ("roll", "roll"), ("rehearse", "arm"), ("cutover", "arm")):
        there, back = found[f"{stage}.{step}", "forward"], found[f"{stage}.{step}", "back"]
        puts = {(call.split()[0], call.split()[2]) for call in there if call.split()[1] == "put"}
        restored = {(call.split()[0], call.split()[3]) for call in back if call.split()[1] == "restore"}
        assert puts == restored
        assert puts


def test_no_secret_is_on_the_page(tmp_path: Path) -> None:
    world = quiet_world()
    path = world.inventory.kafka.config
    for broker in world.inventory.broker_names:
        file = world.hosts[broker].files[path]
        world.hosts[broker].files[path] = replace(
            file, content=file.content + b"ssl.key.password=topsecret\n"
        )
    dest = world.inventory.dest.model_copy(
        update={"settings": {**world.inventory.dest.settings, "ssl.keyStore.password": "topsecret2"}}
    )
    world.inventory = world.inventory.model_copy(update={"dest": dest})
    text = made(world)
    for secret in ("topsecret", base64.b64encode(b"topsecret").decode()[:8], "log.dirs"):
        assert secret not in text
    assert "ssl.keyStore.password=(hidden)" in text
    assert "fill cutover.arm.reform.cfg ssl.keyStore.password" in text
    assert (
        'put cutover.arm.dest1.$LEG.1 /var/lib/zkmigrate/night/staged/reform.cfg 0600 root:root "$(digest'
        in text
    )


def test_a_hidden_value_is_typed_in(tmp_path: Path) -> None:
    file = tmp_path / "zoo.cfg"
    file.write_text("a=1\nssl.password=(hidden)\nb=2\n")
    functions = (Path(page.__file__).parent / "hand.sh").read_text()
    script = f"cd {tmp_path}\n{functions}\nfill zoo.cfg ssl.password"
    subprocess.run(
        ["bash", "-c", script], input="p&ss\\1/ word\n", text=True, check=True, capture_output=True
    )
    assert file.read_text() == "a=1\nssl.password=p&ss\\1/ word\nb=2\n"


def test_every_box_is_sound_bash(tmp_path: Path) -> None:
    """shellcheck reads the boxes as the one script that they are."""
    world = quiet_world(own_commands=True)
    script = "#!/bin/bash\n" + "\n".join(box["text"] for box in export.blocks(made(world)))
    file = tmp_path / "boxes.sh"
    file.write_text(script)
    # Word splitting is meant, as is `a && b || c`; the variables come from `keep` and `printf -v`.
    allowed = "SC1091,SC2086,SC2015,SC2154,SC2034,SC2153,SC2013,SC2016,SC2164,SC2317,SC2046"
    done = subprocess.run(["shellcheck", "-e", allowed, str(file)], capture_output=True, text=True)
    assert done.stdout == ""


def test_no_gate_is_passed_by_what_follows_it() -> None:
    """A box ends well only if every look in it did: `step` judges a box by its last command alone."""
    for box in export.blocks(made(quiet_world())):
        if box["step"].startswith("prepare."):
            continue
        *before, last = box["text"].replace("\n}", "").replace("\nfi", "").splitlines()
        for line in before:
            assert not re.match(GATES, line) or line.endswith("&&"), f"{box['step']}: {line}"
            assert "; until_" not in line
        assert re.search(f"{GATES}|&& echo ", last), f"{box['step']} ends with: {last}"


@pytest.mark.parametrize(
    "properties",
    [
        PROPERTIES,
        PROPERTIES.rstrip(b"\n"),
        b"a=1\r\nzookeeper.connect = 10.0.0.1:2181/kafka\r\nb=2\r\n",
        b"  zookeeper.connect:10.0.0.1\nzookeeper.connection.timeout.ms=1\n#zookeeper.connect=no\n",
    ],
)
def test_sed_edits_the_file_as_the_tool_does(tmp_path: Path, properties: bytes) -> None:
    connect = "10.0.0.11:2181,[fd00::1]:2181/kafka"
    argv = ["sed", "-E", connect_sed(connect)]
    done = subprocess.run(argv, input=properties, capture_output=True, check=True)
    assert done.stdout == with_connect(properties, connect)


class RunbookDesk(Desk):
    """A desk whose run can be walked first."""

    def walk(self, until: str) -> None:
        """A run of the tool up to there, in the world's own time."""
        run_dir = self.runs / "world-1"
        runs.make(run_dir)
        journal = Journal.create(run_dir, lambda: self.world.wall)
        of = {"playbook": PLAYBOOK.id, "inventory": digest(self.world.inventory), "plan": ""}
        journal.append("begin", {"run": "world-1", **of})
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
    text = out.read_text()
    assert "RUNBOOK=$PWD/page.md" in text
    assert desk.call("runbook", "--out", str(out)).exit_code == 0
    assert out.read_text() == text, "the same world gives the same page"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["migration.yml", "page.md", "zkm-host"]
    body = json.loads(desk.call("runbook", "--json").stdout)
    assert {(box["step"], box["way"]) for box in body["blocks"]} >= {
        ("cutover.fence", "forward"),
        ("cutover.go", "back"),
    }
    assert desk.world.applied == []


def test_each_box_that_a_hand_pastes_first_ends_with_ok() -> None:
    boxes = [box for box in export.blocks(made(quiet_world())) if box["step"].startswith("prepare.")]
    assert [box["step"] for box in boxes] == ["prepare.directory", "prepare.functions", "prepare.site"]
    assert all(re.search('echo "OK .*"$', box["text"]) for box in boxes)


@pytest.mark.parametrize(("started", "said"), [("yes", "OK started at STOP"), ("no", "restarted")])
def test_a_way_back_restarts_no_observer_that_it_has_just_started(started: str, said: str) -> None:
    boxes = [
        b for b in export.blocks(made(quiet_world())) if (b["step"], b["way"]) == ("cutover.cut", "back")
    ]
    script = f"at() {{ :; }}; say() {{ echo restarted; }}; N=5 LEG=7 STARTED={started}\n{boxes[1]['text']}"
    done = subprocess.run(["bash", "-uc", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{said}\n"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("^killed=[0-9]+ left=0 ", "`killed=N left=0`"),
        (r"^restart kafka\.service$", "`restart kafka.service`"),
        ("^(wrote|unchanged) /", "`wrote /` or `unchanged /`"),
        (
            "^started |started-observer is refused in phase (fenced|armed);",
            "`started`, or that it never came so far",
        ),
        ("^halted$|halt is refused in phase (armed);", "`halted`, or that it never came so far"),
    ],
)
def test_what_a_host_must_say_is_shown_without_the_marks_of_a_pattern(pattern: str, said: str) -> None:
    assert commands.readable(pattern) == said


def test_the_controller_is_rolled_last(desk: RunbookDesk) -> None:
    order = [
        box["host"]
        for box in json.loads(desk.call("runbook", "--json").stdout)["blocks"]
        if box["step"] == "roll.roll" and box["way"] == "forward"
    ]
    name = controller_name(desk.world.inventory, cast(Look, WorldLook(desk.world)))
    assert name
    assert list(dict.fromkeys(order))[-1] == name


def test_hosts_that_go_one_by_one_go_back_in_the_reverse_order() -> None:
    boxes = list(export.blocks(made(quiet_world())))
    for step in ("join.join", "roll.roll"):
        there, back = (
            list(dict.fromkeys(box["host"] for box in boxes if (box["step"], box["way"]) == (step, way)))
            for way in ("forward", "back")
        )
        assert back == there[::-1]
        assert len(back) == 3


@pytest.mark.parametrize(
    "change",
    [HostVerb("dest1", "halt"), HostVerb("dest1", "started-observer"), RestoreImage("dest1"),
     Unseal("dest1", 1, 1)],
)  # fmt: skip
def test_walking_back_a_host_that_never_came_so_far_is_right_so(change: HostChange) -> None:
    refused = (
        f"zkm-host: {change.verb} is refused in phase fenced; it needs phase sealed; possible now: uncut"
    )
    assert re.search(commands.reply_pattern(change, Way.BACK), refused)
    assert not re.search(commands.reply_pattern(change, Way.FORWARD), refused)


def test_preferred_leaders_are_elected_by_kafkas_own_program(desk: RunbookDesk) -> None:
    policy = desk.world.inventory.policy
    assert "kafka-leader-election.sh" not in desk.call("runbook").stdout
    asked = desk.world.inventory.model_copy(
        update={"policy": policy.model_copy(update={"roll_leaders": True})}
    )
    planned = plan.make(PLAYBOOK, asked, WorldLook(desk.world), ())
    text = page.page(page.Runbook(PLAYBOOK, planned, "d1ge57", asked, RUN, {}, LAST, "runbook.md"))
    boxes = [box for box in export.blocks(text) if "kafka-leader-election.sh" in box["text"]]
    assert [(box["step"], box["way"]) for box in boxes] == [("roll.roll", "forward"), ("roll.roll", "back")]
    last = {
        way: [b["text"] for b in export.blocks(text) if b["way"] == way and b["step"] == "roll.roll"][-1]
        for way in ("forward", "back")
    }
    assert {b["way"]: b["text"] for b in boxes} == last, "behind the last broker"
    broker = asked.kafka.brokers[0].endpoint
    assert f"--bootstrap-server {broker} --election-type preferred --all-topic-partitions" in last["forward"]


def test_a_page_that_is_not_whole_says_so_and_ends_with_8(desk: RunbookDesk) -> None:
    done = desk.call("runbook", unreachable=frozenset({"broker2"}))
    assert done.exit_code == 8
    assert "**THIS PAGE IS INCOMPLETE.**" in done.stdout
    assert "- roll.roll: broker2: " in done.stdout
    assert "Do not go on by hand from here." in done.stdout


def test_a_step_that_is_not_known_now_keeps_its_place_in_the_way_back(desk: RunbookDesk) -> None:
    done = desk.call("runbook", unreachable=frozenset(desk.world.inventory.source_names))
    assert "- cutover.arm: source's server lines cannot be read: " in done.stdout
    assert "`back cutover.stop && back cutover.cut && back cutover.fence && back cutover.arm`" in done.stdout
    assert "back cutover.check" not in done.stdout, "it has no changes to take back"


def test_a_step_without_a_forecast_has_no_way_back_on_the_page() -> None:
    world = quiet_world()
    inventory = world.inventory
    planned = plan.make(PLAYBOOK, inventory, WorldLook(world), ())
    join = next(stage for stage in planned.stages if stage.id == "join")
    (known,) = join.steps
    silent = replace(known, targets={}, note=plan.LATER, facts=None)
    stages = tuple(replace(s, steps=(silent,)) if s is join else s for s in planned.stages)
    put = known.targets["dest1"][0].change
    done = {"join.join": {"dest1": (Applied(put, "join.join.dest1.7.1", True),)}}
    for of, ways in ((planned, {"forward", "back"}), (replace(planned, stages=stages), set())):
        book = page.Runbook(
            PLAYBOOK, of, "d1ge57", inventory, RUN, {}, {"roll.roll": "broker2"}, "runbook.md", done
        )
        assert {b["way"] for b in export.blocks(page.page(book)) if b["step"] == "join.join"} == ways


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
    assert "Nothing to do: all is as this step wants it" in body["page"]
    text = "\n".join(box["text"] for box in boxes)
    puts = [o for c, o in desk.world.applied if isinstance(c, PutFile) and o.startswith("join.")]
    assert len(puts) == 6
    assert [o for o in puts if not re.search(rf" restore join\.join\.\S+ {re.escape(o)}$", text, re.M)] == []
