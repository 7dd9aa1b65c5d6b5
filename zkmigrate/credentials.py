"""Make TLS contexts from files, and check all secrets and certificates of an inventory."""

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
    return client_context(tls, key)


def client_context(tls: Tls, key: str) -> ssl.SSLContext:
    """Return a context for connections to servers, from the files as they are now. Raises SecretError.

    key: the section's key in its file, for messages.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = tls.verify_hostname
    if tls.ca is None:
        made.load_default_certs()
    return _filled(made, tls, key)


def server_context(tls: Tls, key: str) -> ssl.SSLContext:
    """Return a context for connections from clients, from the files as they are now. Raises SecretError.

    Clients must show a certificate if the section has a ca. key: the section's key in its file, for messages.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if tls.ca is not None:
        made.verify_mode = ssl.CERT_REQUIRED
    return _filled(made, tls, key)


def _filled(made: ssl.SSLContext, tls: Tls, key: str) -> ssl.SSLContext:
    """Load the files of a section into a context."""
    try:
        if tls.ca is not None:
            made.load_verify_locations(_plain_file(tls.ca))
    except OSError as error:
        raise _wrong(f"{key}.ca", tls.ca or "", error) from None
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
