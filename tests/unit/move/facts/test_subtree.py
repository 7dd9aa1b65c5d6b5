"""The subtree read from a host's disk, and what is told while that takes long."""

from __future__ import annotations

from tests.unit.preflight_world import PreflightWorld
from tests.unit.zkdata_fixtures import create_payload, log_from
from tests.world.operator import inventory
from zkmigrate.move.facts.subtree import source_ownership
from zkmigrate.runbook.model.fact import Seen
from zkmigrate.runbook.model.look import DirEntry
from zkmigrate.zookeeper.data.chroot import Chroot

FOLDER = "/data/version-2"
SOURCE = inventory().source.model_copy(update={"data_dir": "/data"})
TRANSACTIONS = 2200


class Slow(PreflightWorld):
    """Each question for the time finds `step_s` more of it gone."""

    step_s = 0.0
    clock_s = 0.0

    def now(self) -> float:
        self.clock_s += self.step_s
        return self.clock_s


def look(step_s: float) -> Slow:
    root = create_payload(1, "/kafka")
    log = log_from([root, *(create_payload(n, f"/kafka/n{n}") for n in range(2, TRANSACTIONS + 1))])
    found = Slow(
        listings={("source1", FOLDER): Seen((DirEntry("log.1", "f", len(log), None, "0640", "z", "z"),))},
        contents={("source1", f"{FOLDER}/log.1"): log},
    )
    found.step_s = step_s
    return found


def told_by(look: Slow) -> list[tuple[str, str]]:
    told: list[tuple[str, str]] = []
    read = source_ownership(
        look, "source1", SOURCE, Chroot("/kafka"), teller=lambda *words: told.append(words)
    )
    assert isinstance(read, Seen)
    assert read.value[0].upto == TRANSACTIONS
    return told


def test_a_tree_that_takes_long_to_read_is_told_of_from_the_third_second_on() -> None:
    told = told_by(look(1.0))
    assert {what for what, _ in told} == {"the tree on the disk of source1"}
    assert [how.split()[0] for _, how in told] == ["1000", "1500", "2000"]
    assert told[0][1] == "1000 transactions since its snapshot"


def test_a_tree_that_is_read_at_once_is_not_told_of() -> None:
    assert told_by(look(0.0)) == []
