"""Judge the records of Kafka's clients: lost, duplicated and failed records, and gaps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TypeAlias

from zkmigrate.lab.judge.claims import Claim, explain, truth
from zkmigrate.lab.judge.gaps import ack_gaps, end_of_asking, gaps_of, longest_s
from zkmigrate.lab.judge.history import Log, RunHistory, part_of
from zkmigrate.lab.load.json_lines import Event, Recording

_SHOWN = 5
_SOURCE = "producer.jsonl, consumer.jsonl, log.json"
Read: TypeAlias = Mapping[tuple[str, int, int], Set[str]]
"""The ids that were read at each (topic, partition, offset)."""


def kafka_claims(history: RunHistory, ack_gap_limit_s: float) -> Iterator[Claim]:
    """Yield the claims about the producer, the consumer and the metadata changes.

    The claims are acked, consumed, lost, duplicated, cut_back, produce_failed, longest_ack_gap_s,
    longest_partition_ack_gap_s and metadata_changes.
    """
    producer, consumer = history.recording("producer"), history.recording("consumer")
    acks, reads = producer.of("ack"), consumer.of("consumed")
    unread = consumer.problem or _undrained(consumer)
    yield _counted("acked", len(acks), producer, producer.problem, "acknowledged records")
    yield _counted("consumed", len(reads), consumer, unread, "consumed records")
    known = {"producer": producer.problem, "consumer": unread, "log": history.log.problem}
    unsure = [f"{name}: {problem}" for name, problem in known.items() if problem]
    yield _lost(acks, reads, history.log, unsure)
    yield _duplicated(acks, reads, history.log, unsure)
    yield _cut_back(consumer, reads, history.log)
    yield _failed(producer)
    yield from _gaps(history, producer, acks, ack_gap_limit_s)
    yield _metadata(history.recording("metadata"))


def _undrained(consumer: Recording) -> str:
    closing = consumer.closing
    return "" if closing is not None and closing.get("drained") is True else "not read to the high watermarks"


def _counted(id: str, count: int, recording: Recording, problem: str, what: str) -> Claim:
    value = count if recording.events else None
    held = truth(count > 0, [problem])
    return Claim(id, value, held, f"{what}, more than 0", f"{recording.name}.jsonl", problem)


def place_of(event: Event) -> tuple[str, int, int]:
    """Return topic, partition and offset of an event."""
    return event["topic"], event["partition"], event["offset"]


def _placed(acks: list[Event]) -> list[Event]:
    """Return the acknowledgements that have an offset.

    A broker that acknowledges a repeated record, after its first answer was lost, gives no offset
    (DUPLICATE_SEQUENCE_NUMBER).
    """
    return [event for event in acks if event["offset"] is not None]


def _lost(acks: list[Event], reads: list[Event], log: Log, unsure: Sequence[str]) -> Claim:
    """Return the claim ``lost``: acknowledged records that were not read at their acknowledged offset.

    Two reads must both have the record: the group's while the load ran, and the one from the beginning once
    all clients had stopped. A record at another offset is lost, and so is a record at an offset that was read
    with two ids: after an unclean election an acknowledged offset may contain another record. A record that
    was acknowledged without an offset must be read somewhere in its partition.
    """
    live: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for event in reads:
        live[place_of(event)].add(event["id"])
    gone = [] if log.problem else missing_acks(acks, read_in(log))
    missing = [*gone, *(event for event in missing_acks(acks, live) if event not in gone)]
    shown = [f"{e['id']} at {e['topic']}/{e['partition']}@{e['offset']}" for e in missing[:_SHOWN]]
    held = truth(bool(acks or reads) and not missing, unsure, bad_is_certain=bool(gone))
    value = len(missing) if acks else None
    return Claim("lost", value, held, "0", _SOURCE, explain(", ".join(shown), *unsure))


def missing_acks(acks: list[Event], read: Read) -> list[Event]:
    """Return the acknowledgements whose record was not read at its offset as the only id there.

    An acknowledgement without an offset is missing if its id was not read, as the only id of an offset,
    anywhere in its partition.
    """
    there = {
        (topic, partition, id) for (topic, partition, _), ids in read.items() if len(ids) == 1 for id in ids
    }
    missing = [event for event in _placed(acks) if read.get(place_of(event)) != {event["id"]}]
    return missing + [
        event
        for event in acks
        if event["offset"] is None and (event["topic"], event["partition"], event["id"]) not in there
    ]


def read_in(log: Log) -> Read:
    """Return the records of a log in the form of `Read`."""
    return {
        (topic, partition, offset): {id}
        for (topic, partition), records in log.records.items()
        for offset, id in records.items()
    }


def _duplicated(acks: list[Event], reads: list[Event], log: Log, unsure: Sequence[str]) -> Claim:
    """Return the claim ``duplicated``: the number of further offsets that hold an id of another offset.

    An offset that was read twice is not a duplicate.
    """
    places: dict[str, set[tuple[str, int, int]]] = defaultdict(set)
    for event in [*_placed(acks), *reads]:
        places[event["id"]].add(place_of(event))
    for place, ids in read_in(log).items():
        places[next(iter(ids))].add(place)
    doubled = {id: found for id, found in places.items() if len(found) > 1}
    extra = sum(len(found) - 1 for found in doubled.values())
    held = truth(bool(reads), unsure, bad_is_certain=extra > 0)
    shown = ", ".join(f"{id} at {sorted(found)}" for id, found in list(doubled.items())[:_SHOWN])
    value = extra if reads else None
    return Claim("duplicated", value, held, "0", _SOURCE, explain(shown, *unsure))


def _cut_back(consumer: Recording, reads: list[Event], log: Log) -> Claim:
    """Return the claim ``cut_back``: records that the group had read and that the log lost later.

    These are records, acknowledged or not, that are not in the final log. Records at or beyond a high
    watermark (at the drain, or at the end) are included too, because no consumer may read that far.
    """
    drained = next(iter(consumer.of("drained")), {})
    then = {part_of(key): end for key, end in (drained.get("high") or {}).items()}
    now = read_in(log)
    bad: dict[tuple[str, int, int], str] = {}
    for event in reads:
        part = (event["topic"], event["partition"])
        if any(event["offset"] >= ends[part] for ends in (then, log.high) if part in ends):
            bad[place_of(event)] = f"{event['id']} beyond the end"
        elif not log.problem and now.get(place_of(event)) != {event["id"]}:
            bad[place_of(event)] = f"{event['id']} missing"
    problems = [consumer.problem and f"consumer: {consumer.problem}", log.problem and f"log: {log.problem}"]
    held = truth(bool(reads), problems, bad_is_certain=bool(bad))
    shown = ", ".join(f"{what} at {at[0]}/{at[1]}@{at[2]}" for at, what in sorted(bad.items())[:_SHOWN])
    value = len(bad) if reads else None
    needed = "0: every record that was read is in the final log"
    return Claim("cut_back", value, held, needed, "consumer.jsonl, log.json", explain(shown, *problems))


def _failed(producer: Recording) -> Claim:
    failed = producer.of("failed")
    unflushed = int((producer.closing or {}).get("unflushed", 0))
    count = len(failed) + unflushed
    held = truth(count == 0, [producer.problem], bad_is_certain=count > 0)
    shown = ", ".join(sorted({str(event["error"]) for event in failed})[:_SHOWN])
    value = count if producer.events else None
    detail = explain(shown, (unflushed and f"{unflushed} without an answer") or "", producer.problem)
    return Claim("produce_failed", value, held, "0", "producer.jsonl", detail)


def _gaps(history: RunHistory, producer: Recording, acks: list[Event], limit_s: float) -> Iterator[Claim]:
    overall = longest_s(gaps_of(history)["producer"])
    held = truth(overall is not None and overall <= limit_s, [producer.problem, "" if acks else "no acks"])
    needed = f"at most {limit_s:g} s"
    yield Claim("longest_ack_gap_s", overall, held, needed, "producer.jsonl", producer.problem)
    partitions: dict[str, list[Event]] = defaultdict(list)
    for event in acks:
        partitions[f"{event['topic']}/{event['partition']}"].append(event)
    end_ns = end_of_asking(producer)
    by_partition = {name: longest_s(ack_gaps(found, end_ns)) or 0.0 for name, found in partitions.items()}
    worst = max(by_partition, key=lambda name: by_partition[name], default="")
    held = truth(bool(by_partition), [producer.problem])
    value = by_partition.get(worst)
    yield Claim("longest_partition_ack_gap_s", value, held, "a figure", "producer.jsonl", worst)


def _metadata(metadata: Recording) -> Claim:
    """Return the claim ``metadata_changes``: every acknowledged change is in effect at the end.

    The claim's value is the number of changes by outcome.
    """
    operations = metadata.of("op")
    value = {
        outcome: sum(event["outcome"] == outcome for event in operations)
        for outcome in ("ok", "failed", "unknown")
    }
    verified = next(iter(metadata.of("verified")), None)
    problem = metadata.problem
    if not problem and (verified is None or verified.get("complete") is not True):
        problem = f"not read back: {(verified or {}).get('error', '')}"
    gone = [*(verified or {}).get("missing_topics", []), *(verified or {}).get("wrong_configs", [])]
    held = truth(value["ok"] > 0, [problem], bad_is_certain=bool(gone))
    detail = explain(", ".join(gone[:_SHOWN]), problem)
    needed = "every acknowledged change is in effect at the end"
    return Claim("metadata_changes", value if operations else None, held, needed, "metadata.jsonl", detail)
