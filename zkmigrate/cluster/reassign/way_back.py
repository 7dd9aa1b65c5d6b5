"""Write the way back as a file for Kafka's own tool, for use without zkmigrate and its journal."""

from __future__ import annotations

from collections.abc import Mapping

from zkmigrate.cluster.placement import maps
from zkmigrate.cluster.reassign.moves import Originals, added
from zkmigrate.runbook.model.playbook import KeptFile
from zkmigrate.runbook.model.report import counted
from zkmigrate.runbook.model.step import Records, Way
from zkmigrate.runbook.model.step_record import recorded

NAME = "way-back.json"
"""The name of the file in the run's directory."""


def way_back(records: Records) -> Mapping[str, KeptFile]:
    """Return the file with the replica lists from before the run, the last move first, with log directories.

    Empty before the replica lists are recorded. Kafka refuses a whole file if one of its replica lists names
    a broker that is gone, so partitions with a replica on such a broker are left out.
    """
    if not (body := records.get(Originals.step)):
        return {}
    record = recorded(Originals, body, "")
    later = [move for one in added(record, records) for move in one.moves]
    gone = set(record.gone)
    every = (*record.whole, *later)
    moves = [move for move in every if gone.isdisjoint(move.before)]
    if not moves:
        return {}
    entries = [
        (
            move.name,
            move.before,
            tuple(move.paths(Way.BACK).get(broker, maps.ANY) for broker in move.before),
        )
        for move in reversed(moves)
    ]
    left_out = len(every) - len(moves)
    words = (
        f"moves {counted(len(moves), 'partition')} back without zkmigrate: "
        "kafka-reassign-partitions.sh --cancel, where moves are in flight, then --execute"
    )
    words += (
        f". The file leaves out {left_out:,} with a replica on brokers that no longer exist"
        if left_out
        else ""
    )
    return {NAME: KeptFile(maps.text(entries), words)}
