"""The gateway's file, and what follows from it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from zkmigrate.cli.main import cli
from zkmigrate.errors import HostError, InventoryError, LockedError
from zkmigrate.secret import SecretError
from zkmigrate.topics.gateway.rules.plan import OTHERS, Port, Reading
from zkmigrate.topics.gateway.serving.config import load
from zkmigrate.topics.gateway.serving.record import Record

TEXT = """\
state: /var/lib/zkmigrate-gateway
route: old
clusters:
  old:
    1: old1.example:9092
    2: old2.example:9092
    3: old3.example:9092
  new:
    11: new1.example:9092
    12: new2.example:9092
listeners:
  shop:
    advertise: gw1.example
    ports:
      old: {1: 19001, 2: 19002, 3: 19003}
      new: {11: 29011, 12: 29012}
apps:
  orders:
    route: new
    listener: shop
    client_ids: ["orders-*", "audit"]
  bob:
    route: old
    principals: [bob]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "gateway.yml"
    path.write_text(text)
    return path


def test_a_file_and_its_plan(tmp_path: Path) -> None:
    config = load(written(tmp_path, TEXT))
    plan = config.plan()
    assert config.routes == {"orders": "new", "bob": "old", OTHERS: "old"}
    assert plan.ports[Port("shop", "old", 2)] == 19002
    assert plan.app("shop", "orders-7", "") == "orders"
    assert plan.app("shop", "audit", "bob") == "orders", "the first that names it"
    assert plan.app("shop", "auditor", "bob") == "bob"
    assert plan.app("other", "orders-7", "") == OTHERS
    assert plan.address("shop", "new", 12) == ("gw1.example", 29012)
    assert plan.address("shop", "new", 99) == ("gw1.example", 29011), "never the broker's own"


READERS = TEXT.replace(
    "apps:",
    "  readers:\n    advertise: gw2.example\n    read_only: new\n    mirrored_groups: ['orders-*']\n"
    "    ports:\n      new: {11: 39011, 12: 39012}\napps:",
)


def test_h3_a_listener_that_only_reads_has_ports_of_one_cluster(tmp_path: Path) -> None:
    plan = load(written(tmp_path, READERS)).plan()
    assert plan.reading == {"readers": Reading("new", ("orders-*",))}
    assert plan.app("readers", "orders-7", "bob") == "readers", "there is no application's"
    assert plan.address("readers", "new", 12) == ("gw2.example", 39012)
    assert {port.cluster for port in plan.ports if port.listener == "readers"} == {"new"}


NOT_READERS = {
    "listeners.readers.read_only: no cluster has this name": ("read_only: new", "read_only: odd"),
    "listeners.readers.mirrored_groups: this key needs the key read_only": ("    read_only: new\n", ""),
    "listeners.readers.ports.old: the listener is read-only, with ports for cluster new only": (
        "new: {11: 3",
        "old: {1: 39001}\n      new: {11: 3",
    ),
    "listeners.readers.ports.new: the listener has ports for nodes 11; needed: ports for 11, 12": (
        ", 12: 39012",
        "",
    ),
    "listeners.orders: an application has this name": ("  readers:", "  orders:"),
    "listeners.others: an application has this name": ("  readers:", "  others:"),
    "apps.orders.listener: this listener is read-only": ("    listener: shop", "    listener: readers"),
}


@pytest.mark.parametrize("needed", NOT_READERS)
def test_a_mistake_in_a_listener_that_only_reads_is_named(needed: str, tmp_path: Path) -> None:
    old, new = NOT_READERS[needed]
    assert READERS.count(old) == 1
    with pytest.raises(InventoryError) as error:
        load(written(tmp_path, READERS.replace(old, new)))
    assert needed in str(error.value)


def test_a_left_port_has_brokers_of_the_other_cluster(tmp_path: Path) -> None:
    plan = load(written(tmp_path, TEXT)).plan()
    assert plan.brokers(Port("shop", "old", 2), "old") == ["old2.example:9092"]
    new = ["new1.example:9092", "new2.example:9092"]
    assert plan.brokers(Port("shop", "old", 1), "new") == new
    assert plan.brokers(Port("shop", "old", 2), "new") == new[::-1]
    assert plan.brokers(Port("shop", "old", 3), "new") == new
    assert plan.brokers(Port("shop", "new", 12), "old") == [f"old{n}.example:9092" for n in (2, 3, 1)]


WRONG = {
    "port 19001 is used for 2 nodes": ("2: 19002", "2: 19001"),
    "the listener has ports for nodes 1, 2; needed: ports for 1, 2, 3": (", 3: 19003", ""),
    "new2.example:9092 is the address of 2 nodes": ("11: new1", "11: new2"),
    "route: no cluster has this name": ("route: old\nclusters", "route: odd\nclusters"),
    "apps.orders.route: no cluster": ("route: new", "route: odd"),
    "apps.orders.listener: no listener": ("listener: shop", "listener: odd"),
    "apps.bob: the application names no client": ("    principals: [bob]\n", ""),
    "apps.others: others is reserved for all other": ("  bob:", "  others:"),
    "listeners.shop.ports.odd: no cluster": ("      new: {11", "      odd: {1: 3}\n      new: {11"),
    "frames: this key is unknown": ("route: old\nclusters", "route: old\nframes: 1\nclusters"),
    "clusters.old.1: String should match": ("old1.example:9092", "old1.example"),
    "state: String should match": ("/var/lib", "var/lib"),
    "listeners.shop.advertise: this key is missing": ("    advertise: gw1.example\n", ""),
    "twice": ("  bob:", "  orders:"),
    "connections: Input should be greater": ("route: old\nclusters", "route: old\nconnections: 0\nclusters"),
}


