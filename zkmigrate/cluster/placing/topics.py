"""Run the verbs ``placement new-topic`` and ``grow``: write the replica lists of new partitions."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from zkmigrate.cluster import placed
from zkmigrate.cluster.placement import live, maps
from zkmigrate.cluster.placement.cluster import Broker, Cluster, Partition
from zkmigrate.cluster.placement.plan import Notice, Refused
from zkmigrate.cluster.placement.topic_sets import TopicSets, without
from zkmigrate.cluster.placing.text import SHOWN, notice_lines, replicas, table
from zkmigrate.errors import UsageError
from zkmigrate.inventory.inventory import Inventory
from zkmigrate.json_stamp import stamped
from zkmigrate.kafka.changes import KAFKA
from zkmigrate.kafka.questions import DescribeLogDirs
from zkmigrate.runbook.engine.files import refuse_taken, write_all
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.report import counted


@dataclass(frozen=True)
class Output:
    """The destination of the answer. out: the file of the replica lists; None to print only the report."""

    out: Path | None
    force: bool
    as_json: bool


def from_brokers(
    inventory: Inventory, look: Look, topic: str, tell: Callable[[str], None]
) -> tuple[Cluster, tuple[Notice, ...]] | Refused:
    """Query brokers for the cluster: those that may get replicas, all replica lists, and notices.

    Returns Refused if the brokers belong to another cluster, or the topic is being reassigned. Raises
    HostError if no broker answers.
    """
    view = placed.seen_by_brokers(look, tell, time.sleep)
    if other := placed.other_cluster(view, inventory):
        return other
    if moving := [name for name in view.reassigning or () if name[0] == topic]:
        return live.reassigning(live.moving_partitions(moving))
    cluster = Cluster.of(
        (Broker(id_, rack, 0, host=host) for id_, (host, _, rack) in view.brokers.items()),
        (Partition(one.topic, one.partition, one.replicas, None) for one in view.partitions),
    )
    notices = []
    if down := sorted({broker.id for broker in inventory.brokers} - set(view.brokers)):
        notices.append(
            Notice("placement.broker-down", f"not registered, so they receive no replica: {_ids(down)}")
        )
    shut, unseen = _cordoned(look, sorted(view.brokers), topic)
    if shut:
        notices.append(Notice("placement.cordoned", f"cordoned, so they receive no replica: {_ids(shut)}"))
    if unseen:
        notices.append(
            Notice("placement.cordon-unknown", f"unknown whether these brokers are cordoned: {_ids(unseen)}")
        )
    return without(cluster, shut), tuple(notices)


def _cordoned(look: Look, ids: list[int], topic: str) -> tuple[list[int], list[int]]:
    """Return the brokers whose log directories are all cordoned, and those that do not report it."""
    reading = look.ask(DescribeLogDirs(KAFKA, ids, {topic: [0]}))
    if not isinstance(reading, Seen):
        return [], ids
    told = {id_: dirs.value for id_, dirs in reading.value.items() if isinstance(dirs, Seen)}
    shut = [
        id_
        for id_, dirs in told.items()
        if dirs and all(isinstance(one, Seen) and one.value.cordoned for one in dirs.values())
    ]
    return shut, [id_ for id_ in ids if id_ not in told]


def answer(found: TopicSets, notices: tuple[Notice, ...], output: Output, echo: Callable[[str], None]) -> int:
    """Write the replica lists, print the report, and return the exit code.

    Raises UsageError if the file exists already.
    """
    if output.out is not None and found.sets:
        write_all({output.out: _text(found)}, force=output.force)
    files = [str(output.out)] if output.out is not None and found.sets else []
    told = (*notices, *found.notices)
    if output.as_json:
        sets = [
            {"topic": found.topic, "partition": number, "replicas": list(of)}
            for number, of in found.sets.items()
        ]
        body = {"topic": found.topic, "start": found.start, "shift": found.shift, "sets": sets}
        body["command"] = _command(found) if found.sets else ""
        body |= {"code": 0, "notices": [asdict(one) for one in told], "files": files}
        echo(json.dumps(stamped(body)))
        return 0
    for line in _lines(found, told):
        echo(line)
    if files:
        echo(f"\nWritten: {files[0]}")
    return 0


def refuse_bad_out(output: Output) -> None:
    """Raise UsageError if the file cannot be written, before any broker is queried."""
    if output.out == Path("-"):
        raise UsageError("--out -; needed: the name of a file, because the report goes to standard output")
    if output.out is not None:
        refuse_taken(output.out, force=output.force)


def _text(found: TopicSets) -> str:
    return maps.text(((found.topic, number), of, ()) for number, of in found.sets.items())


def _lines(found: TopicSets, notices: tuple[Notice, ...]) -> list[str]:
    if not found.sets:
        return [f"Topic {found.topic} has {counted(len(found.after), 'partition')} already: nothing to do."]
    again = f"to repeat this plan: --start {found.start} --shift {found.shift}"
    out = [f"Topic {found.topic}: {counted(len(found.sets), 'new partition')}; {again}", ""]
    sets = [(str(number), replicas(of)) for number, of in found.sets.items()]
    out += table([("partition", "replicas"), *sets[:SHOWN]])
    if len(sets) > SHOWN:
        out.append(f"and {len(sets) - SHOWN} more")
    leads = Counter(of[0] for of in found.after.values())
    holds = Counter(broker for of in found.after.values() for broker in of)
    shares = [(str(broker), str(leads[broker]), str(count)) for broker, count in sorted(holds.items())]
    if len(found.after) <= SHOWN:
        out += ["", f"To create it by hand: {_command(found)}"]
    out += ["", *table([("broker", "leaders of this topic", "replicas of this topic"), *shares])]
    return [*out, "", *notice_lines(notices)] if notices else out


def _command(found: TopicSets) -> str:
    """Return the command of Kafka's own tool, which needs the replica lists of old partitions too."""
    new = len(found.sets) == len(found.after)
    act = (
        f"--create --topic {found.topic}"
        if new
        else f"--alter --topic {found.topic} --partitions {len(found.after)}"
    )
    sets = ",".join(":".join(map(str, found.after[number])) for number in sorted(found.after))
    return f"kafka-topics.sh --bootstrap-server BROKER:PORT {act} --replica-assignment {sets}"


def _ids(brokers: list[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
