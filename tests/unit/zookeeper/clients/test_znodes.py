"""What the deletion of znodes refuses inside its own transaction, and how they are made again."""

from __future__ import annotations

from typing import Any, cast

import pytest
from kazoo.security import make_acl, make_digest_acl

from tests.unit.znode_server import OPEN, Client, ZnodeServer
from zkmigrate.errors import HostError
from zkmigrate.zookeeper.changes import Kept, mark
from zkmigrate.zookeeper.clients import znodes

READ_ONLY = (make_acl("world", "anyone", read=True),)


@pytest.fixture
def server() -> ZnodeServer:
    made = ZnodeServer()
    for path in ("/solr", "/solr/live", "/solr/live/n1", "/solr/live/n2"):
        made.put(path, path.encode())
    made.put("/solr/null", None, (make_digest_acl("a", "b", all=True), *OPEN))
    return made


def kept(server: ZnodeServer) -> list[Kept]:
    """The subtree, children first."""
    paths = sorted((path for path in server.nodes if path != "/"), reverse=True)
    nodes = [(path, server.nodes[path]) for path in paths]
    return [
        (path, node.data, tuple((a.perms, a.id.scheme, a.id.id) for a in node.acl), mark(node))
        for path, node in nodes
    ]


def sent(server: ZnodeServer, nodes: list[Kept]) -> tuple[int, str]:
    return znodes.delete("dest", cast(Any, Client(server)), nodes)


def test_they_go_in_one_transaction_and_come_back_with_data_and_acl(server: ZnodeServer) -> None:
    before, nodes = server.state("/solr"), kept(server)
    assert sent(server, nodes) == (0, "5 of 5 znodes were deleted, the others no longer existed")
    assert (server.state("/solr"), server.multis) == ({}, 1)
    assert sent(server, nodes) == (0, "the znodes no longer exist")
    server.put("/solr")
    assert znodes.create("dest", cast(Any, Client(server)), nodes) == (
        0, "4 znodes were created; 1 already existed and were not changed",
    )  # fmt: skip
    assert server.state("/solr") == {**before, "/solr": (b"", OPEN)}


CHANGES = {
    "changed": (
        lambda s: s.put("/solr/live/n1", b"x"),
        "/solr/live/n1 was changed or created again after it was",
    ),
    "made anew": (
        lambda s: (s.remove("/solr/null"), s.put("/solr/null", None)),
        "/solr/null was changed or created again",
    ),
    "a new child": (lambda s: s.put("/solr/live/n3"), "/solr/live has a child that was not read"),
    "an ACL": (lambda s: vars(s.nodes["/solr/live"]).update(acl=READ_ONLY), "because of an ACL"),
}


@pytest.mark.parametrize(("change", "why"), CHANGES.values(), ids=CHANGES.keys())
def test_what_changed_since_it_was_read_stays_and_all_of_its_batch(
    server: ZnodeServer, change: Any, why: str
) -> None:
    nodes = kept(server)
    change(server)
    before = server.state("/solr")
    code, said = sent(server, nodes)
    assert (code, server.state("/solr")) == (1, before)
    assert why in said


def test_what_changes_between_the_look_and_the_transaction_stays(server: ZnodeServer) -> None:
    """Each delete names the version that was read."""
    nodes = kept(server)
    server.before = lambda number: server.put("/solr/live/n1", b"x") if number == 1 else None
    assert sent(server, nodes) == (1, "/solr/live/n1 was changed after it was read, so it was not deleted")
    assert len(server.state("/solr")) == 5


def test_what_somebody_else_deletes_meanwhile_is_no_error(server: ZnodeServer) -> None:
    nodes = kept(server)
    server.before = lambda number: server.remove("/solr/live/n1") if number == 1 else None
    assert sent(server, nodes) == (0, "4 of 5 znodes were deleted, the others no longer existed")


def test_a_lost_answer_is_no_outcome(server: ZnodeServer) -> None:
    server.lost = 1
    with pytest.raises(HostError):
        sent(server, kept(server))


@pytest.mark.parametrize(
    ("path", "acl", "why"),
    [("/none/a", OPEN, "/none/a could not be created, because its parent no longer exists"),
     ("/shut/a", READ_ONLY, "no ACL lets this client create /shut/a")],
)  # fmt: skip
def test_what_cannot_be_made_is_told(server: ZnodeServer, path: str, acl: Any, why: str) -> None:
    server.put("/shut", acl=acl)
    told = znodes.create("dest", cast(Any, Client(server)), [(path, b"", (), "")])
    assert told == (1, why)
