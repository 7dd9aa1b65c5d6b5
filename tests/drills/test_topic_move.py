"""Switch topics between two clusters, there and back, and with one fault at one phase.

It builds a lab with both clusters, a gateway and a mirror. In each case clients of two libraries work through
the gateway and are switched to the cluster where they are not. Meanwhile the operator, the gateway, the
copier or a broker is killed. At the end every acknowledged record must be exactly once in the log of the
cluster that the clients were led to, and the application open on that cluster alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from confluent_kafka.admin import AdminClient

from tests.drills.labs import Play, judge_last, times_of
from tests.drills.roll_site import require
from tests.drills.test_reassign_faults import KILLED
from zkmigrate.lab import between, fault
from zkmigrate.lab.clients.families import Program
from zkmigrate.lab.clients.matrix import play as play_matrix
from zkmigrate.lab.judge.clients import Row
from zkmigrate.lab.judge.switches import NEVER
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.operator import Operator, ToolProcess
from zkmigrate.lab.service import name_of
from zkmigrate.lab.spec import Role
from zkmigrate.lab.topic_site import BOOK, TOPIC, TopicSite, clients, switched, two_clusters
from zkmigrate.lab.wait import TimedProgress
from zkmigrate.runbook.runs.left_window import SHUT_OUT, Kind

pytestmark = pytest.mark.drill

MINUTES = 40
CLIENTS = ("java-2.8.2", "librdkafka-newest")
"""Their producers are idempotent, because others may write twice when a broker dies."""
DONE, TURNED, STOPPED = 0, 7, 8
AT_WORK_S, RUN_S, HELD_S, RATE = 8.0, 420.0, 240.0, 20.0
SHORT = ("--skip", "rehearse", "--until", "verify")
"""No rehearsal, and the copiers back to source continue, for the next case."""
Way: TypeAlias = Literal["there", "back", "either"]
"""Where the clients are after a case: on the other cluster, where they were, or on either."""


def wrong_figures(rows: Sequence[Row], but: Collection[str] = ()) -> dict[str, dict[str, int | None]]:
    """Return, by client, the figures of NEVER that are not 0; None for a figure that is unknown.

    but: figures that do not count. Clients without such figures are left out.
    """
    found = {
        row.client: {name: getattr(row.figures, name) for name in NEVER if name not in but} for row in rows
    }
    wrong = {client: {name: n for name, n in of.items() if n != 0} for client, of in found.items()}
    return {client: of for client, of in wrong.items() if of}


@dataclass(frozen=True)
class Fault:
    """One switch with one fault.

    kill: KIND, HOST and OTHERS as ``zkmigrate.lab.killing`` takes them. hold: the phase after which the tool
    is held for the harm. harm: a kind that ``Switches.harm`` takes; "operator" is a kill -9 of the tool.
    then: the verb after a kill of the operator. left: how ``status`` must report the unfinished window,
    between the two. again: records may be delivered twice, since a group's coordinator or a leader has died.
    """

    name: str
    what: str
    way: Way
    kill: tuple[str, str, int] | None = None
    hold: str = ""
    harm: str = ""
    then: Literal["resume", "rollback", ""] = ""
    left: Kind | None = None
    again: bool = False

    @property
    def expected(self) -> str:
        """The expected outcome in words."""
        where = {"there": "on the other cluster", "back": "where they were", "either": "on one cluster"}
        return f"clients {where[self.way]}, 0 lost, 0 twice" + ("" if self.again else ", 0 delivered again")


def _killed(
    phase: str,
    change: tuple[str, str],
    way: Way,
    verb: Literal["resume", "rollback"],
    left: Kind | None = None,
) -> Fault:
    what = f"kill -9 of the operator before {' '.join(change)}, then {verb}"
    return Fault(f"kill-{phase}-{verb}", what, way, (*change, 0), then=verb, left=left)


_ORDER = "GatewayOrder"
FAULTS: tuple[Fault, ...] = (
    _killed("arm", (_ORDER, "route"), "there", "resume"),
    _killed("settle", (_ORDER, "settle"), "there", "resume"),
    _killed("settle", (_ORDER, "settle"), "back", "rollback"),
    _killed("hold", (_ORDER, "hold"), "either", "resume"),
    _killed("drain", ("SetService", "any"), "either", "resume"),
    _killed("drain", ("SetService", "any"), "back", "rollback"),
    Fault(
        "kill-prove-resume", "kill -9 of the operator after prove, then resume", "either",
        hold="prove", harm="operator", then="resume",
    ),
    _killed("seal", (_ORDER, "seal"), "back", "rollback"),
    _killed("seal", (_ORDER, "seal"), "either", "resume"),
    _killed("go", (_ORDER, "go"), "there", "resume", Kind.SEALED),
    _killed("go", (_ORDER, "go"), "back", "rollback", Kind.SEALED),
    _killed("open", (_ORDER, "unhold"), "there", "resume"),
    Fault("gateway-held", "the gateway's process dies while it holds", "back", hold="hold", harm="gateway"),
    Fault("gateway-sealed", "the gateway's process dies sealed", "there", hold="seal", harm="gateway"),
    Fault("mirror", "the copier dies before the hold", "either", hold="settle", harm="mirror"),
    Fault("leader-source", "a leader of source dies", "either", hold="hold", harm="source", again=True),
    Fault("leader-target", "a leader of target dies", "either", hold="hold", harm="target", again=True),
    Fault("leader-sealed", "a leader of target dies sealed", "back", hold="seal", harm="target", again=True),
    Fault(
        "coordinator", "a group's coordinator dies", "either", hold="settle", harm="coordinator", again=True
    ),
)  # fmt: skip


@dataclass
class Switches:
    """The cases in one lab, one after the other. dead: cluster and id of a broker that was killed."""

    site: TopicSite
    programs: Mapping[str, Program]
    dead: tuple[str, int] | None = None
    tool: ToolProcess | None = None
    times_s: list[tuple[float, float]] = field(default_factory=list)

    # --- a switch -------------------------------------------------------------------------------------------

    def there_and_back(self, name: str, times: int) -> str:
        """Switch there and back this many times with the same clients; return the figures in words."""

        def act() -> None:
            for number in range(1, 2 * times + 1):
                source = self.site.open_on()
                operator = self.aimed(f"{name}-{number}", source)
                operator.through("run", "run", *BOOK, *SHORT, limit_s=RUN_S)
                self.left(source)
                one = switched(operator, self.site.open_on())
                self.times_s.append((one.held_s, one.waited_s))
                self.site.progress(f"{operator.run}: hold to go {one.held_s} s, to open {one.waited_s} s")
                time.sleep(AT_WORK_S / 2)

        words = self.judged(name, act, again=False)
        held, waited = zip(*self.times_s, strict=True)
        return (
            f"{len(held)} switches, hold to go {_spread(held)} s, hold to open {_spread(waited)} s; {words}"
        )

    def with_fault(self, one: Fault) -> str:
        """Switch with this fault and return the figures in words.

        Raises LabError if the outcome is not as expected.
        """
        told: list[str] = []
        words = self.judged(one.name, lambda: told.append(self._disturbed(one)), again=one.again)
        return f"{'; '.join(told)}; {words}"

    def _disturbed(self, one: Fault) -> str:
        source = self.site.open_on()
        operator = self.aimed(one.name, source)
        try:
            code = self._first(one, operator, source)
            told = f"run {code}"
            if one.then:
                require(code == KILLED, f"the operator was not killed: {code}, {self._troubles()}")
                told += self._told_left(operator, one.left) if one.left else ""
                code = self._verb(operator, one.then, *(SHORT if one.then == "resume" else ()))
                told += f", {one.then} {code}"
        finally:
            self.mend()
        if code == STOPPED:  # on the way back, target could not record its leaders while its broker was dead
            code = self._verb(operator, "resume")
            told += f", resume {code}"
        if code == TURNED:
            told += f", rollback {self._verb(operator, 'rollback')}"
        require(code in (DONE, TURNED), f"{told}: {self._troubles()}")
        way = "back" if self.site.open_on() == source else "there"
        require(one.way in (way, "either"), f"{told}: the clients are {way}: {self._troubles()}")
        return f"{told}: {way}"

    def _told_left(self, operator: Operator, kind: Kind) -> str:
        """Require that ``status`` reports this kind of unfinished window. Return a summary."""
        code, told = operator.status(*BOOK)
        left = told["left"] or {}
        seen = code, left.get("kind"), sorted(left.get("stands") or ())
        wanted = SHUT_OUT, kind, sorted(self.site.lab.names(Role.GATEWAY))
        require(seen == wanted, f"status says {seen}, not {wanted}: {left.get('lines')}")
        self.site.progress(f"{operator.run}: status: {'; '.join(left['lines'])}")
        return f", status {code}: {kind}"

    def aimed(self, run: str, source: str) -> Operator:
        """Return the operator of a switch away from this cluster, with the copiers running."""
        target = between.other(self.site.lab.spec, source)
        self.site.copy_to(target)
        return self.site.operator(run, target)

    def left(self, source: str) -> None:
        """Require that the clients have left this cluster."""
        require(self.site.open_on() != source, f"the clients are still on {source}")

    def _first(self, one: Fault, operator: Operator, source: str) -> int:
        """Run the switch with its fault and return the exit code."""
        program = ["zkmigrate.lab.killing", *map(str, one.kill)] if one.kill else ["zkmigrate"]
        operator.hold(one.hold, *BOOK)
        with operator.tool("run", "run", *BOOK, *SHORT, program=program) as self.tool:
            if one.hold:
                require(self.tool.wait_for_hold(HELD_S), f"it ended before {one.hold}: {self._troubles()}")
                self.harm(one.harm, source)
                self.tool.type("go")
            return self.tool.wait_for_end(RUN_S)

    def _verb(self, operator: Operator, verb: str, *more: str) -> int:
        """Run a verb with these options to its end, and return its exit code."""
        with operator.tool(verb, verb, *BOOK, *more) as self.tool:
            return self.tool.wait_for_end(RUN_S)

    def _troubles(self) -> str:
        return self.tool.troubles() if self.tool is not None else ""

    # --- harm -----------------------------------------------------------------------------------------------

    def harm(self, kind: str, source: str) -> None:
        """Do a harm. source: the cluster that the clients are on."""
        target = between.other(self.site.lab.spec, source)
        assert self.tool is not None
        acts: Mapping[str, Callable[[], object]] = {
            "operator": self.tool.kill,
            "gateway": partial(self._kill_unit, Role.GATEWAY, name_of(Role.GATEWAY)),
            "mirror": partial(self._kill_unit, Role.MIRROR, between.mirror_unit(target)),
            "source": partial(self._kill_broker, source, self._leader),
            "target": partial(self._kill_broker, target, self._leader),
            "coordinator": partial(self._kill_broker, source, self._coordinator),
        }
        acts[kind]()

    def _kill_unit(self, role: Role, unit: str) -> None:
        for host in self.site.lab.names(role):
            self.site.lab.exec(host, ["systemctl", "kill", "--signal=KILL", unit])

    def _kill_broker(self, cluster: str, which: Callable[[AdminClient], int]) -> None:
        with self.site.lab.operator():
            id = which(AdminClient({"bootstrap.servers": self.site.bootstrap(cluster)}))
        self.dead = cluster, id
        fault.kill(self.site.lab, f"{cluster}{id}")

    @staticmethod
    def _leader(admin: AdminClient) -> int:
        return int(admin.list_topics(TOPIC, HELD_S).topics[TOPIC].partitions[0].leader)

    def _coordinator(self, admin: AdminClient) -> int:
        group = self.site.groups[0]
        return int(admin.describe_consumer_groups([group])[group].result(HELD_S).coordinator.id)

    def mend(self) -> None:
        """Start the broker that was killed, once ZooKeeper has removed its registration.

        Before that it would end itself.
        """
        if self.dead:
            cluster, id = self.dead
            self.site.lab.wait_until_unregistered(cluster, id, HELD_S)
            fault.start(self.site.lab, f"{cluster}{id}")
            self.site.lab.wait_for_brokers()
            self.dead = None

    # --- the judge ------------------------------------------------------------------------------------------

    def judged(self, name: str, act: Callable[[], None], *, again: bool) -> str:
        """Let clients work during ``act`` and return what became of their records, in words.

        again: deliveries beyond the first are reported, not judged. Raises LabError if the records are wrong.
        """
        history = self.site.directory / name / "history"
        history.mkdir(parents=True)
        matrix = self.site.matrix(rate=RATE, seconds=AT_WORK_S)
        with self.site.among_clients():
            rows = play_matrix(matrix, self.programs, history, self.site.progress, act)
        wrong = wrong_figures(rows, ("again",) if again else ())
        ill = [f"{row.client}: {row.why}" for row in rows if row.why]
        require(not wrong and not ill, f"{wrong}; {'; '.join(ill)}")
        figures = [row.figures for row in rows]
        told = {
            "acked": sum(one.acked for one in figures),
            "delivered again": sum(one.again for one in figures),
            "longest gap of a producer (s)": max(one.produce_gap_s or 0 for one in figures),
            "of a consumer (s)": max(one.consume_gap_s or 0 for one in figures),
        }
        return "lost 0, twice 0, " + ", ".join(f"{name} {value}" for name, value in told.items())

    def compared(self) -> str:
        """Compare every record of both clusters."""
        return self.site.compare(between.other(self.site.lab.spec, self.site.open_on()))


def _spread(seconds: tuple[float, ...]) -> str:
    return f"{min(seconds)} to {max(seconds)}, median {round(statistics.median(seconds), 2)}"


@pytest.fixture(scope="module")
def switches(directory: Path, wrong_loads: list[str]) -> Iterator[Switches]:
    progress = TimedProgress()
    with Lab.up(two_clusters("2.8.2", "4.3.1"), progress) as lab:
        site = TopicSite(lab, directory, CLIENTS, progress)
        site.begin()
        made = Switches(site, clients(CLIENTS, progress))
        yield made
        judge_last(wrong_loads, "both clusters, every record compared", made.compared)
        progress("lab: taking everything down")


def test_clients_go_there_and_back(switches: Switches, play: Play, pytestconfig: pytest.Config) -> None:
    times = times_of(pytestconfig, 5)
    play(
        f"{times} switches there and back",
        "each time all clients on the other cluster; 0 lost, 0 twice, 0 delivered again",
        lambda: switches.there_and_back("switches", times),
    )


@pytest.mark.parametrize("one", FAULTS, ids=lambda one: one.name)
def test_a_switch_with_a_fault_loses_no_record(switches: Switches, one: Fault, play: Play) -> None:
    play(one.what, one.expected, lambda: switches.with_fault(one))
