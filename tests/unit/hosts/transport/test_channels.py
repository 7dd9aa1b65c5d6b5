"""The held-open channel against a script that speaks its protocol, well and badly, and the real zkm-host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit import sshd as daemon
from tests.unit.sshd import Sshd
from zkmigrate import deadline
from zkmigrate.errors import UsageError
from zkmigrate.hosts.transport.channels import Channels, relay, zkm_host
from zkmigrate.hosts.transport.failure import TransportError
from zkmigrate.hosts.transport.ssh import Transport
from zkmigrate.inventory.inventory import GatewayProgram

SPEAKER = r"""#!/bin/sh
started="$*"
while read -r id verb rest; do
  case $verb in
    echo) printf '= %s\n' "$rest" ;;
    two) printf '= one\n=\n= two\n' ;;
    started) printf '= %s pid %s\n' "$started" $$ ;;
    pieces) printf '= wh'; sleep 0.1; printf 'ole\n' ;;
    bytes) printf '= caf\303\251 \377\n' ;;
    refuse) printf '= refused in phase idle\n. %s 3\n' "$id"; continue ;;
    garbage) printf 'Last login: yesterday\n' ;;
    other) printf '. 999 0\n'; continue ;;
    number) printf '. %s 999\n' "$id"; continue ;;
    act) echo "$rest" >>"$ZKM_STATE/acted"; exit 5 ;;
    silent) echo "$rest" >>"$ZKM_STATE/acted"; sleep 60 ;;
    cut) kill -9 $PPID; sleep 5 ;;
    flood) yes '= xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' ;;
    line) head -c 9000000 /dev/zero | tr '\0' x ;;
  esac
  printf '. %s 0\n' "$id"
