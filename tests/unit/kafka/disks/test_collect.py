"""`zkmigrate collect --broker-dirs`: the rows of the directories themselves, from few of their bytes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tests.unit import sshd as daemon
from tests.unit.kafka_segments import batch, index, message, put, timeindex, unpack
from tests.unit.sshd import Sshd
from tests.unit.zookeeper.disks.test_download import Given
from zkmigrate.cli.main import cli
from zkmigrate.hosts.transport.pipeline import Range
from zkmigrate.kafka.disks import collect as collecting
from zkmigrate.kafka.disks.days import Journal, Seen
from zkmigrate.kafka.disks.logdir import SEGMENTS
from zkmigrate.kafka.disks.segments import BLOCK, Segment
from zkmigrate.spark.sources.logdirs import LogDirReader
from zkmigrate.zookeeper.disks.location import Disks, Place
from zkmigrate.zookeeper.disks.manifest import locked_manifest

UUID = "f60c9836d10b4fb9b5763e8ede4aa9dc"
SECOND = 1_790_000_000
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with daemon.running(tmp_path_factory.mktemp("sshd")) as running:
        running.pin()
        yield running


@pytest.fixture(params=["here", "host"])
def reach(request: pytest.FixtureRequest, sshd: Sshd) -> Reach:
    return Reach("", ()) if request.param == "here" else Reach("127.0.0.1:", sshd.options)


class Reach:
    """From where a directory is read."""

    def __init__(self, host: str, options: tuple[str, ...]) -> None:
        self.host, self.options = host, options


class Side:
    """Brokers' directories, and the folder that is filled from them."""

    def __init__(self, folder: Path, reach: Reach) -> None:
        self.folder, self.out, self.reach = folder, folder / "out", reach

    def place(self, name: str) -> str:
        return f"{self.reach.host}{self.folder / name}"

    def run(self, *places: str, code: int = 0) -> dict[str, Any]:
        words = ["collect", "--broker-dirs", *places, "--out", str(self.out), "--json", *self.reach.options]
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == code, result.output
        body: dict[str, Any] = json.loads(result.stdout)
        return body

    def rows(self, name: str) -> Rows:
        """Of the newest day."""
        found: Rows = pq.read_table(sorted((self.out / name).glob("*.parquet"))[-1]).to_pylist()
        return found

    def verify(self) -> tuple[int, str]:
        result = CliRunner().invoke(cli, ["collect", "--verify", str(self.out)])
        return result.exit_code, result.output


def direct(*paths: Path, broker: str = "") -> Rows:
    """As the data source reads a directory."""
    reader = LogDirReader([str(path) for path in paths], broker)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.fixture
def side(tmp_path: Path, reach: Reach) -> Side:
    return Side(tmp_path, reach)


def dated(folder: Path, second: int = SECOND) -> None:
    """SFTP gives times in whole seconds."""
    for path in filter(Path.exists, folder.rglob("*")):
        os.utime(path, (second, second))


