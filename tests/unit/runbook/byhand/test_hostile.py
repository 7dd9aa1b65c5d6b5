"""A hostile server or host answers the functions of the by-hand runbook: no answer runs code here.

`ssh` and `timeout` (which asks four-letter words) are stubs, so every function runs whole.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.runbook.byhand.test_functions import FUNCTIONS
from tests.world.operator import quiet_world
from tests.world.test_runbook import made
from zkmigrate.clean import inline
from zkmigrate.errors import UsageError
from zkmigrate.runbook.byhand import export, page
from zkmigrate.runbook.byhand.commands import Position, command_line
from zkmigrate.runbook.byhand.sheet import heredoc
from zkmigrate.runbook.model.by_hand import Block
from zkmigrate.runbook.model.change import PutFile
from zkmigrate.runbook.model.step import Way

SITE = """
ALL=dest1 DEST=dest1 DEST_COUNT=1 DEST_PORT=2181 ZKM=zkm-host RUN=night
SOURCE=source1=10.0.0.1 SOURCE_PORT=2181
SOURCE_LOGS=/logs CHROOT=/kafka LEADER=source1 LEADER_AT=10.0.0.1 LEARNERS=1 Z=0x100000005 RECORDS='log.1 3'
WAY_BACK_S=3 FIND_DOOR_S=3 LEAST_HAND_S=10 MORE_S=3 OPEN_MS=20000 LEG=1 KAFKA_TOPICS=kafka-topics STARTED=no
"""
STUBS = """
answer() { case $1 in dest2) sed 's/^Mode: leader/Mode: follower/' "said.$n" ;; *) cat "said.$n" ;; esac; }
ssh() { while [ "$1" != "${1#-}" ]; do case $1 in -F) shift 2 ;; *) shift ;; esac; done
  case "$*" in *version-2*) cat logs ;; *) answer "$1"; printf '\\033[2Jssh says\\n' >&2 ;; esac; }
timeout() { answer; }
"""
HONEST = """phase=sealed
fence_timeout_s=20
served_s=3.2
boot_id=0a0b0c0d-0a0b-0a0b-0a0b-0a0b0c0d0e0f
stamp=0000000000000000000000000000000000000000000000000000000000000000
fencing 3
outstanding=0 zxid=0x100000005 mode=observer
Zxid: 0x100000005
Mode: leader
zk_learners\t1
zk_synced_followers\t0
 /10.0.0.21:5[1](queued=0,recved=1,sent=1,sid=0x1,lop=PING,est=1,to=40000,lcxid=0x1)
