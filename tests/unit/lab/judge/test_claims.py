"""The judge over hand-made histories: one whole run in which every claim holds, and one flaw at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.judge_fixtures import (
    CREATES,
    FENCE_AT,
    HOSTS,
    OPEN_AT,
    RECORDS,
    SECOND,
    SESSION_EXPIRED,
    Edit,
    Files,
    event,
    not_held,
    verdict_of,
)
from zkmigrate.lab.judge import Policy, judge, load_history
from zkmigrate.lab.judge.gaps import ack_gaps, end_of_asking, longest_by_step
from zkmigrate.lab.judge.history import RunHistory, Span
from zkmigrate.lab.load.json_lines import Recording, read_recording
from zkmigrate.runbook.model.finding import Held


def test_every_claim_holds_for_a_whole_run(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path)
    assert not_held(verdict) == {}
    assert verdict.held
    result = verdict.result()
    assert {name: result[name] for name in ("acked", "consumed", "lost", "duplicated")} == {
        "acked": RECORDS, "consumed": RECORDS, "lost": 0, "duplicated": 0,
    }  # fmt: skip
    assert result["sessions_before"] == result["sessions_preserved"] == 3
    assert result["ephemerals_same_owner_and_czxid"] is True
    assert result["controller_epoch_unchanged_in_window"] is True
    assert result["other_tenant_unharmed"] is True
    assert result["acked_creates_missing"] == 0
    assert result["claims"]["lost"]["source"] == "producer.jsonl, consumer.jsonl, log.json"


def test_an_empty_directory_proves_nothing(tmp_path: Path) -> None:
    verdict = judge(load_history(tmp_path))
    assert {claim.held for claim in verdict.claims} == {Held.UNKNOWN}
    assert not verdict.held


def test_a_history_without_anything_proves_nothing() -> None:
    assert {claim.held for claim in judge(RunHistory({})).claims} == {Held.UNKNOWN}


# --- one flaw at a time: the claims that no longer hold, and the value of one of them -----------------------


def lose_one_record(files: Files) -> None:
    files.drop("consumer", lambda e: e.get("id") == "p-11")


def move_one_record(files: Files) -> None:
    """p-11 is found at another offset than the acknowledged one: lost there, doubled here."""
    next(e for e in files.lines["consumer"] if e.get("id") == "p-11")["offset"] = 999


def double_one_record(files: Files) -> None:
    files.insert("consumer", event("consumed", 1, topic="t", partition=0, offset=999, id="p-4"))


def acknowledge_one_record_twice(files: Files) -> None:
    """A second time behind all others: everybody sees it there."""
    end = RECORDS // 2
    again = event("ack", 1, topic="t", partition=0, offset=end, id="p-4", sent_mono_ns=0)
    files.insert("producer", again)
    files.insert("consumer", event("consumed", 1, topic="t", partition=0, offset=end, id="p-4"))
    next(e for e in files.lines["consumer"] if e["event"] == "drained")["high"]["t/0"] += 1
    files.in_log("t/0", [end, "p-4"])


def double_one_record_in_the_log(files: Files) -> None:
    """Only the second reading shows it."""
    files.in_log("t/0", [RECORDS // 2, "p-4"])


def cut_the_log_back(files: Files) -> None:
    """Records were acknowledged and read live, then the log was cut back by five."""
    log = files.documents["log.json"]
    del log["records"]["t/0"][-5:]
    log["high"]["t/0"] -= 5


def cut_an_unacknowledged_record_back(files: Files) -> None:
    files.drop("producer", lambda e: e.get("id") == "p-58")
    del files.documents["log.json"]["records"]["t/0"][-1]
    files.documents["log.json"]["high"]["t/0"] -= 1


def read_beyond_the_high_watermark(files: Files) -> None:
    """At the drain the position was beyond it; afterwards somebody wrote there again what was read."""
    next(e for e in files.lines["consumer"] if e["event"] == "drained")["high"]["t/0"] -= 1


def rewrite_what_was_read(files: Files) -> None:
    """Everything was read live, and in the end the offset of p-11 holds another record."""
    files.documents["log.json"]["records"]["t/1"][5][1] = "p-other"


def fail_one_record(files: Files) -> None:
    files.insert("producer", event("failed", 1, topic="t", partition=0, id="p-999", error="timed out"))


def leave_records_unflushed(files: Files) -> None:
    files.closing("producer", unflushed=3)


def stall_for_good(files: Files) -> None:
    """No acknowledgement after the last one although the producer went on asking for 11 s."""
    next(e for e in files.lines["producer"] if e["event"] == "stopping")["mono_ns"] = 17 * SECOND
    files.closing("producer", mono_ns=17 * SECOND)


def forget_a_topic(files: Files) -> None:
    files.verified("metadata", missing_topics=["m"])


def forget_a_config(files: Files) -> None:
    files.verified("metadata", wrong_configs=["m: retention.ms seen 1, acknowledged 2"])


def lose_a_create(files: Files) -> None:
    del files.documents["tree-d2.json"]["nodes"]["/kafka/zkmigrate-raw/d1/n-0000000007"]


def reuse_a_sequence_number(files: Files) -> None:
    """The path is there, made by another transaction than the acknowledged one."""
    files.documents["tree-d3.json"]["nodes"]["/kafka/zkmigrate-raw/d1/n-0000000007"] = "0x200000fff"


def swap_two_creates(files: Files) -> None:
    acks = [e for e in files.lines["raw"] if e.get("host") == "d1"]
    acks[3]["path"], acks[4]["path"] = acks[4]["path"], acks[3]["path"]
    for host in HOSTS:
        files.documents[f"tree-{host}.json"]["nodes"].update({e["path"]: e["zxid"] for e in acks[3:5]})


def swap_two_zxids(files: Files) -> None:
    acks = [e for e in files.lines["raw"] if e.get("host") == "d1"]
    acks[3]["zxid"], acks[4]["zxid"] = acks[4]["zxid"], acks[3]["zxid"]
    for host in HOSTS:
        files.documents[f"tree-{host}.json"]["nodes"].update({e["path"]: e["zxid"] for e in acks[3:5]})


def expire_a_raw_session(files: Files) -> None:
    files.insert("raw", event("expired", 5, host="d1", session="0xb00"))


def write_nothing_on_one_host(files: Files) -> None:
    files.drop("raw", lambda e: e.get("host") == "d3")


def expire_the_tenant(files: Files) -> None:
    files.insert("tenant", event("expired", 5, host="s1", session="0x100"))


def disconnect_the_tenant(files: Files) -> None:
    files.insert("tenant", event("disconnected", 5, host="s1", session="0x100", reason="closed"))


def refuse_the_tenant(files: Files) -> None:
    files.insert("tenant", event("error", 5, op="set", path="/o/c", error="NoAuth"))


def leave_the_tenant_unanswered(files: Files) -> None:
    files.insert("tenant", event("unknown", 5, op="set", count=2))


def rewrite_an_offset(files: Files) -> None:
    """The offset of p-11 was read once with it and once with something else."""
    files.lines["consumer"].insert(-1, event("consumed", 9, topic="t", partition=1, offset=5, id="p-other"))


def lose_a_tenant_ephemeral(files: Files) -> None:
    files.verified("tenant", ephemerals_lost=["/o/live/standing-0"])


def spoil_a_tenant_counter(files: Files) -> None:
    files.verified("tenant", counters_wrong=["/o/c: seen 1, acknowledged 2"])


def lose_a_tenant_create(files: Files) -> None:
    files.verified("tenant", creates_missing=["/o/queue/n-0"])


def stall_the_tenant(files: Files) -> None:
    files.drop("tenant", lambda e: e["event"] == "ack" and SECOND < e["mono_ns"] < 5 * SECOND)


def lose_a_session_at_open(files: Files) -> None:
    del files.documents["baseline-open.json"]["sessions"]["0x200"]


def lose_a_session_later(files: Files) -> None:
    del files.documents["baseline-after.json"]["sessions"]["0x200"]


def change_an_owner(files: Files) -> None:
    files.documents["baseline-after.json"]["ephemerals"]["/kafka/brokers/ids/2"]["owner"] = "0xb00"


def change_a_czxid(files: Files) -> None:
    files.documents["baseline-open.json"]["ephemerals"]["/kafka/brokers/ids/2"]["czxid"] = "0x6"


def lose_an_ephemeral(files: Files) -> None:
    del files.documents["baseline-after.json"]["ephemerals"]["/kafka/brokers/ids/2"]


def move_the_controller(files: Files) -> None:
    files.documents["baseline-after.json"]["controller_epoch"] = 8


def expire_a_broker(files: Files) -> None:
    files.texts["broker-b2.log"] += SESSION_EXPIRED


def produce_nothing_in_the_window(files: Files) -> None:
    """Acknowledged in the window is moved before it, so that nothing else is wrong."""
    for ack in files.lines["producer"]:
        if ack["event"] == "ack" and FENCE_AT <= ack["mono_ns"] <= OPEN_AT + SECOND // 10:
            ack["mono_ns"] = FENCE_AT - 1


def consume_nothing_after_the_window(files: Files) -> None:
    files.drop("consumer", lambda e: e["event"] == "consumed" and e["mono_ns"] > OPEN_AT + SECOND // 10)


def let_a_raw_client_sleep_through_the_window(files: Files) -> None:
    files.drop("raw", lambda e: e["event"] == "connect_failed" and e["host"] == "d2")


FLAWS: list[tuple[Edit, set[str], Any]] = [
    (lose_one_record, {"lost"}, 1),
    (rewrite_an_offset, {"lost", "cut_back"}, 1),
    (move_one_record, {"lost", "duplicated", "cut_back"}, 1),
    (double_one_record, {"duplicated", "cut_back"}, 1),
    (acknowledge_one_record_twice, {"duplicated"}, 1),
    (double_one_record_in_the_log, {"duplicated"}, 1),
    (cut_the_log_back, {"lost", "cut_back"}, 5),
    (cut_an_unacknowledged_record_back, {"cut_back"}, 1),
    (read_beyond_the_high_watermark, {"cut_back"}, 1),
    (rewrite_what_was_read, {"lost", "cut_back"}, 1),
    (fail_one_record, {"produce_failed"}, 1),
    (leave_records_unflushed, {"produce_failed"}, 3),
    (stall_for_good, {"longest_ack_gap_s"}, 11.1),
    (forget_a_topic, {"metadata_changes"}, {"ok": 1, "failed": 0, "unknown": 0}),
    (forget_a_config, {"metadata_changes"}, {"ok": 1, "failed": 0, "unknown": 0}),
    (lose_a_create, {"acked_creates_missing"}, 1),
    (reuse_a_sequence_number, {"acked_creates_missing"}, 1),
    (swap_two_creates, {"raw_order_violations"}, 1),
    (swap_two_zxids, {"raw_order_violations"}, 1),
    (expire_a_raw_session, {"raw_sessions_lost"}, 1),
    (
        write_nothing_on_one_host,
        {"raw_acked", "gaps_s", "load_spans_window"},
        {"d1": CREATES, "d2": CREATES, "d3": 0},
    ),
    (expire_the_tenant, {"other_tenant_unharmed"}, False),
    (disconnect_the_tenant, {"other_tenant_unharmed"}, False),
    (refuse_the_tenant, {"other_tenant_unharmed"}, False),
    (leave_the_tenant_unanswered, {"other_tenant_unharmed"}, False),
    (lose_a_tenant_ephemeral, {"other_tenant_unharmed"}, False),
    (spoil_a_tenant_counter, {"other_tenant_unharmed"}, False),
    (lose_a_tenant_create, {"other_tenant_unharmed"}, False),
    (stall_the_tenant, {"other_tenant_unharmed"}, False),
    (lose_a_session_at_open, {"sessions_preserved"}, 2),
    (lose_a_session_later, {"sessions_preserved"}, 2),
    (change_an_owner, {"ephemerals_same_owner_and_czxid"}, False),
    (change_a_czxid, {"ephemerals_same_owner_and_czxid"}, False),
    (lose_an_ephemeral, {"ephemerals_same_owner_and_czxid"}, False),
    (move_the_controller, {"controller_epoch_unchanged_in_window"}, False),
    (expire_a_broker, {"broker_sessions_expired"}, 1),
]


@pytest.mark.parametrize(("edit", "claims", "value"), FLAWS, ids=[flaw[0].__name__ for flaw in FLAWS])
def test_a_flaw_is_seen(tmp_path: Path, edit: Edit, claims: set[str], value: Any) -> None:
    verdict = verdict_of(tmp_path, edit)
    assert not_held(verdict) == dict.fromkeys(claims, Held.NO)
    assert value in [verdict[id].value for id in claims]
    assert not verdict.held


@pytest.mark.parametrize(
    ("edit", "idle"),
    [
        (produce_nothing_in_the_window, "nothing of producer inside the window"),
        (consume_nothing_after_the_window, "nothing of consumer after the window"),
        (let_a_raw_client_sleep_through_the_window, "nothing of raw-d2 inside the window"),
    ],
)
def test_a_load_that_was_not_there_proves_nothing(tmp_path: Path, edit: Edit, idle: str) -> None:
    verdict = verdict_of(tmp_path, edit)
    claim = verdict["load_spans_window"]
    assert (claim.held, claim.detail) == (Held.NO, idle)
    assert not verdict.held


# --- what is missing or cut short is unknown ----------------------------------------------------------------

RESTS_ON = {
    "producer.jsonl": {
        "acked", "lost", "duplicated", "produce_failed", "longest_ack_gap_s", "longest_partition_ack_gap_s",
        "gaps_s", "load_spans_window",
    },
    "consumer.jsonl": {"consumed", "lost", "duplicated", "cut_back", "load_spans_window"},
    "log.json": {"lost", "duplicated", "cut_back"},
    "metadata.jsonl": {"metadata_changes"},
    "raw.jsonl": {
        "raw_acked", "acked_creates_missing", "raw_order_violations", "raw_sessions_lost", "window_s",
        "gaps_s", "load_spans_window",
    },
    "tenant.jsonl": {"other_tenant_unharmed", "gaps_s"},
    "tree-d2.json": {"acked_creates_missing"},
    "baseline-before.json": {
        "sessions_before", "sessions_preserved", "ephemerals_same_owner_and_czxid",
        "controller_epoch_unchanged_in_window",
    },
    "baseline-open.json": {
        "sessions_preserved", "ephemerals_same_owner_and_czxid", "controller_epoch_unchanged_in_window",
    },
    "baseline-after.json": {
        "sessions_preserved", "ephemerals_same_owner_and_czxid", "controller_epoch_unchanged_in_window",
    },
    "broker-b2.log": {"broker_sessions_expired"},
    "run.json": {"window_s", "broker_sessions_expired", "gaps_s", "load_spans_window"},
}  # fmt: skip


@pytest.mark.parametrize("name", RESTS_ON)
def test_a_missing_file_leaves_its_claims_unknown(tmp_path: Path, name: str) -> None:
    (Files().write(tmp_path) / name).unlink()
    assert not_held(judge(load_history(tmp_path))) == dict.fromkeys(RESTS_ON[name], Held.UNKNOWN)


@pytest.mark.parametrize("name", [name for name in RESTS_ON if name != "broker-b2.log"])
def test_a_file_cut_in_half_leaves_its_claims_unknown(tmp_path: Path, name: str) -> None:
    path = Files().write(tmp_path) / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = not_held(judge(load_history(tmp_path)))
    assert set(found) == RESTS_ON[name]
    # acknowledged records that are missing from half a consumer file are not proved lost
    assert set(found.values()) <= {Held.UNKNOWN}


@pytest.mark.parametrize("kind", ["producer", "consumer", "metadata", "raw", "tenant"])
def test_a_torn_last_line_is_counted_and_its_file_stays_unknown(tmp_path: Path, kind: str) -> None:
    path = Files().write(tmp_path) / f"{kind}.jsonl"
    whole = path.read_bytes().rstrip(b"\n").rpartition(b"\n")[0]
    path.write_bytes(whole + b'\n{"event":"ack","mono_')
    verdict = judge(load_history(tmp_path))
    assert verdict.torn == {kind: 1}
    assert set(not_held(verdict)) == RESTS_ON[f"{kind}.jsonl"]
    assert set(not_held(verdict).values()) == {Held.UNKNOWN}


@given(st.data())
def test_no_prefix_of_a_recording_is_taken_for_the_whole(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["producer", "consumer", "raw", "tenant", "metadata"]))
    text = "".join(json.dumps(line) + "\n" for line in Files().lines[kind]).encode()
    cut = data.draw(st.integers(0, len(text) - 1))
    assert read_recording(kind, text[:cut]).problem
    assert not read_recording(kind, text).problem


def test_a_load_that_ended_by_an_error_leaves_its_claims_unknown(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, lambda files: files.closing("consumer", reason="error: KafkaException"))
    assert set(not_held(verdict)) == RESTS_ON["consumer.jsonl"]
    assert "KafkaException" in verdict["lost"].detail


def test_a_consumer_that_did_not_read_to_the_end_proves_no_loss_and_no_absence_of_it(tmp_path: Path) -> None:
    def edit(files: Files) -> None:
        lose_one_record(files)
        files.closing("consumer", drained=False)

    verdict = verdict_of(tmp_path, edit)
    assert not_held(verdict) == dict.fromkeys(("consumed", "lost", "duplicated"), Held.UNKNOWN)


@pytest.mark.parametrize("read", [True, False])
def test_a_record_acknowledged_without_an_offset_has_to_be_read_in_its_partition(
    tmp_path: Path, read: bool
) -> None:
    """A broker that has it already says so when it is sent again, and names no offset."""

    def edit(files: Files) -> None:
        for line in files.lines["producer"]:
            if line.get("id") == "p-4":
                line["offset"] = None
        if not read:
            files.drop("consumer", lambda e: e.get("id") == "p-4")

    verdict = verdict_of(tmp_path, edit)
    assert (verdict["lost"].value, verdict["duplicated"].value) == (0 if read else 1, 0)
    assert ("p-4 at t/0@None" in verdict["lost"].detail) is not read


def test_a_loss_is_certain_when_the_log_was_read_again_though_the_group_did_not_finish(
    tmp_path: Path,
) -> None:
    def edit(files: Files) -> None:
        cut_the_log_back(files)
        files.closing("consumer", drained=False)

    verdict = verdict_of(tmp_path, edit)
    assert (verdict["lost"].held, verdict["lost"].value) == (Held.NO, 5)
    assert verdict["lost"].detail.startswith("p-50 at t/0@25, p-52 at t/0@26")
    assert verdict["cut_back"].detail.startswith("p-50 beyond the end at t/0@25")


@pytest.mark.parametrize(
    "broken",
    [{"complete": False, "error": "not read to the end: t/0"}, {"records": {"t": []}}, {"high": None}],
)
def test_a_log_that_was_not_read_again_whole_proves_nothing(tmp_path: Path, broken: dict[str, Any]) -> None:
    verdict = verdict_of(tmp_path, lambda files: files.documents["log.json"].update(broken))
    assert not_held(verdict) == dict.fromkeys(RESTS_ON["log.json"], Held.UNKNOWN)
    assert "log: " in verdict["lost"].detail


def test_a_duplicate_is_certain_even_in_a_file_cut_short(tmp_path: Path) -> None:
    def edit(files: Files) -> None:
        double_one_record(files)
        files.lines["consumer"].pop()

    assert not_held(verdict_of(tmp_path, edit))["duplicated"] is Held.NO


def test_a_tree_that_could_not_be_listed_leaves_missing_creates_unknown(tmp_path: Path) -> None:
    def edit(files: Files) -> None:
        files.documents["tree-d1.json"].update(complete=False, error="3 reads without an answer")

    verdict = verdict_of(tmp_path, edit)
    assert not_held(verdict) == {"acked_creates_missing": Held.UNKNOWN}
    assert "3 reads" in verdict["acked_creates_missing"].detail


@pytest.mark.parametrize("kind", ["tenant", "metadata"])
def test_what_was_not_read_back_is_unknown(tmp_path: Path, kind: str) -> None:
    verdict = verdict_of(tmp_path, lambda files: files.verified(kind, complete=False, error="timed out"))
    assert list(not_held(verdict).values()) == [Held.UNKNOWN]


@pytest.mark.parametrize("kind", ["ephemerals", "counters", "creates"])
def test_a_tenant_without_anything_of_a_kind_proves_nothing_about_it(tmp_path: Path, kind: str) -> None:
    verdict = verdict_of(tmp_path, lambda files: files.verified("tenant", **{kind: 0}))
    assert not_held(verdict) == {"other_tenant_unharmed": Held.UNKNOWN}


def test_a_tenant_that_did_nothing_proves_nothing(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, lambda files: files.drop("tenant", lambda e: e["event"] == "ack"))
    assert not_held(verdict) == {"other_tenant_unharmed": Held.UNKNOWN, "gaps_s": Held.NO}


def test_where_no_raw_client_was_told_of_a_host_nothing_is_proved(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, lambda files: files.lines["raw"][0]["config"].update(raw_hosts={}))
    for id in ("acked_creates_missing", "load_spans_window"):
        assert verdict[id].held is Held.UNKNOWN, id


def test_a_missing_create_is_certain_though_another_tree_was_not_listed(tmp_path: Path) -> None:
    def edit(files: Files) -> None:
        lose_a_create(files)
        files.documents["tree-d1.json"].update(complete=False)

    verdict = verdict_of(tmp_path, edit)
    assert not_held(verdict) == {"acked_creates_missing": Held.NO}


def test_a_baseline_of_nothing_proves_nothing(tmp_path: Path) -> None:
    def edit(files: Files) -> None:
        files.documents["baseline-before.json"].update(sessions={}, ephemerals={})

    assert not_held(verdict_of(tmp_path, edit)) == {
        "sessions_before": Held.NO,
        "sessions_preserved": Held.UNKNOWN,
        "ephemerals_same_owner_and_czxid": Held.UNKNOWN,
    }


@pytest.mark.parametrize(
    "broken", [{"controller_epoch": None}, {"sessions": {"0x1": {}}}, {"ephemerals": []}, {"sessions": None}]
)
def test_a_broken_baseline_says_so(tmp_path: Path, broken: dict[str, Any]) -> None:
    verdict = verdict_of(tmp_path, lambda files: files.documents["baseline-open.json"].update(broken))
    assert set(not_held(verdict)) == RESTS_ON["baseline-open.json"]
    assert "baseline open: " in verdict["sessions_preserved"].detail


def test_a_broker_log_that_would_not_show_an_expiry_proves_nothing(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, lambda files: files.texts.update({"broker-b1.log": "WARN only\n"}))
    assert not_held(verdict) == {"broker_sessions_expired": Held.UNKNOWN}


def test_window_is_from_fence_to_the_first_write_in_dests_epoch(tmp_path: Path) -> None:
    def edit(files: Files) -> None:
        # a create that source acknowledged while the fence was closing is not served by dest
        path, zxid = "/kafka/zkmigrate-raw/d1/n-0000000029", hex((1 << 32) + 299)
        late = event("ack", FENCE_AT + 1, host="d1", path=path, zxid=zxid)
        last = max(i for i, e in enumerate(files.lines["raw"]) if e.get("path") == late["path"])
        files.lines["raw"][last] = late
        for host in HOSTS:
            files.documents[f"tree-{host}.json"]["nodes"][late["path"]] = late["zxid"]

    verdict = verdict_of(tmp_path, edit)
    assert not_held(verdict) == {}
    assert verdict["window_s"].value == 1.5


def test_no_write_in_a_later_epoch_leaves_the_window_unknown(tmp_path: Path) -> None:
    def edit(files: Files) -> None:
        files.drop("raw", lambda e: e["event"] == "ack" and int(e["zxid"], 16) >> 32 == 2)

    assert not_held(verdict_of(tmp_path, edit))["window_s"] is Held.UNKNOWN


def test_gaps_are_attributed_to_the_steps_they_overlap(tmp_path: Path) -> None:
    def edit(files: Files) -> None:
        first, last = 29 * SECOND // 10, 36 * SECOND // 10
        files.drop("producer", lambda e: e["event"] == "ack" and first < e["mono_ns"] < last)

    gaps = verdict_of(tmp_path, edit)["gaps_s"].value
    assert gaps["producer"] == {"run": 0.7, "cutover.fence": 0.7, "cutover.open": 0.1}
    assert gaps["raw-d1"] == {"run": 1.6, "cutover.fence": 1.6, "cutover.open": 1.6}


def turned_back_before(files: Files) -> None:
    """Another cut-over, begun 1.5 s before the one that counts."""
    names = ("fence", "open")
    files.documents["run.json"]["steps"][:0] = [
        {"name": f"cutover.{name}", "start_mono_ns": at, "end_mono_ns": at + SECOND // 10}
        for name, at in zip(names, (FENCE_AT - 3 * SECOND // 2, FENCE_AT - SECOND), strict=True)
    ]


def test_the_window_is_that_of_the_last_cut_over(tmp_path: Path) -> None:
    whole = verdict_of(tmp_path)
    verdict = verdict_of(tmp_path, turned_back_before)
    assert not_held(verdict) == {}
    for id in ("window_s", "load_spans_window"):
        assert verdict[id].value == whole[id].value


def test_without_a_write_before_fence_the_window_is_unknown(tmp_path: Path) -> None:
    def edit(files: Files) -> None:
        files.drop("raw", lambda e: e["event"] == "ack" and e["mono_ns"] < FENCE_AT)

    assert not_held(verdict_of(tmp_path, edit))["window_s"] is Held.UNKNOWN


def test_gaps_lie_between_the_moments_whatever_their_order_in_the_file() -> None:
    acks = [event("ack", at) for at in (5, 1, 2)]
    assert ack_gaps(acks, 4) == [(1, 2), (2, 5)]
    assert ack_gaps(acks, 9) == [(1, 2), (2, 5), (5, 9)]
    assert ack_gaps([], 9) == []


def test_a_step_has_the_longest_gap_that_overlaps_it_however_often_it_ran() -> None:
    gaps = [(0, 40 * SECOND), (40 * SECOND, 41 * SECOND), (41 * SECOND, 71 * SECOND)]
    steps = [Span("b", 20 * SECOND, 40 * SECOND), Span("a", 40 * SECOND, 41 * SECOND)]
    assert longest_by_step(gaps, steps) == {"b": 40.0, "a": 1.0}
    again = [*steps, Span("b", 40 * SECOND, 41 * SECOND), Span("c", 80 * SECOND, 81 * SECOND)]
    assert longest_by_step(gaps, again) == {"b": 40.0, "a": 1.0, "c": None}


def test_a_client_stops_asking_when_it_is_told_to_not_when_it_has_ended() -> None:
    asks, told, ended = event("ack", 3), event("stopping", 5), event("closed", 9)
    assert end_of_asking(Recording("raw", [asks, told, ended])) == 5
    assert end_of_asking(Recording("raw", [asks])) == 3, "killed"
    assert end_of_asking(Recording("raw")) == 0


def test_limits_are_the_policys(tmp_path: Path) -> None:
    history = load_history(Files().write(tmp_path))
    strict = judge(history, Policy(ack_gap_limit_s=0.05, tenant_gap_limit_s=0.05))
    assert not_held(strict) == {"longest_ack_gap_s": Held.NO, "other_tenant_unharmed": Held.NO}
    assert strict["longest_ack_gap_s"].value == 0.1
