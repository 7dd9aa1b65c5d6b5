"""The notation of a way through other hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.hosts.jump_host import JumpHost, parse_jump_hosts


@pytest.mark.parametrize(
    ("text", "jump_hosts"),
    [
        ("jump", (JumpHost("jump"),)),
        ("ops@jump.example.com:2222", (JumpHost("jump.example.com", "ops", 2222),)),
        ("a,b@10.0.0.1:22", (JumpHost("a"), JumpHost("10.0.0.1", "b", 22))),
        ("2001:db8::1", (JumpHost("2001:db8::1"),)),
        ("ops@[2001:db8::1]:2222", (JumpHost("2001:db8::1", "ops", 2222),)),
        ("[2001:db8::1]", (JumpHost("2001:db8::1"),)),
    ],
)
def test_hops_are_read_and_written_the_same(text: str, jump_hosts: tuple[JumpHost, ...]) -> None:
    assert parse_jump_hosts(text) == jump_hosts
    assert parse_jump_hosts(",".join(map(str, jump_hosts))) == jump_hosts


@pytest.mark.parametrize(
    "text",
    ["", "a,", ",a", "a:0", "a:65536", "a:b", "@a", "Root@a", "a b", "-oProxyCommand", "a@b@c", "[a]x"],
)
def test_what_is_no_hop_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is neither|is no"):
        parse_jump_hosts(text)


@given(st.text(max_size=40))
def test_any_other_text_is_a_hop_or_refused_and_never_an_option(text: str) -> None:
    try:
        jump_hosts = parse_jump_hosts(text)
    except ValueError:
        return
    assert all(not jump.host.startswith("-") and jump.host for jump in jump_hosts)
