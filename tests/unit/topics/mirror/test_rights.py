"""ACLs on target: those that let people read; nobody gets the right to write before the switch."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from zkmigrate.kafka.rights import LATER, Acl, rights

TOPICS, GROUPS = ("orders", "bills"), ("app",)
READING = {"READ", "DESCRIBE", "DESCRIBE_CONFIGS"}


def rule(
    operation: str = "READ",
    name: str = "orders",
    *,
    resource: str = "TOPIC",
    pattern: str = "LITERAL",
    principal: str = "User:a",
    permission: str = "ALLOW",
) -> Acl:
    return Acl(resource, name, pattern, principal, "*", operation, permission)


def granted(*source: Acl) -> set[Acl]:
    return set(rights(source, (), TOPICS, GROUPS).grant)


def test_h7_reading_is_granted_on_topics_and_groups_that_are_mirrored() -> None:
    literal, group = rule(), rule(resource="GROUP", name="app")
    prefixed = rule(name="ord", pattern="PREFIXED")
    others = rule(name="other"), rule(name="o"), rule(name="oth", pattern="PREFIXED")
    assert granted(literal, group, prefixed, *others) == {literal, group, prefixed}


@pytest.mark.parametrize(
    "operation", ["WRITE", "CREATE", "DELETE", "ALTER", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "UNKNOWN"]
)
def test_h7_what_changes_a_topic_is_granted_at_the_switch(operation: str) -> None:
    one = rule(operation)
    told = rights([one], (), TOPICS, GROUPS)
    assert told.grant == frozenset()
    assert told.left == {one: LATER}


def test_h7_all_becomes_reading_until_the_switch() -> None:
    assert granted(rule("ALL")) == {rule(one) for one in READING}
    assert rule("ALL") in rights([rule("ALL")], (), TOPICS, GROUPS).left


def test_h7_a_right_on_every_topic_becomes_one_on_each_mirrored_one() -> None:
    assert granted(rule(name="*")) == {rule(name=name) for name in TOPICS}


def test_h7_a_denial_is_copied_unless_it_is_for_everybody() -> None:
    one, everybody = rule("WRITE", permission="DENY"), rule(permission="DENY", principal="User:*")
    told = rights([one, everybody], (), TOPICS, GROUPS)
    assert told.grant == {one}
    assert told.left == {everybody: "it would also deny the mirror"}


def test_h7_only_what_source_had_in_this_run_is_deleted() -> None:
    own = rule(principal="User:operator")
    first = rights([rule()], [own], TOPICS, GROUPS)
    then = rights([], [own, rule()], TOPICS, GROUPS, first.keep)
    assert then.revoke == {rule()}
    # A deletion that did not succeed is tried again, a done one is forgotten.
    assert rights([], [own, rule()], TOPICS, GROUPS, then.keep).revoke == {rule()}
    assert rights([], [own], TOPICS, GROUPS, then.keep).keep == frozenset()


@pytest.mark.parametrize("operation", ["WRITE", "ALL", "ALTER_CONFIGS"])
def test_h7_the_switch_grants_what_lets_somebody_write(operation: str) -> None:
    own, theirs = rule(operation), rule(operation, "other")
    source = [
        rule(),
        own,
        theirs,
        rule(operation, permission="DENY"),
        rule("DELETE", "app", resource="GROUP"),
    ]
    assert rights(source, [], TOPICS, GROUPS).later == (rule("DELETE", "app", resource="GROUP"), own)
    assert rights(source, [own], TOPICS, ()).later == ()


def test_h7_the_switch_grants_writing_on_mirrored_topics_only() -> None:
    every, prefixed = rule("WRITE", name="*"), rule("WRITE", name="bil", pattern="PREFIXED")
    wanted = [rule("WRITE", "bills"), prefixed, rule("WRITE", "orders")]
    assert rights([every, prefixed], [], TOPICS, GROUPS).later == tuple(sorted(wanted))


def test_h2_who_may_write_on_target_already_is_named() -> None:
    own = rule("WRITE", principal="User:stranger")
    assert "may write" in rights([], [own, rule("WRITE", "other")], TOPICS, GROUPS).left[own]


RULES = st.builds(
    rule,
    st.sampled_from(["READ", "WRITE", "ALL", "DELETE", "DESCRIBE", "ALTER"]),
    st.sampled_from(["orders", "bills", "other", "app", "*", "o"]),
    resource=st.sampled_from(["TOPIC", "GROUP"]),
    pattern=st.sampled_from(["LITERAL", "PREFIXED"]),
    principal=st.sampled_from(["User:a", "User:*"]),
    permission=st.sampled_from(["ALLOW", "DENY"]),
)


@given(st.lists(st.frozensets(RULES, max_size=5), max_size=5), st.frozensets(RULES, max_size=3))
@settings(max_examples=examples(60))
def test_h7_nobody_gets_more_than_reading_and_targets_own_acls_stay(
    sources: list[frozenset[Acl]], own: frozenset[Acl]
) -> None:
    there, keep, ever = set(own), frozenset[Acl](), set[Acl]()
    for source in [*sources, frozenset[Acl]()]:
        told = rights(source, there, TOPICS, GROUPS, keep)
        for one in told.grant:
            assert one.permission == "DENY" or one.operation in READING
            assert one.name != "*" or one.pattern == "PREFIXED"
        assert not told.revoke & source
        ever |= told.keep
        there, keep = (there | told.grant) - told.revoke, told.keep
        again = rights(source, there, TOPICS, GROUPS, keep)
        assert not again.grant | again.revoke
    assert there == own - ever
