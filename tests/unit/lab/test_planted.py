"""A secret is named wherever a move may write it, and no result shows it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_ssh_private_key,
)

from tests.unit.judge_fixtures import verdict_of
from tests.unit.lab.test_demo import WANTED, facts
from zkmigrate.lab import machines, planted, render
from zkmigrate.lab.credentials import Credentials
from zkmigrate.lab.demo import Demo
from zkmigrate.lab.demo_result import result_of, summary
from zkmigrate.lab.failure import LabError
from zkmigrate.lab.judge.claims import Verdict
from zkmigrate.lab.judge.secrets import CLAIM, KINDS, secrets_claim
from zkmigrate.lab.planted import Search, forms, secrets_of
from zkmigrate.lab.security import FULL
from zkmigrate.lab.shutdown import shown
from zkmigrate.lab.spec import LabSpec, hosts_of
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.model.finding import Held

PLANTED = "hunter2-planted-hunter2"
NAME = "password of raw"
HASH = base64.b64encode(bytes(range(20))).decode()
SPEC = LabSpec(source_version="3.8.4", dest_version="3.9.5", kafka_version="3.9.1", security=FULL)


class FakeLab:
    """As much of a lab as a search looks at: one host, and this machine's processes in ``proc``.

    said: the host's log.
    """

    def __init__(self, folder: Path) -> None:
        self.directory, self.spec, self.said = folder, SPEC, {"MESSAGE": "started"}
        self.own, self.proc = folder / "hosts/dest1", folder / "proc"
        self.hosts = {
            "dest1": SimpleNamespace(name="dest1", machine="dest1", pid=41, root=self.own / "root"),
            "dest2": SimpleNamespace(name="dest2", machine="dest2", pid=0, root=folder / "off"),
        }

    def exec(self, host: str, argv: Sequence[str]) -> Any:
        assert (host, argv[0]) == ("dest1", "journalctl")
        return SimpleNamespace(
            stdout='{"MESSAGE": null, "_SYSTEMD_UNIT": "b.service"}\n' + json.dumps(self.said)
        )


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(planted, "PROC", tmp_path / "proc")
    monkeypatch.setattr(planted, "_PROCESSES_S", 0.01)
    monkeypatch.setattr(planted, "_COPIES_S", 0.01)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return FakeLab(tmp_path)


def process(proc: Path, number: int, words: str, variables: str = "A=b\0") -> None:
    put(proc / str(number) / "environ", variables)
    put(proc / str(number) / "cmdline", words)


def search() -> Search:
    return Search({NAME: PLANTED, "digest of raw": HASH})


def put(path: Path, text: str = f"x={PLANTED}\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("after", ["", "z", "yz"])
def test_a_secret_is_known_as_it_is_in_hex_and_in_base64(before: str, after: str) -> None:
    text = f"{before}{PLANTED}{after}".encode()
    for written in (text, text.hex().encode(), base64.b64encode(text)):
        assert any(one in written for one in forms(PLANTED))
        assert not any(one in written for one in forms(PLANTED[::-1]))


def test_a_stored_hash_is_known_in_base64_and_in_hex() -> None:
    for written in (HASH.encode(), bytes(range(20)).hex().encode(), base64.b64encode(HASH.encode())):
        assert any(one in written for one in forms(HASH))


def test_output_and_every_file_of_the_run_are_searched(tmp_path: Path) -> None:
    put(tmp_path / "runs/r1/journal.jsonl", f'{{"x": "{base64.b64encode(PLANTED.encode()).decode()}"}}')
    put(tmp_path / "report.html", f"<td>{HASH}</td>")
    put(tmp_path / "clean")
    (tmp_path / "clean").write_text("nothing")
    put(tmp_path / "left/out")
    looked = search()
    looked.text(planted.OUTPUT, "the output", f"Traceback: {PLANTED}".encode())
    looked.folder(planted.DIRECTORY, tmp_path, "demo/", without=("left",))
    assert looked.found == {
        ("the output", NAME), ("demo/runs/r1/journal.jsonl", NAME), ("demo/report.html", "digest of raw")
    }  # fmt: skip
    assert (looked.searched[planted.OUTPUT], looked.searched[planted.DIRECTORY]) == (1, 3)


def test_a_place_whose_own_name_is_a_secret_is_not_shown(tmp_path: Path) -> None:
    put(tmp_path / PLANTED, "")
    looked = search()
    looked.folder(planted.DIRECTORY, tmp_path)
    assert looked.found == {("the run's directory, in a name", NAME)}


def test_arguments_and_environments_of_processes_are_searched(lab: Any) -> None:
    process(lab.proc, 7, f"/bin/tool\0-p\0{PLANTED}\0")
    process(lab.proc, 8, "/bin/hook\0", f"A={PLANTED}\0")
    process(lab.proc, 9, "/bin/sh\0")
    looked = search()
    for _ in range(3):
        looked.processes()
    assert looked.found == {("arguments of tool", NAME), ("environments of hook", NAME)}
    assert (looked.searched[planted.ARGUMENTS], looked.searched[planted.ENVIRONMENTS]) == (3, 3)


def changed(looked: Search, lab: Any, change: Callable[[], None]) -> set[tuple[str, str]]:
    """What is found if this happens in the middle of a move."""
    with looked.during(lab):
        change()
    return looked.found


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("hosts/dest1/root/var/lib/zkmigrate/r1/journal", "dest1: /var/lib/zkmigrate/r1/journal"),
        ("hosts/dest1/upper/etc/kafka/server.properties.old", "dest1: /etc/kafka/server.properties.old"),
        ("hosts/dest1/upper/home/ops/x", "dest1: /home/ops/x"),
        ("proc/41/root/tmp/x", "dest1: /tmp/x"),
        ("proc/41/root/run/x", "dest1: /run/x"),
        ("hosts/dest1/root/var/lib/systemd/coredump/core.sh.1", "dest1: /var/lib/systemd/coredump/core.sh.1"),
        ("here/core.77", "HERE/core.77"),
        ("hosts/dest1/upper/var/lib/zookeeper/version-2/log.1", None),
        ("off/var/lib/zkmigrate/x", None),
    ],
)
def test_a_host_and_core_dumps_are_searched(lab: Any, tmp_path: Path, path: str, place: str | None) -> None:
    found = changed(search(), lab, lambda: put(tmp_path / path))
    told = {(where.replace(str(tmp_path / "here"), "HERE"), name) for where, name in found}
    assert told == ({(place, NAME)} if place else set())


@pytest.mark.parametrize("message", [f"COMMAND=x {PLANTED}", list(f"\1{PLANTED}".encode())])
@pytest.mark.parametrize(
    ("field", "unit"), [({"_SYSTEMD_UNIT": "a.service"}, "a.service"), ({}, "the system")]
)
def test_logs_of_hosts_are_searched_unit_by_unit(
    lab: Any, message: object, field: dict[str, str], unit: str
) -> None:
    looked = search()
    assert changed(looked, lab, lambda: setattr(lab, "said", {"MESSAGE": message, **field})) == {
        (f"dest1: log of {unit}", NAME)
    }
    assert looked.searched[planted.LOGS] == 2


def test_what_servers_log_of_their_clients_is_not_the_moves(lab: Any) -> None:
    said = {"MESSAGE": PLANTED, "_SYSTEMD_UNIT": "zookeeper.service"}
    assert changed(search(), lab, lambda: setattr(lab, "said", said)) == set()


def test_what_is_a_flag_of_each_server_is_searched_everywhere_but_in_processes(lab: Any) -> None:
    looked = Search({planted.IN_FLAGS: PLANTED})
    process(lab.proc, 7, f"sh\0{PLANTED}\0", f"A={PLANTED}\0")
    looked.processes()
    looked.text(planted.OUTPUT, "the output", PLANTED.encode())
    assert looked.found == {("the output", planted.IN_FLAGS)}


def test_what_was_there_before_the_move_is_the_labs_own(lab: Any) -> None:
    """A server's own file and process may have its secret; a copy of them may not."""
    own = lab.own / "upper/etc/zookeeper/security/jaas.conf"
    put(own)
    process(lab.proc, 7, f"java\0-D{PLANTED}\0")

    def move() -> None:
        process(lab.proc, 8, f"java\0-D{PLANTED}\0")
        process(lab.proc, 9, f"sh\0{PLANTED}\0")
        put(own, f"y={PLANTED}\n")
        put(own.with_name("jaas.conf.old"))

    looked = search()
    assert changed(looked, lab, move) <= {
        ("arguments of sh", NAME), ("dest1: /etc/zookeeper/security/jaas.conf.old", NAME)
    }  # fmt: skip
    assert ("dest1: /etc/zookeeper/security/jaas.conf.old", NAME) in looked.found


