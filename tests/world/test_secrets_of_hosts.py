"""The verb preflight reads passwords on hosts, and neither prints nor writes one of them."""

from __future__ import annotations

import base64
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.secured_world import FLAGS, JAAS, JAVA_ENV, STORE, ZOO_CFG, issue, section
from tests.world.desk import Desk
from tests.world.model.host import File

PASSWORDS = [f"canary-{number:02}" for number in range(20)]


def plant(desk: Desk) -> None:
    """Passwords at every place of a host where the preflight looks for them; one JAAS file is broken."""
    left = iter(PASSWORDS)
    store = issue("host", "10.0.0.1").store + f"-----BEGIN X-----\n{next(left)}\n".encode()
    source, hosts = desk.world.source_files, desk.world.hosts
    for name in ("source1", "dest1", "dest2"):
        sections = section("Server", user_kafka=next(left)) + section("QuorumServer", user_zk=next(left))
        sections += section("QuorumLearner", username="zk", password=next(left))
        broken = f'Server {{ {next(left)} "x'
        super_digest = f"-Dzookeeper.DigestAuthenticationProvider.superDigest=super:{next(left)}"
        store_password = f"-Dzookeeper.ssl.keyStore.password={next(left)}"
        env = f'JVMFLAGS="{FLAGS.partition(" ")[0]} {super_digest} {store_password}"'
        config = f"ssl.trustStore.password={PASSWORDS[0]}\nsecureClientPort=2281\n"
        config += f"ssl.keyStore.location={STORE}\nquorum.auth.enableSasl=true\n"
        contents = {
            JAAS: (broken if name == "dest2" else sections).encode(),
            STORE: store,
            JAVA_ENV: env.encode(),
        }
        if name in source:
            config = source[name][ZOO_CFG].decode() + config
            source[name] = {**source[name], **contents, ZOO_CFG: config.encode()}
        else:
            contents[ZOO_CFG] = config.encode()
            new = {path: File(content, "0640", "zookeeper:zookeeper") for path, content in contents.items()}
            hosts[name].files |= new


def test_no_password_of_a_host_is_printed_or_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path)
    text = desk.file.read_text()
    more = (
        "quorum.auth.enableSasl: 'true', "
        "authProvider.1: org.apache.zookeeper.server.auth.SASLAuthenticationProvider, "
    )
    desk.file.write_text(text.replace("settings: {", "settings: {" + more, 1))
    assert "quorum.auth" in desk.file.read_text()
    plant(desk)
    log = tmp_path / "commands.log"
    with caplog.at_level(logging.DEBUG):
        plain = desk.call("preflight", "-v", "--log-file", str(log))
        told = desk.call("preflight", "--json")
        ran = desk.call("run", "--yes", "--until", "install")
        report = desk.call("report", "--output", str(tmp_path / "report"))
    assert plain.exit_code == told.exit_code == 3, plain.output
    ids = {f["id"] for f in json.loads(told.stdout)["findings"] if f["held"] != "yes"}
    assert {"dest.jaas", "dest.super-user"} <= ids, "the files were read"
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    outputs = [one.output.encode() for one in (plain, told, ran, report)] + [caplog.text.encode()]
    forms = [form for one in PASSWORDS for form in (one.encode(), base64.b64encode(one.encode()))]
    assert [form for form in forms for text in (*written, *outputs) if form in text] == []


def test_no_password_in_a_brokers_file_is_written(tmp_path: Path) -> None:
    """The roll changes one line of the file, there and back, and nobody else gets to see another one."""
    desk = Desk(tmp_path)
    path, canary = "/etc/kafka/server.properties", b"listener.password=hidden-word\n"
    first = {}
    for host in ("broker1", "broker2", "broker3"):
        file = desk.world.hosts[host].files[path]
        first[host] = replace(file, content=canary + file.content)
        desk.world.hosts[host].files[path] = first[host]
    ran = desk.call("run", "--yes", "--run-id", "r", "--until", "roll", "--skip", "rehearse")
    assert ran.exit_code == 0, ran.output
    moved = [desk.world.hosts[host].files[path].content for host in first]
    assert moved != [file.content for file in first.values()]
    assert all(content.startswith(canary) for content in moved)
    back = desk.call("rollback", "--yes", "--run-id", "r", "--to", "roll")
    assert back.exit_code == 0, back.output
    assert [desk.world.hosts[host].files[path].content for host in first] == [
        file.content for file in first.values()
    ]
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    outputs = [one.output.encode() for one in (ran, back)]
    forms = (b"hidden-word", base64.b64encode(canary)[:16])
    assert [text for form in forms for text in (*written, *outputs) if form in text] == []
