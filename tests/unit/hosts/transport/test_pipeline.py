"""Many requests at once on one SFTP channel, against a real sshd and against servers that misbehave."""

from __future__ import annotations

import os
import resource
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.unit import sshd as daemon
from tests.unit.sshd import Sshd
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.pipeline import Job, Listing, Pipeline, Range
from zkmigrate.hosts.transport.ssh import Transport


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with daemon.running(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def pipeline(sshd: Sshd) -> Iterator[Pipeline]:
    with Transport(daemon.inventory(sshd)) as transport, transport.connection("s1").pipeline(30) as opened:
        yield opened


def whole(path: str, piece: int) -> Job[bytes]:
    """A file in pieces, each asked for when the one before it is here."""
    data = b""
    while came := (yield Range(path, len(data), piece)):
        data += came
    return data


def tried(ask: Listing | Range) -> Job[object]:
    try:
        answer: object = yield ask
    except OSError as error:
        return error
    return answer


def test_files_come_as_they_are_and_in_any_number(pipeline: Pipeline, tmp_path: Path) -> None:
    contents = {n: bytes([n % 251]) * (n * 37 % 5000) for n in range(1500)}
    for n, content in contents.items():
        (tmp_path / str(n)).write_bytes(content)
    (tmp_path / "long").write_bytes(os.urandom(3_000_000))
    jobs = [whole(str(tmp_path / str(n)), 2000) for n in contents]
    found = list(pipeline.run([whole(str(tmp_path / "long"), 1_000_000), *jobs]))
    assert sorted(found) == sorted([*contents.values(), (tmp_path / "long").read_bytes()])
    assert list(pipeline.run([tried(Range(f"{tmp_path}/long", 5, 2_999_000))])) == [
        (tmp_path / "long").read_bytes()[5:2_999_005]
    ]
    assert list(pipeline.run([])) == []
    assert list(pipeline.run([whole(str(tmp_path / "7"), 2000)])) == [contents[7]]


def test_a_job_may_end_without_a_question(pipeline: Pipeline) -> None:
    def none(answer: int) -> Job[int]:
        return answer
        yield

    assert list(pipeline.run(none(n) for n in range(200))) == list(range(200))


def several(asks: Iterable[Listing | Range]) -> Job[list[object]]:
    """The answers to all of these, one after the other."""
    answers = []
    for ask in asks:
        answers.append((yield from tried(ask)))
    return answers


def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    names = ("1", "2", "3")
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    folder = tmp_path / "sshd"
    folder.mkdir()
    with daemon.running(folder) as few, Transport(daemon.inventory(few)) as transport:
        resource.prlimit(few.process.pid, resource.RLIMIT_NOFILE, (450, 450))
        with transport.connection("s1").pipeline(30) as opened:
            files = [several(Range(f"{tmp_path}/{name}", 0, 9) for name in names) for _ in range(700)]
            assert list(opened.run(files)) == [[b"x"] * 3] * 700
            folders = opened.run(several([Listing(str(tmp_path))]) for _ in range(700))
            assert not [one for (one,) in folders if isinstance(one, OSError)]


def test_a_directory_is_listed_as_this_machine_lists_it(pipeline: Pipeline, tmp_path: Path) -> None:
    here = tmp_path / "d"
    here.mkdir()
    for n in range(300):
        (here / f"{n:03}").write_bytes(bytes(n))
        os.utime(here / f"{n:03}", (1_790_000_000 + n, 1_790_000_000 + n))
    (here / os.fsdecode(b"\xff-0")).mkdir()
    (here / "to-file").symlink_to(here / "007")
    (here / "to-folder").symlink_to(tmp_path)
    (here / "to-nothing").symlink_to(tmp_path / "none")
    [entries] = pipeline.run([tried(Listing(str(here)))])
    assert isinstance(entries, tuple)
    stats = {path.name: path.stat() for path in here.iterdir() if path.exists()}
    assert [one.name for one in entries] == sorted(stats)
    for one in entries:
        assert one.folder == (here / one.name).is_dir()
        assert one.size == stats[one.name].st_size
        assert one.modified == int(stats[one.name].st_mtime)


def test_what_is_not_there_is_an_error_of_this_file_alone(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    missing, folder, gone, file = pipeline.run(
        [
            tried(Range(f"{tmp_path}/none", 0, 10)),
            tried(Range(str(tmp_path), 0, 10)),
            tried(Listing(f"{tmp_path}/none")),
            tried(Range(f"{tmp_path}/file", 3, 100)),
        ],
        together=1,
    )
    assert isinstance(missing, FileNotFoundError)
    assert isinstance(gone, FileNotFoundError)
    assert type(folder) is OSError
    assert file == b"tent"


class Server:
    """A server's end of a channel that sends what it is given, then closes or is silent."""

    def __init__(self, *packets: bytes, silent: bool = False) -> None:
        self._out = bytearray(b"".join(packets))
        self._silent = silent

    def sendall(self, data: bytes) -> None:
        pass

    def recv(self, size: int) -> bytes:
        if not self._out and self._silent:
            raise TimeoutError
        data = bytes(self._out[: min(size, 3)])  # packets come in pieces
        del self._out[:3]
        return data


VERSION = struct.pack(">IBI", 5, 2, 3)


def answer(kind: int, number: int, body: bytes = b"") -> bytes:
    return struct.pack(">IBI", 5 + len(body), kind, number) + body


def denied(number: int) -> bytes:
    return answer(101, number, struct.pack(">II", 3, 0) + bytes(4))


@pytest.mark.parametrize(
    ("server", "cause", "why"),
    [
        (Server(), "unreachable", "closed the channel"),
        (Server(VERSION), "unreachable", "closed the channel"),
        (Server(VERSION, silent=True), "timeout", "did not answer in time"),
        (Server(answer(101, 0)), "garbled", "began with 101"),
        (Server(VERSION, struct.pack(">I", 1 << 30)), "garbled", "a reply of 1073741824 bytes"),
        (Server(VERSION, denied(1)[:11]), "unreachable", "closed the channel"),
    ],
)
def test_a_server_that_fails_is_the_hosts_failure(server: Server, cause: str, why: str) -> None:
    with pytest.raises(TransportError, match=why) as caught:
        list(Pipeline("b1", server).run([tried(Range("/f", 0, 9))]))  # type: ignore[arg-type]
    assert (caught.value.cause, caught.value.host) == (cause, "b1")


def test_replies_in_another_order_reach_their_own_jobs() -> None:
    handle = struct.pack(">I", 1) + b"h"
    data = [struct.pack(">I", 1) + text for text in (b"a", b"b")]
    opened = answer(102, 2, handle) + answer(102, 1, handle)
    came = answer(103, 4, data[1]) + answer(103, 3, data[0])
    server = Server(VERSION, opened, came)
    asks = [tried(Range("/1", 0, 1)), tried(Range("/2", 0, 1))]
    # The second file was opened first, so its read has the smaller number.
    assert list(Pipeline("b1", server).run(asks)) == [b"b", b"a"]  # type: ignore[arg-type]


def test_a_refused_file_and_a_reply_of_another_kind_are_told() -> None:
    server = Server(VERSION, denied(1), answer(104, 2))
    refused, strange = Pipeline("b1", server).run(  # type: ignore[arg-type]
        [tried(Range("/1", 0, 1)), tried(Range("/2", 0, 1))]
    )
    assert isinstance(refused, PermissionError)
    assert isinstance(strange, OSError)


def test_a_connection_that_breaks_is_the_hosts_failure(sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with Transport(daemon.inventory(sshd)) as transport:
        connection = transport.connection("s1")
        with connection.pipeline(30) as opened:
            answers = opened.run(tried(Range(f"{tmp_path}/file", 0, 9)) for _ in range(10_000))
            assert next(answers) == b"x"
            connection.close()
            with pytest.raises(TransportError, match=r"its SFTP server|broke"):
                list(answers)


def test_a_host_without_sftp_is_told(tmp_path: Path) -> None:
    with (
        daemon.running(tmp_path, "ForceCommand /bin/false") as running,
        Transport(daemon.inventory(running)) as transport,
        pytest.raises(TransportError, match=r"its SFTP server closed the channel|SFTP failed|broke"),
        transport.connection("s1").pipeline(30),
    ):
        pass
