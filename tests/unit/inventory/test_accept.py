"""``accept`` of migration.yml: what it turns into a warning, for how long, and what it never does."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from tests.unit.inventory.test_inventory import GOOD
from tests.unit.preflight_world import CHECKS, healthy, inventory, partition, run_preflight
from tests.unit.report.test_report import Run
from zkmigrate.errors import InventoryError
from zkmigrate.inventory.accept import ACCEPTABLE, Accept
from zkmigrate.inventory.inventory import digest, load
from zkmigrate.move import go_no_go
from zkmigrate.move.dependents.kafka import KAFKA
from zkmigrate.move.rules.outage import OWNER
from zkmigrate.move.rules.window_estimate import cutover_lines, plan_lines
from zkmigrate.report.page import page as html
from zkmigrate.runbook.accepted import accepted, spared_topics
from zkmigrate.runbook.engine.codec import decode_finding, encode_finding
from zkmigrate.runbook.model.fact import Seen, Unknown
from zkmigrate.runbook.model.finding import Finding, Severity, blocking, claim, doubts
from zkmigrate.runbook.model.look import Look
from zkmigrate.runbook.model.step import Context
from zkmigrate.runbook.ui import finding_lines

END = datetime(2026, 11, 22, 3, tzinfo=UTC).timestamp()
ENTRY = "accept:\n  - {finding: %s, target: orders, who: Lea, why: it may pause, until: %s}\n"


def exception(finding: str = "kafka.replication", until: str = "2026-11-22T04:00+01:00") -> Accept:
    return Accept(finding=finding, target="orders", who="Lea", why="it may pause", until=until)


def single(id: str = "kafka.replication", target: str = "orders", held: bool | None = False) -> Finding:
    return claim(id, "every partition has a second replica", held, seen="one replica", target=target)


def test_an_accepted_finding_warns_and_says_by_whom_until_when_and_why() -> None:
    (judged,) = accepted((exception(),), (single(),), END - 1)
    assert blocking((judged,)) == ()
    assert doubts((judged,)) == (judged,), "it is still shown where somebody decides"
    words = "accepted by Lea until 2026-11-22T04:00+01:00: it may pause"
    assert words in finding_lines.finding(judged)
    assert any(words in line for line in finding_lines.whole((judged,)))
    assert decode_finding(encode_finding(judged)) == judged, "the journal keeps it"


@pytest.mark.parametrize("at", [END, END + 3600])
def test_from_until_on_it_blocks_again_and_says_so(at: float) -> None:
    (judged,) = accepted((exception(),), (single(),), at)
    assert judged.blocks
    assert "accepted by Lea until 2026-11-22T04:00+01:00: it may pause, which is over" in judged.seen


def test_the_last_of_several_ends_counts() -> None:
    both = (exception(until="2026-11-21T04:00Z"), exception())
    for exceptions in (both, both[::-1]):
        assert not accepted(exceptions, (single(),), END - 1)[0].blocks


@pytest.mark.parametrize(
    "other", [single(target="payments"), single(id="kafka.min-isr"), single(held=None)],
    ids=["another target", "another check", "unknown"],
)  # fmt: skip
def test_what_nobody_accepted_blocks_as_before(other: Finding) -> None:
    assert accepted((exception(),), (other,), END - 1) == (other,)


RESTS = {
    "a proof": (
        "source.quorum source.config source.myid source.sync-enabled source.words source.local-sessions "
        "source.snapshots dest.empty dest.myid dest.sync-enabled dest.members dest.cluster-id dest.words "
        "dest.same-flags host.commands kafka.brokers kafka.cluster-id kafka.left-source kafka.retired "
        "kafka.sessions-on-dest kafka.kraft kafka.started-with kafka.only-place"
    ),
    "the block or its lease": (
        "source.security dest.security kafka.security dest.settings dest.cut-ports dest.from-operator "
        "host.names host.namespace host.one-role host.tools host.socket-kill host.rules run.alone"
    ),
    "the way back, or that dest can lead": (
        "source.ports source.reconfig dest.leftovers dest.jute-maxbuffer dest.disk dest.observing "
        "dest.config dest.ports dest.jaas dest.fips dest.quorum-login dest.required-login "
        "dest.auth-providers dest.super-user dest.tls-settings dest.certificate dest.trust "
        "kafka.zookeeper-login kafka.tls-versions kafka.trusts-dest kafka.client dest.admin-server "
        "operator.zookeeper-client "
        "host.access host.unit host.own-links run.hour "
        "kafka.session-timeout kafka.config kafka.log-dirs"
    ),
}
"""What rests on each check that nobody can answer for."""
OF_STEPS = {
    OWNER,
    "clean-up.watches",
    "clean-up.clients",
    "clean-up.chroots",
    "clean-up.children",
    "gateway.client-stuck",
    "gateway.transactions",
    "switch.transactions",
    "switch.app-topics",
    "switch.other-apps",
    "switch.other-groups",
    "reassign.throttle-stays",
    "reassign.target-down",
    "watch.writes",
}
"""What can be accepted and is no check's."""