def segments(folder: Path, sizes: tuple[int, ...], count: int = 300) -> None:
    """A partition whose segments have batches of these sizes, as a leader indexes them."""
    for number, size in enumerate(sizes):
        base = number * count
        log = b"".join(batch(base + n, 1_000_000 + base + n, size=size) for n in range(count))
        every = range(0, count, max(1, 4096 // size + 1))
        positions = index(*((n, n * size) for n in every if n))
        times = timeindex(*((1_000_000 + base + n, n) for n in every if n))
        last = number + 1 == len(sizes)
        put(folder, base, log, positions + bytes(8 * 5000 * last), times + bytes(12 * 5000 * last))


def broker(folder: Path, topics: int = 3) -> Path:
    """A directory with segments of about 1 MB."""
    for number in range(topics):
        segments(folder / f"orders-{number}", (1000, 7000, 300))
    (folder / "meta.properties").write_text("version=0\nbroker.id=7\n")
    (folder / "replication-offset-checkpoint").write_text("0\n1\norders 0 900\n")
    dated(folder)
    return folder


def test_a_real_brokers_rows_are_those_of_its_directory(side: Side) -> None:
    unpack(side.folder / "logs")
    dated(side.folder / "logs")
    body = side.run(f"b={side.place('logs')}", side.place("logs"))
    assert side.rows("b") == direct(side.folder / "logs", broker="b")
    default = side.reach.host.rstrip(":") or "logs"
    assert side.rows(default) == direct(side.folder / "logs")
    assert {row["broker"] for row in side.rows(default)} == {"7"}
    assert pq.read_schema(next((side.out / "b").iterdir())).equals(SEGMENTS)
    assert body["brokers"]["b"]["segments"] == len(direct(side.folder / "logs"))
    assert side.verify()[0] == 0


def test_of_a_long_segment_only_its_ends_come(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    here = broker(side.folder / "data")
    put(here / "late-0", 0, b"".join(batch(n, 1000 + n, size=500) for n in range(4000)))  # without an index
    dated(here)
    came: dict[str, int] = {}
    metered = collecting.Collector._metered

    def counting(self: Any, job: Any) -> Any:
        inner = metered(self, job)
        ask = next(inner)
        while True:
            try:
                answer = yield ask
                if isinstance(ask, Range):
                    came[ask.path] = came.get(ask.path, 0) + len(answer)
                ask = inner.send(answer)
            except StopIteration as end:
                return end.value

    monkeypatch.setattr(collecting.Collector, "_metered", counting)
    body = side.run(f"7={side.place('data')}")
    logs = {path: path.stat().st_size for path in here.rglob("*.log")}
    assert side.rows("7") == direct(here)
    assert len(logs) == 10
    for path, size in logs.items():
        assert 0 < came[str(path)] < (2 * BLOCK if size > 2 * BLOCK else size + 1), path
    assert body["bytes_read"] == sum(came.values()) < sum(logs.values()) / 10


def test_names_and_figures_of_all_that_a_directory_may_hold(side: Side) -> None:
    here = broker(side.folder / "dätä", topics=1)
    segments(here / f"gone-0.{UUID}-delete", (500,))
    segments(here / f"moves-3.{UUID}-future", (500,))
    segments(here / f"lost-3.{UUID}-stray", (500,))
    put(here / "old-0", 0, batch(0, 1000), b"", timeindex((9000, 0)))
    for file in list((here / "old-0").iterdir()):
        file.rename(file.with_name(f"{file.name}.deleted"))
    put(here / "torn-0", 5, batch(5, 1000, size=300) + batch(6, 2000, size=300)[:200])
    put(here / "bad-0", 0, b"not a record batch at all" * 40)
    put(here / "empty-0", 0, b"")
    (here / "none-0").mkdir()
    (here / "junk").mkdir()
    (here / os.fsdecode(b"\xff-0")).mkdir()
    (here / "bad-0" / "notes.txt").write_text("x")
    (here / "lost+found").mkdir()
    (side.folder / "elsewhere-0").mkdir()
    segments(side.folder / "elsewhere-0", (500,))
    (here / "linked-0").symlink_to(side.folder / "elsewhere-0")
    (here / "dangling-0").symlink_to(side.folder / "nowhere")
    dated(here)
    dated(side.folder / "elsewhere-0")
    side.run(f"7={side.place('dätä')}")
    rows = side.rows("7")
    assert rows == direct(here)
    assert {row["state"] for row in rows} >= {"current", "deleted", "future", "stray"}
    assert {row["topic"] for row in rows} >= {"linked", "gone"}
    (old,) = (row for row in rows if row["topic"] == "old")
    assert (old["state"], old["last_timestamp"].timestamp()) == ("deleted", 9.0)
    assert len([row for row in rows if row["corrupt"]]) == 5


def test_a_second_run_reads_active_and_changed_segments_alone(side: Side) -> None:
    here = broker(side.folder / "data")
    first = side.run(f"7={side.place('data')}")
    assert (first["brokers"]["7"]["segments"], first["brokers"]["7"]["read"]) == (9, 9)
    (taken,) = first["taken"]
    assert (taken["server"], taken["state"], taken["first_zxid"]) == ("7", "whole", None)
    again = side.run(f"7={side.place('data')}")
    assert again["brokers"]["7"]["read"] == 3  # one active segment for each partition
    changed = here / "orders-1" / f"{0:020}.log"
    os.utime(changed, (SECOND + 1, SECOND + 1))
    shorter = here / "orders-2" / f"{300:020}.log"
    shorter.write_bytes(shorter.read_bytes()[:7000])
    os.utime(shorter, (SECOND, SECOND))
    with (here / "orders-0" / f"{600:020}.log").open("ab") as file:
        file.write(batch(900, 2_000_000))
    dated(here / "orders-0")
    third = side.run(f"7={side.place('data')}")
    assert third["brokers"]["7"]["read"] == 5
    assert side.rows("7") == direct(here)
    assert side.verify()[0] == 0


def test_a_segment_without_times_keeps_its_files_time(side: Side) -> None:
    here = broker(side.folder / "data", topics=1)
    for base in (0, 2, 4):
        put(here / "plain-0", base, message(base, 0) + message(base + 1, 0))
    dated(here, SECOND + 7)
    for read in (6, 2):
        assert side.run(f"7={side.place('data')}")["brokers"]["7"]["read"] == read
        assert side.rows("7") == direct(here)
    assert [row["evidence"] for row in side.rows("7") if row["topic"] == "plain"] == ["modified"] * 3


def test_two_directories_of_one_broker_share_its_file(side: Side) -> None:
    a, b = broker(side.folder / "a"), broker(side.folder / "b", topics=1)
    other = broker(side.folder / "c", topics=2)
    body = side.run(f"7={side.place('a')}", f"8={side.place('c')}", f"7={side.place('b')}")
    assert side.rows("7") == direct(a, b)
    assert side.rows("8") == direct(other, broker="8")
    assert [one["server"] for one in body["taken"]] == ["7", "8"]


def test_the_next_day_has_a_file_of_its_own(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    broker(side.folder / "data")
    for day in (0, 1):
        monkeypatch.setattr(
            "zkmigrate.runbook.engine.clock.RealClock.wall", lambda self, d=day: SECOND + 86_400 * d
        )
        body = side.run(f"7={side.place('data')}")
    assert body["brokers"]["7"]["read"] == 3
    assert sorted(path.name for path in (side.out / "7").iterdir()) == [
        "2026-09-21.parquet", "2026-09-22.parquet",
    ]  # fmt: skip
    assert side.verify()[0] == 0


def test_what_the_broker_removes_between_the_listing_and_the_reading_is_told(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = broker(side.folder / "data")
    listed = collecting._Reader._listed

    def removing(self: Any, names: Any) -> Any:
        found = listed(self, names)
        (here / "orders-0" / f"{0:020}.log").unlink(missing_ok=True)
        (here / "orders-1" / f"{300:020}.timeindex").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(collecting._Reader, "_listed", removing)
    body = side.run(f"7={side.place('data')}")
    (note,) = body["notes"]
    assert (note["server"], note["what"], body["brokers"]["7"]["gone"]) == ("7", "purged", 2)
    assert "removed 2 segments before the read, such as orders-" in note["why"]
    assert len(side.rows("7")) == 7
    assert side.run(f"7={side.place('data')}")["notes"] == []
    assert side.rows("7") == direct(here)


def test_a_folder_that_vanishes_has_no_row(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    here = broker(side.folder / "data")
    reached = collecting.Collector._reached

    def removing(self: Any, *more: Any) -> Any:
        found = reached(self, *more)
        shutil.rmtree(here / "orders-0")
        return found

    monkeypatch.setattr(collecting.Collector, "_reached", removing)
    side.run(f"7={side.place('data')}")
    assert {row["folder"] for row in side.rows("7")} == {"orders-1", "orders-2"}


def test_what_the_account_may_not_read_is_told_and_read_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests run as root, who may read everything."""
    side = Side(tmp_path, Reach("", ()))
    here = broker(side.folder / "data")
    closed = [str(here / "orders-0" / f"{0:020}.log"), str(here / "orders-1")]
    read, listed = collecting._read, collecting._listed

    def refusing(inner: Any) -> Any:
        def ask(asked: Any) -> Any:
            if getattr(asked, "path", asked) in closed:
                raise PermissionError(13, "Permission denied")
            return inner(asked)

        return ask

    monkeypatch.setattr(collecting, "_read", refusing(read))
    monkeypatch.setattr(collecting, "_listed", refusing(listed))
    body = side.run("7=" + side.place("data"), code=8)
    (note,) = body["notes"]
    assert (note["what"], body["brokers"]["7"]["unread"]) == ("unread", 2)
    assert "2 paths cannot be read, such as orders-" in note["why"]
    assert [row["corrupt"] for row in side.rows("7") if row["corrupt"]] == [
        f"{0:020}.log: cannot be read: Permission denied",
        "folder orders-1 cannot be listed: Permission denied",
    ]
    assert side.rows("7")[0]["bytes"] == 300_000
    closed.clear()
    assert side.run("7=" + side.place("data"))["notes"] == []
    assert side.rows("7") == direct(here)


def test_a_broker_that_fails_does_not_keep_the_others(side: Side) -> None:
    here = broker(side.folder / "data")
    (side.folder / "other").mkdir()
    places = [f"5={side.place('none')}", f"6={side.place('other')}", f"7={side.place('data')}"]
    if side.reach.host:
        places.insert(0, f"4=127.0.0.9:{here}")  # not pinned
    body = side.run(*places, code=8)
    assert side.rows("7") == direct(here)
    told = {note["server"]: note["why"] for note in body["notes"] if note["what"] == "unreached"}
    assert set(told) == ({"4", "5", "6"} if side.reach.host else {"5", "6"})
    assert "none: No such file or directory" in told["5"]
    assert "holds neither meta.properties nor a folder TOPIC-N. Needed: one of a broker" in told["6"]
    assert sorted(path.name for path in side.out.iterdir()) == ["7", "manifest.json"]


def test_a_directory_of_a_broker_that_fails_leaves_it_for_the_next_run(side: Side) -> None:
    a = broker(side.folder / "a")
    body = side.run(f"7={side.place('a')}", f"7={side.place('b')}", code=8)
    assert (body["taken"], body["brokers"]) == ([], {})
    b = broker(side.folder / "b")
    side.run(f"7={side.place('a')}", f"7={side.place('b')}")
    assert side.rows("7") == direct(a, b)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_ended_in_the_middle_is_gone_on_with(
    tmp_path: Path, sshd: Sshd, how: signal.Signals
) -> None:
    side = Side(tmp_path, Reach("127.0.0.1:", sshd.options))
    here = broker(side.folder / "data", topics=20)
    argv = [sys.executable, "-m", "zkmigrate", "collect", "--broker-dirs", f"7={side.place('data')}"]
    argv += ["--out", str(side.out), "--rate", "60k", *sshd.options]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    part = side.out / "7" / "segments.part"
    read_so_far(process, part, 15)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert process.returncode == (-9 if how is signal.SIGKILL else 130), err
    if how is signal.SIGINT:
        assert b"stopped; the same command continues" in out
    code, said = side.verify()
    assert (code, "7 segments.part: unfinished" in said) == (0, True)
    had = part.read_bytes().count(b"}\n")
    with part.open("a") as file:
        file.write('{"dir": "cut o')
    body = side.run(f"7={side.place('data')}")
    assert 15 <= had < 60
    assert 60 - had <= body["brokers"]["7"]["read"] <= 60 - had + 20  # an active one each
    assert side.rows("7") == direct(here)
    assert sorted(path.suffix for path in (side.out / "7").iterdir()) == [".parquet"]
    assert side.verify()[0] == 0


def read_so_far(process: subprocess.Popen[bytes], path: Path, lines: int) -> None:
    """Wait until so many segments are in the journal."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_bytes().count(b"}\n") >= lines:
            return
        time.sleep(0.02)
    raise AssertionError(f"{path.name} did not come: {process.communicate()}")


def test_a_day_that_is_damaged_here_is_found_and_read_again(tmp_path: Path) -> None:
    side = Side(tmp_path, Reach("", ()))
    here = broker(side.folder / "data")
    side.run(f"7={here}")
    (day,) = (side.out / "7").glob("*.parquet")
    day.write_bytes(b"PAR1" * 100)
    assert side.verify()[0] == 10
    body = side.run(f"7={here}")
    assert ([note["what"] for note in body["notes"]], body["brokers"]["7"]["read"]) == (["again"], 9)
    assert side.rows("7") == direct(here)
    day.unlink()
    assert [note["what"] for note in side.run(f"7={here}")["notes"]] == ["again"]
    assert side.verify()[0] == 0
    (side.out / "7" / "2020-01-01.parquet").write_bytes(b"")
    assert "7 2020-01-01.parquet: is not in the manifest" in side.verify()[1]


def test_a_crash_between_the_manifest_and_the_name_is_finished_by_the_next_run(tmp_path: Path) -> None:
    side = Side(tmp_path, Reach("", ()))
    here = broker(side.folder / "data")
    side.run(f"7={here}")
    (day,) = (side.out / "7").glob("*.parquet")
    day.rename(day.with_name(f"{day.name}.part"))
    assert "a run was killed before it renamed" in side.verify()[1]
    body = side.run(f"7={here}")
    assert (body["notes"], body["brokers"]["7"]["read"]) == ([], 3)


def test_a_name_stays_with_its_place_and_a_folder_with_one_process(tmp_path: Path) -> None:
    side = Side(tmp_path, Reach("", ()))
    for name in ("data", "other"):
        broker(side.folder / name)
    side.run(f"7={side.place('data')}")
    words = ["collect", "--broker-dirs", f"7={side.place('other')}", "--out", str(side.out)]
    moved = CliRunner().invoke(cli, words)
    assert (moved.exit_code, f"has 7 from {side.place('data')}, not from" in moved.stderr) == (2, True)
    with locked_manifest(side.out):
        held = CliRunner().invoke(cli, words)
    assert (held.exit_code, "is being filled by another process" in held.stderr) == (5, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("7={data}",), "--out DIR"),
        (("--out", "{out}"), "needed: "),
        (("7={data}", "--out", "{out}", "--since", "5"), "--since is for ZooKeeper's servers"),
        (("7={data}", "--out", "{out}", "--log-dir", "{data}"), "--log-dir is for"),
        (("7={data}", "--out", "{out}", "--newest-snapshots", "1"), "--newest-snapshots is for"),
        (("7={data}", "--out", "{out}", "--jute-maxbuffer", "9"), "--jute-maxbuffer is for"),
        (("7={data}", "7={data}", "--out", "{out}"), "7 was named before. Needed: each directory once"),
        (("data={data}/x", "{data}", "--out", "{out}"), "data was named before"),
        (("7={data}", "--out", "{out}", "--rate", "fast"), "--rate fast"),
    ],
)
def test_what_was_not_asked_for_rightly_gets_one_line(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    broker(tmp_path / "data", topics=1)
    given = [word.format(data=tmp_path / "data", out=tmp_path / "out") for word in words]
    result = CliRunner().invoke(cli, ["collect", "--broker-dirs", *given])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert said in line


def test_without_the_packages_of_the_data_pipeline_it_says_what_it_needs() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from zkmigrate.cli.main import cli\n"
        "cli(['collect', '--broker-dirs', '7=/data', '--out', '/none/out'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "setup/requirements-spark.txt" in done.stderr) == (2, True), done.stderr


def test_it_reads_at_the_rate_and_pays_only_for_what_came(tmp_path: Path) -> None:
    here = broker(tmp_path / "data", topics=15)
    clock = Given()
    one = collecting.Broker("7", (Place("", str(here)),), True)
    request = collecting.Request(tmp_path / "out", (one,), 10_000)
    found = collecting.collect(Disks(None), request, clock, lambda: False, lambda _: None)
    waits = (found.bytes_read - BLOCK) / 10_000
    assert 0 < waits <= found.seconds == pytest.approx(sum(clock.paused))
    assert found.seconds < waits + (1 << 16) / 10_000  # three texts are asked for with so many bytes more


def test_the_journal_goes_on_behind_a_line_that_a_crash_cut_off(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    seen = Seen(7, None, Segment(1, 2, "batches", 3, 4))
    assert journal.load() == {}
    for name in ("a", "b\udcff"):
        with journal.adding() as add:
            add(("/d", "t-0", name), seen)
        with (tmp_path / "segments.part").open("a") as file:
            file.write('{"dir": "/d", "folder": "t-')
    assert journal.load() == {("/d", "t-0", name): seen for name in ("a", "b\udcff")}
    (tmp_path / "segments.part").write_text('[]\n{"segment": {}}\n{"size": 1}\n7\n')
    assert journal.load() == {}


def test_the_answer_for_a_reader_names_states_and_bytes(tmp_path: Path) -> None:
    here = broker(tmp_path / "data", topics=1)
    segments(here / f"gone-0.{UUID}-delete", (5000,))
    words = ["collect", "--broker-dirs", f"7={here}", "--out", str(tmp_path / "out"), "--rate", "0"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0
    assert "7: 4 segments, 4 of them read; current 2.5 MB, deleted 1.5 MB\n" in result.stdout
