"""ssh keys of a lab: one for the operator, one per host, and the known_hosts file.

The hosts' keys are made before their boot, so nothing is trusted on first use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class KeyPair:
    """An ed25519 key: private in OpenSSH's own text form, public as `ssh-ed25519 BASE64`."""

    private: str
    public: str

    @classmethod
    def generate(cls) -> KeyPair:
        """A new key."""
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        return cls(private.decode(), public.decode())


def known_hosts(keys: Iterable[tuple[str, str, str]]) -> str:
    """The known_hosts text (sshd(8)) for (host name, address, public key) triples."""
    return "".join(f"{name},{address} {public}\n" for name, address, public in keys)
