"""ARM over the model world: the spec a dest host works from when it is alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import zkmigrate.hosts.zkm_host
from tests.unit.move.steps.facts import proved
from tests.world.model.look import WorldLook
from tests.world.model.world import World
from tests.world.operator import inventory, quiet_world
from tests.world.rolled import walked
from zkmigrate.inventory.inventory import Inventory, Ports, ZooKeeperHost
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.facts.dest_status import Statuses
from zkmigrate.move.steps.arm import ArmStep, arm_spec
from zkmigrate.move.steps.go import GoFacts, GoStep
from zkmigrate.runbook.model.change import Arm, Go
from zkmigrate.runbook.model.fact import Reading, Seen, Unknown
from zkmigrate.runbook.model.step import Blocked, Context, Done, Ready, Verdict
from zkmigrate.zookeeper.facts.members import Members, source_members

MEMBERS = Members(())
PROGRAM = Path(zkmigrate.hosts.zkm_host.__file__).parent / "zkm-host"
SPEC = "/var/lib/zkmigrate/run/spec"


def keys(spec: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in spec.splitlines())


def named(host: ZooKeeperHost, *also: str) -> ZooKeeperHost:
    """The same host, in the inventory by its name."""
    return host.model_copy(update={"address": f"{host.name}.example", "also": also})


def by_name(*, addresses: bool) -> Inventory:
    """An inventory that names its ZooKeeper hosts, with their addresses under ``also`` or not at all."""
    plain = inventory()

    def of(host: ZooKeeperHost) -> ZooKeeperHost:
        return named(host, host.address) if addresses else named(host)

    source = plain.source.model_copy(update={"hosts": tuple(of(h) for h in plain.source.hosts)})
    dest = plain.dest.model_copy(update={"hosts": tuple(of(h) for h in plain.dest.hosts)})
    return plain.model_copy(update={"source": source, "dest": dest})


def verdict(world: World, of: Inventory, *, rehearsal: bool = False) -> Verdict:
    step, c = ArmStep(), Context("run", of, rehearsal=rehearsal)
    return step.check(c, step.observe(c, WorldLook(world)))


def test_hosts_named_in_the_inventory_are_armed_with_their_addresses() -> None:
    spec = keys(arm_spec(by_name(addresses=True), False, MEMBERS))
    assert spec["peers"] == "10.0.0.11,10.0.0.12,10.0.0.13"
    assert spec["source"] == "10.0.0.1,10.0.0.2,10.0.0.3"
    assert spec["members"] == "10.0.0.11:2181,10.0.0.12:2181,10.0.0.13:2181"


def test_go_names_ipv6_hosts_in_words_that_zkm_host_takes() -> None:
    """A call's words hold no brackets: with them every host would refuse its GO."""
    plain = inventory()
    hosts = [h.model_copy(update={"address": f"2001:db8::{n}"}) for n, h in enumerate(plain.dest.hosts, 1)]
    dest = plain.dest.model_copy(update={"hosts": tuple(hosts)})
    c = Context(
        "r1", plain.model_copy(update={"dest": dest}), records={"prove": proved(first=("dest1", "dest2"))}
    )
    (change,) = GoStep(KAFKA).plan(c, GoFacts(Statuses({}, ()), ()), "dest1")
    assert isinstance(change, Go)
    words = " ".join(change.arguments())
    assert words == "first 2001:db8::1:2181,2001:db8::2:2181 2 10000"
    argv = ["sh", str(PROGRAM), "--print", "--run", "r1", "--as", "1", "go", "x", *change.arguments()]
    said = subprocess.run(argv, capture_output=True, text=True, check=False).stderr
    assert "bad" not in said
    assert "go is refused in phase idle" in said, "its words were taken"


