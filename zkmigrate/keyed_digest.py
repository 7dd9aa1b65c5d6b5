"""Tell which settings may be secrets, and replace secrets by digests that can only be compared."""

from __future__ import annotations

import hashlib
import hmac
import os
import re

_KEY = os.urandom(32)
"""Random for each process, so that nobody can compare a digest with those of guessed secrets."""

SECRET_NAME = (
    r"(?:passw(?:or)?d(?!path)|passphrase|superdigest|secret|credential|jaas\.config"
    r"|(?:keystore|master)\.key)(?![\w.-]*path)"
)
"""A regular expression, without regard to case: part of the name of each setting that may hold a secret."""
_SECRET = re.compile(rf"(?i).*{SECRET_NAME}.*")


def is_secret(key: str) -> bool:
    """Return whether the value of a setting with this key may be a secret."""
    return _SECRET.fullmatch(key) is not None


def keyed_digest(secret: str) -> str:
    """Return a digest that is equal for equal secrets within this process."""
    return hmac.new(_KEY, secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
