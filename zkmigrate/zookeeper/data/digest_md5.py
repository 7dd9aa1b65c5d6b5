"""Compute a client's messages of SASL DIGEST-MD5 (RFC 2831), with which clients log in to ZooKeeper."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import md5

from zkmigrate.zookeeper.data.errors import MalformedError

URI = "zookeeper/zk-sasl-md5"
"""The service that ZooKeeper's servers expect, whatever their host (SecurityUtils.java)."""
_COUNT = "00000001"
_DIRECTIVE = re.compile(r'\s*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))\s*(?:,|$)')


@dataclass(frozen=True)
class Answer:
    """The answer to a server's challenge.

    message: the answer itself. confirmation: what the server must answer then, if it knows the password.
    """

    message: bytes
    confirmation: bytes


def answer(challenge: bytes, user: str, password: str, cnonce: str, uri: str = URI) -> Answer:
    """Return the answer to a challenge.

    cnonce: random text of the client, without quotes. Raises MalformedError for a challenge without a nonce,
    or of another algorithm or protection.
    """
    seen = {
        name: quoted or bare
        for name, quoted, bare in _DIRECTIVE.findall(challenge.decode("utf-8", "replace"))
    }
    nonce, realm, qop = seen.get("nonce", ""), seen.get("realm", ""), seen.get("qop", "auth")
    if not nonce or seen.get("algorithm") != "md5-sess" or "auth" not in qop.split(","):
        raise MalformedError("the server's challenge is not one of DIGEST-MD5 without protection")
    secret = md5(b":".join(map(_encoded, (user, realm, password))), usedforsecurity=False).digest()
    session = _hash(secret + f":{nonce}:{cnonce}".encode())

    def proof(method: str) -> str:
        return _hash(f"{session}:{nonce}:{_COUNT}:{cnonce}:auth:{_hash(f'{method}:{uri}'.encode())}".encode())

    fields = {"username": user, "realm": realm, "nonce": nonce, "cnonce": cnonce, "digest-uri": uri}
    words = ["charset=utf-8", *(f'{name}="{_escaped(value)}"' for name, value in fields.items())]
    words += [f"nc={_COUNT}", "qop=auth", f"response={proof('AUTHENTICATE')}"]
    return Answer(",".join(words).encode(), f"rspauth={proof('')}".encode())


def _hash(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()


def _encoded(text: str) -> bytes:
    """Return the bytes that are hashed: ISO 8859-1 where that is possible, as the RFC demands."""
    try:
        return text.encode("iso-8859-1")
    except UnicodeEncodeError:
        return text.encode("utf-8")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
