"""Secrets by reference: what is read, what is refused, and that nothing shows them."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers.secured import Certificates
from tests.unit.inventory.test_inventory import GOOD
from zkmigrate import secret
from zkmigrate.inventory.inventory import load
from zkmigrate.inventory.login import Secret
from zkmigrate.lab.wait import wait_until
from zkmigrate.runbook.site.wiring import Site
from zkmigrate.secret import SecretError

PLANTED = "hunter2-planted"
KEY = "kafka.client.password"


def kept(folder: Path, content: bytes, mode: int = 0o600) -> Secret:
    path = folder / "kept"
    path.write_bytes(content)
    path.chmod(mode)
    return Secret(file=str(path))


def printing(folder: Path, code: str) -> Secret:
    """A command that runs this Python code; its file is the test's own, so that nothing is remembered."""
    program = folder / "tell.py"
    program.write_text(code)
    return Secret(command=(sys.executable, str(program)))


def wrong(reference: Secret) -> str:
    with pytest.raises(SecretError) as caught:
        secret.read(reference, KEY)
    told = str(caught.value)
    assert told.startswith(f"{KEY}: ")
    assert "Needed: " in told
    assert PLANTED not in told
    assert caught.value.__cause__ is None
    return told


@pytest.mark.parametrize("content", [PLANTED, f"{PLANTED}\n"])
@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_without_its_last_newline_is_the_secret(tmp_path: Path, content: str, mode: int) -> None:
    assert secret.read(kept(tmp_path, content.encode(), mode), KEY) == PLANTED


def test_blanks_belong_to_a_secret(tmp_path: Path) -> None:
    assert secret.read(kept(tmp_path, " pä ss \n".encode()), KEY) == " pä ss "


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601, 0o777])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    told = wrong(kept(tmp_path, PLANTED.encode(), mode))
    assert f"its mode is {mode:04o}. Needed: mode 0600. Next: run `chmod 600 " in told


