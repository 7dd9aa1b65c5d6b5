"""Read the TLS and SASL settings of a cluster from a file of Kafka client properties.

No message contains the value of a secret.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from zkmigrate import input_file, java_properties
from zkmigrate.errors import UsageError
from zkmigrate.java_properties import PropertiesError

PROTOCOL, MECHANISM, JAAS = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
TRUST, TRUST_TYPE, TRUSTED = "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.certificates"
KEYS, KEYS_TYPE, KEY_PASSWORD = "ssl.keystore.location", "ssl.keystore.type", "ssl.key.password"
IDENTIFICATION = "ssl.endpoint.identification.algorithm"

_KNOWN = {
    PROTOCOL,
    MECHANISM,
    JAAS,
    TRUST,
    TRUST_TYPE,
    TRUSTED,
    KEYS,
    KEYS_TYPE,
    KEY_PASSWORD,
    IDENTIFICATION,
}
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_JAAS = re.compile(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*);\s*", re.DOTALL)
_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s\";]+))", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}
"""Escapes in a quoted word of a JAAS entry (java.io.StreamTokenizer, without octal numbers)."""


def settings(file: Path | None) -> dict[str, Any]:
    """Return kafka-python's settings for a file of client properties, or an empty dict without a file.

    Raises UsageError that names the file and the key.
    """
    if file is None:
        return {}
    try:
        text = input_file.content(file).decode(java_properties.ENCODING)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}. Needed: a file of Kafka's client properties"
        ) from None
    try:
        return of(java_properties.parse(text))
    except (UsageError, PropertiesError) as error:
        raise UsageError(f"{file}: {error}") from None


def of(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return kafka-python's settings for Kafka client properties.

    Raises UsageError if a property is not valid or not supported.
    """
    prefixes = ("security.", "sasl.", "ssl.")
    if unknown := sorted(key for key in properties if key.startswith(prefixes) and key not in _KNOWN):
        raise UsageError(f"{', '.join(unknown)}: unknown settings. Possible: {', '.join(sorted(_KNOWN))}")
    protocol = properties.get(PROTOCOL, "PLAINTEXT")
    if protocol not in _PROTOCOLS:
        raise UsageError(f"{PROTOCOL} is {protocol}. Possible: {', '.join(_PROTOCOLS)}")
    found: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL_"):
        found |= _sasl(properties)
    if protocol.endswith("SSL"):
        found["ssl_context"] = _tls(properties)
    return found


def _sasl(properties: Mapping[str, str]) -> dict[str, str]:
    mechanism = properties.get(MECHANISM, "GSSAPI")  # Kafka's default
    if mechanism not in _MODULES:
        raise UsageError(f"{MECHANISM} is {mechanism}. Possible: {', '.join(_MODULES)}")
    jaas = _JAAS.fullmatch(properties.get(JAAS, ""))
    if jaas is None or jaas[1] != _MODULES[mechanism]:
        raise UsageError(
            f"{JAAS} does not have the form that {mechanism} needs: "
            f'{_MODULES[mechanism]} required username="…" password="…";'
        )
    unescape = partial(_ESCAPE.sub, lambda match: _CONTROLS.get(match[1], match[1]))
    options = {name: unescape(quoted) or plain for name, quoted, plain in _OPTION.findall(jaas[2])}
    if missing := [name for name in ("username", "password") if not options.get(name)]:
        raise UsageError(f"{JAAS} has no {' and no '.join(missing)}")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": options["username"],
        "sasl_plain_password": options["password"],
    }


def _tls(properties: Mapping[str, str]) -> ssl.SSLContext:
    keys = _pem(properties, KEYS, KEYS_TYPE)
    try:
        if TRUSTED in properties:
            context = ssl.create_default_context(cadata=properties[TRUSTED])
        else:
            context = ssl.create_default_context(cafile=_pem(properties, TRUST, TRUST_TYPE))
    except OSError as error:
        raise UsageError(f"{TRUSTED if TRUSTED in properties else TRUST}: {error}") from None
    try:
        if keys is not None:
            # Without a password OpenSSL would ask the terminal for that of an encrypted key.
            context.load_cert_chain(keys, password=properties.get(KEY_PASSWORD, ""))
    except (OSError, ValueError) as error:
        raise UsageError(f"{KEYS} {keys}, {KEY_PASSWORD}: {error}") from None
    if properties.get(IDENTIFICATION, "https") == "":
        context.check_hostname = False
    return context


def _pem(properties: Mapping[str, str], key: str, kind: str) -> str | None:
    file = properties.get(key)
    if file is not None and (found := properties.get(kind, "JKS")) != "PEM":
        raise UsageError(f"{kind} is {found}. Needed: PEM. `keytool -exportcert -rfc` and `openssl` write it")
    if file is not None:
        try:
            input_file.content(file)  # OpenSSL would wait for a pipe
        except OSError as error:
            raise UsageError(f"{key} {file} cannot be read: {error.strerror}. Needed: a PEM file") from None
    return file
