"""zoo.cfg: values as ZooKeeper sees them."""

from __future__ import annotations

import pytest

from zkmigrate.zookeeper.data.zoocfg import ServerLine, ZooCfgError, parse_server_line, parse_zoocfg, settings

SAMPLE = (
    "# made by hand\r\n"
    "tickTime=2000\r\n"
    "\r\n"
    "  initLimit = 10\r\n"
    "syncLimit : 5\r\n"
    "dataDir=/var/lib/zookeeper\r\n"
    "clientPort 2181\r\n"
    "! also a comment \\\r\n"
    "server.1=10.0.0.1:2888:3888\r\n"
    "server.11=[fd00::11]:2888:3888:observer\r\n"
    "server.12=dest-2:2888:3888:observer;2181\r\n"
    "server.13=dest-3:2888:3888:participant;[::]:2182\r\n"
    "longer=one,\\\r\n   two\r\n"
    "tickTime=500"
)


def test_the_typed_view() -> None:
    seen = settings(parse_zoocfg(SAMPLE))
    assert (seen.init_limit, seen.sync_limit) == (10, 5)
    assert seen.servers == {
        1: ServerLine(1, "10.0.0.1", 2888, 3888),
        11: ServerLine(11, "fd00::11", 2888, 3888, "observer", role_given=True),
        12: ServerLine(12, "dest-2", 2888, 3888, "observer", 2181, role_given=True),
        13: ServerLine(13, "dest-3", 2888, 3888, "participant", 2182, "::", True),
    }
    assert parse_zoocfg(SAMPLE).get("longer") == "one,two"
    assert parse_zoocfg(SAMPLE).get("tickTime") == "500"  # the last one counts


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_in_any_way_and_continue_after_an_odd_number_of_backslashes(end: str) -> None:
    lines = ["# a comment \\", "a=1\\", "\t2", "", "b=3\\\\", "!c=4", r"d\=e : \u0041\t", "f=g\\"]
    found = parse_zoocfg(end.join(lines))
    assert found.values() == {"a": "12", "b": "3\\", "d=e": "A", "f": "g"}
    assert [entry.line for entry in found.entries.values()] == [2, 5, 7, 8]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dataDir=/d\nnonsense\n", r"^a.cfg:2: 'nonsense' is not key=value"),
        ("dataDir=/d\ntickTime=two\n", r"^a.cfg:2: tickTime='two'. Needed: a whole number"),
        ("dataDir=/d\n\npeerType=boss\n", r"^a.cfg:3: peerType='boss'. Needed: participant or observer"),
        ("dataDir=/d\nsyncEnabled=yes\n", r"^a.cfg:2: .*true or false"),
        ("dataDir=/d\nsecureClientPort=x\n", r"^a.cfg:2: secureClientPort='x'. Needed: a whole number"),
        ("dataDir=/d\nserver.1=host:1:2:boss\n", r"^a.cfg:2: server.1: unknown role 'boss'"),
        (
            "dataDir=/d\nserver.1=host:2888\n",
            r"^a.cfg:2: server.1='host:2888' is not server.N=host:port:port",
        ),
        ("dataDir=/d\nserver.1=host:2888:99999\n", r"not in 1..65535"),
        ("dataDir=/d\nserver.1=host:2888:2888\n", r"must differ"),
        ("dataDir=/d\nserver.1=a:1:2|b:1:2\n", r"several addresses"),
        ("dataDir=/d\nserver.1=fd00::1:2888:3888\n", r"IPv6 in brackets"),
        ("dataDir=/d\nserver.x=a:1:2\n", r"^a.cfg:2: server.x"),
        ("dataDir=/d\nserver.1=a:1:2\nserver.01=b:1:2\n", r"^a.cfg:3: .*one line for server 1"),
        ("tickTime=2000\n", r"^a.cfg: dataDir is not set"),
        ("dataDir=/d\ntickTime=0\n", r"tickTime is 0"),
    ],
)
def test_a_bad_line_is_named_with_file_and_line(text: str, message: str) -> None:
    with pytest.raises(ZooCfgError, match=message):
        settings(parse_zoocfg(text, "a.cfg"))


@pytest.mark.parametrize(
    "value",
    [
        "a:1:2",
        "a:1:2:participant",
        "[::1]:1:2:observer",
        "a:1:2;3",
        "a:1:2:observer;0.0.0.0:3",
        "a:1:2;[::]:3",
    ],
)
def test_server_lines_render_as_they_were(value: str) -> None:
    assert parse_server_line("server.7", value).render() == value
