"""The ssh layer against a real sshd: deadlines, verified hosts, broken connections, bounds."""

from __future__ import annotations

import shlex
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paramiko.common import (
    MSG_CHANNEL_CLOSE,
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EOF,
    MSG_CHANNEL_OPEN,
    MSG_CHANNEL_REQUEST,
)

from tests.ports import free_port
from tests.unit import sshd as daemon
from tests.unit.loopback import listening
from tests.unit.sshd import Sshd
from zkmigrate import deadline
from zkmigrate.errors import UsageError
from zkmigrate.hosts.transport import quote
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.reader import SftpReader
from zkmigrate.hosts.transport.ssh import Limits, Transport


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with daemon.running(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def transport(sshd: Sshd) -> Iterator[Transport]:
    with Transport(daemon.inventory(sshd)) as opened:
        yield opened


def test_a_second_daemon_that_ends_leaves_the_first_one_working(sshd: Sshd, tmp_path: Path) -> None:
    with daemon.running(tmp_path):
        pass
    with Transport(daemon.inventory(sshd)) as opened:
        assert opened.exec("s1", ["true"]).rc == 0


@pytest.mark.parametrize("ciphers", ["aes256-ctr", "aes128-gcm@openssh.com"])
def test_a_host_may_have_one_cipher_only(ciphers: str, tmp_path: Path) -> None:
    with daemon.running(tmp_path, f"Ciphers {ciphers}") as only, Transport(daemon.inventory(only)) as opened:
        assert opened.exec("s1", ["true"]).rc == 0


@contextmanager
def server(answer: bytes | None) -> Iterator[tuple[int, list[int]]]:
    """A TCP server that sends ``answer`` and closes, or with None holds on in silence; counts connections."""
    seen: list[int] = []

    def serve(client: socket.socket) -> None:
        seen.append(1)
        if answer is not None:
            client.sendall(answer)
            return
        while client.recv(4096):
            pass

    with listening(serve, beside=True) as port:
        yield port, seen


def test_exec_gives_exit_code_and_both_streams(transport: Transport) -> None:
    done = transport.exec("s1", ["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (done.rc, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    assert done.last_line == "err"


@pytest.mark.parametrize("made", [MSG_CHANNEL_DATA, MSG_CHANNEL_EOF])
def test_input_that_is_late_for_a_command_that_has_ended_breaks_no_connection(
    transport: Transport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: int
) -> None:
    """The host has closed the session between the moment that a message was made and that it goes out."""
    ends, closed, real = tmp_path / "ends", threading.Event(), cast(Any, paramiko.Transport)
    handlers, send = real._channel_handler_table, real._send_user_message
    answer = handlers[MSG_CHANNEL_CLOSE]

    def answered(channel: paramiko.Channel, message: paramiko.Message) -> None:
        answer(channel, message)
        closed.set()

    def late(self: paramiko.Transport, message: paramiko.Message) -> None:
        if message.asbytes()[0] == made:
            ends.touch()
            assert closed.wait(60.0), "the command ends"
        send(self, message)

    connection = transport.connection("s1")
    with monkeypatch.context() as patched:
        patched.setitem(handlers, MSG_CHANNEL_CLOSE, answered)
        patched.setattr(paramiko.Transport, "_send_user_message", late)
        waits = f"timeout 60 sh -c 'until [ -e {ends} ]; do sleep 0.01; done'"
        session = connection.start(waits, time.monotonic() + 60.0)
        session.send(b"input") if made == MSG_CHANNEL_DATA else session.shutdown_write()
        assert session.closed, "what the host closed is answered as soon as its input is out"
    assert transport.exec("s1", ["cat"], b"more").stdout == b"more"
    assert transport.connection("s1") is connection


def test_exec_passes_hostile_words_as_they_are(transport: Transport) -> None:
    words = ["$(touch /tmp/zkm-must-not-exist)", "a b", "'; id; '", "`id`", "x\ny", "", "-n", "*"]
    done = transport.exec("s1", ["printf", "%s\\0", *words])
    assert done.stdout.decode().split("\0")[:-1] == words
    assert not Path("/tmp/zkm-must-not-exist").exists()


@given(st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])), max_size=5))
def test_the_quoting_point_keeps_every_word(words: list[str]) -> None:
    assert shlex.split(quote.command(["true", *words])) == ["true", *words]


