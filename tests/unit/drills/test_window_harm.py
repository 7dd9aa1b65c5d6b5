"""The leaks that the drill ``window_faults`` makes: each is damage that zkm-host's own look shows."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.drills.window_cases import CASES
from tests.drills.window_harm import FirstRule, NoRules
from tests.unit.zkm_net import Dest, net


def whole(dest: Dest) -> bool:
    """What the watch asks for: own rules on top in all four chains, and source's addresses cut off."""
    seen = dest.status()
    return {seen[chain] for chain in ("in4", "out4", "in6", "out6")} == {"top"} and seen["cut_entries"] == "2"


def test_every_leak_of_the_drill_is_damage_and_is_seen(tmp_path: Path) -> None:
    harms = {case.name: case.harm for case in CASES if isinstance(case.harm, NoRules | FirstRule)}
    assert len(harms) > 10
    with net() as made:
        dest = Dest(tmp_path, made)
        dest.cut_off()
        tag = dest.status()["tag"]

        def root(script: str, rules: str = "") -> str:
            words = made.inside("dest", "sh", "-c", f"tag={tag} && {script}")
            return subprocess.run(words, check=True, input=rules, capture_output=True, text=True).stdout

        saved = {family: root(f"{family}-save") for family in ("iptables", "ip6tables")}
        unseen = []
        # An emptied set ends the lease: nothing comes after that.
        for name, harm in sorted(
            harms.items(), key=lambda named: "ipset" in getattr(named[1], "command", "")
        ):
            assert whole(dest), f"before {name}"
            root(harm.command if isinstance(harm, NoRules) else f"iptables -I {harm.rule}")
            if whole(dest):
                unseen.append(name)
            for family, rules in saved.items():
                root(f"{family}-restore", rules)
        assert unseen == []
