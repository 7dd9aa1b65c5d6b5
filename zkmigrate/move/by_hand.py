"""The move by hand: the text of its page around the steps, and the functions that look at source and dest."""

from __future__ import annotations

import math
import shlex
import tomllib
from importlib.resources import files

from zkmigrate.inventory.inventory import Inventory
from zkmigrate.move.facts.connections import addresses
from zkmigrate.move.go_no_go import GO_NO_GO
from zkmigrate.move.rules.window_rules import FIND_DOOR_S, expected_way_back_s
from zkmigrate.runbook.model.by_hand import Manual
from zkmigrate.runbook.model.step import Context

LEAST_HAND_S = 10
"""The least seconds that a person needs from FENCE to SEAL (docs/adr/0012-small-decisions.md)."""

FUNCTIONS = (files(__package__) / "by_hand.sh").read_text()
_WORDS = tomllib.loads((files(__package__) / "by_hand.toml").read_text())


def _known(c: Context) -> tuple[str, ...]:
    inventory, lease = c.inventory, c.inventory.policy.lease
    values: dict[str, object] = {
        "SOURCE": " ".join(f"{h.name}={h.address}" for h in inventory.source.hosts),
        "SOURCE_PORT": inventory.source.ports.client,
        "SOURCE_LOGS": inventory.source.txn_dir,
        "DEST_COUNT": len(inventory.dest.hosts),
        "DEST_PORT": inventory.dest.ports.client,
        "CHROOT": inventory.kafka.chroot,
        "WAY_BACK_S": math.ceil(expected_way_back_s(c)),
        "FIND_DOOR_S": math.ceil(FIND_DOOR_S),
        "LEAST_HAND_S": LEAST_HAND_S,
    }
    return (
        *(f"{name}={shlex.quote(str(value))}" for name, value in values.items()),
        # For a person who takes over from another; `survey` sets them anew.
        f"FENCE_MS=${{FENCE_MS:-{lease.fence_ttl_ms}}} CUT_MS=${{CUT_MS:-{lease.cut_ttl_ms}}}",
        f"OPEN_MS=${{OPEN_MS:-{round(inventory.policy.open_limit_s * 1000)}}} LEG=${{LEG:-0}}",
    )


def _end(inventory: Inventory) -> str:
    brokers = ", ".join(f"{b.name} ({', '.join(sorted(addresses(b)))})" for b in inventory.kafka.brokers)
    return f"Brokers: {brokers}."


MANUAL = Manual(
    first=_WORDS["first"],
    functions=FUNCTIONS,
    known=_known,
    prepare=_WORDS["prepare"],
    release=_WORDS["release"],
    end=_end,
    window=_WORDS["window"].replace("FIND_DOOR", f"{FIND_DOOR_S:g}"),
    phases=_WORDS["phases"],
    turns={"arm": "arm", "before": "stop", "sealed": "seal", "gone": "go"},
    go_no_go=GO_NO_GO,
)