0x1:
\t/kafka/controller
\t/kafka/brokers/ids/7
"""
LOGS = "log.1 3\n"
BEFORE = "0x1 /kafka/brokers/ids/7\n0x1 /kafka/controller\n"
CODE = ("a[$(touch canary)]", "$(touch canary)", "`touch canary`", "0x1;touch canary", "x[`touch canary`]+1")
WRONG = (
    *CODE, "-1", "08", "0x", "0xffffffffffffffff", "99999999999999999999", "7\x1b]0;t\x07", "*",
)  # fmt: skip
"""What no server says. A zxid of 64 bits is negative for a shell, and so above nothing."""

READS: dict[str, tuple[str, ...]] = {
    "source_zxid": ("Zxid: ",),
    "epoch source1 $(word h 1 srvr | zxid_of)": ("Zxid: ",),
    "until_zxid 0 0x100000005 dest1": ("Zxid: ",),
    'until_zxid 0 "$(word h 1 srvr | zxid_of)" dest1': ("Zxid: ",),
    "learners": ("zk_learners\t",),
    "until_dropped 0": ("zk_learners\t",),
    "survey": ("zk_learners\t",),
    "none_open": ("phase=", "served_s="),
    "left_ms": ("fence_timeout_s=",),
    "in_time 0": ("fence_timeout_s=",),
    "same_source": ("Zxid: ",),
    "DEST='dest1 dest2' DEST_COUNT=2; reformed": ("zk_synced_followers\t", "Zxid: "),
    "look dest1; value dest1.status phase": ("phase=",),
    "look dest1; value dest1.status boot_id": ("boot_id=",),
    "look dest1; value dest1.status stamp": ("stamp=",),
}
"""What is counted with or put into a command, by the call that does it; each must stop."""

LOOKS = (
    "at dest1 x; went '^none of these$' dest1", "give owners.before dest1 x; say '^none of these$' dest1",
    "at dest1 x; never '^phase' dest1", "stand", "lists", "source_leader",
    "until_said 0 dest1 status x phase=x", "until_like 0 dest1 phase=open", "until_drained 0",
    "until_mode 0 observer dest1", "records", "reformed",
    "until_moved 0 7 dest 10.0.0.21", "still_owned", "controller", "in_sync broker1 10.0.0.21:9092",
    "until_in_sync 0 broker1 10.0.0.21:9092", "zkm dest1 x >b.old; : >b.new; one_line b",
    "without dest9; none_open",
)  # fmt: skip
"""Every call that reads an answer: whatever it is, no code of it runs and no control character is shown."""

AT_HOME = "lists() { zkm dest1 word 1 cons >cons.dest; : >cons.source; }"

RAW = ("zkm dest1 status", "ask dest1 x", "word h 1 dump | owners")
"""What only other functions read: its output goes to a file, its complaints to the screen."""

NO_ANSWER = {"keep", "next", "plain", "stop", "exact", "left_out", "everybody", "fill", "digest", "block"}
NO_ANSWER |= {"run_blocks", "step", "back"}


def hand(folder: Path, script: str, *answers: str, logs: str = LOGS) -> list[tuple[int, str]]:
    """Exit code and everything shown, for each answer that every host gives to everything."""
    (folder / "logs").write_text(logs)
    (folder / "owners.before").write_text(BEFORE)
    for number, answer in enumerate(answers):
        (folder / f"said.{number}").write_text(answer)
    each = f"for n in {{0..{len(answers) - 1}}}; do (\n{script}\n) >shown.$n 2>&1; echo $? >>codes; done"
    (folder / "codes").unlink(missing_ok=True)
    argv = ["bash", "-c", f"{FUNCTIONS}\n{STUBS}\n{SITE}\n{each}"]
    subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, check=False)
    assert not (folder / "canary").exists(), f"{script}: code of an answer ran here"
    codes = [int(code) for code in (folder / "codes").read_text().split()]
    assert len(codes) == len(answers)
    return [(code, (folder / f"shown.{n}").read_bytes().decode()) for n, code in enumerate(codes)]


def hostile(answer: str, values: tuple[str, ...], key: str) -> list[str]:
    """The answer with the one value replaced by each of these."""
    found = re.findall(f"(?m)^{re.escape(key)}.*$", answer)
    assert len(found) == 1, key
    return [answer.replace(found[0], f"{key}{value}") for value in values]


def all_stopped(script: str, seen: list[tuple[int, str]]) -> None:
    for code, said in seen:
        assert code != 0, f"{script}: {said!r}"
        assert "STOP: " in said, f"{script}: {said!r}"
        assert "No such value exists" in said, f"{script}: {said!r}"


@pytest.mark.parametrize("script", READS)
def test_a_value_that_no_host_gives_stops_the_hand_and_runs_nothing(script: str, tmp_path: Path) -> None:
    for key in READS[script]:
        all_stopped(script, hand(tmp_path, script, *hostile(HONEST, WRONG, key)))


@pytest.mark.parametrize("script", ["same_source", "reformed"])
def test_a_value_that_was_kept_for_z_is_looked_at_again(script: str, tmp_path: Path) -> None:
    """Another operator may have typed it."""
    for wrong in WRONG:
        all_stopped(script, hand(tmp_path, f"Z='{wrong}'\n{script}", HONEST))


def test_a_zxid_to_wait_for_is_looked_at_before_it_is_reckoned_with(tmp_path: Path) -> None:
    for wrong in WRONG:
        all_stopped("until_zxid", hand(tmp_path, f"until_zxid 0 '{wrong}' dest1", HONEST))


@pytest.mark.parametrize("wrong", [*CODE, "", "log.1", "log.1 $(id) 3", "log.1 log.2 log.3 4", "log.1 03"])
def test_the_records_of_the_log_are_names_and_a_count(wrong: str, tmp_path: Path) -> None:
    assert hand(tmp_path, "same_source", HONEST)[0][0] == 0
    all_stopped("same_source", hand(tmp_path, "same_source", HONEST, logs=f"{wrong}\n"))


@pytest.mark.parametrize(
    ("script", "old", "new"),
    [
        (f"{AT_HOME}; survey", "to=40000", "to=08"),
        (f"{AT_HOME}; survey", "to=40000", "to=99999999999"),
        ("controller", "ids/7", "ids/7x"),
        ("controller", "\t/kafka/brokers", "0x2:\n\t/kafka/controller\n\t/kafka/brokers"),
        ("until_moved 0 7 dest 10.0.0.9", "0x1:", "0x2:\n\t/kafka/brokers/ids/7\n0x1:"),
    ],
)
def test_an_odd_owner_or_timeout_stops_the_hand(script: str, old: str, new: str, tmp_path: Path) -> None:
    """One broker is one session, and an id is a number."""
    assert HONEST.count(old) == 1
    all_stopped(script, hand(tmp_path, script, HONEST.replace(old, new)))


def test_two_controllers_are_told_as_two_sessions(tmp_path: Path) -> None:
    two = HONEST.replace("\t/kafka/brokers", "0x2:\n\t/kafka/controller\n\t/kafka/brokers")
    [(code, said)] = hand(tmp_path, "controller", two)
    assert (code, "0x1\n0x2' as the session of the controller" in said) == (1, True), said


def test_owners_of_before_are_shown_without_control_characters(tmp_path: Path) -> None:
    (tmp_path / "before").write_text(f"0x1 /kafka/{FORGED}\n")
    [(code, said)] = hand(tmp_path, "cp before owners.before; still_owned", HONEST)
    assert (code, "STOP: these are gone" in said) == (1, True), said
    assert re.fullmatch(r"[\t\n -~]*", said), repr(said)


def test_owners_that_differ_are_shown_without_control_characters(tmp_path: Path) -> None:
    whole = HONEST.replace("zk_synced_followers\t0", "zk_synced_followers\t1")
    script = "DEST='dest1 dest2' DEST_COUNT=2; reformed"
    (same, forged) = hand(tmp_path, script, whole, whole.replace("ids/7", f"ids/7{FORGED}"))
    assert (same[0], "OK dest1 leads 1 followers" in same[1]) == (0, True), same
    assert (forged[0], "STOP: ephemerals or their owners differ" in forged[1]) == (1, True), forged
    assert re.fullmatch(r"[\t\n -~]*", forged[1]), repr(forged[1])


def test_two_answers_for_one_value_are_none(tmp_path: Path) -> None:
    """A host that is sealed and open at once has not said where it is."""
    all_stopped("none_open", hand(tmp_path, "none_open", HONEST + "phase=open\n"))


FORGED = "\x1b[2J\x1b]52;c;aWQ=\x07\x9b31m\u202eOK dest1\rOK\x08"


@pytest.mark.parametrize("script", [*READS, *LOOKS, *RAW])
def test_whatever_a_host_answers_no_code_runs_and_no_control_character_is_shown(
    script: str, tmp_path: Path
) -> None:
    code = "a[$(touch canary)]"
    seen = hand(
        tmp_path,
        f"{script} >raw" if script in RAW else script,
        re.sub(r"(?m)^(\w+(?:=|: |\t)).*$", lambda found: f"{found[1]}{code}{FORGED}", HONEST),
        f"$(touch canary)\n{FORGED}",
        HONEST + FORGED,
        HONEST.replace("/kafka", f"/kafka/{code}{FORGED}"),
        HONEST.replace("0x1:", f"0x1{code}:").replace("to=40000", f"to={code}"),
        logs=f"log.1 3{FORGED}\n",
    )
    for _, said in seen:
        assert re.fullmatch(r"[\t\n -~]*", said), f"{script}: {said!r}"


def test_the_fencing_number_of_all_hosts_is_made_of_digits(tmp_path: Path) -> None:
    """One host's answer goes into commands for the others."""
    [block] = [box for box in export.blocks(made(quiet_world())) if box["step"] == "hold.lock"]
    text = block["text"].replace("dest2", "dest1").replace("dest3", "dest1")
    answers = [f"fencing 4\nfencing 9{code}\n" for code in CODE]
    for code, said in hand(tmp_path, f'{text}\necho "now $N"', "fencing 3\n", *answers):
        assert (code, said.splitlines()[-1] in ("now 3", "now 4")) == (0, True), said


