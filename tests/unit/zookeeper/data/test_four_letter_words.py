"""Four-letter answers as each server version gave them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from tests.unit.zkdata_fixtures import RECORDED, VERSIONS
from zkmigrate.zookeeper.data.four_letter_words import (
    EmptyAnswerError,
    GarbledAnswerError,
    NotServingError,
    NotWhitelistedError,
    WordError,
    parse_conf,
    parse_cons,
    parse_dump,
    parse_mntr,
    parse_srvr,
    parse_wchp,
    split_peer,
)
from zkmigrate.zookeeper.data.session import format_session, parse_session

ROLES = ("leader", "follower", "observer")
PARSERS: dict[str, Callable[[str], object]] = {
    "srvr": parse_srvr,
    "mntr": parse_mntr,
    "cons": parse_cons,
    "dump": parse_dump,
    "conf": parse_conf,
}


def answer(version: str, role: str, word: str) -> str:
    return (RECORDED / version / "words" / f"{role}.{word}").read_text()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("role", ROLES)
def test_srvr_stat_and_mntr_agree(version: str, role: str) -> None:
    srvr = parse_srvr(answer(version, role, "srvr"))
    assert srvr.mode == role
    assert srvr.version.numbers == tuple(int(part) for part in version.split("."))
    assert srvr.zxid >> 32 == 1
    assert srvr.node_count > 5
    assert srvr.outstanding == 0
    stat = parse_srvr(answer(version, role, "stat"), "stat")
    assert (stat.mode, stat.zxid, stat.node_count) == (srvr.mode, srvr.zxid, srvr.node_count)
    mntr = parse_mntr(answer(version, role, "mntr"))
    assert (mntr.state, mntr.version, mntr.outstanding) == (role, srvr.version, 0)
    assert (mntr.number("zk_znode_count"), mntr.number("zk_ephemerals_count")) == (srvr.node_count, 2)
    assert (mntr.synced_followers, mntr.learners) == ((2, 3) if role == "leader" else (None, None))
    assert mntr.number("zk_nothing") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_dump_lists_owners_everywhere_and_timeouts_on_learners(version: str) -> None:
    dumps = {role: parse_dump(answer(version, role, "dump")) for role in ROLES}
    ephemerals = dumps["leader"].ephemerals
    assert [sorted(paths) for paths in ephemerals.values()] == [["/kafka/brokers/ids/1", "/kafka/controller"]]
    assert all(dump.ephemerals.keys() == ephemerals.keys() for dump in dumps.values())
    (owner,) = ephemerals
    assert dumps["observer"].owner("/kafka/controller") == owner
    assert dumps["observer"].owner("/kafka") is None
    leader = dumps["leader"].sessions
    assert leader is not None
    assert owner in leader
    assert set(leader.values()) == {None}
    for role in ("follower", "observer"):
        sessions = dumps[role].sessions
        if version.startswith("3.4"):
            assert sessions is None
        else:
            assert sessions is not None
            assert sessions.keys() == leader.keys()
            assert set(sessions.values()) == {20_000}


@pytest.mark.parametrize("version", VERSIONS)
def test_cons_tells_clients_from_askers(version: str) -> None:
    through = [c for c in parse_cons(answer(version, "observer", "cons")) if c.session is not None]
    assert [(c.address, c.timeout_ms) for c in through] == [("127.0.0.1", 20_000)]
    assert through[0].session in (parse_dump(answer(version, "leader", "dump")).sessions or {})
    busy = parse_cons(answer(version, "leader-busy", "cons"))
    assert {c.session is None for c in busy} == {True, False}
    client = next(c for c in busy if c.session is not None)
    assert client.received >= 2


@pytest.mark.parametrize("version", VERSIONS)
def test_conf(version: str) -> None:
    conf = parse_conf(answer(version, "observer", "conf"))
    assert conf.values["dataDir"] == "/srv/zk/s4/data/version-2"
    assert (conf.number("tickTime"), conf.number("serverId"), conf.number("nothing")) == (500, 4, None)
    assert sorted(conf.servers) == ([] if version.startswith("3.4") else [f"server.{n}" for n in range(1, 5)])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_server_without_quorum_says_so(version: str) -> None:
    for word in ("srvr", "mntr", "cons"):
        with pytest.raises(NotServingError):
            PARSERS[word](answer(version, "unserving", word))


@pytest.mark.parametrize("word", sorted(PARSERS))
def test_what_is_no_answer_is_told_apart(word: str) -> None:
    parse = PARSERS[word]
    for text in ("", "\n", "  "):
        with pytest.raises(EmptyAnswerError, match=word):
            parse(text)
    with pytest.raises(NotWhitelistedError, match=word):
        parse(f"{word} is not executed because it is not in the whitelist.\n")
    for text in ("HTTP/1.1 400 Bad Request\r\n", "\x15\x03\x03", "{}", "SSH-2.0-OpenSSH_9.2\r\n"):
        with pytest.raises(GarbledAnswerError, match=word):
            parse(text)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("word", ["srvr", "dump", "mntr", "cons", "conf"])
def test_a_cut_answer_never_crashes(version: str, word: str) -> None:
    for role in ROLES:
        text = answer(version, role, word)
        for cut in range(0, len(text), max(1, len(text) // 300)):
            with contextlib.suppress(WordError):
                PARSERS[word](text[:cut])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_srvr_or_dump_is_no_answer(version: str) -> None:
    srvr = answer(version, "follower", "srvr")
    with pytest.raises(GarbledAnswerError, match="Mode"):
        parse_srvr(srvr[: srvr.index("Mode:")])
    dump = answer(version, "follower", "dump")
    for marker in ("ephemeral nodes", "Sessions with", "\n0x"):
        with pytest.raises(GarbledAnswerError):
            parse_dump(dump[: dump.rindex(marker) + 1])


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("/10.0.0.1:4711", ("10.0.0.1", 4711)),
        ("broker-1/10.0.0.1:4711", ("10.0.0.1", 4711)),
        ("/0:0:0:0:0:0:0:1:4711", ("::1", 4711)),
        ("/[0:0:0:0:0:0:0:1]:4711", ("::1", 4711)),
        ("/[fe80:0:0:0:0:0:0:1%eth0]:4711", ("fe80::1", 4711)),
    ],
)
def test_peers_as_java_prints_them(text: str, peer: tuple[str, int]) -> None:
    assert split_peer(text) == peer
    assert parse_cons(f" {text}[1](queued=0,recved=3,sent=2)\n")[0].address == peer[0]


def test_a_session_is_signed_as_records_have_it() -> None:
    fields = "queued=2,recved=1,sent=1,sid=0xff00000000000001,lop=NA,est=1,to=6000,lzxid=0xffffffffffffffff"
    line = f" /10.0.0.1:1[1]({fields})"
    (connection,) = parse_cons(line)
    assert connection.queued == 2
    assert connection.session is not None
    assert connection.session < 0
    assert format_session(connection.session) == "0xff00000000000001"
    assert parse_session("0xff00000000000001") == connection.session


WCHP = "/kafka\n\t0x10000731f1b0001\n\t0xf0000731f1b0000\n/kafka/ümläut\n\t0x10000731f1b0001\n\n"
"""As 3.5.8 answered, with another second session."""


def test_watches_by_path() -> None:
    first, second = 0x10000731F1B0001, parse_session("0xf0000731f1b0000")
    assert parse_wchp(WCHP) == {"/kafka": (first, second), "/kafka/ümläut": (first,)}
    assert parse_wchp("\n") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (WCHP[:-1], "the end of the answer is missing"),
        ("wchp is not executed because it is not in the whitelist.\n", "4lw.commands.whitelist"),
        ("\t0x1\n\n", "neither a path nor a session"),
        ("/a\n\tme\n\n", "not a session"),
        ("2 connections watching 3 paths\n\n", "neither a path nor a session"),
    ],
)
def test_what_is_no_list_of_watches(text: str, message: str) -> None:
    with pytest.raises(WordError, match=message):
        parse_wchp(text)
