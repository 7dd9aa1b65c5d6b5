"""A whole look of a run that moves partitions, over real connections: ``python -m bench.look``.

So many brokers on loopback, in another process, speak Kafka's wire format; partitions are in flight up to the
cap. The look is that of the step that moves: what is in flight, the log directories, the partitions, the log
ends, and the throttle's rates of every broker. The first one connects; the last one looks at every partition.
CPU time is that of the looking process alone, so the clock also tells how long the brokers took.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
from kafka.protocol.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from bench.reassign import BROKERS, IN_FLIGHT, SIZE, TimedWorld, fleet
from bench.spread import out_option, save, shown, spread
from tests.unit.kafka.clients.wire_brokers import Answer, WireBrokers
from zkmigrate.model.change import KAFKA, ReassignPartition
from zkmigrate.model.fact import Seen
from zkmigrate.model.step import Context
from zkmigrate.placement.cluster import Name
from zkmigrate.reassign.facts import Move, Originals
from zkmigrate.reassign.moves_step import MovesStep
from zkmigrate.reassign.section import ReassignInventory
from zkmigrate.reassign.throttle import Throttles
from zkmigrate.site.observe import Observe
from zkmigrate.throttle.values import Rate

RATE = 5_000_000


def prepared(partitions: int, in_flight: int) -> tuple[TimedWorld, ReassignInventory, list[Name]]:
    """The cluster with moves in flight, the inventory, and the names of these moves."""
    world, inventory = fleet(partitions, in_flight)
    begun = list(inventory.sets)[:: max(1, partitions // in_flight)][:in_flight]
    for topic, number in begun:
        held = world.held[topic, number]
        after = tuple(inventory.sets[topic, number])
        code, why = world.alter(ReassignPartition(KAFKA, topic, number, after, held.replicas))
        if code:
            raise click.ClickException(why)
    return world, inventory, begun


def answers(world: TimedWorld) -> Mapping[type[Any], Answer]:
    """What the brokers of this cluster answer."""
    response = MetadataResponse
    by_topic: dict[str, list[int]] = {}
    for topic, number in world.held:
        by_topic.setdefault(topic, []).append(number)

    def partition(name: Name) -> Any:
        held, flight = world.held[name], world.flights.get(name)
        return response.MetadataResponseTopic.MetadataResponsePartition(
            error_code=0,
            partition_index=name[1],
            leader_id=held.leader,
            leader_epoch=1,
            replica_nodes=list(flight.replicas if flight else held.replicas),
            isr_nodes=list(held.isr),
            offline_replicas=[],
        )

    def topics(asked: Iterable[Any] | None) -> list[Any]:
        named = by_topic if asked is None else [topic.name for topic in asked]
        return [
            response.MetadataResponseTopic(
                error_code=0,
                name=name,
                is_internal=False,
                partitions=[partition((name, number)) for number in by_topic[name]],
            )
            for name in named
        ]

    def in_flight(_id: int, _request: Any) -> Mapping[str, Any]:
        row = ListPartitionReassignmentsResponse.OngoingTopicReassignment
        told: dict[str, list[Any]] = {}
        for (topic, number), flight in world.flights.items():
            told.setdefault(topic, []).append(
                row.OngoingPartitionReassignment(
                    partition_index=number,
                    replicas=list(flight.replicas),
                    adding_replicas=[b for b in flight.target if b not in flight.before],
                    removing_replicas=[b for b in flight.before if b not in flight.target],
                )
            )
        rows = [row(name=topic, partitions=some) for topic, some in told.items()]
        return {"error_code": 0, "error_message": None, "topics": rows}

    def log_dirs(id: int, request: Any) -> Mapping[str, Any]:
        row = DescribeLogDirsResponse.DescribeLogDirsResult
        told = []
        for topic in request.topics or ():
            sizes = {n: world._size(topic.topic, n, world.held[topic.topic, n], id) for n in topic.partitions}
            own = [
                row.DescribeLogDirsTopic.DescribeLogDirsPartition(
                    partition_index=n, partition_size=size, offset_lag=0, is_future_key=False
                )
                for n, size in sizes.items()
                if size is not None
            ]
            told += [row.DescribeLogDirsTopic(name=topic.topic, partitions=own)] if own else []
        space = {"total_bytes": 10**13, "usable_bytes": 10**12}
        return {"error_code": 0, "results": [row(error_code=0, log_dir="/d", topics=told, **space)]}

    def log_ends(id: int, request: Any) -> Mapping[str, Any]:
        row = ListOffsetsResponse.ListOffsetsTopicResponse

        def end(topic: str, number: int) -> Any:
            held = world.held[topic, number]
            code = 6 if request.replica_id == -1 and held.leader != id else 0
            offset = (world._size(topic, number, held, id) or 0) // 1000
            return row.ListOffsetsPartitionResponse(
                partition_index=number, error_code=code, timestamp=-1, offset=offset, leader_epoch=1
            )

        rows = [
            row(name=topic.name, partitions=[end(topic.name, p.partition_index) for p in topic.partitions])
            for topic in request.topics
        ]
        return {"topics": rows}

    def rates(_id: int, request: Any) -> Mapping[str, Any]:
        row = DescribeConfigsResponse.DescribeConfigsResult
        [asked] = request.resources
        kind, name, [key] = asked.resource_type, asked.resource_name, asked.configuration_keys
        config = row.DescribeConfigsResourceResult(
            name=key,
            value=str(RATE),
            read_only=False,
            config_source=2,
            is_sensitive=False,
            synonyms=[],
            config_type=5,
            documentation=None,
        )
        told = row(error_code=0, error_message=None, resource_type=kind, resource_name=name, configs=[config])
        return {"results": [told]}

    def metadata(_id: int, request: Any) -> Mapping[str, Any]:
        return {"topics": topics(request.topics)}

    return {
        MetadataRequest: metadata,
        ListPartitionReassignmentsRequest: in_flight,
        DescribeLogDirsRequest: log_dirs,
        ListOffsetsRequest: log_ends,
        DescribeConfigsRequest: rates,
    }


def serve(partitions: int, in_flight: int, pipe: Connection) -> None:
    """Be the brokers until the pipe closes. It first tells their addresses."""
    world, _, _ = prepared(partitions, in_flight)
    given = dict(answers(world))
    topics_of = given[MetadataRequest]
    made = WireBrokers(given)

    def metadata(id: int, request: Any) -> Mapping[str, Any]:
        return {**made.metadata(id, request), **(topics_of(id, request) or {})}

    made.answer(MetadataRequest, metadata)
    with made.running(world.brokers):
        pipe.send(made.at)
        pipe.poll(None)


@contextmanager
def process(partitions: int, in_flight: int) -> Iterator[Mapping[int, str]]:
    """The addresses of the brokers, by id."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    serving = context.Process(target=serve, args=(partitions, in_flight, theirs), daemon=True)
    serving.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        serving.join(10)
        serving.terminate()


