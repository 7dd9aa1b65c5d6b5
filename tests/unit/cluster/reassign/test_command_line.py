"""The playbook kafka_reassign by the command line: its file, its plan's file, a run from plan to rollback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.world.cluster import Cluster
from tests.world.cluster_look import ClusterLook
from tests.world.cluster_state import ID
from tests.world.reassigning import plan, world
from zkmigrate.cli.main import cli
from zkmigrate.cluster.placement import maps
from zkmigrate.cluster.reassign import inflow
from zkmigrate.cluster.reassign.section import ReassignInventory
from zkmigrate.cluster.reassign.throttle import LEADER_RATE
from zkmigrate.errors import InventoryError
from zkmigrate.inventory.inventory import Door, Inventory, digest, load
from zkmigrate.kafka.changes import AlterBrokerConfig
from zkmigrate.kafka.rates import Role
from zkmigrate.runbook.model.change import Change, ClusterChange, Outcome
from zkmigrate.runbook.model.step import Way
from zkmigrate.runbook.runs.run_options import RunOptions
from zkmigrate.runbook.runs.run_verbs import rollback, run
from zkmigrate.runbook.runs.verb_context import VerbContext
from zkmigrate.runbook.site.wiring import Site

FILE = f"""version: 1
name: moves
kafka:
  cluster_id: {ID}
  brokers:
    - {{name: broker1, address: 127.0.0.1, id: 1}}
reassign:
  plan: plan.json
  throttle_bytes_s: 1000000
