"""zkm-host beside the account that runs ZooKeeper or Kafka, which chooses names, files and answers.

It owns the directories in which root reads and writes, names its processes, and answers on the server's port.
10,000 inputs of it, each asked about by zkm-host's own verbs: nothing of them runs, no answer has a line that
zkm-host did not write, and nobody reads, writes or gives away what is not that account's.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.unit.hosts.zkm_host.test_hostile import ACCOUNT, told
from tests.unit.zkm_net import Host, encode
from zkmigrate.hosts.facts.status import parse_drain
from zkmigrate.hosts.facts.surroundings import parse_surroundings
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.site.observe import parse_listing

NAMES_AT_ONCE, DIRECTORIES = 600, 14
LISTENERS, ROUNDS = 250, 4
SAYINGS = 400
SITES = 44

PARTS = (
    *(
        "\n",
        "\r",
        "\x0b",
        "\x1b]0;x\x07",
        "\x1e",
        "\x85",
        "\u2028",
        "\ud800",
        "\xff",
        "\t",
        " ",
        "\\n",
        "\\c",
    ),
    *("$(touch canary)", "`touch canary`", ";touch canary;", "a[$(touch canary)]", "|touch canary", "&"),
    *("-rf", "--", "*", "?", "%s%n", "'", '"', "\\", "\\0101", "~", "#", "{}", "=", "."),
    *("= forged", ". 1 0", "= phase=open", "absent", "f 5 1 644 root root zoo.cfg", "main=1 - x", "mode=x"),
    *("zoo.cfg", "version-2", ".zkm-stage", "zoo.cfg.zkm-o1", "Mode: leader", "Zxid: 0x1", "x" * 90),
)
LINES = ("\nf 5 1 644 root root zoo.cfg", "\n. 1 0", "\\nmain=1 - x", "\rmain=1 - x", "\u2028phase=open")
"""What would be a line of an answer, if one of these were a line break."""


def odd(chance: random.Random, most: int) -> bytes:
    """A name or a text, of at most so many bytes."""
    parts = [chance.choice(PARTS) for _ in range(chance.randint(1, 4))]
    if chance.random() < 0.4:
        parts.insert(1, chance.choice(LINES))
    return "".join(parts).encode("utf-8", "surrogatepass").replace(b"/", b"_")[:most]


def asked(host: Host, where: Path, requests: list[str]) -> dict[str, tuple[int, list[bytes]]]:
    """Send these over one channel. By the number of each: its exit code, and the lines of its answer."""
    sent = "".join(f"{number} {request}\n" for number, request in enumerate(requests)).encode()
    done = subprocess.run(
        host.argv("serve"), input=sent, cwd=where, env=host.environment(), capture_output=True, check=True
    )
    answers: dict[str, tuple[int, list[bytes]]] = {}
    lines: list[bytes] = []
    for line in done.stdout.split(b"\n")[:-1]:
        if line.startswith(b". "):
            _, number, rc = line.decode().split(" ")
            answers[number] = int(rc), lines
            lines = []
        else:
            assert line == b"=" or line.startswith(b"= "), line
            lines.append(line[2:])
    assert list(answers) == [str(number) for number in range(len(requests))], "each is answered once, in turn"
    assert lines == []
    assert list(where.iterdir()) == [], "nothing ran"
    return answers


@pytest.fixture
def host(open_folder: Path) -> Host:
    return Host(open_folder, [])


@pytest.fixture
def here(open_folder: Path) -> Path:
    """The directory in which zkm-host is started."""
    place = open_folder / "cwd"
    place.mkdir()
    return place


def shown(name: bytes) -> str:
    """A name as the answer to ``list`` tells it."""
    return bytes(63 if byte < 32 or byte == 127 else byte for byte in name).decode("utf-8", "replace")


def test_whatever_its_files_are_called_each_is_listed_once(
    host: Host, open_folder: Path, secret: Path, here: Path
) -> None:
    chance = random.Random(1)
    kinds: dict[str, Counter[tuple[str, str]]] = {}
    for number in range(DIRECTORIES):
        place = open_folder / f"d{number}"
        place.mkdir()
        names = {odd(chance, 250) for _ in range(NAMES_AT_ONCE * 2)} - {b".", b".."}
        for name in sorted(names)[:NAMES_AT_ONCE]:
            path = place / os.fsdecode(name)
            kind = chance.choice("ffflpd")
            if kind == "f":
                path.touch()
            elif kind == "l":
                path.symlink_to(secret / "shadow")
            elif kind == "p":
                os.mkfifo(path)
            else:
                path.mkdir()
            os.chown(path, ACCOUNT, ACCOUNT, follow_symlinks=False)
            told_kind = kind if kind in "fd" else "o"
            kinds.setdefault(str(place), Counter())[told_kind, shown(name)] += 1
        os.chown(place, ACCOUNT, ACCOUNT)
    assert sum(seen.total() for seen in kinds.values()) == NAMES_AT_ONCE * DIRECTORIES
    answers = asked(host, here, [f"list {place}" for place in kinds])
    for (folder, expected), (rc, lines) in zip(kinds.items(), answers.values(), strict=True):
        assert rc == 0
        found = parse_listing(folder, "\n".join(line.decode("utf-8", "replace") for line in lines))
        assert isinstance(found, Seen), found
        assert Counter((one.kind, one.name) for one in found.value) == expected
        assert {one.owner for one in found.value} == {str(ACCOUNT)}


LISTEN = """
import os, socket, sys, time
port, names = int(sys.argv[1]), [bytes.fromhex(word) for word in sys.stdin.read().split("\\n")]
for name in names:
    if os.fork():
        continue
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    with open("/proc/self/comm", "wb") as comm:
        comm.write(name)
    os.setuid(61234)
    print(os.getpid(), flush=True)
    time.sleep(1000)