@pytest.mark.parametrize("argv", [[], [""], ["-c"], ["true", "a\0b"]])
def test_the_quoting_point_refuses_what_is_no_command(argv: list[str]) -> None:
    with pytest.raises(UsageError):
        quote.command(argv)


def test_exec_feeds_input_and_reads_output_larger_than_every_buffer(transport: Transport) -> None:
    data = bytes(range(256)) * 20_000
    assert transport.exec("s1", ["cat"], data).stdout == data


def test_exec_survives_a_command_that_does_not_read_its_input(transport: Transport) -> None:
    assert transport.exec("s1", ["sh", "-c", "exec <&-; exit 4"], b"x" * 9_000_000).rc == 4


def test_exec_ends_at_its_deadline(transport: Transport) -> None:
    with pytest.raises(TransportError) as caught:
        transport.exec("s1", ["sleep", "600"], deadline_s=3.0)
    assert caught.value.cause == "timeout"
    assert caught.value.outcome_unknown
    assert transport.exec("s1", ["true"]).rc == 0


@pytest.mark.parametrize("lost", [MSG_CHANNEL_OPEN, MSG_CHANNEL_REQUEST])
def test_a_session_that_does_not_begin_in_time_is_a_timeout(
    transport: Transport, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    connection, real = transport.connection("s1"), cast(Any, paramiko.Transport)
    send = real._send_user_message

    def to_host(self: paramiko.Transport, message: paramiko.Message) -> None:
        if message.asbytes()[0] != lost:
            send(self, message)

    monkeypatch.setattr(paramiko.Transport, "_send_user_message", to_host)
    with pytest.raises(TransportError) as command:
        connection.run(["true"], b"", 0.3, 1000)
    with pytest.raises(TransportError) as file:
        connection.read_file("/etc/hostname", 1000, 0.3)
    assert [one.value.cause for one in (command, file)] == ["timeout"] * 2


def test_exec_refuses_endless_output(sshd: Sshd) -> None:
    limits = Limits(output=100_000)
    with Transport(daemon.inventory(sshd), limits) as transport:
        with pytest.raises(TransportError, match="more than 100000 bytes"):
            transport.exec("s1", ["cat", "/dev/zero"])
        assert transport.exec("s1", ["head", "-c", "100000", "/dev/zero"]).stdout == bytes(100_000)


def test_a_connection_cut_inside_a_command_leaves_its_outcome_unknown(
    transport: Transport, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    transport.exec("s1", ["true"])
    with pytest.raises(TransportError) as caught:
        transport.exec("s1", ["sh", "-c", f"echo x >>{mark}; kill -9 $PPID; sleep 1"])
    assert caught.value.outcome_unknown
    assert mark.read_text() == "x\n", "the command must not have been sent again"
    assert transport.exec("s1", ["true"]).rc == 0, "the next command opens a new connection"


def test_a_changed_host_key_is_refused_with_both_fingerprints(sshd: Sshd, tmp_path: Path) -> None:
    other = daemon.make_key(tmp_path / "other").with_suffix(".pub").read_text().rsplit(" ", 1)[0]
    pins = sshd.pin(key=other)
    error = daemon.refused(daemon.inventory(sshd, known_hosts=pins), "host key changed")
    assert error.cause == "denied"
    assert str(error).count("SHA256:") == 2


def test_a_host_that_is_not_pinned_is_refused_with_the_key_it_shows(sshd: Sshd) -> None:
    inventory = daemon.inventory(sshd, known_hosts=sshd.pin(("127.0.0.77",)))
    assert daemon.refused(inventory, r"shows the key ssh-ed25519 SHA256:\S+.*console").cause == "denied"


def test_a_key_that_the_account_does_not_know_is_refused(sshd: Sshd, tmp_path: Path) -> None:
    inventory = daemon.inventory(sshd, key=daemon.make_key(tmp_path / "stranger"))
    assert daemon.refused(inventory, "authorized_keys").cause == "denied"


def test_files_that_others_can_change_are_not_trusted(sshd: Sshd, tmp_path: Path) -> None:
    key = daemon.make_key(tmp_path / "key")
    key.chmod(0o640)
    with pytest.raises(UsageError, match=r"ssh\.key .*0640.*Next: chmod go-rwx"):
        Transport(daemon.inventory(sshd, key=key))
    pins = sshd.pin()
    pins.chmod(0o666)
    with pytest.raises(UsageError, match=r"ssh\.known_hosts .*0666.*Next: chmod go-w"):
        Transport(daemon.inventory(sshd, known_hosts=pins))


@pytest.mark.parametrize("line", ["@revoked * ssh-ed25519 AAAA", "nonsense", "h ssh-ed25519 %%%"])
def test_known_hosts_lines_that_would_be_skipped_are_refused(sshd: Sshd, tmp_path: Path, line: str) -> None:
    pins = tmp_path / "known_hosts"
    pins.write_text(f"# comment\n\n{line}\n")
    with pytest.raises(UsageError, match=r"ssh\.known_hosts \S*known_hosts:3: .*Next: "):
        Transport(daemon.inventory(sshd, known_hosts=pins))


def test_a_key_with_a_passphrase_or_no_key_is_refused_by_name(sshd: Sshd, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="passphrase"):
        Transport(daemon.inventory(sshd, key=daemon.make_key(tmp_path / "locked", "secret")))
    junk = tmp_path / "junk"
    junk.write_text("no key")
    junk.chmod(0o600)
    with pytest.raises(UsageError, match="not a readable private ssh key"):
        Transport(daemon.inventory(sshd, key=junk))
    with pytest.raises(UsageError, match=r"ssh\.key \S*missing cannot be read \(No such file.*ssh-keygen"):
        Transport(daemon.inventory(sshd, key=tmp_path / "missing"))
    with pytest.raises(UsageError, match=r"ssh\.known_hosts \S*missing cannot be read.*ssh-keyscan"):
        Transport(daemon.inventory(sshd, known_hosts=tmp_path / "missing"))


def test_a_server_that_never_speaks_times_out(sshd: Sshd) -> None:
    with server(None) as (port, _):
        inventory = daemon.with_ssh(daemon.inventory(sshd), port=port)
        assert daemon.refused(inventory, limits=Limits(connect_s=0.5)).cause == "timeout"


def test_reading_a_host_key_ends_at_the_deadline(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits: list[float] = []

    def start_client(session: paramiko.Transport, timeout: float) -> None:
        limits.extend((session.banner_timeout, timeout))
        session.sock.close()
        raise paramiko.SSHException("no answer")

    monkeypatch.setattr(paramiko.Transport, "start_client", start_client)
    inventory = daemon.inventory(sshd)
    empty = tmp_path / "known_hosts"
    empty.touch(mode=0o600)
    ssh = inventory.ssh.model_copy(update={"known_hosts": str(empty)})
    with (
        Transport(inventory.model_copy(update={"ssh": ssh})) as opened,
        deadline.within(0.5),
        pytest.raises(TransportError, match="presents no host key"),
    ):
        opened.unpinned("s1")
    assert limits
    assert max(limits) <= 0.5


def test_a_dropped_login_is_retried_and_then_named(sshd: Sshd) -> None:
    with server(b"") as (port, seen):
        inventory = daemon.with_ssh(daemon.inventory(sshd), port=port)
        error = daemon.refused(inventory, "MaxStartups.*PerSourcePenalties", Limits(connect_s=2, attempts=3))
    assert len(seen) == 3
    assert error.cause == "refused", "nobody answered, as where nobody listens"


def test_a_refused_connect_is_not_retried(sshd: Sshd) -> None:
    error = daemon.refused(daemon.with_ssh(daemon.inventory(sshd), port=free_port()))
    assert error.cause == "refused"
    assert not error.outcome_unknown


def test_a_burst_of_hosts_stays_within_the_servers_limit(tmp_path: Path) -> None:
    """MaxStartups drops every login beyond eight at once; without our own bound most of these would fail."""
    with daemon.running(tmp_path, "MaxStartups 8:100:8") as sshd:
        inventory = daemon.inventory(sshd, hosts=24)
        with (
            Transport(inventory, Limits(connects=4, attempts=1)) as transport,
            ThreadPoolExecutor(24) as pool,
        ):
            done = list(pool.map(lambda h: transport.exec(h, ["true"]).rc, inventory.source_names))
    assert done == [0] * 25


def test_the_bastion_carries_every_connection(tmp_path: Path) -> None:
    with (
        daemon.running(tmp_path) as sshd,
        Transport(daemon.with_ssh(daemon.inventory(sshd), bastion="127.0.0.2")) as transport,
    ):
        client = transport.exec("s1", ["sh", "-c", "echo $SSH_CONNECTION"]).text.split()
        bastion = transport.exec("bastion", ["sh", "-c", "echo $SSH_CONNECTION"]).text.split()
    assert client[2] == "127.0.0.1"
    assert bastion[2] == "127.0.0.2"


def test_a_name_that_the_inventory_lacks_is_refused(transport: Transport) -> None:
    with pytest.raises(TransportError, match="no host of that name"):
        transport.exec("nowhere", ["true"])


def test_a_closed_transport_opens_nothing(sshd: Sshd) -> None:
    transport = Transport(daemon.inventory(sshd))
    transport.close()
    with pytest.raises(TransportError, match="closed"):
        transport.exec("s1", ["true"])


def test_files_are_read_whole_within_a_limit(transport: Transport, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"z" * 70_000)
    assert transport.read("s1", str(file), 70_000) == b"z" * 70_000
    with pytest.raises(OSError, match="larger than 69999"):
        transport.read("s1", str(file), 69_999)
    with pytest.raises(FileNotFoundError):
        transport.read("s1", str(tmp_path / "none"))


def test_directories_are_listed_with_type_size_mode_and_owner(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"12345")
    (tmp_path / "b").chmod(0o640)
    (tmp_path / "a").mkdir()
    (tmp_path / "c").symlink_to("b")
    first, second, third = transport.connection("s1").list_directory(str(tmp_path), 5)
    assert [e.name for e in (first, second, third)] == ["a", "b", "c"]
    assert [e.kind for e in (first, second, third)] == ["d", "f", "o"]
    assert (second.size, second.mode, second.owner) == (5, "0640", daemon.user())
    assert second.changed_ns is None


def test_a_reader_reads_anywhere_and_sees_the_file_grow(transport: Transport, tmp_path: Path) -> None:
    file = tmp_path / "log"
    data = bytes(range(256)) * 1000
    file.write_bytes(data)
    reader = SftpReader(transport, "s1", str(file))
    assert reader.size() == len(data)
    assert reader.read(100_000, 90_000) == data[100_000:190_000]
    assert reader.read(len(data) - 3, 10) == data[-3:]
    assert reader.read(len(data) + 5, 10) == b""
    with file.open("ab") as more:
        more.write(b"tail")
    assert reader.size() == len(data) + 4
    assert reader.read(len(data), 10) == b"tail"


def test_a_reader_opens_its_file_again_after_the_connection_broke(
    transport: Transport, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"abc")
    reader = SftpReader(transport, "s1", str(file))
    assert reader.read(0, 3) == b"abc"
    with pytest.raises(TransportError):
        transport.exec("s1", ["sh", "-c", "kill -9 $PPID; sleep 1"])
    assert reader.read(1, 2) == b"bc"


def test_a_reader_of_a_missing_file_says_so(transport: Transport, tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="No such file"):
        SftpReader(transport, "s1", str(tmp_path / "none")).size()


def test_readers_on_one_connection_do_not_mix_their_answers(transport: Transport, tmp_path: Path) -> None:
    readers = []
    for n in range(6):
        (tmp_path / f"f{n}").write_bytes(bytes([n]) * 200_000)
        readers.append(SftpReader(transport, "s1", str(tmp_path / f"f{n}")))
    with ThreadPoolExecutor(6) as pool:
        read = list(pool.map(lambda r: [r.read(k * 1000, 50_000) for k in range(10)], readers))
    assert read == [[bytes([n]) * 50_000] * 10 for n in range(6)]
