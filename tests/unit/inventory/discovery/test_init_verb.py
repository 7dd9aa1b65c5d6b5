"""``init`` against real sshds and listeners: what it finds, what it says it did not find, what it refuses."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.unit import init_site
from tests.unit import sshd as daemon
from tests.unit.init_site import BROKER, CLUSTER_ID, DEST, SESSION, SOURCE, Site
from tests.unit.zookeeper.clients.test_admin import page, server
from zkmigrate.errors import UsageError
from zkmigrate.inventory.discovery.init_verb import init
from zkmigrate.inventory.inventory import Inventory, load


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with init_site.running(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    """The shared hosts with their words as they were, and no file left by another test."""
    before = dict(shared.words)
    yield shared
    shared.words.clear()
    shared.words |= before
    (shared.folder / "migration.yml").unlink(missing_ok=True)


def made(site: Site, **more: object) -> tuple[int, list[str]]:
    said: list[str] = []
    return init(site.options(**more), said.append, None), said


def written(site: Site) -> tuple[str, Inventory]:
    path = site.folder / "migration.yml"
    return path.read_text(), load(path)


def test_init_writes_an_inventory_that_needs_no_edit(site: Site) -> None:
    code, said = made(site)
    assert code == 0, said
    text, found = written(site)
    files = f"{site.folder}/files"
    assert [(h.name, h.address, h.myid) for h in found.source.hosts] == [
        (f"old-{n}", address, n) for n, address in enumerate(SOURCE, 1)
    ]
    assert found.source.ports.client == site.port
    assert (found.source.config, found.source.data_dir) == (f"{files}/zoo.cfg", f"{files}/zk")
    assert found.source.java_env == f"{files}/java.env"
    assert [(h.name, h.address, h.myid) for h in found.dest.hosts] == [
        (f"new-{n}", address, 10 + n) for n, address in enumerate(DEST, 1)
    ]
    assert (found.dest.user, found.dest.group, found.dest.service.unit) == ("zk", "zks", "zookeeper.service")
    assert found.dest.settings["4lw.commands.whitelist"] == "srvr,ruok,mntr,cons,dump"
    assert found.dest.settings["reconfigEnabled"] == "true", "what dest has once it is reformed"
    assert found.kafka.cluster_id == CLUSTER_ID
    assert (found.kafka.chroot, found.name) == ("/east", "east")
    [broker] = found.kafka.brokers
    assert (broker.name, broker.address, broker.id, broker.port) == ("kafka-7", BROKER, 7, 19092)
    assert found.kafka.config == f"{files}/server.properties"
    assert found.operator == ("127.0.0.1",)
    for seen in ("server.2 in zoo.cfg", "ExecStart", "dump", "meta.properties", "argument of the running"):
        assert seen in text, f"a reader is told that a value comes from {seen}"


def test_init_copies_no_password_of_source(site: Site) -> None:
    """The file goes into version control."""
    file = site.folder / "files" / "zoo.cfg"
    before = file.read_text()
    file.write_text(f"{before}\nssl.keyStore.password=canary\nssl.keyStore.passwordPath=/etc/p\n")
    try:
        _, said = made(site)
        text, found = written(site)
    finally:
        file.write_text(before)
    assert found.dest.settings["ssl.keyStore.passwordPath"] == "/etc/p"
    assert "ssl.keyStore.password" not in found.dest.settings
    assert "its value may be a secret" in text
    assert "canary" not in text + "".join(said)


def test_init_names_the_observers_of_source(site: Site) -> None:
    file = site.folder / "files" / "zoo.cfg"
    before = file.read_text()
    file.write_text(re.sub(r"(?m)^(server\.3=[^;\n]*?)(:participant)?(;.*)?$", r"\1:observer\3", before))
    try:
        made(site)
        _, found = written(site)
    finally:
        file.write_text(before)
    assert [host.observer for host in found.source.hosts] == [False, False, True]


def test_two_servers_with_one_myid_are_doubted_aloud(site: Site) -> None:
    """The hosts of this site share their files, so two of the three have another's myid."""
    _, said = made(site)
    assert sum("check:" in line and "BUT its myid file has 2" in line for line in said) == 2