def test_what_has_gone_before_the_end_was_seen(lab: Any) -> None:
    looked, record = search(), lab.own / "root/var/lib/zkmigrate/r1/secret"

    def move() -> None:
        process(lab.proc, 8, f"sh\0{PLANTED}\0", f"A={HASH}\0")
        put(record)
        wait_until("both were seen", lambda: None if len(looked.found) == 3 else str(looked.found), 60)
        shutil.rmtree(lab.proc)
        record.unlink()

    assert changed(looked, lab, move) == {
        ("arguments of sh", NAME), ("environments of sh", "digest of raw"),
        ("dest1: /var/lib/zkmigrate/r1/secret", NAME),
    }  # fmt: skip


def test_a_search_that_breaks_fails_the_demo(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, broken = search(), threading.Event()

    def fail() -> None:
        broken.set()
        raise LabError("no sample")

    def move() -> None:
        monkeypatch.setattr(looked, "processes", fail)
        assert broken.wait(60)

    with pytest.raises(LabError, match="no sample"):
        changed(looked, lab, move)


def test_a_lab_with_every_kind_of_security_has_at_least_twenty_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, hosts = Credentials.generate("abcdef", SPEC), {}
    keys = machines.credentials_directory(tmp_path)
    keys.parent.mkdir()
    made.write(keys)
    for plan in hosts_of(SPEC):
        root = tmp_path / plan.name
        hosts[plan.name] = SimpleNamespace(name=plan.name, root=root)
        for file in render.host_files(SPEC, plan, "KEY", "PUBLIC", made):
            if file.content is not None:
                put(root / file.path.lstrip("/"), file.content)
    (tmp_path / "ssh").write_text(machines.KeyPair.generate().private)
    lab: Any = SimpleNamespace(directory=tmp_path, spec=SPEC, hosts=hosts, private_key=tmp_path / "ssh")
    monkeypatch.setattr(planted, "_scram", lambda _lab: {"SCRAM stored_key of client": HASH})
    found = secrets_of(lab)
    assert len(found) >= planted.FEWEST
    assert len(set(found.values())) == len(found)
    assert {f"password of {user}": password for user, password in made.passwords.items()}.items() <= (
        found.items()
    )
    assert f"super:{found['digest of super']}" == made.super_digest
    for name in ("operator", "client", "kafka", "source1", "dest3", "broker2"):
        assert found[f"key of {name}"] in made.certificates[name].key
    seed = load_ssh_private_key((tmp_path / "ssh").read_bytes(), None).private_bytes(
        Encoding.Raw, PrivateFormat.Raw, NoEncryption()
    )
    assert any(one in seed or seed[:16] in one for one in forms(found["ssh key of the operator"]))


SEARCHED = dict.fromkeys(KINDS[:-1], 3)


@pytest.mark.parametrize(
    ("secrets", "own", "searched", "found", "held", "told"),
    [
        (20, 5, SEARCHED, [], Held.YES, ""),
        (20, 0, SEARCHED, [], Held.UNKNOWN, "the search did not see the lab's own secrets before the move"),
        (19, 5, SEARCHED, [], Held.UNKNOWN, "only 19 secrets were planted"),
        *((20, 5, {**SEARCHED, kind: 0}, [], Held.UNKNOWN, f"nothing searched: {kind}") for kind in SEARCHED),
        (20, 5, SEARCHED, [("log of dest1", NAME)], Held.NO, "password of raw in log of dest1"),
    ],
)
def test_a_demo_claims_it_and_shows_the_table(
    tmp_path: Path,
    secrets: int,
    own: int,
    searched: dict[str, int],
    found: list[tuple[str, str]],
    held: Held,
    told: str,
) -> None:
    claim = secrets_claim(secrets, 20, own, searched, found)
    assert (claim.id, claim.held, claim.detail) == (CLAIM, held, told)
    verdict = verdict_of(tmp_path)
    result = result_of(Verdict((*verdict.claims, claim), verdict.torn), facts(), WANTED)
    assert result["held"] is (held is Held.YES)
    assert result[CLAIM]["secrets"] == secrets
    table = summary(result)
    assert f"{secrets} secrets searched in" in table
    assert f"files on hosts                          {searched['files on hosts']}\n" in table
    assert f"\nfound                                   {len(found)}\n" in table
    assert told in table


def test_a_program_is_shown_and_its_words_are_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "output"
    copy.write_bytes(b"before\n")
    code = "import os, sys; print('out', flush=True); print(os.environ['A'], file=sys.stderr); sys.exit(7)"
    assert shown([sys.executable, "-c", code], {"A": "err"}, copy) == 7
    assert copy.read_text() == "before\nout\nerr\n"
    assert capfd.readouterr().out == "out\nerr\n"


@pytest.mark.parametrize("searched", [False, True])
def test_only_a_demo_that_searches_takes_the_terminal_from_the_tool(tmp_path: Path, searched: bool) -> None:
    own = f"import os, sys; sys.exit(os.fstat(1)[1:3] != {os.fstat(1)[1:3]})"
    lab: Any = SimpleNamespace(operator_command=lambda argv: [sys.executable, "-c", own])
    tried = Demo(lab, tmp_path, list[str]().append, search=Search({}) if searched else None)
    if searched:
        with pytest.raises(LabError, match="exit code 1"):
            tried.tool("run")
    else:
        tried.tool("run")
