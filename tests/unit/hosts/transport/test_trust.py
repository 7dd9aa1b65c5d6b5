"""What is refused before any host is asked: files that others may write, keys without a pin, odd words."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import paramiko
import pytest

from zkmigrate.errors import UsageError
from zkmigrate.hosts.transport import quote, trust

HOST_KEY = paramiko.ECDSAKey.generate()
PIN = f"host1 {HOST_KEY.get_name()} {HOST_KEY.get_base64()}\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A private key and a file of known hosts, as they are to be."""
    key, known = tmp_path / "key", tmp_path / "known_hosts"
    paramiko.ECDSAKey.generate().write_private_key_file(str(key))
    known.write_text(f"# a remark\n\n{PIN}")
    for path in (key, known):
        path.chmod(0o600)
    return key, known


def load(files: tuple[Path, Path]) -> trust.Trust:
    return trust.load(*map(str, files))


def refusal(files: tuple[Path, Path]) -> str:
    with pytest.raises(UsageError) as refused:
        load(files)
    return str(refused.value)


def test_files_of_ones_own_are_taken(files: tuple[Path, Path]) -> None:
    assert load(files).known_hosts == (files[1],)
    assert trust.pinned(files[1], "host1")
    assert not trust.pinned(files[1], "host2")


@pytest.mark.parametrize(
    ("number", "mode", "said"),
    [(0, 0o640, "ssh.key .* others cannot read"), (1, 0o620, "ssh.known_hosts .* others cannot write")],
)
def test_files_that_others_can_get_at_are_refused(
    files: tuple[Path, Path], number: int, mode: int, said: str
) -> None:
    files[number].chmod(mode)
    with pytest.raises(UsageError, match=said):
        load(files)


def test_files_of_another_account_are_refused(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = files[0].stat().st_uid
    if owner == 0:
        os.chown(files[1], 12345, 12345)
        owner = 12345
    else:
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert f"owner {owner}. Needed: a plain file that you own" in refusal(files)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir], ids=["a pipe", "a directory"])
def test_what_is_no_file_is_refused_and_not_waited_for(
    files: tuple[Path, Path], number: int, made: Callable[[Path, int], None]
) -> None:
    files[number].unlink()
    made(files[number], 0o600)
    said = refusal(files)
    assert "Needed: a plain file that you own" in said or "Is a directory" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"@revoked {PIN}", "known_hosts:4: @revoked lines are not supported"),
        (f"@cert-authority {PIN}", "known_hosts:4: @cert-authority lines are not supported"),
        ("host1 ssh-ed25519 rubbish\n", "known_hosts:4: not a"),
        ("host1\n", "known_hosts:4: not a known_hosts line"),
        ("host1 ssh-unheard-of AAAA\n", "known_hosts:4: not a"),
    ],
    ids=["revoked", "authority", "spoilt", "short", "unknown type"],
)
def test_a_line_that_would_be_passed_over_in_silence_is_refused_by_its_number(
    files: tuple[Path, Path], line: str, said: str
) -> None:
    files[1].write_text(files[1].read_text() + line)
    assert said in refusal(files)


def test_a_host_key_without_a_pin_is_refused_by_its_fingerprint() -> None:
    with pytest.raises(trust.UnknownHostKey, match=f"shows the key {HOST_KEY.get_name()} SHA256:.* host9"):
        trust.Reject().missing_host_key(paramiko.SSHClient(), "host9", HOST_KEY)


@pytest.mark.parametrize(
    "word", ["", "a b", "a;b", "$(x)", "`x`", "a\nb", "a\n", "é", "a'b", "*", "~", "\x1b[m"]
)
def test_no_word_means_anything_to_a_shell_a_line_or_a_terminal(word: str) -> None:
    quote.plain(["status", "a.b_c:1/2,3=4@5+6%7-8"])
    with pytest.raises(UsageError, match="cannot be sent to a host"):
        quote.plain(["status", word])


@pytest.mark.parametrize("argv", [(), ("",), ("-x",), ("cat", "a\0b")], ids=["none", "empty", "dash", "nul"])
def test_what_is_no_command_is_refused(argv: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        quote.command(argv)


def test_a_shell_hands_on_each_word_as_it_was() -> None:
    words = ["a b", "'", '"', "$HOME", "`id`", "a\nb", "\\", "*", "", "é;|&"]
    line = quote.command(["printf", "%s\\0", *words])
    assert subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout.decode().split(
        "\0"
    ) == [*words, ""]
    assert shlex.split(line)[2:] == words