def test_a_file_of_another_account_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = kept(tmp_path, PLANTED.encode())
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert f"belongs to the account with number {own}" in wrong(reference)


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (f"{PLANTED}\n\n".encode(), "control characters, several lines"),
        (f"{PLANTED}\r\n".encode(), "control characters, several lines"),
        (PLANTED.encode() + b"\xff", "not UTF-8"),
        (PLANTED.encode() + b"\0", "control characters"),
        (PLANTED.encode() * 300, "has more than 4096 bytes"),
    ],
)
def test_what_is_no_line_of_text_is_refused_from_each_kind_of_reference(
    tmp_path: Path, content: bytes, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seen in wrong(kept(tmp_path, content))
    assert seen in wrong(printing(tmp_path, f"import sys; sys.stdout.buffer.write({content!r})"))
    if b"\0" not in content:  # a variable cannot have it
        monkeypatch.setenv("ZKM_TEST_BAD", os.fsdecode(content))
        assert seen in wrong(Secret(env="ZKM_TEST_BAD"))


def test_a_missing_file_a_directory_and_a_pipe_are_refused(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in wrong(Secret(file=str(tmp_path / "none")))
    assert "cannot be read: Is a directory" in wrong(Secret(file=str(tmp_path)))
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "a plain file is needed" in wrong(Secret(file=str(tmp_path / "pipe")))


def test_a_variable_is_read_and_a_missing_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZKM_TEST_GOOD", f"{PLANTED}\n")
    assert secret.read(Secret(env="ZKM_TEST_GOOD"), KEY) == PLANTED
    assert "the environment has no variable ZKM_TEST_NONE" in wrong(Secret(env="ZKM_TEST_NONE"))


def test_a_command_runs_once_and_neither_its_errors_nor_its_words_are_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = f"import sys; open({str(tmp_path / 'runs')!r}, 'a').write('x'); print({PLANTED!r})"
    reference = printing(tmp_path, f"{program}; print({PLANTED!r}, file=sys.stderr); sys.stdin.read()")
    assert [secret.read(reference, KEY) for _ in range(3)] == [PLANTED] * 3
    assert (tmp_path / "runs").read_text() == "x"
    failing = Secret(command=("sh", "-c", f"echo {PLANTED}; echo {PLANTED} >&2; exit 3"))
    assert "the command sh ended with exit code 3" in wrong(failing)
    assert "the command /no/such cannot be started: No such file" in wrong(
        Secret(command=("/no/such", PLANTED))
    )
    assert capfd.readouterr() == ("", "")


def test_a_command_that_hangs_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret, "COMMAND_S", 0.3)
    shell = f"sleep 600 & echo $! > {tmp_path}/pid; echo {PLANTED}; wait"
    began = time.monotonic()
    assert "the command sh did not end within 0.3 s" in wrong(Secret(command=("sh", "-c", shell)))
    assert time.monotonic() - began < 30
    began_child = (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()
    if began_child:  # a busy machine may end the shell before that
        wait_until("the child's end", lambda: running(began_child), 30)


def running(pid: str) -> str | None:
    try:
        state = Path("/proc", pid, "stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return None
    return None if state in "ZX" else f"state {state}"


def test_a_command_that_never_stops_printing_is_ended() -> None:
    assert "has more than 4096 bytes" in wrong(
        Secret(command=("sh", "-c", f"while :; do echo {PLANTED}; done"))
    )


@pytest.mark.parametrize("reads", ["secret.read(Secret(file=FILE), 'k')", "secret.check_private(FILE, 'k')"])
def test_after_a_secret_was_read_there_is_no_core_dump(tmp_path: Path, reads: str) -> None:
    """Neither by the limit, which children inherit, nor to a program to which the kernel pipes it."""
    file = kept(tmp_path, PLANTED.encode()).file
    code = f"""
import ctypes, resource
from zkmigrate import secret
from zkmigrate.inventory.login import Secret
FILE = {file!r}
for step in (lambda: None, lambda: {reads}):
    step()
    print(resource.getrlimit(resource.RLIMIT_CORE)[0], ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, preexec_fn=dumping
    )
    assert done.stdout.splitlines() == [f"{resource.getrlimit(resource.RLIMIT_CORE)[1]} 1", "0 0"]


def dumping() -> None:
    """Let the next program of this process write core dumps, if anybody may."""
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


@pytest.mark.parametrize(
    "login",
    [
        "sasl: {user: a, password: {file: kept}}",
        f"digest: {{user: a, password: {{command: [echo, {PLANTED}]}}}}",
        "tls: {certificate: own.pem, key: own.key}",
    ],
)
def test_a_verb_that_crashes_while_it_logs_in_leaves_no_core_dump(tmp_path: Path, login: str) -> None:
    kept(tmp_path, PLANTED.encode())
    own = Certificates(tmp_path)
    own.write("own")
    file = tmp_path / "client.yml"
    file.write_text(f"version: 1\nname: crash\nzookeeper: {{client: {{{login}}}}}\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        at = f"127.0.0.1:{silent.getsockname()[1]}/kafka"
        words = [sys.executable, "-m", "zkmigrate", "zxid", "subtree", at, "--client", str(file)]
        verb = subprocess.Popen(words, cwd=tmp_path, preexec_fn=dumping)
        with silent.accept()[0]:
            verb.send_signal(signal.SIGSEGV)
            _, status = os.waitpid(verb.pid, 0)
    verb.returncode = -os.WTERMSIG(status)
    assert (verb.returncode, os.WCOREDUMP(status)) == (-signal.SIGSEGV, False)
    assert list(tmp_path.glob("core*")) == []


def test_a_command_reads_no_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret, "COMMAND_S", 5.0)
    own, (reading, writing) = os.dup(0), os.pipe()
    try:
        os.dup2(reading, 0)  # nobody writes, and it has no end
        assert secret.read(printing(tmp_path, "import sys; print('x' + sys.stdin.read())"), KEY) == "x"
    finally:
        os.dup2(own, 0)
        for one in (own, reading, writing):
            os.close(one)


def test_a_variable_is_out_of_the_environment_of_children_and_a_command_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKM_TEST_HIDDEN", PLANTED)
    path = tmp_path / "migration.yml"
    path.write_text(
        f"{GOOD}zookeeper: {{client: {{sasl: {{user: a, password: {{env: ZKM_TEST_HIDDEN}}}}}}}}\n"
    )
    sasl = load(path).zookeeper.client.sasl
    assert sasl is not None
    assert PLANTED not in subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    seen = printing(tmp_path, "import os; print('ZKM_TEST_HIDDEN' in os.environ)")
    assert secret.read(seen, KEY) == "False"
    assert secret.read(sasl.password, KEY) == PLANTED
    assert secret.read(load(path).zookeeper.client.sasl.password, KEY) == PLANTED  # type: ignore[union-attr]


def test_a_wrong_reference_stops_a_verb_before_it_connects(tmp_path: Path) -> None:
    path = tmp_path / "migration.yml"
    path.write_text(f"{GOOD}zookeeper: {{client: {{digest: {{user: a, password: {{file: none}}}}}}}}\n")
    with pytest.raises(
        SecretError, match=r"^zookeeper\.client\.digest\.password: the file .*/none cannot be"
    ):
        Site(load(path), "r1")


CRASH = """
import sys
from zkmigrate import secret
from zkmigrate.cli.main import cli

def crash(reference, key, read=secret.read):
    password = read(reference, key)
    raise RuntimeError(f"no connection for a password of {len(password)} characters")

secret.read = crash
cli(sys.argv[1:])
"""
"""The command line with a defect: an error that nobody expects, while the secret is at hand."""


@pytest.mark.parametrize(
    ("password", "program", "told"),
    [
        ("{file: open}", ("-m", "zkmigrate"), "other accounts may use the file"),
        ("{file: none}", ("-m", "zkmigrate"), "cannot be read: No such file"),
        ("{file: lines}", ("-m", "zkmigrate"), "several lines"),
        ("{command: [sh, tell]}", ("-m", "zkmigrate"), "the command sh ended with exit code 1"),
        ("{file: kept}", ("-c", CRASH), "Traceback (most recent call last)"),
    ],
)
def test_a_verb_that_fails_inside_a_login_prints_no_secret(
    tmp_path: Path, password: str, program: tuple[str, str], told: str
) -> None:
    kept(tmp_path, PLANTED.encode())
    (tmp_path / "tell").write_text(f"echo {PLANTED}; echo {PLANTED} >&2; exit 1")
    for name, mode, text in (("open", 0o644, PLANTED), ("lines", 0o600, f"{PLANTED}\n{PLANTED}\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    file = tmp_path / "client.yml"
    file.write_text(
        f"version: 1\nname: fail\nzookeeper: {{client: {{sasl: {{user: a, password: {password}}}}}}}\n"
    )
    words = ("zxid", "subtree", "127.0.0.1:1/kafka", "--client", str(file))
    done = subprocess.run([sys.executable, *program, *words], capture_output=True, text=True, cwd=tmp_path)
    said = done.stdout + done.stderr
    assert (done.returncode != 0, told in said, PLANTED in said) == (True, True, False), said