@pytest.mark.parametrize("needed", WRONG)
def test_a_mistake_is_named_with_its_line(needed: str, tmp_path: Path) -> None:
    old, new = WRONG[needed]
    assert TEXT.count(old) == 1
    path = written(tmp_path, TEXT.replace(old, new))
    with pytest.raises(InventoryError) as error:
        load(path)
    assert needed in str(error.value)
    assert str(error.value).startswith(f"{path}:")


@pytest.mark.parametrize("text", ["", "- a\n", "a: [\n", "a: 1\n"])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InventoryError):
        load(written(tmp_path, text))
    with pytest.raises(InventoryError):
        load(tmp_path / "none.yml")


def test_a_record_has_one_process_and_is_whole(tmp_path: Path) -> None:
    record = Record(tmp_path / "state")
    assert record.read() is None
    asyncio.run(record.write({"route": "a"}))
    asyncio.run(record.write({"route": "b"}))
    assert record.read() == {"route": "b"}
    assert (tmp_path / "state" / "record.json").stat().st_mode & 0o777 == 0o600
    with pytest.raises(LockedError):
        Record(tmp_path / "state")
    (tmp_path / "state" / "record.new").mkdir()
    (tmp_path / "state" / "record.new" / "x").touch()
    with pytest.raises(OSError, match="directory"):
        asyncio.run(record.write({"route": "c"}))
    assert record.read() == {"route": "b"}
    record.close()
    again = Record(tmp_path / "state")
    (tmp_path / "state" / "record.json").write_text("{")
    with pytest.raises(HostError, match="route is unknown"):
        again.read()
    again.close()


_SECURED = """\
    tls: {certificate: gw.pem, key: keys/gw.key, key_password: {env: ZKM_TEST_GATEWAY}, ca: /etc/ca.pem}
    ports:
      old: {1: 19001, 2: 19002, 3: 19003}
"""


def secured(folder: Path, listener: str = _SECURED, clusters: str = "tls: {old: {ca: old.pem}}\n") -> Path:
    plain = "    ports:\n      old: {1: 19001, 2: 19002, 3: 19003}\n"
    assert plain in TEXT
    return written(folder, TEXT.replace(plain, listener) + clusters)


def test_files_of_certificates_are_beside_the_file_and_children_inherit_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZKM_TEST_GATEWAY", "hunter2")
    config = load(secured(tmp_path))
    own = config.listeners["shop"].tls
    assert own is not None
    assert (own.certificate, own.key) == (str(tmp_path / "gw.pem"), str(tmp_path / "keys/gw.key"))
    assert (own.ca, config.tls["old"].ca) == ("/etc/ca.pem", str(tmp_path / "old.pem"))
    assert "ZKM_TEST_GATEWAY" not in os.environ
    with pytest.raises(SecretError, match=r"listeners\.shop\.tls\.ca: /etc/ca\.pem: No such file"):
        config.certificates()
    done = CliRunner().invoke(cli, ["gateway", "serve", "--config", str(secured(tmp_path))])
    assert done.exit_code == 2
    assert "listeners.shop.tls.ca" in str(done.exception) + done.output


@pytest.mark.parametrize(
    ("listener", "clusters", "needed"),
    [
        ("tls: {ca: a.pem}", "", r":14: listeners\.shop\.tls: .*needed: certificate and key"),
        ("tls: {certificate: a.pem}", "", r"certificate and key need each other"),
        (
            "tls: {certificate: a.pem, key: b.key, verify_hostname: false}",
            "",
            r"verify_hostname is not for listeners",
        ),
        (
            "tls: {certificate: a.pem, key: b.key, key_password: hunter2}",
            "",
            r"key_password: this is not a reference to a secret; needed: \{file: PATH\}",
        ),
        ("", "tls: {odd: {ca: a.pem}}", r"tls\.odd: no cluster has this name"),
        ("", "tls: {old: {cas: a.pem}}", r"tls\.old\.cas: this key is unknown"),
    ],
)
def test_a_mistake_in_tls_is_named_and_no_secret_is(
    listener: str, clusters: str, needed: str, tmp_path: Path
) -> None:
    ports = "    ports:\n      old: {1: 19001, 2: 19002, 3: 19003}\n"
    with pytest.raises(InventoryError, match=needed) as caught:
        load(secured(tmp_path, f"    {listener}\n{ports}" if listener else ports, clusters))
    assert "hunter2" not in str(caught.value)