"""
PLAN = '{"version":1,"partitions":[{"topic":"t0","partition":0,"replicas":[4,2]}]}'


def loaded(folder: Path, text: str = FILE, content: str = PLAN) -> ReassignInventory:
    path = folder / "moves.yml"
    path.write_text(text)
    (folder / "plan.json").write_text(content)
    return load(path, ReassignInventory, ("kafka", "reassign"))


def test_the_sets_of_a_plan_come_with_the_file_that_names_it(tmp_path: Path) -> None:
    assert loaded(tmp_path).sets == {("t0", 0): (4, 2)}
    (tmp_path / "back.json").write_text(PLAN.replace("[4,2]", "[1,2]"))
    assert loaded(tmp_path, FILE + "  back: back.json\n").back == {("t0", 0): (1, 2)}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            PLAN.replace("[4,2]", "[4,4]"),
            "partitions[0] (topic t0, partition 0).replicas: seen a broker twice",
        ),
        (PLAN.replace("[4,2]", "[]"), "partitions[0].replicas: seen []; needed: Kafka's reassignment JSON"),
        (
            PLAN.replace('"t0"', '"t 0"', 1),
            'partitions[0].topic: seen "t 0"; needed: a name of 1 to 249 char',
        ),
        (PLAN.replace('"t0"', f'"{"t" * 250}"', 1), f'partitions[0].topic: seen "{"t" * 59}; needed: a name'),
        (PLAN.replace('"t0"', '".."', 1), 'partitions[0].topic: seen ".."; needed: a name'),
        ('{"version":1,"partitions":[]}', "partitions: seen []; needed: Kafka's reassignment JSON"),
        ("{", "line 1, column 2: "),
    ],
)
def test_a_bad_plan_is_refused_by_name_before_anything_is_asked(
    tmp_path: Path, content: str, told: str
) -> None:
    with pytest.raises(InventoryError) as caught:
        loaded(tmp_path, content=content)
    assert f"{tmp_path}/moves.yml: reassign.plan: plan.json: {told}" in str(caught.value)


def test_the_log_directories_of_a_plan_are_read_and_bind_the_run(tmp_path: Path) -> None:
    with_dirs = PLAN.replace("[4,2]", '[4,2],"log_dirs":["/d1","any"]')
    made = loaded(tmp_path, content=with_dirs)
    assert (made.sets, made.dirs) == ({("t0", 0): (4, 2)}, {("t0", 0): ("/d1", "any")})
    assert digest(made) != digest(loaded(tmp_path, content=with_dirs.replace("/d1", "/d2")))
    left_to_kafka = loaded(tmp_path, content=with_dirs.replace("/d1", "any"))
    assert (left_to_kafka.dirs, digest(left_to_kafka)) == ({}, digest(loaded(tmp_path)))
    (tmp_path / "back.json").write_text(with_dirs)
    assert loaded(tmp_path, FILE + "  back: back.json\n").back == {("t0", 0): (4, 2)}


@pytest.mark.parametrize(
    ("dirs", "told"),
    [
        ('["/d1"]', "seen 1; needed: one for each of 2 replicas"),
        ('["d1","any"]', "seen 'd1'; needed: \"any\" or a path from the root"),
    ],
)
def test_log_directories_that_are_none_are_refused_by_name(tmp_path: Path, dirs: str, told: str) -> None:
    with pytest.raises(InventoryError) as caught:
        loaded(tmp_path, content=PLAN.replace("[4,2]", f'[4,2],"log_dirs":{dirs}'))
    assert f"plan.json: partitions[0] (topic t0, partition 0).log_dirs: {told}" in str(caught.value)


def test_phases_are_read_in_their_order_and_must_end_at_the_plan(tmp_path: Path) -> None:
    file = FILE + "  phases: [phase0.json, phase1.json]\n"
    (tmp_path / "phase0.json").write_text(PLAN.replace("[4,2]", "[1,4,2]"))
    (tmp_path / "phase1.json").write_text(PLAN)
    made = loaded(tmp_path, file)
    assert [sets for sets, _ in made.phases] == [{("t0", 0): (1, 4, 2)}, {("t0", 0): (4, 2)}]
    assert digest(made) != digest(loaded(tmp_path))
    told = (
        r"reassign\.phases: t0-0 ends at \(4, 2\), the plan at \(4, 3\); needed: the phases of reassign\.plan"
    )
    with pytest.raises(InventoryError, match=told):
        loaded(tmp_path, file, PLAN.replace("[4,2]", "[4,3]"))


def test_zookeeper_servers_of_the_section_can_be_asked(tmp_path: Path) -> None:
    made = loaded(tmp_path, FILE + "  zookeeper: ['10.0.0.9:2181']\n")
    assert made.doors == {"10.0.0.9:2181": Door("10.0.0.9", 2181)}
    with pytest.raises(InventoryError, match="needed ADDRESS:PORT of ZooKeeper servers"):
        loaded(tmp_path, FILE + "  zookeeper: ['10.0.0.9']\n")


def test_a_plan_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        InventoryError, match=r"reassign\.plan: other\.json: the file cannot be read: No such file"
    ):
        loaded(tmp_path, FILE.replace("plan.json", "other.json"))


@pytest.mark.parametrize(
    ("line", "other", "needed"),
    [
        ("1000000", "999", "9: reassign.throttle_bytes_s: out of range (seen 999, needed at least 1000)"),
        (
            "1000000",
            "1000000\n  in_flight: 0",
            "10: reassign.in_flight: out of range (seen 0, needed at least 1)",
        ),
        ("plan.json", "a b", "8: reassign.plan: not allowed (seen 'a b', needed a file name without blanks,"),
        ("  throttle_bytes_s: 1000000\n", "", "7: reassign.throttle_bytes_s: missing (needed: this key)"),
    ],
)
def test_each_mistake_is_told_with_its_place(tmp_path: Path, line: str, other: str, needed: str) -> None:
    with pytest.raises(InventoryError) as caught:
        loaded(tmp_path, FILE.replace(line, other))
    assert f"{tmp_path}/moves.yml:{needed}" in str(caught.value)


SSH = "ssh: {user: op, key: key, known_hosts: known}\n"
ADAPT = "  adapt: {cap_bytes_s: 100000000"
PROMETHEUS = ADAPT + ", source: prometheus"
AT = '{id: 4, url: "http://10.0.0.24:9100/metrics"}'


def test_a_throttle_that_reads_exporters_needs_no_ssh(tmp_path: Path) -> None:
    own = AT.replace("}", ", interfaces: [bond0]}")
    text = FILE + PROMETHEUS + f", busy_limit: null, exporters: [{own}]}}\n"
    adapt = loaded(tmp_path, text).pace.adapt
    assert adapt is not None
    assert [(one.id, one.interfaces) for one in adapt.exporters] == [(4, ("bond0",))]


def test_a_throttle_that_listens_begins_between_floor_and_ceiling_and_has_safe_defaults(
    tmp_path: Path,
) -> None:
    adapt = loaded(tmp_path, SSH + FILE + ADAPT + ", caps: [{id: 4, cap_bytes_s: 200000000}]}\n").pace.adapt
    assert adapt is not None
    settings = adapt.settings()
    assert (settings.floor, settings.cap, settings.percent) == (1_000_000, (100_000_000,) * 2, (80, 80))
    assert settings.ceiling(4, Role.LEADER) == 160_000_000
    assert settings.steps[:2] == (1_000_000, 1_250_000)
    assert settings.steps[-1] <= 200_000_000 < settings.steps[-1] * 1.25
    assert (settings.raise_to_end, adapt.tick_s) == (False, 15)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            FILE + ADAPT + "}\n",
            "adapt: the run reads the load on the brokers' hosts (needed: the section ssh, or ",
        ),
        (
            SSH + FILE + ADAPT + ", tick_s: 11}\n",
            "reassign.adapt.tick_s: out of range (seen 11, needed at least 12.0)",
        ),
        (SSH + FILE + ADAPT + ", busy_limit: 1.5}\n", "reassign.adapt.busy_limit: out of range (seen 1.5"),
        (SSH + FILE + ADAPT + ", percent: 0}\n", "reassign.adapt.percent: out of range (seen 0"),
        (SSH + FILE + ADAPT + ", caps: [{id: 1}]}\n", "reassign.adapt.caps[0].cap_bytes_s: missing"),
        (SSH + FILE + "  adapt: {}\n", "reassign.adapt.cap_bytes_s: missing (needed: this key)"),
        (SSH + FILE + ADAPT + ", floor: 1}\n", "reassign.adapt.floor: unknown key"),
        (
            SSH + FILE + ADAPT + ", floor_bytes_s: 5000000}\n",
            "adapt: the rate to begin with is 1 MB/s (needed: throttle_bytes_s from 5 MB/s (the floor) to ",
        ),
        (
            SSH + FILE + "  adapt: {cap_bytes_s: 1100000}\n",
            "throttle: every broker may get at most 880 kB/s as leader",
        ),
        (
            SSH + FILE + ADAPT + ", latency_limit_ms: 50}\n",
            "adapt: latency_limit_ms limits the produce canary (needed: kafka.canary_topic",
        ),
        (SSH + FILE + ADAPT + ", interfaces: ['a b']}\n", "reassign.adapt.interfaces[0]: not allowed"),
        (SSH + FILE + ADAPT + ", disks: [sda]}\n", "adapt: disks needs source: prometheus"),
        (FILE + PROMETHEUS + "}\n", "adapt: source is prometheus, and exporters is empty"),
        (FILE + PROMETHEUS + f", exporters: [{AT}]}}\n", "adapt: no interfaces for the exporter of broker 4"),
        (
            FILE + PROMETHEUS + f", interfaces: [eth0], exporters: [{AT}]}}\n",
            "adapt: no disks for the exporter of broker 4 (needed: such as [sda], or busy_limit: null)",
        ),
        (
            FILE + PROMETHEUS + f", exporters: [{AT}, {AT}]}}\n",
            "adapt: exporters names broker 4 more than once",
        ),
        (
            FILE + PROMETHEUS + f", exporters: [{AT.replace('http', 'https')}]}}\n",
            "reassign.adapt.exporters[0].url: not allowed",
        ),
        (
            FILE + PROMETHEUS + f", exporters: [{AT.replace('9100', '99999')}]}}\n",
            "reassign.adapt.exporters[0].url: ",
        ),
    ],
)
def test_a_throttle_that_cannot_listen_is_refused_by_name(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InventoryError) as refused:
        loaded(tmp_path, text)
    assert told in str(refused.value)


def test_the_canary_sends_only_where_the_throttle_listens_to_it(tmp_path: Path) -> None:
    named = FILE.replace("kafka:\n", "kafka:\n  canary_topic: canary\n")
    assert loaded(tmp_path, named).canary_topic is None
    assert loaded(tmp_path, SSH + named + ADAPT + "}\n").canary_topic is None
    assert loaded(tmp_path, SSH + named + ADAPT + ", latency_limit_ms: 50}\n").canary_topic == "canary"


def test_a_run_is_bound_to_the_sets_and_not_to_the_pace(tmp_path: Path) -> None:
    first = digest(loaded(tmp_path))
    assert digest(loaded(tmp_path, FILE.replace("1000000", "2000000"))) == first
    assert digest(loaded(tmp_path, content=PLAN.replace(",", ", "))) == first
    assert digest(loaded(tmp_path, content=PLAN.replace("[4,2]", "[2,4]"))) != first, "the order counts"


def site_of(world: Cluster) -> Callable[[Inventory, str], Site]:
    """The real site, in which the world stands for Kafka."""

    class ReassignSite(Site):
        def __init__(self, inventory: Inventory, run: str) -> None:
            super().__init__(inventory, run)
            answers = ClusterLook(world)
            for look in (self.look, self._watch_look):
                setattr(look, "ask", answers.ask)  # noqa: B010
            self.apply: Any = self._sent

        def _sent(self, change: Change, _operation: str, _fencing: int) -> Outcome:
            assert isinstance(change, ClusterChange)
            return Outcome(*world.alter(change))

    return ReassignSite


@pytest.fixture
def cluster() -> Cluster:
    return world(8, size=1_000)


@pytest.fixture
def asked(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """``asked(verb, options)``: one verb over the world, whose two readings of sizes are soon made."""
    monkeypatch.setattr(inflow, "APART_S", 0.1)
    loaded(tmp_path, content=maps.text((name, ids, ()) for name, ids in plan(cluster).items()))

    def ask(verb: str, *options: str) -> Result:
        named = options[:1] if verb == "throttle" else ()
        where = ["-i", str(tmp_path / "moves.yml"), "--playbook", "kafka_reassign"]
        words = [verb, *named, *where, *options[len(named) :]]
        return CliRunner().invoke(
            cli, words, obj=site_of(cluster), env={"ZKMIGRATE_RUNS": str(tmp_path / "runs")}
        )

    return ask


def test_from_plan_to_rollback(asked: Callable[..., Result], cluster: Cluster, tmp_path: Path) -> None:
    first = cluster.copy()
    planned = asked("plan")
    assert (planned.exit_code, cluster.state) == (0, first.state), planned.output
    lines = planned.output.splitlines()
    at = lines.index("     reassign t0-0 to brokers 4,2 (before: 1,2)")
    assert lines[at + 1].startswith("       $ kafka-reassign-partitions.sh ")
    assert planned.output.count("kafka-reassign-partitions.sh") == 7
    assert [line for line in lines if "bytes" in line and "throttled" not in line] == [
        "  broker 1: 0 bytes in, 5,000 bytes out",
        "  broker 2: 0 bytes in, 1,000 bytes out",
        "  broker 4: 3,000 bytes in, 0 bytes out",
        "  broker 5: 3,000 bytes in, 0 bytes out",
        "  7 partitions, 6,000 bytes, about 3 s at 1,000,000 bytes/s",
        "  the throttle is above the rate at which clients write to the moving partitions: 0 bytes/s "
        "are written",
    ]
    assert "4 of 7 steps change something" in lines[-1]
    done = asked("run", "--yes")
    assert done.exit_code == 0, done.output
    assert {name: held.replicas for name, held in cluster.held.items()} == plan(first)
    status = asked("status", "--findings", "all", "--json")
    told = json.loads(status.output)
    assert (status.exit_code, told["state"]) == (0, "complete")
    assert [f["id"] for f in told["findings"]["move.replicas"]] == ["reassign.moved"]
    back = asked("rollback", "--yes")
    assert back.exit_code == 0, back.output
    assert (cluster.topics, cluster.rates[1]) == (first.topics, first.rates[1])
    assert [held.replicas for held in cluster.held.values()] == [h.replicas for h in first.held.values()]
    assert asked("report", "--run-id", "moves-1", "--out", str(tmp_path / "report.html")).exit_code == 0


@pytest.fixture
def typed(
    asked: Callable[..., Result], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    """``typed(verb)``: what a terminal shows until the first question, which nobody answers."""
    monkeypatch.setenv("TERM", "dumb")
    site: Any = site_of(cluster)

    def lines(verb: Callable[[VerbContext, RunOptions], int]) -> list[str]:
        out = StringIO()
        with open(os.devnull) as nobody:
            context = VerbContext(
                tmp_path / "moves.yml", "kafka_reassign", False, tmp_path / "runs", site, out
            )
            context.stdin, context.interactive = nobody.fileno(), True
            assert verb(context, RunOptions()) == 130
        return out.getvalue().splitlines()

    return lines


def test_the_question_tells_how_much_is_copied_and_how_long_that_takes(
    typed: Callable[..., list[str]],
) -> None:
    lines = typed(run)
    at = lines.index("  Move these partitions now?")
    assert lines[at - 5 : at] == [
        "  broker 1: 0 bytes in, 5,000 bytes out",
        "  broker 2: 0 bytes in, 1,000 bytes out",
        "  broker 4: 3,000 bytes in, 0 bytes out",
        "  broker 5: 3,000 bytes in, 0 bytes out",
        "  7 partitions, 6,000 bytes, about 3 s at 1,000,000 bytes/s",
    ]


def test_a_rollback_asks_with_what_it_copies_at_most(
    asked: Callable[..., Result], typed: Callable[..., list[str]], cluster: Cluster
) -> None:
    assert asked("run", "--yes", "--until", "move").exit_code == 0
    state = cluster.copy().state
    before = world(8)
    dropped = sum(b not in ids for name, ids in plan(before).items() for b in before.held[name].replicas)
    takes = f"{dropped},000 bytes, about 3 s at 1,000,000 bytes/s"
    told = f"  7 partitions to move back, if all were moved: {takes}"
    assert told in typed(rollback)
    assert cluster.state == state


def test_the_plan_tells_of_a_throttle_that_can_never_end_T9(
    asked: Callable[..., Result], cluster: Cluster
) -> None:
    cluster.grows["t0", 0] = 40_000_000
    planned = asked("plan")
    assert planned.exit_code == 0, planned.output
    told = (
        "  warning: reassign.endless: broker 1 as leader: 1 MB/s can never finish, because clients produce "
    )
    [line] = [line for line in planned.output.splitlines() if "never" in line]
    assert line.startswith(told)


def test_the_plan_tells_what_refuses_it(asked: Callable[..., Result], cluster: Cluster) -> None:
    cluster.down.add(4)
    dead = asked("plan")
    assert dead.exit_code == 8, dead.output
    assert "  move.originals: reassign.brokers: not registered: 4" in dead.output.splitlines()
    cluster.down.clear()
    cluster.cluster_id = "B" * 22
    other = asked("plan")
    assert other.exit_code == 8, other.output
    assert f"  move.originals: reassign.cluster: cluster id {'B' * 22}" in other.output.splitlines()


def test_a_run_is_not_continued_with_the_journal_of_another(
    asked: Callable[..., Result], cluster: Cluster, tmp_path: Path
) -> None:
    assert asked("run", "--yes", "--until", "move.throttle").exit_code == 0
    (tmp_path / "runs" / "moves-1").rename(tmp_path / "runs" / "moves-2")
    state = cluster.copy().state
    refused = asked("rollback", "--yes", "--run-id", "moves-2")
    assert (refused.exit_code, cluster.state) == (8, state)
    assert "journal.jsonl is the journal of run moves-1; needed: the journal of moves-2" in refused.output


def test_the_runbook_has_each_move_there_and_back(asked: Callable[..., Result], cluster: Cluster) -> None:
    page = asked("runbook")
    assert page.exit_code == 0, page.output
    assert '"replicas": [4, 2]' in page.output
    assert '"replicas": [1, 2]' in page.output, "the way back"
    boxes = [text.partition("\n```")[0] for text in page.output.split("```sh host=kafka ")[1:]]
    steps = [tuple(box.split()[:2]) for box in boxes]
    assert list(dict.fromkeys(steps)) == [
        *((f"step=move.{step}", f"way={way}") for step in ("throttle", "replicas") for way in Way),
        ("step=move.preferred", "way=forward"),
        *(("step=move.unthrottle", f"way={way}") for way in Way),
    ]
    for step, way, act in (
        ("throttle", "forward", f"--add-config '{LEADER_RATE}=[1000000]'"),
        ("throttle", "back", f"--delete-config {LEADER_RATE}"),
        ("unthrottle", "forward", f"--delete-config {LEADER_RATE}"),
        ("unthrottle", "back", f"--add-config '{LEADER_RATE}=[1000000]'"),
        ("replicas", "forward", "kafka-reassign-partitions.sh"),
        ("replicas", "back", "kafka-reassign-partitions.sh"),
        ("preferred", "forward", "kafka-leader-election.sh"),
    ):
        assert [box for box in boxes if box.startswith(f"step=move.{step} way={way}\n") and act in box]


def test_the_command_that_releases_a_run_is_told_whole(asked: Callable[..., Result]) -> None:
    assert asked("run", "--yes", "--until", "preflight").exit_code == 0
    told = asked("hold").output.splitlines()[-1]
    assert told.startswith("  continue: zkmigrate release -i ")
    assert told.endswith("moves.yml --playbook kafka_reassign --run-id moves-1")


def test_the_phases_of_a_plan_from_plan_to_rollback(
    asked: Callable[..., Result], cluster: Cluster, tmp_path: Path
) -> None:
    first = cluster.copy()
    (tmp_path / "phase0.json").write_text(PLAN.replace("[4,2]", "[1,4,2]"))
    loaded(tmp_path, FILE + "  phases: [phase0.json, plan.json]\n")
    planned = asked("plan")
    assert planned.exit_code == 0, planned.output
    assert "reassign t0-0 to brokers 1,4,2 (before: 1,2)" in planned.output
    assert "reassign t0-0 to brokers 4,2 (before: 1,4,2)" in planned.output
    assert "  1 partition, 1,000 bytes, about 3 s at 1,000,000 bytes/s" in planned.output
    done = asked("run", "--yes")
    assert done.exit_code == 0, done.output
    assert cluster.held["t0", 0].replicas == (4, 2)
    assert asked("rollback", "--yes").exit_code == 0
    assert cluster.state == first.state


def test_an_operator_sets_rates_of_its_runs(asked: Callable[..., Result], cluster: Cluster) -> None:
    """Also of brokers that only the plan names."""
    assert asked("run", "--yes", "--until", "preflight").exit_code == 0
    assert asked("throttle", "set", "2M").exit_code == 0
    assert asked("throttle", "set", "3M", "--broker", "4").exit_code == 0
    assert "  broker 4: 3 MB/s\n  all others: 2 MB/s" in asked("throttle", "show").output
    refused = asked("throttle", "set", "3M", "--broker", "9")
    assert (refused.exit_code, "brokers 1, 2, 3, 4, 5" in refused.output) == (2, True), refused.output
    assert asked("resume", "--yes").exit_code == 0
    rates = {(c.broker, c.value) for c in cluster.made if isinstance(c, AlterBrokerConfig)}
    assert {(1, "2000000"), (4, "3000000")} <= rates
    assert {id: own for id, own in cluster.rates.items() if own} == {1: {LEADER_RATE: "77"}}


def test_a_saved_plan_is_stale_once_a_set_has_changed(
    asked: Callable[..., Result], cluster: Cluster, tmp_path: Path
) -> None:
    file = str(tmp_path / "moves.plan")
    assert asked("plan", "--out", file).exit_code == 0
    cluster.held["t0", 0].size += 5
    assert "warning" not in asked("plan", "--show", file).output, "sizes change each minute"
    cluster.held["t0", 0].replicas = (2, 1)
    refused = asked("run", "--yes", "--plan", file)
    assert (refused.exit_code, "move.replicas on t0-0" in refused.output) == (4, True), refused.output
