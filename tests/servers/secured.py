"""Certificates, users and settings of servers that want TLS and SASL."""

from __future__ import annotations

import base64
import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers.process import ADDRESS

SASL, SUPER, KAFKA = 's4sl-planted "quoted", = ü', "sup3r-planted", "k4fka-planted"
PLANTED = (SASL, SUPER, KAFKA)
"""The passwords that nothing of the product may show."""


@dataclass(frozen=True)
class Certificates:
    """An authority, and what it signed for an address. Files with a key have mode 0600."""

    folder: Path
    address: str = ADDRESS

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def store(self, name: str) -> Path:
        """Key and certificate in one file, as servers take them."""
        return self.folder / f"{name}.store.pem"

    def write(self, *names: str) -> None:
        words = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        self._run(
            "req", "-x509", *words, "-keyout", self.key("ca"), "-out", self.authority, "-subj", "/CN=ca"
        )
        for name in names:
            request, more = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
            more.write_text(f"subjectAltName=IP:{self.address}\n")
            self._run("req", *words[:-2], "-keyout", self.key(name), "-out", request, "-subj", f"/CN={name}")
            signer = ("-CA", self.authority, "-CAkey", self.key("ca"), "-CAcreateserial", "-days", "2")
            self._run(
                "x509", "-req", "-in", request, *signer, "-extfile", more, "-out", self.certificate(name)
            )
            self.store(name).write_text(self.key(name).read_text() + self.certificate(name).read_text())
            self.key(name).chmod(0o600)

    def encrypt(self, name: str, password: str) -> None:
        """Write the key a second time, with a password."""
        out = self.folder / f"{name}.encrypted.key"
        self._run("pkcs8", "-topk8", "-in", self.key(name), "-out", out, "-passout", f"pass:{password}")
        out.chmod(0o600)

    def pkcs12(self, name: str, password: str) -> Path:
        """Key and certificate, as releases of Kafka want them that take no PEM file without a password."""
        out, own = self.folder / f"{name}.p12", ("-in", self.certificate(name), "-inkey", self.key(name))
        self._run("pkcs12", "-export", *own, "-out", out, "-passout", f"pass:{password}")
        return out

    @staticmethod
    def _run(*words: object) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def zookeeper(folder: Path, port: int, own: Certificates) -> tuple[str, list[str]]:
    """The lines of zoo.cfg and the JVM's options of a server with TLS on this port too, and SASL on both."""
    quoted = SASL.replace("\\", r"\\").replace('"', r"\"")
    jaas = folder / "zookeeper.jaas"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas.write_text(f'Server {{ {module} required user_tool="{quoted}"; }};\n', encoding="utf-8")
    lines = (
        f"secureClientPort={port}\nsecureClientPortAddress={ADDRESS}\n"
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
        "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
        f"ssl.keyStore.location={own.store('server')}\nssl.keyStore.type=PEM\n"
        f"ssl.trustStore.location={own.authority}\nssl.trustStore.type=PEM\n"
    )
    identity = base64.b64encode(hashlib.sha1(f"super:{SUPER}".encode()).digest()).decode()
    options = [
        f"-Djava.security.auth.login.config={jaas}",
        "-Dfile.encoding=UTF-8",
        f"-Dzookeeper.DigestAuthenticationProvider.superDigest=super:{identity}",
    ]
    return lines, options


def kafka(doors: dict[str, str], own: Certificates) -> tuple[str, str]:
    """The listeners and settings of a broker whose doors are SASL_SSL, SASL_PLAINTEXT and SSL."""
    modules = "org.apache.kafka.common.security"
    return (
        "".join(f",{name}://{at}" for name, at in doors.items()),
        f"ssl.keystore.type=PEM\nssl.keystore.location={own.store('server')}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={own.authority}\n"
        "ssl.client.auth=required\nlistener.name.sasl_ssl.ssl.client.auth=none\n"
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n"
        + "".join(
            f"listener.name.{door}.{mechanism}.sasl.jaas.config={modules}.{module} required{user};\n"
            for door in ("sasl_ssl", "sasl_plaintext")
            for mechanism, module, user in (
                ("plain", "plain.PlainLoginModule", f' user_tool="{KAFKA}"'),
                ("scram-sha-256", "scram.ScramLoginModule", ""),
                ("scram-sha-512", "scram.ScramLoginModule", ""),
            )
        ),
    )
