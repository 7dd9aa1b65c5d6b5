"""The notation of a way through other hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkmigrate.hosts.jump_host import Hop, parse_hops


@pytest.mark.parametrize(
    ("text", "hops"),
    [
        ("jump", (Hop("jump"),)),
        ("ops@jump.example.com:2222", (Hop("jump.example.com", "ops", 2222),)),
        ("a,b@10.0.0.1:22", (Hop("a"), Hop("10.0.0.1", "b", 22))),
        ("2001:db8::1", (Hop("2001:db8::1"),)),
        ("ops@[2001:db8::1]:2222", (Hop("2001:db8::1", "ops", 2222),)),
        ("[2001:db8::1]", (Hop("2001:db8::1"),)),
    ],
)
def test_hops_are_read_and_written_the_same(text: str, hops: tuple[Hop, ...]) -> None:
    assert parse_hops(text) == hops
    assert parse_hops(",".join(map(str, hops))) == hops


@pytest.mark.parametrize(
    "text",
    ["", "a,", ",a", "a:0", "a:65536", "a:b", "@a", "Root@a", "a b", "-oProxyCommand", "a@b@c", "[a]x"],
)
def test_what_is_no_hop_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is neither|is no"):
        parse_hops(text)


@given(st.text(max_size=40))
def test_any_other_text_is_a_hop_or_refused_and_never_an_option(text: str) -> None:
    try:
        hops = parse_hops(text)
    except ValueError:
        return
    assert all(not hop.host.startswith("-") and hop.host for hop in hops)
