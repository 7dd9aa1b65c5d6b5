"""`zkmigrate zxid tail`: the newest durable zxid of a directory here, and by SFTP of one on a host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.ports import free_port
from tests.unit.sshd import Sshd
from tests.unit.zkdata_fixtures import VERSIONS, build_log, recorded_files
from zkmigrate.cli.main import cli
from zkmigrate.zookeeper.data.reader import FileDirectory
from zkmigrate.zookeeper.data.tail import newest

KEYS = [
    "schema",
    "time",
    "zxid",
    "source",
    "file",
    "offset",
    "torn",
    "bytes_read",
    "reads",
    "skipped",
    "strays",
]


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["zxid", "tail", *words])


def placed(folder: Path, version: str, kind: str) -> Path:
    """A dataDir with a recorded `version-2`."""
    (folder / "version-2").mkdir()
    for name, content in recorded_files(version, kind).items():
        (folder / "version-2" / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["standalone", "observer", "observer-snap"])
def test_a_directory_of_each_server_is_read_alike_from_here_and_from_a_host(
    tmp_path: Path, sshd: Sshd, version: str, kind: str
) -> None:
    folder = placed(tmp_path, version, kind)
    expected = newest(FileDirectory(folder / "version-2"))
    here, there = run(str(folder), "--json"), run(f"127.0.0.1:{folder}", "--json", *sshd.options)
    assert (here.exit_code, there.exit_code) == (0, 0), here.output + there.output
    body = json.loads(here.output)
    assert list(body) == KEYS
    assert (body["zxid"], body["source"], body["file"]) == (
        f"0x{expected.zxid:x}",
        expected.source,
        expected.file,
    )
    assert (body["offset"], body["torn"]) == (expected.offset, False)
    assert (body["bytes_read"], body["reads"]) == (expected.bytes_read, expected.reads)
    inner = run(str(folder / "version-2"), "--json")
    for other in (there, inner):
        assert {**json.loads(other.output), "time": body["time"]} == body


def test_logs_may_lie_in_a_directory_of_their_own(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "log"
    (data / "version-2").mkdir(parents=True)
    (log / "version-2").mkdir(parents=True)
    (log / "version-2" / "log.1").write_bytes(build_log(1, 5))
    result = run(str(data), "--log-dir", str(log))
    assert result.exit_code == 0
    assert result.output.startswith("0x5 log.1 at offset ")


def test_the_answer_names_what_is_out_of_the_ordinary(tmp_path: Path) -> None:
    (tmp_path / "log.1").write_bytes(build_log(1, 5)[:-3])
    (tmp_path / "log.9").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("mine")
    result = run(str(tmp_path))
    assert result.exit_code == 0
    first, torn, skipped, strays = result.output.splitlines()
    assert first.startswith("0x4 log.1 at offset ")
    assert torn.startswith("torn: the newest log ends in an incomplete write")
    assert skipped.endswith(": log.9")
    assert strays.endswith(": notes.txt")
    assert json.loads(run(str(tmp_path), "--json").output)["torn"] is True


@pytest.mark.parametrize("json_too", [False, True], ids=["text", "json"])
@pytest.mark.parametrize(
    ("make", "code", "said"),
    [
        ("absent", 8, "No such file"),
        ("file", 8, "Not a directory"),
        ("empty", 2, "is not a directory of ZooKeeper. It contains nothing"),
        ("foreign", 2, "is not a directory of ZooKeeper. It contains a.txt"),
        ("nothing-yet", 8, "neither a usable snapshot nor a transaction"),
        ("not-a-log", 8, "log.1 at offset 0: the file starts with b'PK"),
        (
            "cut-header",
            8,
            "log.1 at offset 0: the file has only 7 bytes, but a transaction log starts with 16",
        ),
        ("damaged", 8, "log.1 at offset "),
    ],
)
def test_what_is_no_readable_directory_of_zookeepers_gets_one_line(
    tmp_path: Path, sshd: Sshd, make: str, code: int, said: str, json_too: bool
) -> None:
    place = tmp_path / "place"
    log = bytearray(build_log(1, 50))
    log[len(log) // 2] ^= 1
    files = {
        "foreign": ("a.txt", b"x"),
        "not-a-log": ("log.1", b"PK\x03\x04" + bytes(100)),
        "cut-header": ("log.1", b"ZKLG\0\0\0"),
        # Its last byte is gone too, so that the file has to be walked.
        "damaged": ("log.1", bytes(log[:-1])),
    }
    if make == "file":
        place.write_text("x")
    elif make != "absent":
        place.mkdir()
    if make == "nothing-yet":
        (place / "version-2").mkdir()
    if make in files:
        (place / files[make][0]).write_bytes(files[make][1])
    options = ("--json",) if json_too else ()
    for where, more in ((str(place), ()), (f"127.0.0.1:{place}", sshd.options)):
        result = run(where, *options, *more)
        assert result.exit_code == code, result.output
        (line,) = result.stderr.splitlines()
        # What the system says of a file as a directory is not what SFTP says of it.
        if make != "file" or not more:
            assert said in line
        assert line.startswith("zkmigrate: ")
        if json_too:
            body = json.loads(result.stdout)
            assert (body["code"], f"zkmigrate: {body['error']}") == (code, line)
        else:
            assert result.stdout == ""


def test_a_host_that_cannot_be_reached_or_trusted_is_named(tmp_path: Path, sshd: Sshd) -> None:
    refused = run("127.0.0.1:/nowhere", *sshd.options[2:], "--ssh-port", str(free_port()))
    assert refused.exit_code == 8
    assert "127.0.0.1: " in refused.stderr
    unpinned = run("127.0.0.2:/nowhere", *sshd.options)
    assert unpinned.exit_code == 8
    assert "known_hosts has no key for" in unpinned.stderr
    (tmp_path / "none").write_text("")
    for place in (":/data", "host:", ""):
        wrong = run(place, *sshd.options)
        assert wrong.exit_code == 2
        assert "is not a directory" in wrong.stderr


def test_a_path_with_a_colon_behind_a_slash_is_of_this_machine(tmp_path: Path) -> None:
    folder = tmp_path / "a:b"
    folder.mkdir()
    (folder / "log.1").write_bytes(build_log(1, 3))
    assert run(str(folder)).output.startswith("0x3 ")