def test_a_file_that_is_there_is_kept_unless_force_is_given(site: Site) -> None:
    out = site.folder / "migration.yml"
    out.write_text("mine")
    with pytest.raises(UsageError, match=r"already exists.*--force"):
        made(site)
    assert out.read_text() == "mine"
    assert made(site, force=True)[0] == 0
    assert load(out).name == "east"


def test_what_is_not_found_stands_there_as_a_line_to_fill_in(site: Site) -> None:
    site.words.clear()
    code, said = made(site, dest=())
    text = (site.folder / "migration.yml").read_text()
    assert code == 3
    assert "#? brokers: [{name: NAME, address: ADDRESS, id: NUMBER}]  # no broker found:" in text
    assert "name one with --bootstrap HOST:PORT" in text
    assert "#? hosts: [{name: NAME, address: ADDRESS, myid: NUMBER}]  # no --dest given" in text
    assert "#? chroot:  # not found: source's dump has no /brokers/ids" in text
    assert "# NOTE: " in text
    assert "whitelist" in text
    assert any("to fix" in line and "kafka" in line for line in said)


def test_brokers_named_by_hand_tell_chroot_and_id_by_their_files(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither dump nor cons: Ansible names the broker, its own files say the rest."""
    site.words.clear()
    ansible(tmp_path, monkeypatch, {"kafka": {"hosts": ["k7"]}}, {"k7": {"ansible_host": BROKER}})
    code, said = made(site, ansible="site.ini", mapping="brokers=kafka")
    assert code == 0, said
    text, found = written(site)
    assert (found.kafka.chroot, found.kafka.cluster_id) == ("/east", CLUSTER_ID)
    assert [(b.name, b.id) for b in found.kafka.brokers] == [("k7", 7)]
    assert "zookeeper.connect of the brokers" in text


@pytest.mark.parametrize("anywhere", ["0.0.0.0", "[::]"])
def test_a_servers_own_line_that_listens_anywhere_is_the_host_it_was_read_on(
    site: Site, request: pytest.FixtureRequest, anywhere: str
) -> None:
    file = site.folder / "files" / "zoo.cfg"
    text = file.read_text()
    request.addfinalizer(partial(file.write_text, text))
    file.write_text(text.replace(f"server.2={SOURCE[1]}:", f"server.2={anywhere}:"))
    code, said = made(site)
    assert code == 0, said
    assert [(h.address, h.myid) for h in written(site)[1].source.hosts] == list(
        zip(SOURCE, (1, 2, 3), strict=True)
    )


def test_addresses_of_a_source_host_are_no_settings_of_dest(
    site: Site, request: pytest.FixtureRequest
) -> None:
    """A server that is to listen on an address of another host does not start."""
    file = site.folder / "files" / "zoo.cfg"
    text = file.read_text()
    request.addfinalizer(partial(file.write_text, text))
    own = {
        "clientPortAddress": "10.0.0.1",
        "secureClientPortAddress": "fd00::1",
        "admin.serverAddress": "zk1.example",
        "metricsProvider.httpHost": "10.0.0.1",
    }
    file.write_text(text + "".join(f"{key}={value}\n" for key, value in own.items()))
    code, said = made(site)
    assert code == 0, said
    shown, found = written(site)
    assert not set(own) & set(found.dest.settings)
    for key, value in own.items():
        assert f"# {key}: left out: {value} is an address of one host" in shown
    file.write_text(text + "clientPortAddress=0.0.0.0\nadmin.serverAddress=127.0.0.1\n")
    made(site, force=True)
    settings = written(site)[1].dest.settings
    assert (settings["clientPortAddress"], settings["admin.serverAddress"]) == ("0.0.0.0", "127.0.0.1")


def test_a_broker_without_an_id_in_its_file_has_that_of_its_log_directory(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    file = site.folder / "files" / "server.properties"
    text = file.read_text()
    request.addfinalizer(partial(file.write_text, text))
    file.write_text(text.replace("broker.id=7\n", ""))
    site.words.clear()
    ansible(tmp_path, monkeypatch, {"kafka": {"hosts": ["k7"]}}, {"k7": {"ansible_host": BROKER}})
    code, said = made(site, ansible="site.ini", mapping="brokers=kafka")
    assert code == 0, said
    assert [(b.name, b.id) for b in written(site)[1].kafka.brokers] == [("k7", 7)]


def test_files_that_java_wrote_are_read_as_java_reads_them(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    files = site.folder / "files"
    for file in (files / "server.properties", files / "logs" / "meta.properties", files / "zoo.cfg"):
        text = file.read_text()
        request.addfinalizer(partial(file.write_text, text))
        file.write_text(text.replace(":", r"\:") + "note=1\x0b=2\x0c=3\n")
    site.words.clear()
    ansible(tmp_path, monkeypatch, {"kafka": {"hosts": ["k7"]}}, {"k7": {"ansible_host": BROKER}})
    code, said = made(site, ansible="site.ini", mapping="brokers=kafka")
    assert code == 0, said
    _, found = written(site)
    assert (found.kafka.chroot, found.kafka.cluster_id) == ("/east", CLUSTER_ID)
    assert [(b.name, b.id, b.port) for b in found.kafka.brokers] == [("k7", 7, 19092)]


def test_a_broker_whose_address_nobody_tells_is_missed_aloud(site: Site) -> None:
    owned = {SESSION: ["/east/brokers/ids/7"], 0x8: ["/east/brokers/ids/8"]}
    site.words["dump"] = init_site.dump(owned)
    made(site)
    text, found = written(site)
    assert [b.id for b in found.kafka.brokers] == [7]
    assert "# NOTE: brokers 8 are registered on source, but neither cons nor metadata" in text


def test_words_that_are_not_allowed_are_asked_from_adminserver_at_its_own_port(site: Site) -> None:
    """As ZooKeeper is since 3.5.3 where nobody says more: srvr alone."""
    site.words.clear()
    owned = {str(SESSION): ["/east/brokers/ids/7", "/east/controller"]}
    dump = {"command": "dump", "error": None, "expiry_time_to_session_ids": {},
            "session_id_to_ephemeral_paths": owned}  # fmt: skip
    client = {
        "remote_socket_address": f"{BROKER}:40000", "interest_ops": 1, "outstanding_requests": 0,
        "packets_received": 1, "packets_sent": 1, "session_id": SESSION, "last_operation": "PING",
        "established": 1, "session_timeout": 18000, "last_cxid": 1, "last_zxid": 1,
    }  # fmt: skip
    cons = {"command": "connections", "error": None, "connections": [client], "secure_connections": []}
    pages = {
        command: page(json.dumps(said).encode()) for command, said in (("dump", dump), ("connections", cons))
    }
    zoo_cfg = site.folder / "files" / "zoo.cfg"
    before = zoo_cfg.read_text()
    try:
        with server(pages=pages, address="0.0.0.0") as (port, requests):
            zoo_cfg.write_text(f"{before}admin.serverPort={port}\n")
            code, said = made(site)
    finally:
        zoo_cfg.write_text(before)
    assert code == 0, said
    text, found = written(site)
    assert [(b.id, b.address) for b in found.kafka.brokers] == [(7, BROKER)]
    assert (found.kafka.chroot, found.source.admin_port) == ("/east", port)
    assert "chroot: /east  # the only /brokers/ids in source's dump" in text
    assert len(requests) == 2 * len(SOURCE)


def test_several_clusters_on_source_have_to_be_told_apart(site: Site) -> None:
    owned = {SESSION: ["/east/brokers/ids/7"], 0x8: ["/west/brokers/ids/1", "/west/brokers/ids/2"]}
    site.words["dump"] = init_site.dump(owned)
    with pytest.raises(UsageError, match=r"/east \(brokers 7\); /west \(brokers 1, 2\).*--chroot"):
        made(site)
    with pytest.raises(UsageError, match=r"no broker is registered there; source has /east"):
        made(site, chroot="/north")
    assert made(site, chroot="/east")[0] == 0


def test_a_cluster_at_the_root_gets_the_chroot_slash(site: Site) -> None:
    site.words["dump"] = init_site.dump({SESSION: ["/brokers/ids/7"]})
    made(site)
    assert written(site)[1].kafka.chroot == "/"


def test_a_host_that_is_not_let_in_is_said_beside_it(site: Site, tmp_path: Path) -> None:
    """Another key is pinned than the host shows: it is not asked, and not offered for pinning either."""
    wanted = site.options(dest=(*DEST[:2], "127.0.0.99"))
    other = daemon.make_key(tmp_path / "other").with_suffix(".pub").read_text().rsplit(" ", 1)[0]
    with Path(wanted.ssh.known_hosts).open("a") as pins:
        pins.write(f"[127.0.0.99]:{site.sshd.port} {other}\n")
    said: list[str] = []
    assert init(wanted, said.append, None) == 0
    text, found = written(site)
    assert [h.address for h in found.dest.hosts] == [*DEST[:2], "127.0.0.99"]
    [line] = [line for line in text.splitlines() if "127.0.0.99" in line and line.strip().startswith("- ")]
    assert "not reached: unknown (denied): " in line
    assert "host key changed" in line


def test_where_no_source_host_answers_nothing_is_written(site: Site) -> None:
    """As on a machine that does not reach the hosts: nobody has that address here."""
    ssh = replace(site.options().ssh, port=free_port())
    with pytest.raises(UsageError) as caught:
        made(site, source=SOURCE[:2], ssh=ssh)
    told = str(caught.value)
    assert f"cannot read any of source's hosts from this machine: {SOURCE[0]}: unknown (refused): " in told
    assert f"; {SOURCE[1]}: unknown (refused): " in told
    assert "Nothing was written." in told
    assert "this one sends from " in told
    assert not (site.folder / "migration.yml").exists()


def test_myids_beside_a_source_that_tells_none_are_called_a_guess(site: Site) -> None:
    zoo_cfg = site.folder / "files" / "zoo.cfg"
    before = zoo_cfg.read_text()
    lines = [line for line in before.splitlines() if not line.startswith("server.")]
    zoo_cfg.write_text("\n".join(lines) + "\n")
    try:
        code, _ = made(site)
    finally:
        zoo_cfg.write_text(before)
    text = (site.folder / "migration.yml").read_text()
    assert code == 3
    assert "above source's 0" not in text
    assert text.count("myid: a guess, because source's myids are unknown; it must be above all of them") == 3


def test_an_unpinned_host_key_is_shown_and_pinned_only_when_somebody_says_yes(site: Site) -> None:
    pins = site.folder / "pins"
    wanted = site.options()
    wanted = replace(wanted, ssh=replace(wanted.ssh, known_hosts=str(pins)))
    said: list[str] = []
    with pytest.raises(UsageError, match="Cannot prompt"):
        init(wanted, said.append, None)
    assert any("ssh-ed25519 SHA256:" in line for line in said)
    with pytest.raises(UsageError, match="not approved"):
        init(wanted, said.append, lambda _question: "n")
    assert pins.read_text() == ""
    assert not wanted.out.exists()
    questions: list[str] = []

    def yes(question: str) -> str:
        questions.append(question)
        return "yes"

    assert init(wanted, said.append, yes) == 0
    assert stat.S_IMODE(pins.stat().st_mode) == 0o600
    asked = len(questions)
    assert asked == 3, "the hosts that are named, then source's others, then the brokers"
    assert init(replace(wanted, force=True), said.append, yes) == 0
    assert len(questions) == asked
    pins.unlink()


def test_keys_behind_a_bastion_are_asked_once_the_bastions_own_is_pinned(site: Site, tmp_path: Path) -> None:
    wanted = site.options()
    pins, said, questions = tmp_path / "pins", list[str](), list[str]()

    def yes(question: str) -> str:
        questions.append(question)
        return "yes"

    with daemon.running(tmp_path, "MaxStartups 100") as jump:
        (jump.folder / "authorized_keys").write_text((site.sshd.folder / "user_key.pub").read_text())
        way = f"127.0.0.2:{jump.port}"
        ssh = replace(wanted.ssh, known_hosts=str(pins), bastion=way)
        assert init(replace(wanted, ssh=ssh), said.append, yes) == 0
    assert written(site)[1].ssh.bastion == way
    first = said.index("these hosts show keys that are not pinned yet:")
    assert said[first + 1].startswith(f"  bastion {way}  ssh-ed25519 SHA256:")
    assert said[first + 2].startswith("compare each"), (
        "no host is asked through a bastion that is not trusted"
    )
    assert len(questions) == 4, "the bastion, the hosts that are named, source's others, the brokers"


def test_json_is_one_object_and_asks_nothing(site: Site) -> None:
    code, said = made(site, as_json=True)
    assert code == 0
    [line] = said
    body = json.loads(line)
    assert body["code"] == 0
    assert body["problems"] == []
    assert len(body["doubtful"]) == 2


def test_without_a_source_host_nothing_begins(site: Site) -> None:
    with pytest.raises(UsageError, match=r"no source host is named.*--source HOST"):
        made(site, source=())
    with pytest.raises(UsageError, match=r"--source 'a@b'.*--ssh-user"):
        made(site, source=("a@b",))
    with pytest.raises(UsageError, match="--dest '-x'"):
        made(site, dest=("-x",))


def ansible(
    folder: Path, monkeypatch: pytest.MonkeyPatch, groups: dict[str, object], variables: dict[str, object]
) -> None:
    """An ansible-inventory on the PATH that prints this inventory."""
    body = json.dumps({"_meta": {"hostvars": variables}, "all": {"children": list(groups)}, **groups})
    (folder / "listed.json").write_text(body)
    program = folder / "ansible-inventory"
    program.write_text(f'#!/bin/sh\n[ "$*" = "--list -i site.ini" ] || exit 5\ncat {folder}/listed.json\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_ansible_names_hosts_and_their_account(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = site.options()
    account = {"ansible_user": wanted.ssh.user, "ansible_port": site.sshd.port}
    groups: dict[str, object] = {
        "zk": {"children": ["zk_old", "zk_new"]},
        "zk_old": {"hosts": ["olda"]},
        "zk_new": {"hosts": ["newa", "newb", "newc"]},
    }
    variables: dict[str, object] = {
        name: {"ansible_host": address, **account}
        for name, address in zip(("olda", "newa", "newb", "newc"), (SOURCE[0], *DEST), strict=True)
    }
    ansible(tmp_path, monkeypatch, groups, variables)
    site.words["srvr"] = ""
    code, said = made(
        site, source=(), dest=(), ansible="site.ini", mapping="source=zk_old, dest=zk_new",
        ssh=replace(wanted.ssh, user="", port=0),
    )  # fmt: skip
    assert code == 0, said
    _, found = written(site)
    assert [h.name for h in found.dest.hosts] == ["newa", "newb", "newc"]
    assert [h.name for h in found.source.hosts] == ["olda", "old-2", "old-3"]
    assert (found.ssh.user, found.ssh.port) == (wanted.ssh.user, site.sshd.port)


def rewritten(request: pytest.FixtureRequest, path: Path, text: str) -> None:
    """Change a file of the site for one test."""
    before = path.read_text()
    request.addfinalizer(partial(path.write_text, before))
    path.write_text(text)


def test_a_relative_config_is_below_the_directory_where_the_broker_works(
    site: Site, request: pytest.FixtureRequest
) -> None:
    """It was "no broker is running", and another file was taken for the broker's."""
    proc = site.folder / "hosts" / BROKER / "100"
    rewritten(request, proc / "cmdline", "java\0kafka.Kafka\0files/../files/server.properties\0")
    (proc / "cwd").symlink_to(site.folder)
    request.addfinalizer((proc / "cwd").unlink)
    code, said = made(site)
    assert code == 0, said
    text, found = written(site)
    assert found.kafka.config == str((site.folder / "files" / "server.properties").resolve())
    assert f"config: {found.kafka.config}  # argument of the running process" in text


def test_a_relative_config_of_a_process_that_is_closed_to_us_is_below_the_working_directory(
    site: Site, request: pytest.FixtureRequest
) -> None:
    host = site.folder / "hosts" / BROKER
    rewritten(request, host / "100" / "cmdline", "java\0kafka.Kafka\0files/server.properties\0")
    unit = host / "units" / "kafka.service"
    command = "/bin/sh -c exec $KAFKA_HOME/bin/kafka-server-start.sh ${CONFIG} > /log"
    variables = "Environment=KAFKA_HOME=/opt/kafka CONFIG=files/server.properties"
    shown = f"LoadState=loaded\nWorkingDirectory={site.folder}\n{variables}\n"
    start = f"ExecStart={{ path=/bin/sh ; argv[]={command} ; ignore_errors=no ; start_time=[n/a] }}\n"
    rewritten(request, unit, shown + start)
    code, said = made(site)
    assert code == 0, said
    text, found = written(site)
    assert found.kafka.config == f"{site.folder}/files/server.properties"
    assert "ExecStart of kafka.service" in text


def test_a_wrapper_that_started_the_broker_is_no_second_broker(
    site: Site, request: pytest.FixtureRequest
) -> None:
    host = site.folder / "hosts" / BROKER
    rewritten(request, host / "100" / "cmdline", (host / "100" / "cmdline").read_text())
    wrapper = host / "99"
    wrapper.mkdir()
    request.addfinalizer(wrapper.rmdir)
    words = "sudo\0-u\0kafka\0" + (host / "100" / "cmdline").read_text()
    (wrapper / "cmdline").write_text(words)
    request.addfinalizer((wrapper / "cmdline").unlink)
    (host / "100" / "status").write_text("Name:\tjava\nPPid:\t99\n")
    request.addfinalizer((host / "100" / "status").unlink)
    code, said = made(site)
    assert code == 0, said
    path = f"{site.folder}/files/server.properties"
    assert f"config: {path}  # argument of the running process" in written(site)[0]


@pytest.mark.parametrize(
    ("command", "path"),
    [
        ("/opt/zk/bin/zkServer.sh --config FILES start-foreground", "FILES/zoo.cfg"),
        ("/bin/bash -c exec /opt/zk/bin/zkServer.sh start-foreground FILES/zoo.cfg", "FILES/zoo.cfg"),
        ("/usr/bin/env A=b /opt/kafka/bin/zookeeper-server-start.sh FILES/zoo.cfg", "FILES/zoo.cfg"),
        ("/opt/zk/bin/zkServer.sh start", "/opt/zk/conf/zoo.cfg"),
    ],
)
def test_the_config_of_a_stopped_server_is_the_one_that_its_unit_names(
    site: Site, request: pytest.FixtureRequest, command: str, path: str
) -> None:
    files = str(site.folder / "files")
    for address in DEST:
        start = f"ExecStart={{ argv[]={command.replace('FILES', files)} ; ignore_errors=no ; }}\n"
        rewritten(request, site.folder / "hosts" / address / "units" / "zookeeper.service",
                  f"LoadState=loaded\nUser=zk\nGroup=zks\n{start}")  # fmt: skip
    code, said = made(site)
    assert code == 0, said
    text, found = written(site)
    assert found.dest.config == path.replace("FILES", files)
    assert "ExecStart of zookeeper.service" in text


@pytest.mark.parametrize(
    ("lines", "port", "doubt"),
    [
        (
            "listeners=EXT://:9093,INT://:9192\nlistener.security.protocol.map=EXT:SSL,INT:PLAINTEXT\n",
            9192,
            "",
        ),
        (
            "listeners=CTL://:9091,A://:9193,B://:9192\ncontrol.plane.listener.name=CTL\n"
            "listener.security.protocol.map=CTL:PLAINTEXT,A:PLAINTEXT,B:plaintext\n"
            "inter.broker.listener.name=B\n",
            9192,
            "",
        ),
        ("listeners=PLAINTEXT://[::]:9192\n", 9192, ""),
        ("port=9192\n", 9192, ""),
        (
            "listeners=PLAINTEXT://127.0.0.99:9192\n",
            9192,
            "BUT its listener PLAINTEXT is bound to 127.0.0.99",
        ),
        ("listeners=SASL_SSL://:9192\n", 9092, "BUT all of its listeners need SASL or TLS"),
    ],
)
def test_the_port_of_a_broker_is_that_of_its_listener_without_sasl_and_tls(
    site: Site, request: pytest.FixtureRequest, lines: str, port: int, doubt: str
) -> None:
    path = site.folder / "files" / "server.properties"
    rewritten(request, path, re.sub("listeners=.*\n", lines, path.read_text()))
    code, said = made(site)
    assert code == 0, said
    text, found = written(site)
    assert [b.port for b in found.kafka.brokers] == [port]
    assert doubt in text
    assert text.count(" BUT its listener") + text.count("BUT all of its listeners") == bool(doubt)
