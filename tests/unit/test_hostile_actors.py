"""Ten thousand answers of a hostile host, and as many znodes of a hostile tenant of source.

Whatever they say, nothing is started or written here, and nothing of it counts as what somebody else said.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from click.testing import CliRunner

from tests.unit.test_clean import FORGED, HOSTILE, OBEYED
from tests.unit.zkdata_fixtures import log_from
from tests.unit.zookeeper.disks.test_writer_addresses import BROKER, OTHER, create, opened
from zkmigrate.clean import inline
from zkmigrate.cli.main import cli
from zkmigrate.hosts.facts import status, surroundings
from zkmigrate.hosts.facts.status import parsed
from zkmigrate.hosts.transport.channels import Channels
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.runbook.site.observe import parse_listing
from zkmigrate.zookeeper.changes import ZNODES, DeleteZnode

ANSWERS = 10_000
ZNODES_OF_THE_TENANT = 10_000

_seen: list[str] = []
_watching = False


def _hook(event: str, words: tuple[Any, ...]) -> None:
    if _watching and (
        event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.remove", "os.rename")
        or (event == "open" and isinstance(words[2], int) and words[2] & (os.O_WRONLY | os.O_RDWR))
    ):
        _seen.append(f"{event} {words[0]!r}")


sys.addaudithook(_hook)


@contextmanager
def nothing_happens() -> Iterator[None]:
    """No program is started and no file is written or removed by this process."""
    global _watching
    _seen.clear()
    _watching = True
    try:
        yield
    finally:
        _watching = False
    assert _seen == []


class Wire:
    """What a host sends on a channel, in pieces, before it closes it."""

    closed = eof_received = False
    exit_status = 0

    def __init__(self, sends: bytes, piece: int) -> None:
        self._left, self._piece, self.status_event = sends, piece, threading.Event()
        self.status_event.set()

    def settimeout(self, _seconds: float) -> None: ...

    def sendall(self, data: bytes) -> None: ...

    def recv(self, _size: int) -> bytes:
        sent, self._left = self._left[: self._piece], self._left[self._piece :]
        return sent

    def recv_stderr_ready(self) -> bool:
        return False

    def close(self) -> None: ...


class Line:
    """A transport to one host, whose channel sends this."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def connection(self, _host: str, _purpose: str) -> Line:
        return self

    def start(self, _command: str, _end: float) -> Wire:
        return self._wire


def line_of(chance: random.Random) -> bytes:
    """A line as zkm-host writes it, or nearly, or not at all."""
    hostile = HOSTILE.encode("utf-8", "surrogatepass").replace(b"\n", b" ")
    noise = chance.randbytes(12).replace(b"\n", b"")
    value = chance.choice(
        (hostile, noise, b"open", b"$(touch canary)", b"9" * 30, b"-1", b"", FORGED.encode())
    )
    key = chance.choice((b"phase", b"fencing", b"unit_pid", b"unit_since", b"written", b"time", b"stamp"))
    probe = b"probe " + value + b" open"
    text = chance.choice((key + b"=" + value, value, b"f 1 2 0644 a b " + value, probe))
    mark = chance.choice((b"= ", b"= ", b"= ", b"=", b". ", b". 1 ", b". 2 0", b". 1 0 ", b"", b"\r= "))
    return mark + text


def reference(raw: bytes) -> tuple[int, list[str]] | None:
    """The code and lines of the answer to request 1, by the protocol; None where there is no such answer."""
    lines: list[str] = []
    for line in raw.split(b"\n")[:-1]:
        words = line.split(b" ")
        if len(words) == 3 and words[:2] == [b".", b"1"] and words[2].isdigit() and len(words[2]) <= 3:
            return (int(words[2]), lines) if int(words[2]) < 256 else None
        if line != b"=" and not line.startswith(b"= "):
            return None
        lines.append(line[2:].decode("utf-8", "replace"))
    return None


