"""Hosts that opened by themselves while the operator was gone: forward only, whatever is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.world.operator import Killed, Operator, quiet_world


@pytest.mark.parametrize("last_verb", ["go", "checked"])
def test_a_rollback_after_the_hosts_opened_alone_is_refused_and_the_run_goes_forward(
    tmp_path: Path, last_verb: str
) -> None:
    world = quiet_world()
    operator = Operator(world, tmp_path / "run")
    operator.kill_after_verb = ("cutover", last_verb, len(world.inventory.dest_names))
    with pytest.raises(Killed):
        operator.forward()
    world.advance(30.0)
    assert {world.hosts[h].phase for h in world.inventory.dest_names} == {"open"}

    again = Operator(world, operator.run_dir)
    ended = again.back()
    assert ended.code == 6
    assert [f.id for f in ended.findings] == ["open.no-way-back"]
    assert {world.hosts[h].phase for h in world.inventory.dest_names} == {"open"}
    assert Operator(world, operator.run_dir).resume().code == 0
