"""The matrix with programs of a few lines in place of clients: how they are started, waited for and ended."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from zkmigrate.lab.clients import matrix
from zkmigrate.lab.clients.families import Program
from zkmigrate.lab.clients.matrix import Matrix, play
from zkmigrate.lab.judge.clients import Row
from zkmigrate.lab.load.config import LoadConfig
from zkmigrate.lab.wait import silent
from zkmigrate.runbook.model.finding import Held

GOOD = """
import json, os, signal, sys, time
role, bootstrap, topic, name, file, *rate = sys.argv[1:]
out = open(file, "x", buffering=1)
def line(event, **more):
    print(json.dumps({"event": event, "mono_ns": time.monotonic_ns(), **more}), file=out)
line("opened", format=1, config={"library": os.environ["LIBRARY"]})
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
place = {"topic": topic, "partition": 0, "offset": 0}
if role == "produce":
    line("ack", id=name + "0", **place)
    with open(os.environ["LOG"] + ".new", "w") as log:
        log.write(name + "0")
    os.rename(log.name, os.environ["LOG"])
else:
    while not os.path.exists(os.environ["LOG"]):
        time.sleep(0.01)
    line("consumed", id=open(os.environ["LOG"]).read(), **place)
    line("assigned", partitions=[name])
"""
ORDERLY = 'signal.sigwait([signal.SIGTERM])\nline("closed", reason="ordered", sent=1)\n'
STUBBORN = "time.sleep(600)\n"
BROKEN = 'print("no such library")\nline("closed", reason="error: it failed")\nsys.exit(1)\n'


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plays one client made of these two ends, for the producer and the consumer, on a log in a file."""
    log, said = tmp_path / "log", list[str]()

    def write_log(out: Path, config: LoadConfig) -> bool:
        said.append(config.bootstrap)
        records = {f"{config.topics[0]}/0": [[0, log.read_text()]]}
        found = {"complete": True, "error": "", "high": {f"{config.topics[0]}/0": 1}, "records": records}
        (out / "log.json").write_text(json.dumps(found))
        return True

    monkeypatch.setattr(matrix, "write_log", write_log)
    monkeypatch.setattr(matrix, "_topic", lambda _matrix: None)

    def play_one(producer: str, consumer: str, **more: Any) -> Row:
        code = GOOD + "for_producer, for_consumer = " + repr((producer, consumer))
        code += '\nexec(for_producer if role == "produce" else for_consumer)\n'
        program = Program((sys.executable, "-c", code), {"LIBRARY": "library 1", "LOG": str(log)})
        asked = Matrix("h:1", seconds=0.2, log_at="log:1", flow_s=60, patience_s=60)
        told = more.pop("progress", silent)
        [row] = play(
            Matrix(**{**vars(asked), **more}), {"a": program}, tmp_path, told, lambda: said.append("hook")
        )
        assert said == ["hook", "log:1"]
        return row

    return play_one


def test_both_programs_get_what_they_need_and_end_in_order(played: Any, tmp_path: Path) -> None:
    row = played(ORDERLY, ORDERLY)
    assert (row.held, row.why) == (Held.YES, "")
    assert (row.figures.library, row.figures.acked, row.figures.consumed) == ("library 1", 1, 1)
    id = json.loads((tmp_path / "log.json").read_text())["records"]["clients/0"][0][1]
    assert id.startswith("a/")
    assert id.endswith("/0")
    assert '"clients-a"' in (tmp_path / "a-consumer.jsonl").read_text(), "the group"


def test_a_program_that_fails_is_told_with_its_words_and_waited_for_by_nobody(played: Any) -> None:
    said: list[str] = []
    row = played(ORDERLY, BROKEN, progress=said.append)
    assert [line for line in said if "still missing" in line] == []
    assert row.held is Held.NO
    assert "consumer ended by error: it failed" in row.why
    assert "its consumer printed: no such library" in row.why


def test_a_program_that_does_not_end_is_killed(played: Any) -> None:
    said: list[str] = []
    row = played(STUBBORN, ORDERLY, patience_s=0.5, progress=said.append)
    assert row.held is Held.UNKNOWN
    assert "producer: no closing line" in row.why
    assert "a-producer did not end and was killed" in said