def test_a_hostile_host_starts_nothing_and_answers_no_request_but_its_own() -> None:
    chance = random.Random(39)
    parsers = (status.parse_status, status.parse_phase, status.parse_probe, status.parse_drain,
               status.parse_stamp, status.parse_facts, surroundings.parse_surroundings)  # fmt: skip
    answered = 0
    with nothing_happens():
        for _ in range(ANSWERS):
            raw = b"".join(line_of(chance) + b"\n" for _ in range(chance.randint(0, 6)))
            if chance.random() < 0.7:
                raw = b"".join(one + b"\n" for one in raw.splitlines() if one.startswith(b"= "))
            raw += chance.choice((b". 1 0\n", b". 1 3\n", b". 1 999\n", b". 1 0", b". 2 0\n", b""))
            line = cast(Transport, Line(Wire(raw, chance.choice((1, 7, 4096)))))
            wanted = reference(raw)
            said: TransportError | None
            try:
                outcome = Channels(line, "r1", "steps").ask("d1", "status")
            except TransportError as error:
                said = error
            else:
                assert wanted is not None, raw
                assert (outcome.rc, outcome.output) == (wanted[0], "\n".join(wanted[1])), raw
                said = None
            if said is not None:
                assert (wanted, said.outcome_unknown) == (None, True), raw
                assert not OBEYED.search(inline(str(said)))
                continue
            answered += 1
            for parse in parsers:
                reading = parsed(Seen(outcome.output), cast(Any, parse))
                assert isinstance(reading, Seen | Unknown)
                assert not OBEYED.search(inline(str(reading)))
            listing = parse_listing("/x", outcome.output)
            assert not OBEYED.search(inline(str(listing)))
    assert answered > ANSWERS // 5, "most of these tests are about what was answered"


NAMES = (
    *("kafka", "brokers", "ids", "7", "controller", "config", "topics", "zookeeper", "quota", "..", ".", " "),
    *("$(touch canary)", "`touch canary`", "; touch canary", "'; touch canary; '", "-rf", "--", "*", "a\nb"),
    *("\x1b]52;c;cm0=\x07", "\u202e", "| x |", "```", "<script>", "%s", "é", "\U000e0041", FORGED, "\\", '"'),
)


def path_of(chance: random.Random) -> str:
    """A path of the tenant: never below /kafka, and as near to it as can be."""
    first = chance.choice(
        ("kafka ", "Kafka", "kafka\u200b", "kafka\\", "kafkaa", "other", "kafka\n", "..", "k")
    )
    rest = (chance.choice(NAMES) + str(chance.randrange(99)) for _ in range(chance.randint(0, 5)))
    return "/" + "/".join((first, *rest))


def test_a_hostile_tenant_of_source_starts_nothing_and_counts_for_nobody_else(tmp_path: Path) -> None:
    chance = random.Random(40)
    paths = [path_of(chance) for _ in range(ZNODES_OF_THE_TENANT)]
    tenants = [create(zxid, OTHER, zxid, path) for zxid, path in enumerate(paths, 3)]
    log = [opened(1, BROKER, 1), create(2, BROKER, 2, "/kafka/brokers/ids/7", ephemeral=True), *tenants]
    (tmp_path / "log.1").write_bytes(log_from(log))
    before = sorted(path.name for path in tmp_path.iterdir())
    words = ["writers", str(tmp_path), "--chroot", "/kafka"]
    CliRunner().invoke(cli, words)  # imports are written down by the interpreter, once
    with nothing_happens():
        for more in ((), ("--json",)):
            done = CliRunner().invoke(cli, [*words, *more])
            assert done.exit_code == 0, done.output
            assert not OBEYED.search(done.stdout)
        told = json.loads(done.stdout)
    assert (told["records"], told["under_chroot"]) == (len(log), 1), "nothing of the tenant's is Kafka's"
    assert FORGED not in [line[: len(FORGED)] for line in done.stdout.splitlines()]
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_no_znode_of_a_tenant_is_more_than_one_word_of_a_command(tmp_path: Path) -> None:
    """The commands that a person types, given to a shell whose zkCli.sh tells its words."""
    chance = random.Random(41)
    paths = [path_of(chance) for _ in range(ZNODES_OF_THE_TENANT)]
    lines = [
        DeleteZnode(ZNODES, "", path, HOSTILE.encode("utf-8", "replace"), (), "m").command for path in paths
    ]
    script = 'CONNECT=x\ntell() { printf \'%s\\0\' "$#" "$4"; }\n' + "\n".join(
        line.replace("zkCli.sh", "tell", 1) for line in lines
    )
    done = subprocess.run(["sh", "-s"], input=script.encode(), cwd=tmp_path, capture_output=True, check=True)
    found = done.stdout.split(b"\0")[:-1]
    assert found == [word for path in paths for word in (b"4", path.encode())]
    assert (done.stderr, list(tmp_path.iterdir())) == (b"", [])
