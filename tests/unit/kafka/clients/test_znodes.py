"""What the sender of znode changes refuses, before it connects and by what it sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.exceptions import BadVersionError, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError

from zkmigrate.kafka.changes import KAFKA, AlterTopicConfig
from zkmigrate.kafka.clients import znodes
from zkmigrate.kafka.rules.znodes import removable, topic_of
from zkmigrate.zookeeper.changes import ZNODES, CreateZnode, DeleteZnode

ANYBODY = ((31, "world", "anyone"),)
MARK = "10 11 2"


def delete(path: str = "/config/topics/old", mark: str = MARK) -> DeleteZnode:
    return DeleteZnode(ZNODES, "/kafka", path, b"{}", ANYBODY, mark)


CREATE = CreateZnode(ZNODES, "/kafka", "/config/topics/old", b"{}", ANYBODY)


@dataclass
class Client:
    """Answers as kazoo does. stat: of the znode, None without one. fails: of the change."""

    stat: object = field(
        default_factory=lambda: SimpleNamespace(czxid=0x10, mzxid=0x11, version=2)
    )  # fmt: skip
    fails: Exception | None = None
    sent: list[tuple[Any, ...]] = field(default_factory=list)

    def exists_async(self, _path: str) -> Any:
        return SimpleNamespace(get=lambda timeout: self.stat)

    def delete_async(self, path: str, version: int) -> Any:
        return self._sent(path, version)

    def create_async(self, path: str, data: bytes, acl: list[Any]) -> Any:
        return self._sent(path, data, [(one.perms, one.id.scheme, one.id.id) for one in acl])

    def _sent(self, *what: Any) -> Any:
        self.sent.append(what)

        def get(timeout: float) -> None:
            assert timeout > 0
            if self.fails is not None:
                raise self.fails

        return SimpleNamespace(get=get)


@pytest.mark.parametrize(
    "path", ["/controller", "/controller_epoch", "/brokers/ids/1", "/cluster/id", "/config/topics", "/admin"]
)
def test_p11_the_controller_is_never_deleted(path: str) -> None:
    """It is refused before a connection is made: there is no server here."""
    assert not removable(path)
    code, why = znodes.Alter([])(delete(path))
    assert (code, why) == (1, f"nothing was sent: {path} is no znode that operations leave behind")


def test_what_is_no_znode_is_not_sent() -> None:
    code, why = znodes.Alter([])(AlterTopicConfig(KAFKA, "t", "k", None, "v"))
    assert code == 1
    assert why.startswith("nothing was sent")


@pytest.mark.parametrize("mark", ["10 12 3", "20 20 0", "10 11 3"])
def test_p11_a_znode_that_was_changed_or_made_anew_stays(mark: str) -> None:
    client = Client()
    code, why = znodes._delete(cast(Any, client), "/kafka/config/topics/old", delete(mark=mark))
    assert (code, why.endswith("it stays"), client.sent) == (1, True, [])


def test_a_znode_is_deleted_as_it_was_read() -> None:
    client = Client()
    assert znodes._delete(cast(Any, client), "/kafka/config/topics/old", delete())[0] == 0
    assert client.sent == [("/kafka/config/topics/old", 2)]
    assert znodes._delete(cast(Any, Client(stat=None)), "/x", delete()) == (0, "/config/topics/old is gone")


@pytest.mark.parametrize(
    ("fails", "code"), [(BadVersionError(), 1), (NotEmptyError(), 1), (NoAuthError(), 1), (NoNodeError(), 0)]
)
def test_what_zookeeper_refuses_is_told(fails: Exception, code: int) -> None:
    assert znodes._delete(cast(Any, Client(fails=fails)), "/x", delete())[0] == code


@pytest.mark.parametrize(
    ("fails", "code"), [(None, 0), (NodeExistsError(), 0), (NoNodeError(), 1), (NoAuthError(), 1)]
)
def test_a_znode_is_made_again_with_its_acl_and_one_that_exists_stays(
    fails: Exception | None, code: int
) -> None:
    client = Client(fails=fails)
    assert znodes._create(cast(Any, client), "/kafka/config/topics/old", CREATE)[0] == code
    assert client.sent == [("/kafka/config/topics/old", b"{}", [ANYBODY[0]])]


def test_the_topic_of_a_znode() -> None:
    paths = (
        "/admin/delete_topics/a",
        "/brokers/topics/b/partitions/0",
        "/config/topics/c",
        "/config/changes/d",
    )
    assert [topic_of(path) for path in paths] == ["a", "b", "c", ""]
