"""How long clients wait while topics switch to another cluster: ``python -m bench.switch``.

A lab of two clusters of three brokers each, a gateway and a mirror. Beside the topic on which a client is at
work, topics with 1,000 partitions and 100 groups with commits belong to the set. The playbook
``kafka_topic_move`` switches all of it there and back, as often as told. Of each switch the journal tells the
seconds from the hold to the new route, and until requests are answered; the client tells its longest gaps.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.spread import out_option, save, shown, spread
from zkmigrate.lab.clients.matrix import play
from zkmigrate.lab.lab import Lab
from zkmigrate.lab.topic_site import (
    BOOK,
    NEW,
    OLD,
    PLAIN_NAME,
    Switched,
    TopicSite,
    clients,
    switched,
    two_clusters,
)
from zkmigrate.lab.wait import TimedProgress

TOPICS, CLIENT, RATE = 10, f"librdkafka-newest{PLAIN_NAME}", 50.0
AT_WORK_S, RUN_S, COMMIT_S = 10.0, 900.0, 60.0


def commit(site: TopicSite) -> None:
    """Each further group commits on every tenth partition of the further topics."""
    parts = [(topic, n) for topic, count in site.more_topics.items() for n in range(count)]
    with site.lab.operator():
        admin = AdminClient({"bootstrap.servers": site.bootstrap(OLD)})
        for number, group in enumerate(site.more_groups):
            own = [TopicPartition(topic, n, 0) for topic, n in parts[number % 10 :: 10]]
            told = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, own)])
            for answer in told.values():
                answer.result(COMMIT_S)


@click.command(help=__doc__)
@click.option("--times", default=10, show_default=True, help="Switches, there and back in turn.")
@click.option("--partitions", default=1000, show_default=True)
@click.option("--groups", default=100, show_default=True)
@click.option("--pair", default="2.8.2:4.3.1", show_default=True, help="Releases of both clusters.")
@out_option
def main(times: int, partitions: int, groups: int, pair: str, out: Path | None) -> None:
    progress, done = TimedProgress(), list[Switched]()
    old, new = pair.split(":")
    topics = {f"wide-{n}": partitions // TOPICS for n in range(TOPICS)}
    idle = [f"idle-{n}" for n in range(groups)]
    with (
        tempfile.TemporaryDirectory(prefix="bench-switch-") as name,
        Lab.up(two_clusters(old, new), progress) as lab,
    ):
        site = TopicSite(lab, Path(name), [CLIENT], progress, topics, idle)
        programs = clients(site.names, progress)
        site.begin()
        commit(site)

        def act() -> None:
            for number in range(times):
                target = (NEW, OLD)[number % 2]
                site.wait_for_mirror(target)
                operator = site.operator(f"switch-{number}", target)
                words = ("run", *BOOK, "--skip", "rehearse", "--until", "verify")
                operator.through("run", *words, limit_s=RUN_S, progress=progress)
                done.append(switched(operator, target))
                progress(f"{target}: hold to go {done[-1].held_s} s, to open {done[-1].waited_s} s")

        history = site.directory / "history"
        history.mkdir()
        with site.among_clients():
            (row,) = play(site.matrix(rate=RATE, seconds=AT_WORK_S), programs, history, progress, act)
    held, waited = ([getattr(one, key) for one in done] for key in ("held_s", "waited_s"))
    click.echo(shown("hold to go", held))
    click.echo(shown("hold to open", waited))
    found: dict[str, Any] = vars(row.figures)
    click.echo(f"client: {row.held.value}, {found}")
    if any(found[key] for key in ("lost", "twice", "unseen", "again")):
        raise click.ClickException(f"the switch is not right: {row.why or found}")
    body = {"pair": pair, "partitions": partitions, "groups": groups, "client": found}
    save(out, {**body, "held_s": spread(held), "waited_s": spread(waited)})


if __name__ == "__main__":
    main()
