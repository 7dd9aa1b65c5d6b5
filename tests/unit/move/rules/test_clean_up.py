"""Which subtrees of dest may go: facts of which all is well, then one that is not, then what must block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from zkmigrate.kafka.rules.connect import chroot_in
from zkmigrate.move.facts.tenant_znodes import ancestors, outside
from zkmigrate.move.facts.tenants import Tenant, Tenants, Users
from zkmigrate.move.questions import Node
from zkmigrate.move.rules.clean_up import dest_findings, may_change_in, subtree_findings, subtree_of
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.finding import blocking
from zkmigrate.zookeeper.data.txn import Acl

CUT = 0x500000010
OPEN = (Acl(31, "world", "anyone"),)
ABOVE = Node("/", 0, 0, 0, 0, 0, 0, 0, 2, OPEN)
TOP = Node("/solr", 0x10, 0x20, CUT, 0, 0, 4, 1000, 1, OPEN)
LEAF = Node("/solr/leaf", 0x30, 0x40, 0x30, 3, 0, 6, 2000, 0, OPEN)
BLIND = Unknown("denied", "wchp is not in the server's 4lw.commands.whitelist")
OTHER = Tenant("10.0.0.77", ("dest1",), 1, ())
TTL = -1 << 56
CONTAINER = -1 << 63
OF_OTHERS: Reading[dict[str, tuple[int, ...]]] = Seen({"/kafka/controller": (1,), "/solrcloud": (2,)})
NOBODY = Tenants((), ())
KAFKA = Seen("/kafka")


@dataclass(frozen=True)
class Facts:
    """As they are where /solr may go."""

    nodes: Sequence[Node] = (TOP, LEAF)
    above: Node = ABOVE
    watches: Reading[dict[str, tuple[int, ...]]] = OF_OTHERS
    clients: Tenants = NOBODY
    chroot: Reading[str] = KAFKA
    begun: bool = False

    def against(self) -> list[str]:
        tree = subtree_of("/solr", self.nodes, (self.above,), CUT, begun=self.begun)
        using = Users({"dest1": Seen({}), "dest2": self.watches}, self.clients, {"broker1": self.chroot})
        found = (*dest_findings(Seen(CUT), using), *subtree_findings(tree, CUT, using))
        return [f"{f.id}:{f.target}" for f in blocking(found)]


GOOD = Facts()


def with_leaf(**other: object) -> Facts:
    return replace(GOOD, nodes=(TOP, replace(LEAF, **other)))  # type: ignore[arg-type]


CASES = {
    "all is well": (GOOD, []),
    "a server does not tell its watches": (replace(GOOD, watches=BLIND), ["clean-up.watches:dest2"]),
    "a session watches a znode below": (
        replace(GOOD, watches=Seen({"/solr/leaf": (7,)})),
        ["clean-up.watched:/solr"],
    ),
    "a session watches its top": (replace(GOOD, watches=Seen({"/solr": (7,)})), ["clean-up.watched:/solr"]),
    "a session waits for a znode to come": (
        replace(GOOD, watches=Seen({"/solr/none": (7,)})),
        ["clean-up.watched:/solr"],
    ),
    "another client": (replace(GOOD, clients=Tenants((OTHER,), ())), ["clean-up.clients:10.0.0.77"]),
    "clients that are not told": (
        replace(GOOD, clients=Tenants((), ("dest1: cons: denied",))),
        ["clean-up.clients:dest1"],
    ),
    "a chroot that is not read": (replace(GOOD, chroot=BLIND), ["clean-up.chroots:broker1"]),
    "an ephemeral": (with_leaf(owner=0x1000), ["clean-up.owned:/solr"]),
    "a container": (with_leaf(owner=CONTAINER), ["clean-up.owned:/solr"]),
    "a znode with a TTL": (with_leaf(owner=TTL), ["clean-up.owned:/solr"]),
    "made after the cut": (with_leaf(czxid=CUT + 1), ["clean-up.written:/solr"]),
    "changed after the cut": (with_leaf(mzxid=CUT + 1), ["clean-up.written:/solr"]),
    "changed at the cut": (with_leaf(czxid=CUT, mzxid=CUT, pzxid=CUT), []),
    "a child that went after the cut": (with_leaf(pzxid=CUT + 1), ["clean-up.children:/solr"]),
    "not readable": (with_leaf(acl=None), ["clean-up.locked:/solr"]),
    "a digest that is hidden": (
        with_leaf(acl=(*OPEN, Acl(31, "digest", "solr:x"))),
        ["clean-up.locked:/solr"],
    ),
    "a digest that is shown": (with_leaf(acl=(Acl(1, "world", "anyone"), Acl(31, "digest", "s:q1"))), []),
    "children that may not be deleted": (
        replace(GOOD, nodes=(replace(TOP, acl=(Acl(1, "world", "anyone"),)), LEAF)),
        ["clean-up.locked:/solr"],
    ),
    "a top that may not be deleted": (
        replace(GOOD, above=replace(ABOVE, acl=(Acl(7, "world", "anyone"),))),
        ["clean-up.locked:/solr"],
    ),
    "a parent of the top that is not readable": (
        replace(GOOD, above=replace(ABOVE, acl=None)),
        ["clean-up.locked:/solr"],
    ),
    "begun: our own deletes moved its pzxid": (replace(with_leaf(pzxid=CUT + 9), begun=True), []),
    "begun: a new one": (replace(with_leaf(czxid=CUT + 9), begun=True), ["clean-up.written:/solr"]),
}


@pytest.mark.parametrize(("facts", "against"), CASES.values(), ids=CASES.keys())
def test_what_keeps_a_subtree(facts: Facts, against: list[str]) -> None:
    assert facts.against() == against


def test_what_lies_outside_every_chroot() -> None:
    assert ancestors(["/a/b/kafka", "/kafka"]) == ("/", "/a", "/a/b")
    children = {
        "/": ["zookeeper", "a", "kafka", "kafka2", "solr"],
        "/a": ["b", "hbase"],
        "/a/b": ["kafka", "x"],
    }
    chroots = ["/a/b/kafka", "/kafka"]
    assert outside(children, chroots) == ("/a/b/x", "/a/hbase", "/kafka2", "/solr")
    assert outside(children, ["/"]) == ()


def test_a_broker_without_a_chroot_has_everything() -> None:
    assert [chroot_in(text) for text in ("a:1,b:1/kafka", "a:1/a/kafka/", "a:1", "a:1/")] == [
        "/kafka", "/a/kafka", "/", "/"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("acl", "may"),
    [
        ([Acl(12, "world", "anyone")], True),
        ([Acl(4, "world", "anyone"), Acl(8, "ip", "10.0.0.0/8")], True),
        ([Acl(8, "world", "anyone")], False),
        ([Acl(4, "world", "anyone")], False),
        ([Acl(3, "world", "anyone"), Acl(31, "digest", "solr:q")], False),
    ],
)
def test_who_may_delete_children_and_create_them_again(acl: list[Acl], may: bool) -> None:
    assert may_change_in(acl) is may


def test_the_sums_of_a_subtree() -> None:
    tree = subtree_of("/solr", (TOP, LEAF), (ABOVE,), CUT)
    assert (tree.znodes, tree.bytes, tree.newest, tree.changed_ms) == (2, 10, CUT, 2000)