done
"""


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    folder = tmp_path_factory.mktemp("sshd")
    state = folder / "state"
    state.mkdir()
    with daemon.running(folder, environment=f"ZKM_STATE={state}") as running:
        running.program("speaker", SPEAKER)
        yield running


@pytest.fixture
def channels(sshd: Sshd) -> Iterator[Channels]:
    sshd.allow_sudo()
    (sshd.folder / "state" / "acted").unlink(missing_ok=True)
    with Transport(daemon.inventory(sshd)) as transport:
        opened = Channels(transport, "r1", "steps", zkm_host(str(sshd.programs / "speaker")))
        yield opened
        opened.close()


def acted(sshd: Sshd) -> list[str]:
    return (sshd.folder / "state" / "acted").read_text().split()


def test_a_request_is_answered_with_its_lines_and_exit_code(channels: Channels) -> None:
    answer = channels.ask("d1", "echo", "a", "b")
    assert (answer.rc, answer.output) == (0, "a b")
    assert channels.ask("d1", "two").output == "one\n\ntwo"
    assert channels.ask("d1", "pieces").output == "whole"
    assert channels.ask("d1", "bytes").output == "café \ufffd"
    assert channels.ask("d1", "nothing").output == ""


def test_a_refusal_is_an_answer(channels: Channels) -> None:
    answer = channels.ask("d1", "refuse")
    assert (answer.rc, answer.output) == (3, "refused in phase idle")


def test_the_process_is_held_open_and_carries_run_and_fencing_number(channels: Channels) -> None:
    first = channels.ask("d1", "started", fencing=4).output
    assert first.startswith("--run r1 --as 4 serve pid ")
    assert channels.ask("d1", "started").output == first
    assert channels.ask("d1", "started", fencing=4).output == first
    assert channels.ask("d1", "started", fencing=5).output.startswith("--run r1 --as 5 serve pid ")


def test_each_host_has_a_channel_of_its_own(channels: Channels) -> None:
    with ThreadPoolExecutor(3) as pool:
        said = list(pool.map(lambda host: channels.ask(host, "started").output, ("d1", "d2", "d3")))
    assert len(set(said)) == 3


def test_threads_get_their_own_answers(channels: Channels) -> None:
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda n: channels.ask("d1", "echo", str(n)).output, range(60)))
    assert said == [str(n) for n in range(60)]


@pytest.mark.parametrize("verb", ["garbage", "other", "number", "flood", "line"])
def test_what_breaks_the_protocol_ends_the_channel(channels: Channels, verb: str) -> None:
    before = channels.ask("d1", "started").output
    with pytest.raises(TransportError) as caught:
        channels.ask("d1", verb)
    assert caught.value.cause == "garbled"
    assert caught.value.outcome_unknown
    assert channels.ask("d1", "started").output != before


def test_a_program_that_dies_after_it_acted_is_not_asked_again(channels: Channels, sshd: Sshd) -> None:
    with pytest.raises(TransportError, match=r"exited during act.*exit code 5") as caught:
        channels.ask("d1", "act", "once")
    assert caught.value.outcome_unknown
    assert acted(sshd) == ["once"]


def test_a_missing_reply_ends_at_the_deadline_and_is_not_asked_again(channels: Channels, sshd: Sshd) -> None:
    channels.ask("d1", "echo", "warm")
    with pytest.raises(TransportError) as caught:
        channels.ask("d1", "silent", "once", deadline_s=0.5)
    assert (caught.value.cause, caught.value.outcome_unknown) == ("timeout", True)
    assert channels.ask("d1", "echo", "next").output == "next"
    assert acted(sshd) == ["once"]


def test_a_connection_cut_during_a_request_leaves_the_outcome_unknown(channels: Channels) -> None:
    with pytest.raises(TransportError) as caught:
        channels.ask("d1", "cut", deadline_s=10)
    assert caught.value.outcome_unknown
    assert channels.ask("d1", "echo", "next").output == "next"


@pytest.mark.parametrize("word", ["", "a b", "a\nb", "$HOME", "é", "a;b", "'", "*"])
def test_words_that_could_be_more_than_one_are_refused_before_sending(channels: Channels, word: str) -> None:
    with pytest.raises(UsageError):
        channels.ask("d1", "echo", word)


def test_sudo_that_wants_a_password_is_denied_with_nothing_done(channels: Channels, sshd: Sshd) -> None:
    sshd.refuse_sudo()
    with pytest.raises(TransportError, match="a password is required") as caught:
        channels.ask("d1", "echo", "x")
    assert (caught.value.cause, caught.value.outcome_unknown) == ("denied", False)
    sshd.allow_sudo()
    assert channels.ask("d1", "echo", "x").output == "x"


def test_a_program_that_is_not_installed_is_a_missing_tool(sshd: Sshd) -> None:
    sshd.allow_sudo()
    with Transport(daemon.inventory(sshd)) as transport, pytest.raises(TransportError) as caught:
        Channels(transport, "r1", "steps", zkm_host("/nonexistent/zkm-host")).ask("d1", "status")
    assert (caught.value.cause, caught.value.outcome_unknown) == ("missing-tool", False)


def test_a_gateways_relay_is_started_by_its_own_words_without_root(sshd: Sshd) -> None:
    sshd.refuse_sudo()
    program = GatewayProgram((str(sshd.programs / "speaker"), "-v"), "/etc/gw.yml")
    with Transport(daemon.inventory(sshd)) as transport:
        channels = Channels(transport, "r1", "steps", relay(program))
        started = channels.ask("d1", "started", fencing=4).output
        channels.close()
    assert started.startswith("-v gateway relay --config /etc/gw.yml --run r1 --as 4 pid ")


@pytest.mark.parametrize(
    ("name", "verb", "said"),
    [
        ("speaker", "act", "the gateway's relay exited during act (exit code 5): no output"),
        ("none", "status", "the gateway's relay did not start: "),
    ],
)
def test_an_error_names_the_program_that_was_to_speak(sshd: Sshd, name: str, verb: str, said: str) -> None:
    program = GatewayProgram((str(sshd.programs / name),), "/etc/gw.yml")
    with Transport(daemon.inventory(sshd)) as transport, pytest.raises(TransportError) as caught:
        Channels(transport, "r1", "steps", relay(program)).ask("d1", verb, "late")
    assert said in str(caught.value)
    assert "zkm-host" not in str(caught.value)


def test_the_two_lanes_of_a_host_do_not_wait_for_each_other(sshd: Sshd) -> None:
    sshd.allow_sudo()
    program = str(sshd.programs / "speaker")
    with Transport(daemon.inventory(sshd)) as transport, ThreadPoolExecutor(1) as pool:
        steps, watch = (Channels(transport, "r1", lane, zkm_host(program)) for lane in ("steps", "watch"))
        watch.ask("d1", "echo", "open")
        stuck = pool.submit(steps.ask, "d1", "silent", "x", deadline_s=5)
        assert watch.ask("d1", "echo", "renewed", deadline_s=4).output == "renewed"
        assert isinstance(stuck.exception(), TransportError)


def test_the_real_program_answers_over_the_channel(tmp_path: Path) -> None:
    program = Path(__file__).parents[4] / "zkmigrate" / "hosts" / "zkm_host" / "zkm-host"
    with daemon.running(tmp_path, environment=f"ZKM_STATE={tmp_path}/state") as sshd:
        sshd.allow_sudo()
        sshd.program("zkm-host", program.read_text())
        with Transport(daemon.inventory(sshd)) as transport:
            channels = Channels(transport, "r1", "steps", zkm_host(str(sshd.programs / "zkm-host")))
            status = channels.ask("d1", "status", fencing=1)
            unknown = channels.ask("d1", "no-such-verb")
            channels.close()
    assert status.rc == 0
    assert "phase=idle" in status.output.splitlines()
    assert unknown.rc == 2


def test_a_request_without_time_left_is_not_sent(sshd: Sshd, channels: Channels) -> None:
    channels.ask("d1", "echo", "a")
    with pytest.raises(TransportError, match="the deadline was over") as raised:
        channels.ask("d1", "act", "late", deadline_s=-1.0)
    assert not raised.value.outcome_unknown
    with pytest.raises(TransportError, match="exited during act"):
        channels.ask("d1", "act", "now")
    assert acted(sshd) == ["now"]


def test_in_a_hurry_a_silent_host_is_asked_beside_and_told_until_it_answers(
    sshd: Sshd, channels: Channels
) -> None:
    channels.ask("d1", "echo", "a")
    sshd.refuse_sudo()  # no channel can be opened anew
    with deadline.within(0.5):
        with pytest.raises(TransportError, match="not answered in time"):
            channels.ask("d1", "silent", "x", deadline_s=3600.0)
        for _ in range(3):
            with pytest.raises(TransportError, match="it is probed"):
                channels.ask("d1", "echo", "b")
    sshd.allow_sudo()

    def silent() -> bool:
        with deadline.within(5.0):
            try:
                return channels.ask("d1", "echo", "c").output != "c"
            except TransportError:
                return True

    end = time.monotonic() + 60
    while silent():
        assert time.monotonic() < end, "the host is heard again"
    assert acted(sshd) == ["x"]
