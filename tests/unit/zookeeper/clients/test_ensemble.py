"""A session with an ensemble: what its errors are called, and at what pace it is used."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.handlers.threading import KazooTimeoutError

from zkmigrate.errors import HostError
from zkmigrate.zookeeper.clients import ensemble
from zkmigrate.zookeeper.clients.ensemble import closed, connect, from_kazoo, named, to_kazoo
from zkmigrate.zookeeper.clients.subtree import Server
from zkmigrate.zookeeper.data.txn import Acl


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (KazooTimeoutError("late"), "the connection to source was lost (/a): KazooTimeoutError late"),
        (ConnectionResetError(), "the connection to source was lost (/a): ConnectionResetError"),
        (NoAuthError(), "source failed (/a): NoAuthError"),
    ],
)
def test_an_error_names_the_ensemble_and_the_place(raised: Exception, said: str) -> None:
    with pytest.raises(HostError) as found, named("source", "/a"):
        raise raised
    assert str(found.value).strip() == said


def test_servers_that_do_not_answer_are_named_and_the_session_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[KazooClient] = []
    monkeypatch.setattr(ensemble, "_CONNECT_S", 0.1)

    def end(client: KazooClient) -> None:
        ended.append(client)
        closed(client)

    monkeypatch.setattr(ensemble, "closed", end)
    servers = (Server("127.0.0.1", 1), Server("::1", 1))
    lost = r"^no session with dest \(127\.0\.0\.1:1, \[::1\]:1\): "
    with pytest.raises(HostError, match=lost), connect("dest", servers):
        pass
    assert len(ended) == 1


def test_an_acl_is_the_same_behind_kazoo() -> None:
    acl = (Acl(31, "world", "anyone"), Acl(1, "digest", "solr:x"))
    assert from_kazoo(to_kazoo(acl)) == acl
