"""What a drill says is missing on a disk, and the figures it ends with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.drills.acknowledged import Missing, Owner, Promised, missing_in, promised
from tests.drills.cut_figures import CutOver, figures_of, longest_gap_s, summary
from zkmigrate.lab.load.json_lines import Event, Recording
from zkmigrate.zookeeper.data.chroot import Chroot
from zkmigrate.zookeeper.data.tree import Tree, Znode

RAW = "/kafka/zkmigrate-raw/dest1/n-0000000001"
ID = "/kafka/brokers/ids/1"
TOPIC, SETTINGS = "/kafka/brokers/topics/t", "/kafka/config/topics/t"
SESSION = 0xB000000000000001
NOTHING = Missing()
_NODE = Znode(b"", 0, None, 7, 7, 7, 0, 0, 0, 0, 0, 0)


def ack(path: str = RAW, zxid: int = 7, host: str = "dest1", at: int = 0) -> Event:
    return {"event": "ack", "path": path, "zxid": hex(zxid), "host": host, "mono_ns": at}


def change(op: str, outcome: str = "ok", at: int = 0) -> Event:
    return {"event": "op", "op": op, "topic": "t", "outcome": outcome, "mono_ns": at}


def tree(**changes: Znode | None) -> Tree:
    """Everything that the promise below asks for; keyword: another znode, or none, at one of the paths."""
    # ZooKeeper stores session ids as signed numbers.
    owned = replace(_NODE, ephemeral_owner=SESSION - (1 << 64), czxid=5)
    nodes = {"RAW": _NODE, "ID": owned, "TOPIC": _NODE, "SETTINGS": replace(_NODE, version=2)} | changes
    paths = {"RAW": RAW, "ID": ID, "TOPIC": TOPIC, "SETTINGS": SETTINGS}
    made = Tree(Chroot("/kafka"), 9, {paths[name]: node for name, node in nodes.items() if node is not None})
    made.sessions[SESSION - (1 << 64)] = 40_000
    return made


def promise() -> Promised:
    baseline = {"ephemerals": {ID: {"owner": hex(SESSION), "czxid": "0x5"}}, "sessions": {hex(SESSION): {}}}
    turns = [change("alter_config", outcome) for outcome in ("ok", "ok", "unknown")]
    metadata = [change("create_topic"), *turns]
    return promised([ack(), {"event": "unknown", "host": "dest1", "count": 3}], metadata, baseline)


def test_only_what_was_acknowledged_is_promised() -> None:
    assert promise() == Promised(
        frozenset({(RAW, 7)}), frozenset({"t"}), {"t": 2}, {ID: Owner(SESSION, 5)}, frozenset({SESSION})
    )
    assert promise().count == 4


def test_a_tree_that_holds_all_lacks_nothing() -> None:
    assert missing_in(tree(), promise(), "/kafka") == NOTHING


def test_each_broken_promise_is_named() -> None:
    def lacks(**changes: Znode | None) -> Missing:
        return missing_in(tree(**changes), promise(), "/kafka")

    assert lacks(RAW=None) == Missing(creates=(f"{RAW} 0x7",))
    assert lacks(RAW=replace(_NODE, czxid=8)) == Missing(creates=(f"{RAW} 0x7",)), (
        "its number was given again"
    )
    assert lacks(TOPIC=None) == Missing(metadata=("topic t",))
    said = "settings of t: 2 changes acknowledged, version 1"
    assert lacks(SETTINGS=replace(_NODE, version=1)) == Missing(metadata=(said,))
    assert lacks(ID=replace(_NODE, ephemeral_owner=3, czxid=5)).sessions == (f"{ID} of {SESSION:#x} 0x5",)
    other = tree()
    other.sessions.clear()
    assert missing_in(other, promise(), "/kafka").sessions == (f"session {SESSION:#x}",)


def cut(number: int, start_s: int, held: bool = True, lost: tuple[str, ...] = ()) -> CutOver:
    """A cut-over whose window is the 4 s after ``start_s``."""
    spans: list[dict[str, Any]] = [
        {"name": name, "start_mono_ns": start_s * 10**9, "end_mono_ns": (start_s + end) * 10**9}
        for name, end in (("cutover.fence", 1), ("cutover.check", 3), ("cutover.fence:back", 4))
    ]
    asked_ns = (start_s - 2) * 10**9
    return CutOver(number, asked_ns, 0, held, 0 if held else 7, "", {"dest1": 500}, {}, {}, lost, spans)


def figures(
    missing: Missing = NOTHING, moments: tuple[str, ...] = ("check/dest1", "back/source1"), **more: Any
) -> Any:
    end = {"claims": {"lost": (0, "yes")}, "details": {}, "sessions_lost": []}
    judged = {1: (promise(), dict.fromkeys(moments, missing))}
    return figures_of([cut(1, 10, **more)], judged, recorded([9, 15]), end)


def test_disks_copied_behind_a_door_that_opened_by_itself_are_not_judged() -> None:
    alone = replace(cut(1, 10), code=6)
    lost = Missing(("/kafka/a",), (), ())
    judged = {1: (promise(), {"check/dest1": lost, "back/source1": lost})}
    end = {"claims": {"lost": (0, "yes")}, "details": {}, "sessions_lost": [], "seconds": 1.0}
    found = figures_of([alone], judged, recorded([9, 15]), end)
    assert (found["held"], found["missing"], found["runs"][0]["opened_alone"]) == (True, 0, True)
    told = figures_of([replace(alone, sessions_lost=("one",))], judged, recorded([9, 15]), end)
    assert told["held"] is False


def recorded(seconds: list[int]) -> dict[str, Recording]:
    """Every kind acknowledged one operation at each of these seconds."""
    return {
        "metadata": Recording("metadata", [change("alter_config", at=s * 10**9) for s in seconds]),
        "raw": Recording("raw", [ack(at=s * 10**9) for s in seconds]),
        "tenant": Recording("tenant", [ack(at=s * 10**9) for s in seconds]),
    }


def test_the_figures_hold_only_when_nothing_is_missing_anywhere() -> None:
    result = figures()
    assert (result["held"], result["missing"], result["sessions_lost"]) == (True, 0, 0)
    assert (result["runs"][0]["to_check_s"], result["runs"][0]["window_s"]) == (3.0, 4.0)
    assert result["longest_gap_s"] == {"min": 6.0, "median": 6.0, "max": 6.0}
    assert "nothing was lost" in summary(result)

    assert not figures(Missing(creates=("x",)))["held"]
    assert not figures(lost=("controller epoch 1, now 2",))["held"]
    assert not figures(held=False)["held"], "nothing ever stood at CHECK"
    assert not figures(moments=("check/dest1",))["held"], "source's disk was not judged"
    assert not figures(moments=("back/source1",))["held"], "dest's disks were not judged"


def test_rates_leave_the_windows_out_and_are_told_for_the_moment_before_each_fence() -> None:
    """From 8 s to 28 s are 20 s, of which the window and 5 s after it are not counted: 11 s."""
    end: dict[str, Any] = {"claims": {}, "details": {}, "sessions_lost": []}
    cuts = [cut(1, 10), cut(2, 30)]
    judged: dict[int, Any] = {number: (promise(), {}) for number in (1, 2)}
    seen = figures_of(cuts, judged, recorded([8, 9, 12, 19, 20, 27, 29]), end)
    assert seen["rates"] == {"metadata": 0.5, "tenant": 0.3, "raw dest1": 0.5}
    rates = [row["rates_before_fence"] for row in seen["runs"]]
    assert rates == [dict.fromkeys(seen["rates"], 1.0), dict.fromkeys(seen["rates"], 0.5)]
    assert seen["rates_before_fence"]["raw dest1"] == {"min": 0.5, "median": 0.75, "max": 1.0}
    assert "metadata: 0.5/s; before FENCE min 0.5, median 0.75, max 1.0" in summary(seen)

    failed = recorded([])
    failed["metadata"] = Recording("metadata", [change("alter_config", "failed", 9 * 10**9)])
    assert figures_of(cuts, judged, failed, end)["rates"] == {"metadata": 0.0, "tenant": 0.0}
    assert figures_of(cuts[:1], {1: judged[1]}, failed, end)["rates"] == {}


def test_a_gap_that_ends_before_the_window_is_not_its_gap() -> None:
    acks = [ack(at=s * 10**9) for s in (0, 9, 10, 14, 30)]
    assert longest_gap_s(acks, (10 * 10**9, 13 * 10**9)) == 4.0
    assert longest_gap_s([], (0, 1)) is None