time.sleep(1000)
"""


@contextmanager
def listening(names: list[bytes], port: int) -> Iterator[set[int]]:
    """Processes of the account with these names and odd arguments, all of which listen on the port."""
    more = [os.fsdecode(odd(random.Random(name), 60) + b"/puppet") for name in names]
    forged = [f"x\n/proc/1/cmdline:{number}/puppet" for number in range(20)]
    argv = [sys.executable, "-c", LISTEN, str(port), *more, *forged]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        try:
            parent.stdin.write(b"\n".join(name.hex().encode() for name in names))
            parent.stdin.close()
            yield {int(parent.stdout.readline()) for _ in names}
        finally:
            os.killpg(parent.pid, 9)


def test_whatever_its_processes_are_called_no_other_is_told(host: Host, here: Path) -> None:
    chance = random.Random(2)
    for _ in range(ROUNDS):
        port = free_port()
        with listening([odd(chance, 15) for _ in range(LISTENERS)], port) as pids:
            [(rc, lines)] = asked(host, here, [f"surroundings - {port}"]).values()
        assert rc == 0
        found = parse_surroundings("\n".join(line.decode("utf-8", "replace") for line in lines))
        assert Counter(one.pid for one in found.listeners) == Counter(pids)
        assert found.main is None
        puppets = {words.split()[1] for words in found.keepers if words.endswith(" puppet")}
        assert "1" not in puppets, "its arguments are no lines of ours"


class Sayer(threading.Thread):
    """A server that gives each client the next text, whatever it is asked."""

    def __init__(self, texts: list[bytes]) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.texts = iter(texts)
        self.start()

    def run(self) -> None:
        for text in self.texts:
            client, _ = self.listener.accept()
            with client, suppress(OSError):
                client.settimeout(5)
                client.recv(4)
                client.sendall(text)
        self.listener.close()


def answer_of(chance: random.Random) -> bytes:
    """What looks like an answer to ``srvr``, with odd words in it."""
    lines = [b"Zookeeper version: 3.8.4"]
    for key in (b"Mode: ", b"Outstanding: ", b"Zxid: ", b"zk_synced_followers "):
        if chance.random() < 0.9:
            lines.append(key + odd(chance, 120))
    return b"\n".join(lines) + b"\n"


def test_whatever_its_server_says_is_no_line_of_ours(host: Host, here: Path) -> None:
    chance = random.Random(3)
    sayer = Sayer([answer_of(chance) for _ in range(SAYINGS)])
    host.directory.mkdir(parents=True)
    (host.directory / "spec").write_text(f"client_ports={sayer.port}\n")
    requests = [chance.choice(("drain", "drain", f"word {sayer.port} srvr")) for _ in range(SAYINGS)]
    for request, (rc, lines) in zip(requests, asked(host, here, requests).values(), strict=True):
        if request != "drain":
            assert (rc, lines[0]) == (0, b"Zookeeper version: 3.8.4")
            continue
        [line] = lines
        assert (rc, line == b"unserving" or line.startswith(b"outstanding=")) == (0, True)
        with suppress(Exception):
            assert set(parse_drain(line.decode("utf-8", "replace")).mode) is not None
    sayer.join()


def test_what_the_finisher_noted_of_its_server_is_one_line(host: Host, here: Path) -> None:
    """At the limit of OPEN it notes the mode that the server tells."""
    host.directory.mkdir(parents=True)
    for word in (b"x\\nphase=open", b"x\\c", b"\xe2\x80\xa8phase=open", b"x\rphase=open", b"x\\0101"):
        note = b"1.0 no quorum seen at the limit, mode '" + word + b"'\n"
        (host.directory / "finish.log").write_bytes(note)
        (host.directory / "finish.state").write_text("running\n")
        [(rc, lines)] = asked(host, here, ["phase"]).values()
        assert (rc, lines[1:]) == (0, [b"phase=idle", b"lapsed=no", b"finisher=failed " + note[4:-1]])


def test_a_server_that_stops_in_the_middle_of_a_line_has_not_answered(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        held: list[socket.socket] = []

        def stall() -> None:
            client, _ = listener.accept()
            held.append(client)
            client.sendall(b"Zookeeper version: 3.8.4\nMode: foll")

        stalling = threading.Thread(target=stall, daemon=True)
        stalling.start()
        answer = host.call("word", str(port), "srvr")
        stalling.join()
        held[0].close()
    assert (answer.rc, f"no answer to srvr on port {port}" in answer.text) == (5, True)


def test_a_server_that_says_too_much_is_not_heard_to_its_end(host: Host, here: Path) -> None:
    sayer = Sayer([bytes(range(65, 91)) * 2**17])
    assert "longer than 1048576 bytes" in host.call("word", str(sayer.port), "srvr").text


KINDS = (
    "file",
    "none",
    "link",
    "to directory",
    "loop",
    "dangling",
    "hard",
    "pipe",
    "directory",
    "huge",
    "sticky",
)
PLANTED = (".zkm-stage", "zoo.cfg.zkm-m{0}", "zoo.cfg.zkm-new", "zoo.cfg.zkm-o{0}", "new", "what")


def plant(path: Path, kind: str, secret: Path) -> None:
    """Something of this kind of the account's, there."""
    match kind:
        case "file" | "sticky":
            path.write_bytes(b"old\n")
        case "link":
            path.symlink_to(secret / "shadow")
        case "to directory":
            path.symlink_to(secret)
        case "loop":
            path.symlink_to(path.name)
        case "dangling":
            path.symlink_to("none")
        case "hard":
            path.hardlink_to(secret / "shadow")
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
            (path / "version-2").symlink_to(secret)
            (path / "zoo.cfg").write_bytes(b"old\n")
        case "huge":
            path.touch()
            os.truncate(path, 1 << 40)
    if kind not in ("hard", "none"):
        os.chown(path, ACCOUNT, ACCOUNT, follow_symlinks=False)
    if kind == "sticky":
        path.chmod(0o7755)


