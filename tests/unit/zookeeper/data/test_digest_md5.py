from __future__ import annotations

import pytest

from zkmigrate.zookeeper.data.digest_md5 import answer
from zkmigrate.zookeeper.data.errors import MalformedError

CHALLENGE = b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'


def test_the_example_of_the_rfc() -> None:
    seen = answer(CHALLENGE, "chris", "secret", "OA6MHXh6VqTrRk", "imap/elwood.innosoft.com")
    assert b"response=d388dad90d4bbd760a152321f2143af7" in seen.message
    assert seen.confirmation == b"rspauth=ea40f60335c427b5527b84dbabcdfffd"


def test_a_server_that_names_no_protection_and_a_quote_in_the_name() -> None:
    seen = answer(b'realm="zk-sasl-md5",nonce="n",charset=utf-8,algorithm=md5-sess', 'a"b', "secret", "c")
    assert b'username="a\\"b"' in seen.message
    assert b'digest-uri="zookeeper/zk-sasl-md5"' in seen.message


@pytest.mark.parametrize(
    "challenge", [b"", b"\xff", b'nonce="n",algorithm=md5', b'nonce="n",algorithm=md5-sess,qop="auth-conf"']
)
def test_other_challenges_are_refused(challenge: bytes) -> None:
    with pytest.raises(MalformedError):
        answer(challenge, "user", "secret", "c")
