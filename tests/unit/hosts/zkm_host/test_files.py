"""zkm-host: files, before-images, operation ids, fencing numbers and the lock."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.zkm_net import PROGRAM, Answer, Host, encode, need_root
from zkmigrate.hosts import zkm_host
from zkmigrate.hosts.facts.status import parse_status
from zkmigrate.runbook.engine.copies import Copies
from zkmigrate.runbook.engine.journal import Journal
from zkmigrate.runbook.model.change import EditLine, Outcome, edit_line
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.site.observe import parse_listing


@pytest.fixture
def host(tmp_path: Path) -> Host:
    need_root()
    return Host(tmp_path, [])


def test_the_program_is_clean_for_shellcheck_and_dash() -> None:
    checked = subprocess.run(["shellcheck", "-s", "sh", PROGRAM], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    subprocess.run(["dash", "-n", PROGRAM], check=True)


def test_the_package_hands_out_the_program_and_its_sudoers_line() -> None:
    assert zkm_host.program() == PROGRAM.read_bytes()
    assert zkm_host.sudoers("zkadmin") == "zkadmin ALL=(root) NOPASSWD: /usr/local/sbin/zkm-host\n"


@pytest.mark.parametrize("user", ["", "ALL", "a b", "x\nroot ALL=(ALL) ALL", "%wheel", "a" * 33])
def test_sudoers_refuses_what_is_not_an_account_name(user: str) -> None:
    with pytest.raises(ValueError, match="not a plain account name"):
        zkm_host.sudoers(user)


def test_help_names_every_verb_that_is_understood(host: Host) -> None:
    verbs = {line.split()[0] for line in host.call("help").lines()}
    assert {"put", "arm", "seal", "go", "status", "serve"} <= verbs
    for verb in verbs - {"serve", "help", "guard"}:
        assert "unknown verb" not in host.call(verb).text


def test_put_writes_content_mode_and_owner_and_restore_removes_it(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "new.cfg"
    assert host.put(str(target), b"a=1\n", "0640", "w").rc == 0
    assert target.read_bytes() == b"a=1\n"
    assert target.stat().st_mode & 0o7777 == 0o640
    host.do("restore", "w")
    assert not target.exists()
    assert not list(tmp_path.glob("*.zkm-*"))


def test_restore_puts_back_content_mode_and_owner_exactly(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "zoo.cfg"
    target.write_bytes(b"\x00before\n\n")
    target.chmod(0o604)
    os.chown(target, 12, 34)
    os.utime(target, ns=(5, 1_600_000_000_123_456_789))
    assert host.put(str(target), b"after\n", "0600", "w").rc == 0
    assert host.put(str(target), b"later\n", "0600").rc == 0
    host.do("restore", "w")
    seen = target.stat()
    assert target.read_bytes() == b"\x00before\n\n"
    assert (seen.st_mode & 0o7777, seen.st_uid, seen.st_gid) == (0o604, 12, 34)
    assert seen.st_mtime_ns == 1_600_000_000_123_456_789


SECRET = b"ssl.keystore.password=canary\n"
BEFORE = b"a=1\n" + SECRET + b"zookeeper.connect=old\nz=2"
AFTER = BEFORE.replace(b"=old", b"=new")


def edit(host: Host, target: Path, operation: str = "e", before: bytes = BEFORE) -> Answer:
    made = edit_line("host", str(target), before, AFTER)
    assert isinstance(made, EditLine)
    return host.call("edit", operation, *made.arguments())


def edited(tmp_path: Path) -> Path:
    target = tmp_path / "server.properties"
    target.write_bytes(BEFORE)
    target.chmod(0o604)
    os.chown(target, 12, 34)
    return target


def is_as_before(target: Path, content: bytes) -> bool:
    seen = target.stat()
    return target.read_bytes() == content and (seen.st_mode & 0o7777, seen.st_uid, seen.st_gid) == (
        0o604,
        12,
        34,
    )


def test_edit_replaces_one_line_and_keeps_no_other(host: Host, tmp_path: Path) -> None:
    target = edited(tmp_path)
    assert edit(host, target).text == f"wrote {target}\n"
    assert is_as_before(target, AFTER)
    kept = {path: path.read_bytes() for path in host.state.rglob("*") if path.is_file()}
    assert [path for path, content in kept.items() if b"canary" in content] == []
    assert edit(host, target, "again").text == f"unchanged {target}\n"
    assert host.do("restore", "e") == f"restored {target} (edit)\n"
    assert is_as_before(target, BEFORE)
    assert host.do("restore", "e") == f"restored {target} (edit)\n", "nothing is left to do"
    assert not list(tmp_path.glob("*.zkm*"))


def test_an_edit_of_a_file_that_is_written_already_carries_no_line(host: Host, tmp_path: Path) -> None:
    """A killed run plans it again, and the journal must not get a line that it does not need."""
    target = edited(tmp_path)
    target.write_bytes(AFTER)
    made = edit_line("host", str(target), AFTER, AFTER)
    assert made is not None
    assert (made.old, made.new) == (b"", b"")
    assert host.call("edit", "e", *made.arguments()).text == f"unchanged {target}\n"
    target.write_bytes(BEFORE)
    assert "somebody changed it" in host.refused("edit", *made.arguments())


def test_restore_of_an_edit_leaves_what_others_changed_meanwhile(host: Host, tmp_path: Path) -> None:
    target = edited(tmp_path)
    assert edit(host, target).rc == 0
    target.write_bytes(AFTER.replace(b"a=1", b"a=3"))
    host.do("restore", "e")
    assert target.read_bytes() == BEFORE.replace(b"a=1", b"a=3")
    target.write_bytes(b"b=1\n" + AFTER)
    host.do("restore", "e")
    assert target.read_bytes() == b"b=1\n" + BEFORE, "the line has another number"
    for wrong in (AFTER + b"\nzookeeper.connect=new\n", AFTER.replace(b"=new", b"=x")):
        target.write_bytes(wrong)
        assert "put it back by hand" in host.refused("restore", "e")
        assert target.read_bytes() == wrong


def test_edit_refuses_another_file_than_the_one_that_was_read(host: Host, tmp_path: Path) -> None:
    target = edited(tmp_path)
    target.write_bytes(BEFORE + b"more")
    assert "somebody changed it" in host.refused("edit", *_words(target))
    assert target.read_bytes() == BEFORE + b"more"
    target.write_bytes(BEFORE)
    assert "announced was" in host.refused("edit", *_words(target, after="0" * 64), rc=2)
    assert target.read_bytes() == BEFORE
    target.unlink()
    target.symlink_to("/etc/shadow")
    assert "not a regular file" in host.refused("edit", *_words(target))


def _words(target: Path, after: str = "") -> tuple[str, ...]:
    made = edit_line("host", str(target), BEFORE, AFTER)
    assert made is not None
    path, number, before, known, line = made.arguments()
    return (path, number, before, after or known, line)


def test_a_killed_edit_is_completed_or_restored(host: Host, tmp_path: Path) -> None:
    target = edited(tmp_path)
    assert edit(host, target).rc == 0
    host.forget_outcome("e")
    assert edit(host, target).text == f"unchanged {target}\n", "killed after the effect"
    target.write_bytes(BEFORE)
    host.forget_outcome("e")
    assert edit(host, target).text == f"wrote {target}\n", "killed before the effect"
    target.write_bytes(BEFORE)
    host.do("restore", "e")
    assert target.read_bytes() == BEFORE


def test_status_dates_the_file_that_was_put_or_put_back_last_on_the_boots_clock(
    host: Host, tmp_path: Path
) -> None:
    target = tmp_path / "server.properties"
    target.write_bytes(b"before")
    for change in (lambda: host.put(str(target), b"after", operation="w"), lambda: host.do("restore", "w")):
        before = parse_status(host.call("status").text).uptime_s
        change()
        status = parse_status(host.call("status").text)
        assert status.written is not None
        listed = parse_listing(str(target), host.call("list", str(target)).text)
        assert isinstance(listed, Seen)
        assert status.written.path == str(target)
        assert status.written.changed_ns == listed.value[0].changed_ns
        assert status.written.boot_id == status.boot_id
        assert before <= status.written.uptime_s <= status.uptime_s


def test_a_file_that_was_put_back_is_listed_as_changed_by_that(host: Host, tmp_path: Path) -> None:
    """Else a process that still works from the content in between would seem younger than the file."""
    target, mark = tmp_path / "server.properties", tmp_path / "mark"
    target.write_bytes(b"before")
    os.utime(target, ns=(5, 1_600_000_000_123_456_789))

    def listed() -> int:
        entries = parse_listing(str(target), host.call("list", str(target)).text)
        assert isinstance(entries, Seen)
        assert entries.value[0].changed_ns is not None
        return entries.value[0].changed_ns

    for begin in (lambda: host.put(str(target), b"after", "0644", "w"), lambda: host.do("restore", "w")):
        mark.unlink(missing_ok=True)
        mark.touch()
        begin()
        assert listed() >= mark.stat().st_ctime_ns
    assert target.read_bytes() == b"before"


def test_put_of_empty_content_and_from_standard_input(host: Host, tmp_path: Path) -> None:
    assert host.put(str(tmp_path / "empty"), b"").rc == 0
    assert (tmp_path / "empty").read_bytes() == b""
    large = os.urandom(300_000)
    digest = hashlib.sha256(large).hexdigest()
    answer = host.call("put", "big", str(tmp_path / "big"), "0600", "root:root", digest, "-", stdin=large)
    assert answer.rc == 0
    assert (tmp_path / "big").read_bytes() == large


def test_put_of_what_is_there_already_changes_nothing(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "same"
    assert host.put(str(target), b"x", "0600").rc == 0
    before = target.stat()
    assert "unchanged" in host.put(str(target), b"x", "0600").text
    assert (target.stat().st_ino, target.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_put_refuses_content_that_is_not_what_was_announced(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_bytes(b"old")
    answer = host.call("put", "w", str(target), "0644", "root:root", "0" * 64, encode("new"))
    assert answer.rc == 2
    assert "nothing changed" in answer.text
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir() if p.name != "state"] == ["f"]
    assert host.call("op", "w").text == "none\n"


def test_put_refuses_links_directories_and_missing_parents(host: Host, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "folder").mkdir()
    assert host.put(str(tmp_path / "link"), b"x").rc == 3
    assert host.put(str(tmp_path / "folder"), b"x").rc == 3
    assert host.put(str(tmp_path / "none" / "f"), b"x").rc == 5
    assert not (tmp_path / "real").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("put", "o", "relative/path", "0644", "root:root", "0" * 64, "eA=="),
        ("put", "o", "/etc/../etc/x", "0644", "root:root", "0" * 64, "eA=="),
        ("put", "o", "/tmp/x", "999", "root:root", "0" * 64, "eA=="),
        ("put", "o", "/tmp/x", "0644", "root", "0" * 64, "eA=="),
        ("put", "o", "/tmp/x", "0644", "root:root", "zz", "eA=="),
        ("put", "../o", "/tmp/x", "0644", "root:root", "0" * 64, "eA=="),
        ("put", "o", "/tmp/$(reboot)", "0644", "root:root", "0" * 64, "eA=="),
        ("move-aside", "o", "/"),
        ("move-aside", "o", "/tmp/*"),
        ("service", "o", "-H", "start"),
        ("service", "o", "zookeeper", "explode"),
        ("fence", "o", "-1"),
        ("fence", "o", "1e3"),
        ("fence", "o"),
        ("go", "o", "third", "10.0.0.1:2181", "2", "100"),
        ("read", "/etc/passwd", "0", "2000000"),
        ("word", "2181", "stat;reboot"),
        ("word", "99999999999999999999", "stat"),
        ("list", "etc"),
        ("fence", "o", ""),
        ("nothing", "o"),
    ],
)
def test_bad_arguments_are_refused_and_leave_no_record(host: Host, words: tuple[str, ...]) -> None:
    answer = host.call(*words)
    assert answer.rc == 2, answer
    assert answer.text.startswith("zkm-host: ")
    assert host.call("ops").text == ""


def test_move_aside_and_restore_of_a_directory(host: Host, tmp_path: Path) -> None:
    data = tmp_path / "version-2"
    data.mkdir()
    (data / "log.1").write_bytes(b"old")
    assert host.call("move-aside", "m", str(data)).rc == 0
    assert not data.exists()
    data.mkdir()
    (data / "log.9").write_bytes(b"new")
    host.do("restore", "m")
    assert {p.name: p.read_bytes() for p in data.iterdir()} == {"log.1": b"old"}
    host.do("restore", "m")
    assert (data / "log.1").read_bytes() == b"old"


def test_move_aside_into_a_directory_of_its_own_and_back(host: Host, tmp_path: Path) -> None:
    """A log directory of Kafka holds nothing but partitions, so that the sibling name has no place there."""
    data, away = tmp_path / "logs" / "old-0", tmp_path / "logs.zkm-r"
    data.mkdir(parents=True)
    (data / "00.log").write_text("1")
    assert host.call("move-aside", "m", str(data), str(away)).lines() == [
        f"moved {data} to {away}/old-0.zkm-m"
    ]
    assert list((tmp_path / "logs").iterdir()) == []
    assert (away / "old-0.zkm-m" / "00.log").read_text() == "1"
    assert away.stat().st_mode & 0o777 == 0o700
    assert host.call("move-aside", "m", str(data), str(away)).rc == 0, "done once"
    assert host.call("restore", "r", "m").rc == 0
    assert (data / "00.log").read_text() == "1"
    assert not away.exists()


def test_what_was_moved_away_does_not_replace_what_was_made_anew(host: Host, tmp_path: Path) -> None:
    data, away = tmp_path / "logs" / "old-0", tmp_path / "logs.zkm-r"
    data.mkdir(parents=True)
    (data / "00.log").write_text("old")
    assert host.call("move-aside", "m", str(data), str(away)).rc == 0
    data.mkdir()
    (data / "00.log").write_text("new")
    refused = host.call("restore", "r", "m")
    assert (refused.rc, "exists again" in refused.text) == (3, True)
    assert (data / "00.log").read_text() == "new"
    assert (away / "old-0.zkm-m" / "00.log").read_text() == "old"
    assert host.call("discard", "d", "m").rc == 0
    assert not (away / "old-0.zkm-m").exists()


def test_what_is_moved_away_stays_on_its_file_system_and_out_of_others_reach(
    host: Host, tmp_path: Path
) -> None:
    data = tmp_path / "logs" / "old-0"
    data.mkdir(parents=True)
    shm = Path("/dev/shm") / f"zkm-test-{os.getpid()}"
    assert Path("/dev/shm").stat().st_dev != data.stat().st_dev
    refused = host.call("move-aside", "m1", str(data), str(shm))
    assert (refused.rc, "another file system" in refused.text) == (3, True)
    assert not shm.exists()
    (tmp_path / "link").symlink_to(tmp_path)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    for n, away in enumerate((tmp_path / "link", open_to_all)):
        refused = host.call("move-aside", f"m2{n}", str(data), str(away))
        assert (refused.rc, "others than root" in refused.text) == (3, True)
    assert data.is_dir()


def test_move_aside_of_nothing_is_recorded_as_absent(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "zoo.cfg.dynamic.next"
    assert "absent" in host.call("move-aside", "m", str(target)).text
    target.write_bytes(b"made later")
    host.do("restore", "m")
    assert not target.exists()


def test_restore_and_discard_without_a_record_say_so(host: Host) -> None:
    assert "nothing to do" in host.do("restore", "never")
    assert "nothing to do" in host.do("discard", "never")


def test_discard_drops_what_was_moved_aside(host: Host, tmp_path: Path) -> None:
    data = tmp_path / "version-2"
    data.mkdir()
    host.call("move-aside", "m", str(data))
    host.do("discard", "m")
    assert not list(tmp_path.glob("version-2*"))
    assert "nothing to do" in host.do("restore", "m")


def test_the_same_operation_twice_acts_once_and_answers_twice(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "f"
    first = host.put(str(target), b"one", operation="w")
    target.write_bytes(b"changed since")
    assert host.put(str(target), b"one", operation="w") == first
    assert target.read_bytes() == b"changed since"
    assert host.call("op", "w").lines()[1] == "rc 0"


def test_an_operation_id_cannot_be_used_for_something_else(host: Host, tmp_path: Path) -> None:
    host.put(str(tmp_path / "f"), b"one", operation="w")
    answer = host.put(str(tmp_path / "g"), b"one", operation="w")
    assert answer.rc == 2
    assert "taken by: put" in answer.text
    assert not (tmp_path / "g").exists()


def test_a_refused_operation_is_tried_again_under_its_id(host: Host, tmp_path: Path) -> None:
    assert host.put(str(tmp_path / "later" / "f"), b"x", operation="w").rc == 5
    assert host.call("op", "w").lines()[1] == "rc 5"
    (tmp_path / "later").mkdir()
    assert host.put(str(tmp_path / "later" / "f"), b"x", operation="w").rc == 0
    assert host.call("ops").text == "w put 0\n"


def test_a_lost_outcome_keeps_the_first_before_image(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "f"
    target.write_bytes(b"original")
    host.put(str(target), b"ours", operation="w")
    host.forget_outcome("w")
    assert host.call("op", "w").lines()[1] == "rc none"
    assert host.put(str(target), b"ours", operation="w").rc == 0
    host.do("restore", "w")
    assert target.read_bytes() == b"original"


def test_kill_at_any_moment_of_put_and_restore_is_completed_by_the_same_operation(
    host: Host, tmp_path: Path
) -> None:
    target = tmp_path / "f"
    target.write_bytes(b"original")
    for step in range(16):
        write, back = f"w{step}", f"r{step}"
        digest = hashlib.sha256(b"ours").hexdigest()
        put = ("put", write, str(target), "0644", "root:root", digest, encode("ours"))
        for words, wanted in ((put, b"ours"), (("restore", back, write), b"original")):
            child = subprocess.Popen(
                host.argv(*words),
                env=host.environment(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            time.sleep(step * 0.003)
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            assert target.read_bytes() in (b"original", b"ours")
            assert host.call(*words).rc == 0
            assert target.read_bytes() == wanted
    assert [p.name for p in tmp_path.iterdir() if "zkm-" in p.name] == []


def test_the_lock_rises_with_each_owner_and_shuts_out_the_older(host: Host, tmp_path: Path) -> None:
    assert host.call("lock", "a", "take", "alice", "60000", fencing=0).text == "fencing 1\n"
    assert host.call("lock", "a", "take", "alice", "60000", fencing=0).text == "fencing 1\n"
    refused = host.call("lock", "b", "take", "bob", "60000", fencing=0)
    assert refused.rc == 9
    assert "held by alice" in refused.text
    assert host.call("lock", "c", "steal", "bob", fencing=0).text == "fencing 2\n"
    answer = host.put(str(tmp_path / "f"), b"x")
    assert answer.rc == 9
    assert "number 1" in answer.text
    assert not (tmp_path / "f").exists()
    host.fencing = 2
    assert host.put(str(tmp_path / "f"), b"x").rc == 0
    assert host.call("lock", "d", "beat").rc == 0
    assert host.call("lock", "h", "beat", fencing=1).rc == 9
    host.do("lock", "release")
    assert host.call("lock", "d", "take", "carol", "60000", fencing=0).text == "fencing 3\n"


def test_a_lock_whose_owner_is_silent_for_its_ttl_is_taken(host: Host) -> None:
    host.call("lock", "a", "take", "alice", "60000", fencing=0)
    time.sleep(0.05)
    other = Host(host.folder, [], run="run-2")
    assert other.call("lock", "b", "take", "bob", "20", fencing=0).text == "fencing 2\n"
    beat = host.call("lock", "h", "beat", fencing=2)
    assert beat.rc == 9
    assert "run 'run-2'" in beat.text


def test_a_higher_fencing_number_is_remembered(host: Host, tmp_path: Path) -> None:
    host.fencing = 7
    host.put(str(tmp_path / "f"), b"x")
    assert host.status()["fencing"] == "7"
    assert host.call("reopen", "late", fencing=6).rc == 9


def test_a_call_waits_for_the_lock_only_so_long_and_then_says_so(host: Host, tmp_path: Path) -> None:
    host.put(str(tmp_path / "f"), b"x")
    with subprocess.Popen(["flock", host.state / ".flock", "cat"], stdin=subprocess.PIPE) as holder:
        answer = host.put(str(tmp_path / "f"), b"y")
        assert answer.rc == 9
        assert "another call has held" in answer.text
        assert holder.stdin is not None
        holder.stdin.close()
    assert (tmp_path / "f").read_bytes() == b"x"


def test_a_heartbeat_is_not_held_up_by_a_long_operation(host: Host) -> None:
    host.call("lock", "a", "take", "alice", "60000", fencing=0)
    with subprocess.Popen(["flock", host.state / ".flock", "cat"], stdin=subprocess.PIPE) as holder:
        assert host.call("lock", "h", "beat").text == "fencing 1\n"
        assert holder.stdin is not None
        holder.stdin.close()


def test_print_says_what_would_be_done_and_does_nothing(host: Host, tmp_path: Path) -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    answer = host.call(
        "put", "w", str(tmp_path / "f"), "0600", "root:root", digest, encode("x"), options=("--print",)
    )
    assert answer == type(answer)(0, f"write {tmp_path}/f mode 0600 owner root:root sha256 {digest}\n")
    assert not (tmp_path / "f").exists()
    assert not host.state.exists()


def test_reading_files_whole_in_parts_and_past_the_end(host: Host, tmp_path: Path) -> None:
    target = tmp_path / "log.1"
    content = os.urandom(200_000)
    target.write_bytes(content)
    assert host.call("read", str(target), "0", "1048576").text == encode(content) + "\n"
    assert host.call("read", str(target), "65537", "10").text == encode(content[65537:65547]) + "\n"
    assert host.call("read", str(target), "200000", "10").text == ""
    assert host.call("read", str(tmp_path / "none"), "0", "10").text == "absent\n"
    assert host.call("sha", str(target)).text == hashlib.sha256(content).hexdigest() + "\n"
    assert host.call("sha", str(tmp_path / "none")).text == "absent\n"


def test_listing_a_directory_a_file_and_nothing(host: Host, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    (folder / "sub").mkdir(parents=True)
    (folder / "log.1").write_bytes(b"12345")
    (folder / "log.1").chmod(0o600)
    os.utime(folder / "log.1", ns=(0, 1_700_000_000_000_000_001))
    lines = host.call("list", str(folder)).lines()
    changed = (folder / "log.1").stat().st_ctime_ns
    assert lines[0] == f"f 5 {changed} 600 root root log.1"
    assert lines[1].split()[0] == "d"
    assert host.call("list", str(folder / "log.1")).lines() == [lines[0]]
    assert host.call("list", str(tmp_path / "none")).text == "absent\n"


def test_serve_answers_each_request_and_survives_bad_ones(host: Host, tmp_path: Path) -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    host.allow(f"put {tmp_path}/f 0644 root:root")
    requests = [
        f"1 put w {tmp_path}/f 0644 root:root {digest} {encode('x')}",
        f"2 sha {tmp_path}/f",
        "3 explode now",
        f"4 list {tmp_path}/$(touch${{IFS}}owned)",
        "",
        "5 serve",
        "6 op w",
        "7 lease",
    ]
    done = subprocess.run(
        host.argv("serve"),
        input="\n".join(requests) + "\n",
        capture_output=True,
        text=True,
        env=host.environment(),
        check=True,
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith(". ")] == [
        ". 1 0", ". 2 0", ". 3 2", ". 4 2", ". 5 2", ". 6 0", ". 7 2"
    ]  # fmt: skip
    assert f"= {digest}" in lines
    assert all(line.startswith(("= ", ". ")) for line in lines)
    assert {p.name for p in tmp_path.iterdir()} == {"f", "state"}


def peak_kib(pid: int) -> int:
    """The most memory that a process has held so far, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def test_a_read_over_a_held_open_channel_is_streamed(host: Host, tmp_path: Path) -> None:
    """Through a variable of the serving shell, which marks it line by line, it took eight times as long; what
    such a variable costs in memory can be seen without a clock."""
    content = b"\0\n\n" + os.urandom((1 << 20) - 6) + b"\n\0\n"
    (tmp_path / "log.1").write_bytes(content)
    with subprocess.Popen(
        host.argv("serve"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=host.environment()
    ) as serving:
        assert serving.stdin is not None
        assert serving.stdout is not None

        def ask(request: str) -> list[str]:
            assert serving.stdin is not None
            assert serving.stdout is not None
            serving.stdin.write(f"{request}\n")
            serving.stdin.flush()
            return list(iter(serving.stdout.readline, f". {request.split()[0]} 0\n"))

        assert ask(f"1 read {tmp_path}/log.1 0 10") == [f"= {encode(content[:10])}\n"]
        before = peak_kib(serving.pid)
        [line] = ask(f"2 read {tmp_path}/log.1 0 1048576")
        assert ask(f"3 read {tmp_path}/log.1 1048576 10") == []
        grown = peak_kib(serving.pid) - before
        serving.stdin.close()
    assert base64.b64decode(line.removeprefix("= "), validate=False) == content
    assert grown < len(line) // 1024 // 2, "the serving shell held the answer"


def test_reading_verbs_work_from_a_stream_without_being_installed(host: Host) -> None:
    done = subprocess.run(
        ["sh", "-s", "--", "--run", "run-1", "status"],
        input=PROGRAM.read_bytes(),
        capture_output=True,
        env=host.environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"phase=idle" in done.stdout
    assert not host.state.exists()


def test_facts_name_tools_addresses_disk_and_whether_sockets_can_be_killed(
    host: Host, tmp_path: Path
) -> None:
    lines = host.call("facts", "--rules", "-", str(tmp_path), "/no/such/place").lines()
    values = dict(line.split("=", 1) for line in lines)
    assert values["tool.ipset"].startswith("ipset v")
    assert values["ss_kill"] == "yes"
    assert values["rules"] == "yes"
    assert values["uid"] == "0"
    assert "address=lo 127.0.0.1/8" in lines
    free = [line.split("=", 1)[1].split() for line in lines if line.startswith("disk_free_kib=")]
    assert [place for _, place in free] == [str(tmp_path), "/no/such/place"]
    assert int(free[0][0]) > 0
    assert free[1][0] == "-"


def test_a_reading_verb_leaves_nobody_behind_who_holds_its_output(host: Host) -> None:
    """A caller over ssh waits until the output is closed: a helper that lives on would cost it seconds."""
    for words in (
        ("facts", "--rules", "-"),
        ("surroundings", "-", "22"),
        ("reach", "127.0.0.1:9,127.0.0.1:22"),
    ):
        ours, theirs = os.pipe()
        subprocess.run(
            host.argv(*words),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env=host.environment(),
            check=True,
        )
        os.close(theirs)
        os.set_blocking(ours, False)
        with os.fdopen(ours, "rb") as output:
            assert output.read(), words
            assert output.read() == b"", f"{words}: its end is not there yet"


def test_uninstall_removes_the_run_but_not_while_another_is_armed(host: Host, tmp_path: Path) -> None:
    host.put(str(tmp_path / "f"), b"x")
    other = host.state / "run-2"
    other.mkdir()
    (other / "phase").write_text("sealed 1 1\n")
    assert "run-2 is in phase sealed" in host.refused("uninstall")
    (other / "phase").write_text("idle 1 1\n")
    (other / "ops").mkdir()
    assert host.do("uninstall") == "uninstalled\n"
    assert [p.name for p in host.state.iterdir() if p.is_dir()] == ["run-2"]
    second = Host(host.folder, [], run="run-2")
    assert second.do("uninstall") == "uninstalled\n"
    assert not host.state.exists()
    assert PROGRAM.exists()


def test_a_call_that_was_killed_before_its_intent_was_written_runs_under_the_same_id(
    host: Host, tmp_path: Path
) -> None:
    target = tmp_path / "f"
    assert host.put(str(target), b"first\n").rc == 0
    (host.directory / "ops" / "w").write_bytes(b"")
    assert host.put(str(target), b"ours\n", operation="w").rc == 0
    assert target.read_bytes() == b"ours\n"
    host.do("restore", "w")
    assert target.read_bytes() == b"first\n"


# --- the copy of the journal ---------------------------------------------------------------------------


@pytest.fixture
def holder(host: Host) -> Host:
    """A host whose lock was taken."""
    host.do("lock", "take", "me", "60000")
    host.fencing = 2
    return host


def copy_to(host: Host, *, recovered: bool = False) -> Callable[[bytes], dict[str, str]]:
    """What a new process of the operator's would bring it with."""

    def ask(_host: str, words: tuple[str, ...], fencing: int) -> Outcome:
        answer = host.call(*words, fencing=fencing)
        return Outcome(answer.rc, answer.text)

    return Copies(ask, lambda: ("d1",), lambda: host.fencing, time.monotonic, lambda: recovered)


def held(host: Host) -> bytes:
    return (host.directory / "journal.jsonl").read_bytes()


def test_the_journals_copy_grows_by_what_it_lacks_and_leaves_nothing_else(holder: Host) -> None:
    before = {p for p in holder.state.rglob("*") if p.is_file()}
    book = bytes(range(256)) * 20
    copies = copy_to(holder)
    for content in (book, book + b"more", book + b"more\n"):
        assert copies(content) == {}
        assert held(holder) == content
    assert copy_to(holder)(book + b"more\nfrom another process") == {}
    assert held(holder).endswith(b"process")
    assert {p for p in holder.state.rglob("*") if p.is_file()} - before == {
        holder.directory / "journal.jsonl"
    }


@pytest.mark.parametrize("there", [b"rubbish", b"one and a half", b"one t", b"one two three", b""])
def test_whatever_copy_is_there_becomes_a_recovered_journal(holder: Host, there: bytes) -> None:
    (holder.directory / "journal.jsonl").write_bytes(there)
    assert copy_to(holder, recovered=True)(b"one two") == {}
    assert held(holder) == b"one two"


@pytest.mark.parametrize("there", [b"rubbish", b"one and a half", b"one two three"])
def test_a_copy_that_is_not_the_journals_beginning_stays(holder: Host, there: bytes) -> None:
    (holder.directory / "journal.jsonl").write_bytes(there)
    told = copy_to(holder)(b"one two")["d1"]
    assert f"its copy of {len(there)} bytes is not the beginning of this journal of 7 bytes" in told
    assert held(holder) == there
    (holder.directory / "journal.jsonl").write_bytes(b"one t")
    assert copy_to(holder)(b"one two") == {}
    assert held(holder) == b"one two"


def test_what_does_not_follow_changes_nothing_and_is_told_what_is_there(holder: Host) -> None:
    assert copy_to(holder)(b"one") == {}
    total = hashlib.sha256(b"one two").hexdigest()
    told = f"holds 3 bytes with sha256 {hashlib.sha256(b'one').hexdigest()}: "
    for how, more in (("more", b"two"), ("more", b" six"), ("new", b"one six"), ("more", b"")):
        answer = holder.call("journal", how, total, encode(more))
        assert (answer.rc, told in answer.text) == (3, True), answer
        assert held(holder) == b"one"
    assert holder.call("journal", "more", total, encode(b" two")).rc == 0
    assert held(holder) == b"one two"


def test_the_journals_copy_is_taken_from_who_holds_the_lock_only(holder: Host) -> None:
    total = hashlib.sha256(b"one").hexdigest()
    assert holder.call("journal", "new", total, encode(b"one"), fencing=5).rc == 0
    assert holder.call("journal", "new", total, encode(b"one"), fencing=4).rc == 9
    assert holder.call("journal", "new", "0" * 63, encode(b"one"), fencing=5).rc == 2
    assert holder.call("journal", "new", total, "b!", fencing=5).rc == 2
    assert holder.call("journal", "old", total, encode(b"one"), fencing=5).rc == 2
    assert holder.call("journal", "new", total, "b25", fencing=5).rc in (3, 5)
    said = holder.call("journal", "new", total, encode(b"one"), fencing=5, options=("--print",))
    assert said.text == f"write {holder.directory}/journal.jsonl (new), then its sha256 is {total}\n"


def test_the_journals_copy_is_roots_alone_and_never_behind_a_link(holder: Host, tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        assert copy_to(holder)(b"one") == {}
    finally:
        os.umask(umask)
    copy = holder.directory / "journal.jsonl"
    assert (copy.stat().st_mode & 0o7777, copy.stat().st_uid) == (0o600, 0)
    assert holder.state.stat().st_mode & 0o7777 == 0o700
    copy.unlink()
    (tmp_path / "secret").write_bytes(b"one")
    copy.symlink_to(tmp_path / "secret")
    assert "is a symbolic link" in copy_to(holder)(b"one two")["d1"]
    assert (tmp_path / "secret").read_bytes() == b"one"


def test_a_torn_copy_is_read_up_to_its_last_whole_line(holder: Host, tmp_path: Path) -> None:
    book = Journal.create(tmp_path / "r", time.time)
    book.append("begin", {"run": "r-1", "name": "", "playbook": "p", "inventory": "i", "plan": "q"})
    assert copy_to(holder)(book.content()) == {}
    whole = len(book.content())
    book.append("record", {"stage": "s", "step": "t", "record": {"text": "x" * 5000}})
    assert copy_to(holder)(book.content()) == {}
    for size in range(whole, len(book.content()), 97):
        (holder.directory / "journal.jsonl").write_bytes(book.content()[:size])
        kept = Journal.recover(tmp_path / f"r-{size}", time.time, copies=[held(holder)])
        assert kept.history.run == "r-1"
        kept.close()
        assert copy_to(holder)(book.content()) == {}
    assert held(holder) == book.content()
    book.close()