NEW, EDITED, OLD = (hashlib.sha256(text).hexdigest() for text in (b"new", b"two\n", b"old\n"))


def without_links(place: Path) -> dict[str, tuple[object, ...]]:
    """Return the state of each file below a place, without its number of hard links."""
    return {path: seen[:-1] for path, seen in told(place).items()}


def test_whatever_it_puts_where_root_works_leads_nowhere_else(
    host: Host, open_folder: Path, secret: Path, here: Path
) -> None:
    """All verbs about files, where each file, directory or name that can be foreseen is a trap."""
    chance = random.Random(4)
    home = open_folder / "home"
    home.mkdir()
    os.chown(home, ACCOUNT, ACCOUNT)
    requests: list[str] = []
    two = encode("two\n")
    for site in range(SITES):
        place = home / str(site)
        if chance.random() < 0.1:
            place.symlink_to(secret)
            os.chown(place, ACCOUNT, ACCOUNT, follow_symlinks=False)
        else:
            place.mkdir()
            os.chown(place, ACCOUNT, ACCOUNT)
            kind = KINDS[site % len(KINDS)]
            plant(place / "zoo.cfg", kind, secret)
            for name in chance.sample(PLANTED, chance.randint(0, 3)):
                with suppress(FileExistsError):
                    plant(place / name.format(site), chance.choice(KINDS), secret)
        path = place / "zoo.cfg"
        host.allow("lock", f"rewrite {path}", f"move-aside {path}")
        looks = [f"read {path} 0 100", f"list {path}", f"list {place}"]
        if not path.is_file() or path.stat().st_size < 100:
            looks.append(f"sha {path}")
        owner = f"{ACCOUNT}:{ACCOUNT}"
        acts = [
            [f"put o{site} {path} 0644 {owner} {NEW} {encode('new')}", f"restore ro{site} o{site}"],
            [f"edit e{site} {path} 1 {OLD} {EDITED} {two}", f"restore re{site} e{site}"],
            [f"move-aside m{site} {path}", f"{chance.choice(('restore', 'discard'))} rm{site} m{site}"],
        ]
        chance.shuffle(acts)
        requests += [*looks, *(request for act in acts for request in act), *chance.sample(looks, 2)]
    before = without_links(secret)
    around = {path.name for path in open_folder.iterdir()}
    answers = asked(host, here, requests)
    assert without_links(secret) == before
    assert {path.name for path in open_folder.iterdir()} == around
    texts = [path.read_bytes() for path in secret.rglob("*") if path.is_file()]
    hidden = [*texts, *(hashlib.sha256(text).hexdigest().encode() for text in texts)]
    for request, (_, lines) in zip(requests, answers.values(), strict=True):
        text = b"\n".join(lines)
        if request.startswith("read "):
            with suppress(ValueError):
                text += base64.b64decode(text, validate=True)
        assert not [one for one in hidden if one.strip() in text], request
        if request.startswith("list "):
            assert b" shadow" not in text, request
    owners = {path.lstat().st_uid for path in home.rglob("*") if "shadow" not in str(path)}
    assert owners <= {0, ACCOUNT}
    verbs = [request.split()[0] for request in requests]
    done = Counter(zip(verbs, (rc for rc, _ in answers.values()), strict=True))
    assert all(done[verb, 0] for verb in set(verbs)), done
    assert all(done[verb, 3] for verb in ("put", "edit", "move-aside", "read", "list")), done


