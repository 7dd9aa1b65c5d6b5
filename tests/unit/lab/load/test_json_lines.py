"""What a load process writes and how it is read back."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.unit.engine_world import ended
from zkmigrate.lab.load.json_lines import Follower, Recorder, load_recording, read_recording


def test_a_recording_reads_back_as_written(tmp_path: Path) -> None:
    with Recorder(tmp_path, "raw", {"rate": 1}) as record:
        record.write("ack", mono_ns=5, path="/a")
        record.close("ordered", acked=1)
    recording = load_recording(tmp_path, "raw")
    assert recording.problem == ""
    assert [event["event"] for event in recording.events] == ["opened", "ack", "closed"]
    assert recording.events[0]["config"] == {"rate": 1}
    assert recording.of("ack")[0]["mono_ns"] == 5
    assert recording.closing is not None
    assert recording.closing["acked"] == 1


def test_both_clocks_of_a_line_mean_the_same_moment(tmp_path: Path) -> None:
    with Recorder(tmp_path, "raw", {}) as record:
        record.write("now")
        earlier = load_recording(tmp_path, "raw").of("now")[0]["mono_ns"] - 5_000_000_000
        record.write("earlier", mono_ns=earlier)
        record.close("ordered")
    recording = load_recording(tmp_path, "raw")
    now, before = recording.of("now")[0], recording.of("earlier")[0]
    assert abs((now["epoch_ms"] - before["epoch_ms"]) - 5_000) <= 1


def test_a_second_recording_of_the_same_kind_is_refused(tmp_path: Path) -> None:
    Recorder(tmp_path, "raw", {}).close("ordered")
    with pytest.raises(FileExistsError):
        Recorder(tmp_path, "raw", {})


def test_nothing_is_written_after_the_closing_line(tmp_path: Path) -> None:
    record = Recorder(tmp_path, "raw", {})
    record.close("ordered")
    with pytest.raises(ValueError, match="after the closing line"):
        record.write("ack")


def test_an_exception_is_the_closing_reason_and_a_problem(tmp_path: Path) -> None:
    def fail() -> None:
        with Recorder(tmp_path, "raw", {}):
            raise OSError("no route")

    with pytest.raises(OSError, match="no route"):
        fail()
    assert load_recording(tmp_path, "raw").problem == "ended by error: OSError: no route"


def test_lines_of_several_threads_do_not_mix(tmp_path: Path) -> None:
    with Recorder(tmp_path, "raw", {}) as record:

        def write(name: str) -> None:
            for number in range(200):
                record.write("ack", name=name, number=number, filler="x" * 300)

        threads = [threading.Thread(target=write, args=(name,), daemon=True) for name in "abcd"]
        for thread in threads:
            thread.start()
        ended(*threads)
        record.close("ordered")
    acks = load_recording(tmp_path, "raw").of("ack")
    for name in "abcd":
        assert [event["number"] for event in acks if event["name"] == name] == list(range(200))


def line(**fields: object) -> bytes:
    return json.dumps({"mono_ns": 1, **fields}).encode() + b"\n"


OPENED = line(event="opened", format=1)
CLOSED = line(event="closed", reason="ordered")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (None, "missing"),
        (b"", "no opening line"),
        (CLOSED, "no opening line"),
        (line(event="opened", format=2) + CLOSED, "format 2, needed 1"),
        (OPENED, "no closing line"),
        (OPENED + CLOSED[:-1], "no closing line"),
        (OPENED + b"{}\n" + CLOSED, "line 2 is not an event"),
        (OPENED + b'{"event":"ack"}\n' + CLOSED, "line 2 is not an event"),
        (OPENED + b"\0\0\0\n" + CLOSED, "line 2 is not an event"),
        (OPENED + line(event="closed", reason="error: x"), "ended by error: x"),
        (OPENED + CLOSED + b'{"ev', "torn after the closing line"),
        (OPENED + CLOSED, ""),
    ],
)
def test_a_file_that_is_not_whole_says_why(data: bytes | None, problem: str) -> None:
    assert read_recording("raw", data).problem == problem


def test_what_stands_before_a_torn_line_is_kept() -> None:
    recording = read_recording("raw", OPENED + line(event="ack") + b'{"event":"a')
    assert [event["event"] for event in recording.events] == ["opened", "ack"]
    assert recording.torn == 1


def test_an_unreadable_file_is_a_problem_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "raw.jsonl").mkdir()
    assert load_recording(tmp_path, "raw").problem == "unreadable: Is a directory"


def test_a_follower_reads_each_line_once_and_leaves_a_torn_one_for_later(tmp_path: Path) -> None:
    follower = Follower(tmp_path, "raw")
    assert follower.more() == []
    path = tmp_path / "raw.jsonl"
    path.write_bytes(OPENED + line(event="a") + b'{"mono_ns": 1, "eve')
    assert [event["event"] for event in follower.more()] == ["opened", "a"]
    assert follower.more() == []
    with open(path, "ab") as file:
        file.write(b'nt": "b"}\n')
    assert [event["event"] for event in follower.more()] == ["b"]


def test_a_follower_of_the_newest_begins_at_a_whole_line_near_the_end(tmp_path: Path) -> None:
    path = tmp_path / "raw.jsonl"
    path.write_bytes(OPENED + b"".join(line(event=f"e{n}") for n in range(20_000)))
    events = [event["event"] for event in Follower(tmp_path, "raw", newest=True).more()]
    assert events == [f"e{n}" for n in range(20_000 - len(events), 20_000)]
    assert 100 < len(events) < 5_000
    path.write_bytes(OPENED)
    assert len(Follower(tmp_path, "raw", newest=True).more()) == 1, "a short file is read whole"
