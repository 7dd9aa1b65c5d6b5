"""Judge a cluster during partition moves by samples of its state that were taken each second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import pairwise

from zkmigrate.lab.judge.claims import Claim, explain, truth
from zkmigrate.lab.load.json_lines import Event, Recording

_FILE = "samples.jsonl"
_SHOWN = 5


def moving_claims(
    samples: Recording, sources: Collection[str], cap: int, late: Collection[str] = ()
) -> Iterator[Claim]:
    """Yield the claims about samples, replication, concurrent moves and throttle settings.

    sources: the sources that must have samples, ``brokers`` and ``zookeeper``. cap: the largest allowed
    number of moves at once. late: partitions that are left out of under_replicated_partitions, because
    :func:`late_claim` judges them.
    """
    seen = samples.of("sample")
    by_source = {source: [e for e in seen if e["source"] == source] for source in sources}
    problems = [
        samples.problem,
        *(f"no sample from {source}" for source, own in by_source.items() if not own),
    ]
    yield _taken(by_source, problems)
    yield _none_of("under_replicated", seen, problems, late)
    yield _none_of("offline", seen, problems)
    most = max((len(event["in_flight"]) for event in seen), default=None)
    held = truth(most is not None and 0 < most <= cap, problems, bad_is_certain=(most or 0) > cap)
    yield Claim("most_in_flight", most, held, f"1 to {cap}, in every sample", _FILE, explain(*problems))
    yield _throttled(seen, problems)
    yield _as_found(samples, sources, problems)


def _taken(by_source: dict[str, list[Event]], problems: list[str]) -> Claim:
    value = {}
    for source, own in by_source.items():
        pauses = [(b["mono_ns"] - a["mono_ns"]) / 1e9 for a, b in pairwise(own)]
        value[source] = {"samples": len(own), "longest_pause_s": round(max(pauses, default=0.0), 3)}
    return Claim(
        "samples",
        value,
        truth(True, problems),
        "at least one sample of each source",
        _FILE,
        explain(*problems),
    )


def _none_of(what: str, seen: list[Event], problems: list[str], but: Collection[str] = ()) -> Claim:
    """Return the claim that no partition was, for example, ``offline`` in any sample.

    what: the field of the sample. but: partitions to ignore.
    """
    found = {
        name: f"{name} by {event['source']}" for event in seen for name in event[what] if name not in but
    }
    held = truth(bool(seen) and not found, problems, bad_is_certain=bool(found))
    shown = ", ".join(list(found.values())[:_SHOWN])
    return Claim(
        f"{what}_partitions", len(found), held, "0, in every sample", _FILE, explain(shown, *problems)
    )


def _throttled(seen: list[Event], problems: list[str]) -> Claim:
    """Return the claim ``rates``: the throttle rates of each broker in the samples, in bytes per second."""
    rates: dict[str, set[int]] = defaultdict(set)
    for event in seen:
        for broker, own in (event["rates"] or {}).items():
            rates[broker] |= {int(value) for key, value in own.items() if key.endswith(".rate")}
    value = {broker: sorted(own) for broker, own in sorted(rates.items())}
    return Claim("rates", value, truth(bool(rates), problems), "at least one rate", _FILE, explain(*problems))


def _as_found(samples: Recording, sources: Collection[str], problems: list[str]) -> Claim:
    """Return the claim that every throttle setting after the last sample equals that before the first one."""
    settings = {(event["source"], event["moment"]): event["throttles"] for event in samples.of("settings")}
    problems = problems + [
        f"no {moment} settings from {source}"
        for source in sources
        for moment in ("first", "last")
        if (source, moment) not in settings
    ]
    odd = [
        f"{source}, {target}: {settings[source, 'first'].get(target)}, "
        f"then {settings[source, 'last'].get(target)}"
        for source in sources
        if {(source, "first"), (source, "last")} <= set(settings)
        for target in sorted({*settings[source, "first"], *settings[source, "last"]})
        if settings[source, "first"].get(target) != settings[source, "last"].get(target)
    ]
    held = truth(not odd, problems, bad_is_certain=bool(odd))
    needed = "every throttle setting is as it was before"
    return Claim("throttles_as_found", not odd, held, needed, _FILE, explain(*odd[:_SHOWN], *problems))


def empty_claim(samples: Recording, sources: Collection[str], removed: Collection[int]) -> Claim:
    """Return the claim ``removed_hold``: removed brokers hold no replicas in each source's last sample.

    The claim's value is the number of replicas on these brokers, by source.
    """
    last = {event["source"]: event for event in samples.of("sample")}
    value = {
        source: sum(event["held"].get(str(broker), 0) for broker in removed) for source, event in last.items()
    }
    problems = [samples.problem, *(f"no sample from {source}" for source in sources if source not in last)]
    held = truth(not any(value.values()), problems, bad_is_certain=any(value.values()))
    return Claim("removed_hold", value, held, "0, in the last sample", _FILE, explain(*problems))


def late_claim(samples: Recording, sources: Collection[str], late: Collection[str]) -> Claim:
    """Return the claim ``born_at_stops``: each partition in ``late`` has all replicas in the last sample.

    late: partitions that were created while brokers stopped. The claim's value has for each source how many
    of these partitions lacked a replica in some sample, and for how many seconds at most. Nothing prevents
    Kafka from placing a new topic on a broker that is about to stop; the playbook moves the topic right
    afterwards.
    """
    value: dict[str, dict[str, float]] = {}
    problems, ill = [samples.problem], []
    for source in sources:
        own = [event for event in samples.of("sample") if event["source"] == source]
        short: dict[str, list[int]] = defaultdict(list)
        for event in own:
            for name in set(event["under_replicated"]).intersection(late):
                short[name].append(event["mono_ns"])
        longest_s = max(((at[-1] - at[0]) / 1e9 for at in short.values()), default=0.0)
        value[source] = {"partitions": len(short), "longest_s": round(longest_s, 3)}
        problems += [] if own else [f"no sample from {source}"]
        ill += [name for name in late if own and name in own[-1]["under_replicated"]]
    held = truth(not ill, problems, bad_is_certain=bool(ill))
    needed = "each partition has all replicas in the last sample"
    return Claim("born_at_stops", value, held, needed, _FILE, explain(*ill[:_SHOWN], *problems))