def test_behind_a_link_of_an_account_root_reads_what_that_account_reads(
    host: Host, open_folder: Path, secret: Path
) -> None:
    nobody = 65_534
    (secret / "version-2").chmod(0o700)
    (open_folder / "public").mkdir()
    (open_folder / "public" / "jaas").write_bytes(b"public")
    home = open_folder / "home"
    home.mkdir()
    (home / "zoo.cfg").hardlink_to(secret / "shadow")
    for name, target in (
        ("conf", open_folder / "public"),
        ("jaas", open_folder / "public" / "jaas"),
        ("shadow", secret / "shadow"),
        ("secret", secret),
    ):
        (home / name).symlink_to(target)
    for path in (home, *home.iterdir()):
        if path.name != "zoo.cfg":
            os.chown(path, nobody, nobody, follow_symlinks=False)
    for path in (home / "jaas", home / "conf" / "jaas"):
        assert host.call("read", str(path), "0", "99").text == encode("public") + "\n"
        assert host.call("sha", str(path)).text == hashlib.sha256(b"public").hexdigest() + "\n"
    assert host.call("list", str(home / "conf" / "jaas")).text.startswith("f 6 ")
    for path in (home / "zoo.cfg", home / "shadow", home / "secret" / "shadow"):
        for verb in (("read", str(path), "0", "99"), ("sha", str(path))):
            answer = host.call(*verb)
            assert (answer.rc, "that account cannot read" in answer.text) == (3, True), answer
    assert host.call("list", str(home / "secret" / "version-2")).rc == 3
    for name, *rest in (("read", "0", "99"), ("sha",), ("list",)):
        words = (name, str(home / "conf" / "none"), *rest)
        assert (host.call(*words).rc, host.call(*words).text) == (0, "absent\n"), "that account sees it too"
        hidden = (name, str(home / "secret" / "version-2" / "none"), *rest)
        assert host.call(*hidden).rc == 3, "whether it is there is not for that account to know"
    answer = host.call("read", str(home / "conf"), "0", "99")
    assert (answer.rc, "not a regular file" in answer.text) == (5, True)
