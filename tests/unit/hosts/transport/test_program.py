"""Installing, asking and removing the real zkm-host through a real sshd."""

from __future__ import annotations

import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit import sshd as daemon
from tests.unit.sshd import Sshd
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.program import Program, ProgramPaths
from zkmigrate.hosts.transport.ssh import Transport

VISUDO = '#!/bin/sh\n[ "$1" = -cqf ] || exit 9\ngrep -q NOPASSWD "$2"\n'


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with daemon.running(tmp_path, environment=f"ZKM_STATE={tmp_path}/state") as running:
        running.allow_sudo()
        running.program("visudo", VISUDO)
        yield running


@pytest.fixture
def transport(sshd: Sshd) -> Iterator[Transport]:
    with Transport(daemon.inventory(sshd)) as opened:
        yield opened


def program(sshd: Sshd, transport: Transport, sudoers: str = "") -> Program:
    paths = ProgramPaths(str(sshd.folder / "zkm-host"), str(sshd.folder / "sudoers"))
    text = (lambda _: sudoers) if sudoers else zkm_host.sudoers
    return Program(transport, "r1", zkm_host.program(), text, paths)


def policy(sshd: Sshd, text: str = "lock\n") -> tuple[str, str]:
    """Path and content of a policy for the run r1 of the host."""
    return str(sshd.folder / "state" / "r1" / "policy"), text


def left_behind(sshd: Sshd) -> list[str]:
    return [p.name for p in sshd.folder.iterdir() if p.name.endswith(".zkm-new")]


def test_a_reading_verb_runs_without_the_program_being_installed(sshd: Sshd, transport: Transport) -> None:
    host_side = program(sshd, transport)
    done = host_side.streamed("d1", "status")
    assert done.rc == 0
    assert "phase=idle" in done.text.splitlines()
    assert not host_side.installed("d1")


def test_installing_puts_all_files_in_place_and_can_be_repeated(sshd: Sshd, transport: Transport) -> None:
    host_side = program(sshd, transport)
    for _ in range(2):
        assert host_side.install("d1", *policy(sshd)).startswith("installed ")
        assert host_side.installed("d1")
    installed, allowed = Path(host_side.paths.program), Path(host_side.paths.sudoers)
    assert installed.read_bytes() == zkm_host.program()
    assert allowed.read_text() == zkm_host.sudoers(daemon.user())
    assert stat.S_IMODE(installed.stat().st_mode) == 0o755
    assert stat.S_IMODE(allowed.stat().st_mode) == 0o440
    assert left_behind(sshd) == []
    limits = Path(policy(sshd)[0])
    assert limits.read_text() == "lock\n"
    assert [stat.S_IMODE(p.stat().st_mode) for p in (limits, *limits.parents[:2])] == [0o600, 0o700, 0o700]
    assert [path.name for path in limits.parent.iterdir()] == ["policy"]


def test_a_sudoers_file_that_visudo_refuses_changes_nothing(sshd: Sshd, transport: Transport) -> None:
    host_side = program(sshd, transport, sudoers="nonsense\n")
    with pytest.raises(TransportError, match="visudo"):
        host_side.install("d1", *policy(sshd))
    assert not Path(host_side.paths.program).exists()
    assert not Path(host_side.paths.sudoers).exists()


def test_installing_without_sudo_is_denied(sshd: Sshd, transport: Transport) -> None:
    sshd.refuse_sudo()
    with pytest.raises(TransportError, match="a password is required") as caught:
        program(sshd, transport).install("d1", *policy(sshd))
    assert caught.value.cause == "denied"


def test_nothing_of_the_way_there_stays_on_the_host(
    sshd: Sshd, transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the names of its own: other tests install beside it, on the same machine."""
    names: list[str] = []

    def named(count: int) -> str:
        names.append(secrets.token_bytes(count).hex())
        return names[-1]

    monkeypatch.setattr("zkmigrate.hosts.transport.program.secrets.token_hex", named)
    program(sshd, transport).install("d1", *policy(sshd))
    with pytest.raises(TransportError):
        program(sshd, transport, sudoers="nonsense\n").install("d1", *policy(sshd))
    assert len(names) == 2
    assert [path for name in names for path in Path("/tmp").glob(f"zkm-{name}-*")] == []


def test_another_program_at_that_place_is_not_ours(sshd: Sshd, transport: Transport) -> None:
    host_side = program(sshd, transport)
    Path(host_side.paths.program).write_text("#!/bin/sh\n")
    assert not host_side.installed("d1")
    with pytest.raises(TransportError, match=r"belongs to another version\. Remove it with the version that"):
        host_side.uninstall("d1", "u.1", 1)


def test_uninstalling_runs_the_programs_last_verb_once(sshd: Sshd, transport: Transport) -> None:
    host_side = program(sshd, transport)
    assert host_side.uninstall("d1", "u.1", 1).text == "zkm-host is not installed\n"
    record = sshd.folder / "called"
    stand_in = f'#!/bin/sh\necho "$*" >>{record}\nrm -f "$0"\n'.encode()
    other = Program(transport, "r1", stand_in, zkm_host.sudoers, host_side.paths)
    other.install("d1", *policy(sshd))
    assert other.uninstall("d1", "u.1", 3).rc == 0
    assert record.read_text() == "--run r1 --as 3 uninstall u.1\n"
    assert not other.installed("d1")
