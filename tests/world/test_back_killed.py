"""Rollbacks that are themselves killed, after each of their changes: resume still comes to the start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.examples import every
from tests.world.operator import Killed, Moment, Operator, quiet_world
from tests.world.test_move import footprint, step_of

STAGES = ("join", "half", "roll", "cutover.cut", "cutover.stop", "cutover.seal", "cutover.check")
WINDOW = frozenset({"uncut", "reopen", "disarm", "restore"})
# What the way back sends besides: each must be among the changes after which it is killed.
KINDS = {
    "join": frozenset({"service", "move-aside", "restore", "discard", "uninstall"}),
    "half": frozenset({"restore", "service"}),
    "roll": frozenset({"restore", "service"}),
    "cutover.cut": WINDOW,
    "cutover.stop": WINDOW | {"started-observer"},
    "cutover.seal": WINDOW | {"started-observer", "image", "unseal"},
    "cutover.check": WINDOW | {"started-observer", "image", "unseal", "halt"},
}

OWN = {
    "join": ("join.", "install."),
    "half": ("roll.",),
    "roll": ("roll.",),
    "cutover.cut": ("cutover.",),
    "cutover.stop": ("cutover.stop",),
    "cutover.seal": ("cutover.seal",),
    "cutover.check": ("cutover.go",),
}
"""The steps that the way back from a stage undoes and that from an earlier one does not."""


@dataclass(frozen=True)
class WalkedBack:
    """A rollback that nothing disturbed. first: the hosts before the run. after: what kills leave."""

    stage: str
    first: dict[str, object]
    after: tuple[Moment, ...]


@pytest.fixture(scope="module", params=STAGES)
def walked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> WalkedBack:
    """A run up to and with a stage, walked back; ``half``: one broker rolled, of the next one only the file
    is written."""
    world = quiet_world()
    first = footprint(world)
    operator = Operator(world, tmp_path_factory.mktemp("walked") / "run")
    if request.param == "half":
        assert operator.forward(until="rehearse").code == 0
        operator.kill_after = operator.calls + 3
        with pytest.raises(Killed):
            operator.forward()
    else:
        assert operator.forward(until=request.param).code == 0
    back = Operator(world, operator.run_dir, keeps=True)
    assert back.back().code == 0
    assert back.calls == len(back.after)
    assert {moment.world.applied[-1][0].verb for moment in back.after} >= KINDS[request.param]
    return WalkedBack(request.param, first, tuple(back.after))


@pytest.mark.parametrize("away_s", [0.0, 30.0])
def test_a_rollback_killed_after_each_of_its_changes_is_resumed_to_the_first_world(
    tmp_path: Path, walked: WalkedBack, away_s: float
) -> None:
    """Left alone for half a minute, hosts that were still to be halted open: only then it ends with 6.

    The way back from a stage ends as that from an earlier one does: of that end some changes are tried.
    """
    opened: list[int] = []
    for n, moment in enumerate(walked.after, start=1):
        if not step_of(moment.world.applied[-1])[0].startswith(OWN[walked.stage]) and n % every(5):
            continue
        again = moment.again(tmp_path / f"{n}" / "run")
        world = again.world
        world.advance(away_s)
        alone = any(host.phase == "open" for host in world.hosts.values())
        ended = again.resume()
        if alone:
            opened.append(n)
            assert (ended.code, [f.id for f in ended.findings]) == (6, ["open.no-way-back"]), n
            assert Operator(world, again.run_dir).resume().code == 0, n
            assert {world.mode(h) for h in world.inventory.dest_names} == {"leader", "follower"}, n
            continue
        assert ended.code == 0, (n, ended)
        assert footprint(world) == walked.first, n
        assert all(p.connected.startswith("source") for p in world.brokers.values()), n
    # With two of three halted no quorum is left that could open.
    assert opened == ([1] if walked.stage == "cutover.check" and away_s else [])
