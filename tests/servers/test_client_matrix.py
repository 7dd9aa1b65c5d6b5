"""The client matrix on a real broker: three of its clients, and one that is killed under them."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.servers.kraft import broker
from zkmigrate.lab.clients.families import FAMILIES
from zkmigrate.lab.clients.matrix import Matrix, play
from zkmigrate.lab.load.json_lines import load_recording
from zkmigrate.lab.processes import ProcessId
from zkmigrate.lab.wait import silent
from zkmigrate.runbook.model.finding import Held

CLIENTS = {
    "kafka-python": "kafka-python 3.",
    "java-2.3.1": "kafka-clients 2.3.1",
    "java-4.3.1": "kafka-clients 4.3.1",
}
KILLED = "librdkafka-newest"


def test_old_and_new_clients_are_judged_by_what_they_recorded(tmp_path: Path) -> None:
    programs = {name: FAMILIES[name](silent) for name in (*CLIENTS, KILLED)}
    said: list[str] = []

    def kill() -> None:
        """The hook: one consumer dies without a word."""
        process = ProcessId.of(load_recording(tmp_path, f"{KILLED}-consumer").events[0]["pid"])
        assert process is not None
        assert process.send(signal.SIGKILL)

    with broker("4.3.1", tmp_path) as address:
        rows = play(Matrix(address, seconds=2), programs, tmp_path, said.append, kill)
    found = {row.client: row for row in rows}
    for name, library in CLIENTS.items():
        row = found[name]
        assert row.held is Held.YES, (row, said)
        assert row.figures.library.startswith(library)
        assert row.figures.acked > 1
        assert row.figures.again == 0
    log = json.loads((tmp_path / "log.json").read_text())
    records = sum(map(len, log["records"].values()))
    assert {found[name].figures.consumed for name in CLIENTS} == {records}, "each group reads all producers'"
    assert records == sum(row.figures.acked for row in rows)
    assert found[KILLED].held is Held.NO
    assert "unseen" in found[KILLED].why
    assert "consumer: no closing line" in found[KILLED].why
