"""The way back after the door has opened: Kafka continues on source, and no acknowledged write is lost.

It moves a loaded Kafka in a lab up to OPEN. On dest topics and settings change, partitions are added, a topic
is deleted and leaders move. Then the playbook ``kafka_zookeeper_return`` stops every broker and dest, replays
dest's changes on source (killed once in the middle), and starts the brokers with source. At the end the drill
judges clients, brokers and znodes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.drills import kafka_changes
from tests.drills.labs import Chain, Play, loaded_lab
from tests.drills.roll_site import require
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.json_lines import load_recording
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.service import control_command
from zkmigrate.lab.spec import LONG_SESSIONS, Role
from zkmigrate.lab.timeline import step_spans
from zkmigrate.lab.wait import TimedProgress, wait_until
from zkmigrate.move.rules.outage import OWNER
from zkmigrate.runbook.model.finding import Held
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.replay import marker_of

pytestmark = pytest.mark.drill

MINUTES = 4
RUN, RETURN = "after-open", "after-open-return"
PLAYBOOK = ("--playbook", "kafka_zookeeper_return")
KINDS = ("producer", "consumer", "tenant")
METADATA_RATE = 5.0
CHANGES = 60
KILLED_BEHIND = 20
FLOWING_S, CHANGED_S, REST_S = 60.0, 120.0, 120.0
JUDGED = ("lost", "duplicated", "metadata_changes", "other_tenant_unharmed")


CASES = {
    "down": ("run --until outage.brokers", "0, no broker is left on dest"),
    "return": (
        f"the return, killed behind {KILLED_BEHIND} transactions or more, and resumed",
        "0, both subtrees the same",
    ),
    "epochs": ("what brokers and source say", "the controller's epoch above dest's, no leader's below"),
    "changes": ("an administrator's changes after OPEN", json.dumps(kafka_changes.EXPECTED)),
    "load": ("what clients recorded over all of it", "nothing acknowledged lost, nothing twice"),
}
"""What is done and what is expected, by name, in order."""


@dataclass
class AfterOpen:
    """One lab, one move, and the way back after it.

    epochs: the epochs on dest when all brokers were down.
    """

    lab: Lab
    directory: Path
    load: LoadRunner
    epochs: dict[str, int] = field(default_factory=dict)

    def move(self) -> None:
        """Move to dest and open its door."""
        self.load.start(KINDS)
        self.load.wait_flowing(KINDS, FLOWING_S)
        write_inventory(self.lab, self.directory / "migration.yml", accept=(OWNER,))
        operator = Operator(self.lab, self.directory, RUN)
        operator.through("move", "run", "--until", "cutover", "--skip", "rehearse")
        body = {"brokers": [], "steps": step_spans(operator.journal)}
        (self.directory / "history" / "run.json").write_text(json.dumps(body) + "\n")

    def change_on_dest(self) -> None:
        """Change Kafka's metadata on dest, and restart a broker."""
        self.load.start(("metadata",))
        self.load.wait_flowing(("metadata",), FLOWING_S)
        kafka_changes.run_in_lab(self.lab, "make")
        first = self.lab.role(Role.BROKER)[0]
        self.lab.exec(first.name, control_command(self.lab.spec, Role.BROKER, "restart"))
        self.lab.wait_for_brokers(Role.DEST)

        def missing() -> str | None:
            changes = load_recording(self.directory / "history", "metadata").of("op")
            done = sum(change["outcome"] == "ok" for change in changes)
            return None if done >= CHANGES else f"{done} of {CHANGES} changes"

        wait_until("changes of Kafka's metadata on dest", missing, CHANGED_S)
        self.load.wait_flowing(("producer",), FLOWING_S, since_ns=time.monotonic_ns())

    def down(self) -> str:
        operator = Operator(self.lab, self.directory, RETURN)
        wait_until("the preflight of the return passes", lambda: self._stopped(operator), CHANGED_S)
        chroot = self.lab.spec.chroot
        with self.lab.zookeeper(Role.DEST) as client:
            left = _left(client, chroot)
            self.epochs = epochs_of(client, chroot)
        require(left is None, f"left on dest: {left}")
        return "none is left"

    def _stopped(self, operator: Operator) -> str | None:
        """Run up to the stop of all brokers; return None, or the findings if the preflight's gate is closed.

        A topic that the load has just created, still without leader, closes the gate.
        """
        with operator.tool("down", "run", *PLAYBOOK, "--until", "outage.brokers") as tool:
            code = tool.wait_for_end(REST_S + CHANGED_S)
        if code and code != 3:
            raise LabError(f"the return ended with {code}: {tool.troubles()}")
        return tool.troubles() if code else None

    def come_back(self) -> str:
        """Continue, kill the run in the middle of the replay, and resume it."""
        operator = Operator(self.lab, self.directory, RETURN)
        behind = self._killed(operator)
        with operator.tool("again", "resume", *PLAYBOOK) as tool:
            code = tool.wait_for_end(REST_S + FLOWING_S)
        found = [f for event in tool.events_of("StepEnded") for f in event.get("findings", ())]
        same = [f["seen"] for f in found if f["id"] == "replay.same" and f["held"] == "yes"]
        outcome = f"killed behind {behind} transactions; resume ended with {code}; {same or tool.troubles()}"
        require(code == 0 and bool(same), outcome)
        return outcome

    def _killed(self, operator: Operator) -> int:
        """Resume, kill the run during the replay, and return the number of replayed transactions."""
        marker, seen = marker_of(Chroot(self.lab.spec.chroot)), 0
        with operator.tool("killed", "resume", *PLAYBOOK) as tool, self.lab.zookeeper() as client:

            def missing() -> str | None:
                nonlocal seen
                if tool.has_ended:
                    raise LabError(f"the return ended by itself: {tool.troubles()}")
                try:
                    seen = client.get(marker)[1].version
                except NoNodeError:
                    return "nothing yet"
                return None if seen >= KILLED_BEHIND else f"{seen} done"

            wait_until("replay under way", missing, REST_S, 0.02)
            tool.kill()
            tool.wait_for_end(FLOWING_S)
        return seen

    def compare_epochs(self) -> str:
        self.lab.wait_for_brokers(Role.SOURCE)
        self.load.wait_flowing(("producer", "metadata"), FLOWING_S, since_ns=time.monotonic_ns())
        with self.lab.zookeeper() as client:
            after = epochs_of(client, self.lab.spec.chroot)
        lower = [name for name, epoch in self.epochs.items() if after.get(name, -1) < epoch]
        controller = (self.epochs["controller"], after["controller"])
        of = f"{len(lower)} of {len(self.epochs)}"
        outcome = f"controller epoch {controller[0]}, then {controller[1]}; {of} lower"
        require(not lower and controller[1] > controller[0], f"{outcome}: {', '.join(lower[:5])}")
        return outcome

    def compare_changes(self) -> str:
        seen = kafka_changes.run_in_lab(self.lab, "seen")
        require(seen == kafka_changes.EXPECTED, json.dumps(seen))
        return json.dumps(seen)

    def judge_load(self) -> str:
        problems = self.load.finish()
        verdict = judge(load_history(self.directory / "history"))
        claims = [verdict[name] for name in JUDGED]
        wrong = [f"{claim.id}: {claim.detail}" for claim in claims if claim.held is not Held.YES]
        outcome = "; ".join([", ".join(f"{claim.id} {claim.value}" for claim in claims), *wrong, *problems])
        require(not wrong, outcome[:2000])
        return outcome