def test_an_ipv6_member_is_bracketed() -> None:
    plain = inventory()
    first = plain.dest.hosts[0].model_copy(update={"address": "2001:db8:0::1"})
    dest = plain.dest.model_copy(update={"hosts": (first, *plain.dest.hosts[1:])})
    spec = keys(arm_spec(plain.model_copy(update={"dest": dest}), False, MEMBERS))
    assert spec["members"].split(",")[0] == "[2001:db8::1]:2181"


def test_a_host_without_any_address_is_refused_before_anything_is_armed(tmp_path: Path) -> None:
    world = walked(tmp_path, "join").world
    refused = verdict(world, by_name(addresses=False))
    assert isinstance(refused, Blocked)
    assert {f.id for f in refused.findings} == {"arm.address"}
    assert [f.target for f in refused.findings] == [
        f"{role}{n}" for role in ("source", "dest") for n in (1, 2, 3)
    ]


def arm_words(world: World) -> str:
    """What the step itself would arm a host of this world with."""
    members = source_members(world.inventory, WorldLook(world), world.inventory.source_names)
    assert isinstance(members, Seen)
    return arm_spec(world.inventory, False, members.value)


def armed(tmp_path: Path) -> World:
    world = walked(tmp_path, "join").world
    for name in world.inventory.dest_names:
        assert world.apply(Arm(name, arm_words(world)), f"arm.{name}", 1)[0] == 0
    return world


def test_a_host_armed_with_this_spec_is_left_alone(tmp_path: Path) -> None:
    world = armed(tmp_path)
    assert isinstance(verdict(world, world.inventory), Done)


def test_a_host_armed_with_another_spec_is_armed_again(tmp_path: Path) -> None:
    world = armed(tmp_path)
    old = arm_words(world)
    more, fewer = old.replace("cut_ports=", "cut_ports=7,"), old.replace("cut_ports=2181,", "cut_ports=")
    assert fewer != old
    assert world.apply(Arm("dest2", more), "arm.more", 1)[0] == 3, "INSTALL fixed the ports"
    assert world.apply(Arm("dest2", fewer), "arm.other", 1)[0] == 0
    assert verdict(world, world.inventory) == Ready(("dest2",))
    assert verdict(world, world.inventory, rehearsal=True) == Ready(("dest1", "dest2", "dest3"))


def test_a_spec_that_cannot_be_read_blocks(tmp_path: Path) -> None:
    world = armed(tmp_path)

    class Blind(WorldLook):
        def file(self, host: str, path: str) -> Reading[bytes]:
            if (host, path) == ("dest3", SPEC):
                return Unknown("timeout", "dest3: no answer")
            return super().file(host, path)

    step, c = ArmStep(), Context("run", world.inventory)
    refused = step.check(c, step.observe(c, Blind(world)))
    assert isinstance(refused, Blocked)
    assert [(f.id, f.target) for f in refused.findings] == [("arm.spec", "dest3")]


def test_the_cut_refuses_the_ports_of_both_sides_as_every_config_names_them() -> None:
    plain = inventory()
    settings = {"metricsProvider.httpPort": "7001", "admin.serverPort": "8081"}
    dest = plain.dest.model_copy(
        update={"ports": Ports(client=2281, quorum=2988, election=3988), "settings": settings}
    )
    world = quiet_world()
    world.inventory = plain.model_copy(update={"dest": dest})
    files = world.source_files["source2"]
    files[plain.source.config] += b"secureClientPort=2182\nmetricsProvider.httpPort=7000\n"
    spec = keys(arm_words(world))
    assert spec["cut"] == "zookeeper"
    wanted = {2181, 2888, 3888, 2281, 2988, 3988, 2182, 7000, 7001, 8080, 8081}
    assert spec["cut_ports"] == ",".join(map(str, sorted(wanted)))


def test_all_of_tcp_is_refused_where_the_policy_says_so() -> None:
    world = quiet_world()
    policy = world.inventory.policy.model_copy(update={"cut": "all"})
    world.inventory = world.inventory.model_copy(update={"policy": policy})
    assert keys(arm_words(world))["cut"] == "all"
