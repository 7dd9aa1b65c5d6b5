"""Run the demo of a switch: working clients are moved from one Kafka cluster to another, and back.

``python -m zkmigrate.lab.topic_demo`` builds two clusters of three brokers, a gateway and a mirror. Producers
and consumers of several libraries know only the gateway. The playbook ``kafka_topic_move`` switches them to
the new cluster, and then back. ``demo-topics/result.json`` has the claims. The exit code is 0 only if every
claim held.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from zkmigrate.lab.clients.matrix import ROLES, play
from zkmigrate.lab.demo_result import show
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.judge.claims import Claim, Verdict, truth
from zkmigrate.lab.judge.switches import client_claims, parts_claim
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.load.json_lines import load_recording
from zkmigrate.lab.spec import shape_of
from zkmigrate.lab.topic_site import BOOK, NEW, OLD, Switched, TopicSite, clients, switched, two_clusters
from zkmigrate.lab.versions import broker_logs, kafka_version
from zkmigrate.lab.wait import Progress
from zkmigrate.runbook.model.finding import Held

PAIRS = ("2.8.2:4.3.1", "3.9.1:4.3.1", "2.8.2:3.9.1")
"""The possible Kafka versions of the old and of the new cluster."""
DIRECTORY = "demo-topics"
AT_WORK_S, APART_S, RUN_S = 40.0, 10.0, 900.0
RATE = 25.0
"""The number of records per second that each producer sends."""
KEEPING = ("--until", "verify")
"""The options that stop a run before the copiers back to source end, because a switch back needs them."""
EVENTS = {"producer": "ack", "consumer": "consumed"}


@dataclass
class TopicDemo:
    """The demo in a lab that is up."""

    site: TopicSite
    done: list[Switched] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def play(self) -> dict[str, Any]:
        """Let the clients work, switch them there and back, and judge.

        Return the content of ``result.json``.
        """
        site = self.site
        history = site.directory / "history"
        programs = clients(site.names, site.progress)
        site.begin()
        with site.among_clients():
            rows = play(site.matrix(rate=RATE, seconds=AT_WORK_S), programs, history, site.progress, self.act)
        site.progress("judge: copying the rest, comparing every record of both clusters")
        recordings = {
            f"{name}-{role}": load_recording(history, f"{name}-{role}")
            for name in site.names
            for role in ROLES
        }
        claims = (
            *client_claims(rows),
            parts_claim(recordings, EVENTS, [(one.began_ns, one.ended_ns) for one in self.done]),
            *self._claims(),
        )
        facts = {
            "switches": [asdict(one) for one in self.done],
            "clients": {row.client: asdict(row.figures) for row in rows},
        }
        return {**Verdict(claims).result(), **facts}

    def act(self) -> None:
        """Switch the clients to the new cluster, and back."""
        for number, target in enumerate((NEW, OLD)):
            if number:
                time.sleep(APART_S)
                self.site.wait_for_mirror(target)
            operator = self.site.operator(f"to-{target}", target)
            operator.through("run", "run", *BOOK, *KEEPING, limit_s=RUN_S, progress=self.site.progress)
            one = switched(operator, target)
            self.done.append(one)
            self.places.append(self.site.open_on())
            self.site.progress(
                f"switched to {target}: {one.held_s} s from hold to go, {one.waited_s} s from hold to open"
            )

    def _claims(self) -> Iterator[Claim]:
        yield Claim(
            "switched",
            self.places,
            truth(self.places == [NEW, OLD], []),
            f"{NEW}, then {OLD}",
            "the gateways",
        )
        times = {one.run: one.held_s for one in self.done}
        yield Claim("hold_to_go_s", times, truth(bool(times), []), "a figure", "journals")
        try:
            same, held = self.site.compare(NEW), Held.YES
        except LabError as error:
            same, held = str(error)[-500:], Held.NO
        yield Claim("same_offsets", same, held, "every record equal on both clusters", "mirror compare")
        yield self._versions()

    def _versions(self) -> Claim:
        lab = self.site.lab
        wanted = {one.name: one.version for one in shape_of(lab.spec).clusters}
        brokers = {name: [plan.name for plan in lab.members(name)] for name in wanted}
        seen = {name: kafka_version(broker_logs(lab, hosts)) for name, hosts in brokers.items()}
        return Claim(
            "kafka_versions", seen, truth(seen == wanted, []), json.dumps(wanted), "the brokers' logs"
        )


@click.command()
@click.option(
    "--pair",
    type=click.Choice(PAIRS),
    default=PAIRS[0],
    show_default=True,
    help="Kafka versions of the old and of the new cluster.",
)
@click.option(
    "--gateways", default=1, show_default=True, type=click.IntRange(1, 9), help="Number of gateway hosts."
)
@click.option(
    "--directory", default=DIRECTORY, type=click.Path(path_type=Path), help="Directory for the result."
)
def main(pair: str, gateways: int, directory: Path) -> None:
    """Switch clients at work to another Kafka cluster and back, in a lab on this machine, and judge it."""
    old, new = pair.split(":")
    names = (f"java-{old}", "librdkafka-newest", "kafka-python", "librdkafka-newest-plain")

    def play(lab: Lab, directory: Path, progress: Progress) -> dict[str, Any]:
        return TopicDemo(TopicSite(lab, directory, names, progress)).play()

    show(directory, lambda _progress: two_clusters(old, new, gateways=gateways), play)


if __name__ == "__main__":
    main()
