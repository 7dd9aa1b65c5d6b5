"""What the sender of znode changes refuses, before it connects and by what it sees."""

from __future__ import annotations

import pytest

from tests.unit.znode_server import ZnodeServer
from zkmigrate.kafka.changes import KAFKA, AlterTopicConfig
from zkmigrate.kafka.clients import znodes
from zkmigrate.kafka.rules.znodes import removable, topic_of
from zkmigrate.zookeeper.changes import ZNODES, DeleteZnode, mark

ANYBODY = ((31, "world", "anyone"),)
MARK = "10 11 2"


def delete(path: str = "/config/topics/old", mark: str = MARK) -> DeleteZnode:
    return DeleteZnode(ZNODES, "/kafka", path, b"{}", ANYBODY, mark)


@pytest.mark.parametrize(
    "path", ["/controller", "/controller_epoch", "/brokers/ids/1", "/cluster/id", "/config/topics", "/admin"]
)
def test_p11_the_controller_is_never_deleted(path: str) -> None:
    """It is refused before a connection is made: there is no server here."""
    assert not removable(path)
    code, why = znodes.Alter([])(delete(path))
    assert (code, why) == (1, f"nothing was sent: {path} is not a znode that operations leave behind")


def test_what_is_no_znode_is_not_sent() -> None:
    code, why = znodes.Alter([])(AlterTopicConfig(KAFKA, "t", "k", None, "v"))
    assert code == 1
    assert why.startswith("nothing was sent")


def test_a_znode_below_the_chroot_is_deleted_as_it_was_read_and_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = ZnodeServer()
    for path in ("/kafka", "/kafka/config", "/kafka/config/topics", "/kafka/config/topics/old"):
        server.put(path)
    monkeypatch.setattr(znodes, "connect", server.connect)
    alter = znodes.Alter([])
    assert alter(delete())[0] == 1
    assert "/kafka/config/topics/old" in server.nodes
    asked = delete(mark=mark(server.nodes["/kafka/config/topics/old"]))
    assert alter(asked)[0] == 0
    assert "/kafka/config/topics/old" not in server.nodes
    assert alter(asked.inverse())[0] == 0
    assert server.nodes["/kafka/config/topics/old"].data == b"{}"


def test_the_topic_of_a_znode() -> None:
    paths = (
        "/admin/delete_topics/a",
        "/brokers/topics/b/partitions/0",
        "/config/topics/c",
        "/config/changes/d",
    )
    assert [topic_of(path) for path in paths] == ["a", "b", "c", ""]