def _left(client: KazooClient, chroot: str) -> str | None:
    """Return None if no broker is registered and there is no controller, otherwise what is left."""
    there = client.get_children(f"{chroot}/brokers/ids")
    if client.exists(f"{chroot}/controller"):
        there.append("controller")
    return ", ".join(there) or None


def epochs_of(client: KazooClient, chroot: str) -> dict[str, int]:
    """Return the controller's epoch, and the leader epoch of each partition (``topic-N``)."""
    found = {"controller": int(client.get(f"{chroot}/controller_epoch")[0])}
    for topic in client.get_children(f"{chroot}/brokers/topics"):
        base = f"{chroot}/brokers/topics/{topic}/partitions"
        try:
            for number in client.get_children(base):
                state = json.loads(client.get(f"{base}/{number}/state")[0])
                found[f"{topic}-{number}"] = int(state["leader_epoch"])
        except NoNodeError:
            continue  # a topic that is being created or deleted
    return found


@pytest.fixture(scope="module")
def chain(directory: Path) -> Iterator[Chain]:
    history, progress = directory / "history", TimedProgress()
    history.mkdir()
    with loaded_lab(
        LONG_SESSIONS, history, progress, tenant_rate=50.0, metadata_rate=METADATA_RATE,
        metadata_create_every=10, drain_deadline_s=300.0,
    ) as (lab, load):  # fmt: skip
        one = AfterOpen(lab, directory, load)
        one.move()
        progress("moved: the door of dest is open")
        one.change_on_dest()
        progress("changed on dest")
        acts = (one.down, one.come_back, one.compare_epochs, one.compare_changes, one.judge_load)
        yield Chain(dict(zip(CASES, acts, strict=True)))


@pytest.mark.parametrize("name", CASES)
def test_kafka_goes_on_against_source(chain: Chain, name: str, play: Play) -> None:
    play(*CASES[name], lambda: chain.play(name))
