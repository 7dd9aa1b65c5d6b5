"""Make the TLS contexts of clients from the inventory, and check all of its secrets and certificates."""

from __future__ import annotations

import ssl
from functools import cache

from pydantic import BaseModel

from zkmigrate import input_file, secret
from zkmigrate.inventory.login import Secret, Tls, parts_of
from zkmigrate.secret import SecretError


def check(inventory: BaseModel) -> None:
    """Read every secret and certificate of an inventory once, so that a wrong one stops a verb at its start.

    Raises SecretError.
    """
    for part, key in parts_of(inventory):
        if isinstance(part, Secret):
            secret.read(part, key)
        elif isinstance(part, Tls):
            tls_context(part, key)


@cache
def tls_context(tls: Tls, key: str) -> ssl.SSLContext:
    """Return the context, which is made once in the life of this process.

    key: the section's key in the inventory, for messages. Raises SecretError.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = tls.verify_hostname
    try:
        if tls.ca is None:
            made.load_default_certs()
        else:
            made.load_verify_locations(_plain_file(tls.ca))
    except OSError as error:
        raise _wrong(f"{key}.ca", tls.ca or "the system's", error) from None
    if tls.certificate is not None and tls.key is not None:
        secret.check_private(tls.key, f"{key}.key")
        # Without a password OpenSSL would ask the terminal for that of an encrypted key.
        password = "" if tls.key_password is None else secret.read(tls.key_password, f"{key}.key_password")
        try:
            made.load_cert_chain(_plain_file(tls.certificate), tls.key, password)
        except (OSError, ValueError) as error:
            raise _wrong(f"{key}.certificate, {key}.key", f"{tls.certificate}, {tls.key}", error) from None
    return made


def _plain_file(path: str) -> str:
    with input_file.opened(path):  # OpenSSL would wait for a pipe
        return path


def _wrong(key: str, files: str, error: Exception) -> SecretError:
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return SecretError(
        f"{key}: {files}: {why}. Needed: PEM files that belong together. `openssl` and "
        "`keytool -exportcert -rfc` write them"
    )
