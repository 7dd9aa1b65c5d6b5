"""Replace secrets that hosts hold by digests, which can be compared and say nothing else."""

from __future__ import annotations

import hashlib
import hmac
import os

_KEY = os.urandom(32)
"""Random for each process, so that nobody can compare a digest with those of guessed secrets."""


def keyed_digest(secret: str) -> str:
    """Return a digest that is equal for equal secrets within this process."""
    return hmac.new(_KEY, secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