def test_each_check_that_blocks_is_one_that_somebody_can_answer_for_or_something_rests_on_it() -> None:
    """A new check belongs to one of the two."""
    blocking_ids = sorted(check.id for check in CHECKS if check.severity is Severity.BLOCK)
    refused = [id for listed in RESTS.values() for id in listed.split()]
    assert sorted([*refused, *ACCEPTABLE - OF_STEPS]) == blocking_ids


@pytest.mark.parametrize("id", [id for listed in RESTS.values() for id in listed.split()])
def test_what_something_rests_on_blocks_whatever_is_written(id: str) -> None:
    refused = single(id=id)
    assert accepted((exception(id),), (refused,), END - 1) == (refused,)


@pytest.mark.parametrize("id", sorted(ACCEPTABLE))
def test_what_somebody_can_answer_for_warns(id: str) -> None:
    assert blocking(accepted((exception(id),), (single(id=id),), END - 1)) == ()


@pytest.mark.parametrize(
    ("finding", "at", "spared"),
    [
        ("kafka.replication", END - 3600, True),
        ("kafka.min-isr", END - 1, True),
        ("kafka.replication", END, False),
        ("kafka.replication", END + 3600, False),
        ("kafka.canary-topic", END - 1, False),
    ],
)
def test_a_topic_may_pause_in_the_roll_only_as_accepted_and_as_long(
    finding: str, at: float, spared: bool
) -> None:
    assert spared_topics((exception(finding),), at) == (frozenset({"orders"}) if spared else frozenset())


def test_the_reference_names_what_can_be_accepted() -> None:
    told = (Path(__file__).parents[3] / "docs" / "reference" / "migration-yml.md").read_text()
    [listed] = re.findall(r"These can be accepted:\n\n(.*?)\n\n", told, re.DOTALL)
    assert set(re.findall(r"^\| `([a-z.-]+)`", listed, re.MULTILINE)) == ACCEPTABLE


def test_one_topic_with_one_replica_blocks_the_first_gate_until_it_is_accepted() -> None:
    world = healthy()
    world.view = Seen(partition(replicas=(1,), isr=(1,)))
    plain = inventory()
    refused = blocking(run_preflight(Context("r1", plain), world, "preflight"))
    assert [(f.id, f.target) for f in refused] == [("kafka.replication", "orders")]
    late = exception(until="2099-01-01T00:00Z")
    told = run_preflight(Context("r1", plain.model_copy(update={"accept": (late,)})), world, "preflight")
    assert blocking(told) == ()
    assert [f.target for f in told if f.accepted] == ["orders"]


def written(tmp_path: Path, finding: str, until: str) -> Path:
    path = tmp_path / "migration.yml"
    path.write_text(GOOD + ENTRY % (finding, until))
    return path


def test_it_is_read_from_the_file_and_does_not_make_another_inventory(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, "kafka.replication", '"2026-11-22T04:00+01:00"'))
    assert loaded.accept == (exception(),)
    without = loaded.model_copy(update={"accept": ()})
    assert digest(loaded) == digest(without), "a run may go on after somebody has accepted something"


@pytest.mark.parametrize(
    ("finding", "until", "told"),
    [
        ("source.quorum", '"2026-11-22T04:00Z"', "accept[0].finding: 'source.quorum' cannot be accepted"),
        ("prove.tail", '"2026-11-22T04:00Z"', "'prove.tail' cannot be accepted (needed: one of clean-up.chi"),
        ("[]", '"2026-11-22T04:00Z"', "needed the id of a check"),
        ("kafka.replication", '"2026-11-32T04:00Z"', "accept[0].until: not a valid time"),
        ("kafka.replication", '"tomorrow"', "needed date, time and zone"),
        ("watch.writes", '"2026-11-22T04:00Z"', "accept[0].target: not a zxid"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path: Path, finding: str, until: str, told: str) -> None:
    line = GOOD.count("\n") + 2
    with pytest.raises(InventoryError) as refused:
        load(written(tmp_path, finding, until))
    first = str(refused.value).splitlines()[0]
    assert f"migration.yml:{line}: accept[0]" in first
    assert told in first


def test_plan_the_question_before_the_cut_over_and_the_go_no_go_page_show_it() -> None:
    entry = exception()
    accepting = inventory().model_copy(update={"accept": (entry,)})
    c, unseen = Context("r1", accepting), Unknown("failed", "not asked")
    sheet = go_no_go.page(c, cast(Look, healthy()), "d" * 64, "r1").splitlines()
    shown = (plan_lines(KAFKA, c, unseen), cutover_lines(c), sheet)
    for lines in shown:
        assert any(entry.line in line for line in lines), lines


def test_the_report_shows_it_with_the_finding(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.clock.pass_(1.0)
    run.step("roll.preflight", "begin")
    run.clock.pass_(1.0)
    (judged,) = accepted((exception(),), (single(),), END - 1)
    run.step("roll.preflight", "done", seconds=1.0, findings=[encode_finding(judged)])
    assert exception().words in html(run.report())