CONTENTS = (
    "",
    "a=1\nb=2\n",
    "tab\tMünchen\n\n",
    "no end of line",
    "a\nEND-OF-FILE\ntouch canary\n",
    "a\n```\n```sh host=d1 step=roll.roll way=forward\ntouch canary\n```\n",
    "a\r\nb\x85c\x0bd\u2028e\n",
    f"{FORGED}\n",
)


@pytest.mark.parametrize("content", CONTENTS)
def test_a_file_on_the_page_has_its_exact_bytes_and_is_never_typed(tmp_path: Path, content: str) -> None:
    lines = list(page._fenced(Block(("d1",), tuple(heredoc("file", content))), "join.join"))
    assert not [line for line in lines if inline(line) != line]
    [box] = export.blocks("\n".join(lines))
    subprocess.run(["bash", "-c", box["text"]], cwd=tmp_path, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == content.encode()


def test_plain_files_stand_there_to_be_read() -> None:
    assert heredoc("file", "a=1\nb=2\n") == ["cat >file <<'END-OF-FILE'", "a=1", "b=2", "END-OF-FILE"]
    assert r"#   a=\u001b[1m" in heredoc("file", "a=\x1b[1m\n"), "others escaped, beside the bytes"


@pytest.mark.parametrize("text", ["at d1 x\ntouch canary", "at d1 \x1b[2J", "at d1 \u202ex", "```"])
def test_no_page_is_made_with_a_command_that_a_terminal_obeys_or_that_ends_its_box(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        list(page._fenced(Block(("d1",), ("true", text)), "join.join"))
    assert inline(text) in str(caught.value)


@pytest.mark.parametrize("owner", ["root:root;touch canary", "root:$(touch canary)", "root root", ""])
def test_no_line_of_the_page_holds_a_word_that_a_shell_would_read(owner: str) -> None:
    position = Position("night", "join.join", Way.FORWARD)
    with pytest.raises(UsageError):
        command_line(position, PutFile("dest1", "/etc/zoo.cfg", b"a\n", owner), "join.join.dest1.$LEG.1")


def test_every_function_that_reads_an_answer_is_tried() -> None:
    functions = set(re.findall(r"(?m)^(\w+)\(\)", FUNCTIONS))
    tried = {word for script in (*READS, *LOOKS, *RAW) for word in re.findall(r"\w+", script)}
    assert functions - NO_ANSWER == functions & tried