def measured(partitions: int, in_flight: int, looks: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each look, by the clock and of CPU time: the first, those after it, and the last."""
    world, inventory, begun = prepared(partitions, in_flight)
    moves = tuple(
        Move(*name, held.replicas, tuple(inventory.sets[name]), SIZE, held.leader)
        for name, held in world.held.items()
    )
    rates = {id: Rate(RATE, RATE) for id in world.brokers}
    records = {one.step: one.encode() for one in (Originals(moves), Throttles({}, rates))}
    sent = frozenset(move.target for move in moves if move.name in set(begun))
    took: dict[str, dict[str, list[float]]] = {}
    with process(partitions, in_flight) as at:
        brokers = tuple(
            broker.model_copy(update={"address": "127.0.0.1", "port": int(at[broker.id].rpartition(":")[2])})
            for broker in inventory.brokers
        )
        here = inventory.model_copy(update={"kafka": inventory.kafka.model_copy(update={"brokers": brokers})})
        nothing: Any = None
        context = Context("r-1", here, records=records, unrestored=sent)
        at_end = replace(context, kept={"finished": frozenset(m.name for m in moves), "phase": 0})
        with closing(Observe(here, nothing, nothing, nothing)) as look:
            for number in range(looks + 2):
                name = "the first" if not number else "the next" if number <= looks else "the last"
                c = at_end if name == "the last" else context
                clock, cpu = time.monotonic(), time.process_time()
                found = MovesStep().observe(c, look)
                MovesStep().check(c, found)
                own = took.setdefault(name, {"clock": [], "cpu": []})
                own["clock"].append(time.monotonic() - clock)
                own["cpu"].append(time.process_time() - cpu)
                _complete(found, len(begun), len(world.brokers), whole=name == "the last")
    return took


def _complete(found: Any, in_flight: int, brokers: int, *, whole: bool) -> None:
    """ClickException where a fact is missing: an incomplete look is a quick one."""
    ends = {name for _, name in found.ends.told}
    told = found.found is not None and found.found.missing is None and isinstance(found.rates.seen, Seen)
    alive = len(found.found.alive) if told else 0
    if (told, len(ends), found.whole, alive) != (True, in_flight, whole, brokers):
        raise click.ClickException(f"the look is not complete: {told}, {len(ends)} logs, {alive} brokers")


@click.command(help=__doc__)
@click.option("--moves", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--in-flight", type=click.IntRange(1, 1000), default=IN_FLIGHT, show_default=True)
@click.option("--looks", type=click.IntRange(1), default=5, show_default=True)
@out_option
def main(moves: int, in_flight: int, looks: int, out: Path | None) -> None:
    found = measured(moves, in_flight, looks)
    click.echo(f"{moves} moves, {BROKERS} brokers, {in_flight} in flight")
    for name, took in found.items():
        for kind, seconds in took.items():
            click.echo(shown(f"  {name}, {kind}", seconds))
    save(out, {name: {kind: spread(s) for kind, s in took.items()} for name, took in found.items()})


if __name__ == "__main__":
    main()
