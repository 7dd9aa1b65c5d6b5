"""The way back behind the open door: Kafka goes on against source, and nothing that was acknowledged is lost.

``python -m zkmigrate.lab.drills.after_open`` moves a loaded Kafka in a lab up to OPEN. On dest topics and
settings change, partitions are added, a topic is deleted and leaders move. Then every broker is stopped, dest
is stopped, ``zkmigrate replay apply`` brings source up to where dest was (killed once in the middle), and the
brokers start against source. What clients, brokers and znodes say then is judged.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from zkmigrate.clients.replay import marker_of
from zkmigrate.errors import ZkmigrateError
from zkmigrate.lab.drills import kafka_changes, result
from zkmigrate.lab.drills.opening import Telling, begun
from zkmigrate.lab.drills.result import Case
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.inventory import write_inventory
from zkmigrate.lab.judge import judge, load_history
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.record import load_recording
from zkmigrate.lab.load.runner import LoadRunner
from zkmigrate.lab.load.target import runner_for
from zkmigrate.lab.operator import Operator
from zkmigrate.lab.readiness import four_letter_word, server_mode
from zkmigrate.lab.render import SERVER_PROPERTIES, connect_string
from zkmigrate.lab.service import control
from zkmigrate.lab.spec import CLIENT_PORT, PATIENT, Role
from zkmigrate.lab.timeline import step_spans
from zkmigrate.lab.waiting import Progress, wait_until

NAME = "after_open"
RUN = "after-open"
KINDS = ("producer", "consumer", "tenant")
METADATA_RATE = 5.0
CHANGES = 60
KILLED_BEHIND = 20
FLOWING_S, CHANGED_S, REST_S, APPLY_S = 60.0, 120.0, 120.0, 300.0
JUDGED = ("lost", "duplicated", "metadata_changes", "other_tenant_unharmed")


@dataclass
class AfterOpen:
    """One lab, one move, and the way back behind it."""

    lab: Lab
    directory: Path
    say: Progress
    load: LoadRunner = field(init=False)
    cases: list[Case] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.load = runner_for(
            self.lab, self.directory / "history", tenant_rate=50.0, metadata_rate=METADATA_RATE,
            metadata_create_every=10, drain_deadline_s=300.0,
        )  # fmt: skip

    def play(self) -> None:
        """All of it, in order; each case is judged where it ends."""
        self._moved()
        self._changed_on_dest()
        epochs = self._at_rest()
        self._replayed()
        self._back_on_source(epochs)
        self._judged()

    def _case(self, name: str, what: str, expected: str, outcome: str, began: float, held: bool) -> None:
        self.cases.append(Case(name, what, expected, outcome, round(time.monotonic() - began, 1), held))
        self.say(f"{name}: {'as it must be' if held else 'WRONG'}: {outcome}")

    def _moved(self) -> None:
        self.load.start(KINDS)
        self.load.wait_flowing(KINDS, FLOWING_S)
        write_inventory(self.lab, self.directory / "migration.yml")
        operator = Operator(self.lab, self.directory, RUN)
        operator.through("move", "run", "--until", "cutover", "--skip", "rehearse")
        body = {"brokers": [], "steps": step_spans(operator.journal)}
        (self.directory / "history" / "run.json").write_text(json.dumps(body) + "\n")
        self.say("moved: the door of dest is open")

    def _changed_on_dest(self) -> None:
        began = time.monotonic()
        self.load.start(("metadata",))
        self.load.wait_flowing(("metadata",), FLOWING_S)
        kafka_changes.asked(self.lab, "make")
        first = self.lab.role(Role.BROKER)[0]
        self.lab.exec(first.name, control(self.lab.spec, Role.BROKER, "restart"))
        self.lab.wait_for_brokers(Role.DEST)

        def missing() -> str | None:
            changes = load_recording(self.directory / "history", "metadata").of("op")
            done = sum(change["outcome"] == "ok" for change in changes)
            return None if done >= CHANGES else f"{done} of {CHANGES} changes"

        wait_until("changes of Kafka's metadata on dest", missing, CHANGED_S)
        self.load.wait_flowing(("producer",), FLOWING_S, since_ns=time.monotonic_ns())
        self.say(f"changed on dest for {time.monotonic() - began:.0f} s")

    def _at_rest(self) -> dict[str, int]:
        """Every broker down, then every server of dest; the epochs that dest has come to."""
        self._each(Role.BROKER, "stop")
        chroot = self.lab.spec.chroot
        with self.lab.zookeeper(Role.DEST) as client:
            wait_until("no broker left on dest", lambda: _left(client, chroot), REST_S)
            epochs = epochs_of(client, chroot)
        self._each(Role.DEST, "stop")
        with self.lab.zookeeper(Role.SOURCE) as client:
            wait_until("source has ended the brokers' sessions", lambda: _left(client, chroot), REST_S)
        return epochs

    def _each(self, role: Role, action: str) -> None:
        hosts = self.lab.role(role)
        with ThreadPoolExecutor(len(hosts)) as pool:
            list(pool.map(lambda h: self.lab.exec(h.name, control(self.lab.spec, role, action)), hosts))

    def _replayed(self) -> None:
        began = time.monotonic()
        code, found, said = self._replay("list")
        failing = [c["id"] for c in found.get("conditions", []) if not c["held"]]
        total = found.get("replay", {}).get("transactions", 0)
        outcome = f"{code}, {total} of {found.get('under')} transactions to replay; {failing or 'all hold'}"
        self._case("list", "replay list", "0, every condition holds", outcome + said, began, code == 0)
        began = time.monotonic()
        self._killed()
        code, found, said = self._replay("apply", *self._applying("0"))
        done = found.get("applied", {})
        outcome = f"{code}, {done.get('transactions')} transactions, {done.get('seen')}"
        held = code == 0 and done.get("transactions") == total and done.get("held") is True
        self._case(
            "apply",
            f"replay apply, killed behind {KILLED_BEHIND} transactions and begun again",
            "0, each transaction once, both subtrees the same",
            outcome if held else outcome + said,
            began,
            held,
        )

    def _applying(self, rate: str) -> tuple[str, ...]:
        servers = ",".join(f"{host.address}:{CLIENT_PORT}" for host in self.lab.role(Role.SOURCE))
        return ("--source", servers, "--consent", "the lab", "--yes", "--rate", rate)

    def _command(self, verb: str, *options: str) -> list[str]:
        argv = [sys.executable, "-m", "zkmigrate", "replay", verb, "--chroot", self.lab.spec.chroot, "--json"]
        argv += ["--source-dir", str(self._leader().root / "var/lib/zookeeper"), *options]
        for host in self.lab.role(Role.DEST):
            argv += ["--dest-dir", str(host.root / "var/lib/zookeeper")]
        return list(self.lab.operator_command(argv))

    def _replay(self, verb: str, *options: str) -> tuple[int, dict[str, Any], str]:
        done = subprocess.run(
            self._command(verb, *options), capture_output=True, text=True, timeout=APPLY_S, check=False
        )
        said = f"; {done.stderr.strip()}" if done.stderr.strip() else ""
        return done.returncode, json.loads(done.stdout or "{}"), said

    def _killed(self) -> None:
        """Begin to apply, slowly, and kill it in the middle."""
        process = subprocess.Popen(
            self._command("apply", *self._applying("20")), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            with self.lab.zookeeper() as client:
                marker = marker_of(self.lab.spec.chroot)

                def missing() -> str | None:
                    if process.poll() is not None:
                        raise LabError(f"replay ended with {process.returncode} by itself")
                    try:
                        done = client.get(marker)[1].version
                    except NoNodeError:
                        return "nothing yet"
                    return None if done >= KILLED_BEHIND else f"{done} done"

                wait_until("replay under way", missing, REST_S)
        finally:
            process.kill()
            process.communicate()

    def _leader(self) -> Any:
        with self.lab.operator():
            for host in self.lab.role(Role.SOURCE):
                if server_mode(four_letter_word(host.address, "srvr")) == "leader":
                    return host
        raise LabError("source has no leader")

    def _back_on_source(self, before: dict[str, int]) -> None:
        began = time.monotonic()
        spec = self.lab.spec
        connect = connect_string([host.address for host in self.lab.role(Role.SOURCE)], spec.chroot)
        for host in self.lab.role(Role.BROKER):
            edit = f"s#^zookeeper.connect=.*#zookeeper.connect={connect}#"
            self.lab.exec(host.name, ["sed", "-i", edit, SERVER_PROPERTIES])
        self._each(Role.BROKER, "start")
        self.lab.wait_for_brokers(Role.SOURCE)
        self.load.wait_flowing(("producer", "metadata"), FLOWING_S, since_ns=time.monotonic_ns())
        with self.lab.zookeeper() as client:
            after = epochs_of(client, spec.chroot)
        lower = [name for name, epoch in before.items() if after.get(name, -1) < epoch]
        controller = (before["controller"], after["controller"])
        outcome = (
            f"controller epoch {controller[0]}, then {controller[1]}; {len(lower)} of {len(before)} lower"
        )
        self._case(
            "epochs",
            "brokers started against source",
            "the controller's epoch above dest's, no leader's below",
            outcome + (f": {', '.join(lower[:5])}" if lower else ""),
            began,
            not lower and controller[1] > controller[0],
        )
        seen = kafka_changes.asked(self.lab, "seen")
        self._case(
            "changes", "an administrator's changes after OPEN", json.dumps(kafka_changes.EXPECTED),
            json.dumps(seen), began, seen == kafka_changes.EXPECTED,
        )  # fmt: skip

    def _judged(self) -> None:
        began = time.monotonic()
        problems = self.load.finish()
        verdict = judge(load_history(self.directory / "history"))
        claims = {name: (verdict[name].value, verdict[name].held.value) for name in JUDGED}
        wrong = [f"{name}: {verdict[name].detail}" for name, (_, held) in claims.items() if held != "yes"]
        outcome = ", ".join(f"{name} {value}" for name, (value, _) in claims.items())
        self._case(
            "load", "what clients recorded over all of it", "nothing acknowledged lost, nothing twice",
            "; ".join([outcome, *wrong, *problems])[:2000], began, not wrong,
        )  # fmt: skip


def _left(client: KazooClient, chroot: str) -> str | None:
    """Condition: no broker is registered and there is no controller."""
    there = client.get_children(f"{chroot}/brokers/ids")
    if client.exists(f"{chroot}/controller"):
        there.append("controller")
    return ", ".join(there) or None


def epochs_of(client: KazooClient, chroot: str) -> dict[str, int]:
    """The controller's epoch, and the leader epoch of each partition (``topic-N``)."""
    found = {"controller": int(client.get(f"{chroot}/controller_epoch")[0])}
    for topic in client.get_children(f"{chroot}/brokers/topics"):
        base = f"{chroot}/brokers/topics/{topic}/partitions"
        try:
            for number in client.get_children(base):
                state = json.loads(client.get(f"{base}/{number}/state")[0])
                found[f"{topic}-{number}"] = int(state["leader_epoch"])
        except NoNodeError:
            continue  # a topic in the making, or on its way out
    return found


@click.command()
@click.option(
    "--directory", default=f"drills/{NAME}", type=click.Path(path_type=Path), help="Where the result goes."
)
def main(directory: Path) -> None:
    """Go back to source behind the open door, and judge what was lost."""
    say = Telling()
    directory = begun(directory)
    (directory / "history").mkdir()
    cases: list[Case] = []
    try:
        with Lab.up(PATIENT, say) as lab:
            drill = AfterOpen(lab, directory, say)
            cases = drill.cases
            try:
                drill.play()
            finally:
                drill.load.kill()
            say("lab: taking everything down")
    except ZkmigrateError as error:
        say(f"failed: {error}; what was recorded is in {directory}")
        cases.append(
            Case("whole", "all of it", "played to its end", str(error)[:2000], round(say.seconds, 1), False)
        )
    body = result.body_of(NAME, cases, say.seconds)
    result.write(directory, body)
    sys.exit(0 if body["held"] else 1)


if __name__ == "__main__":
    main()
