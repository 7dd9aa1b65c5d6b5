"""Sample the measurements and decisions of each tick of the throttle, and draw the curves of a report.

- ``throttle`` {rates: {broker: [leader, follower]}, traffic: {broker: [sent, received]}, left: bytes that
moving replicas lack, paused}: rates and traffic in bytes per second, brokers by id
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zkmigrate.kafka.rates import Decision, Moving, Sample
from zkmigrate.runbook.model.report import Curve, Reporting, Rows, of_kind
from zkmigrate.runbook.model.sampling import Body
from zkmigrate.runbook.model.series import number

KIND = "throttle"
_M, _G = 1e6, 1e9


def body(decision: Decision, samples: Mapping[int, Sample], moving: Sequence[Moving]) -> Body:
    """Return the sample of one tick."""
    return {
        "rates": {str(id_): list(rate) for id_, rate in decision.rates.items()},
        "traffic": {str(id_): [round(one.sent), round(one.received)] for id_, one in samples.items()},
        "left": sum(one.left * len(one.adding) for one in moving),
        "paused": decision.pause,
    }


def curves(rows: Rows) -> tuple[Curve, ...]:
    """Return curves of each broker's rates and traffic in both directions, and of the bytes left.

    Values that cannot be read are skipped.
    """
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for at, row in of_kind(rows, KIND):
        for kind, words in (("rates", ("send rate", "receive rate")), ("traffic", ("sent", "received"))):
            values = row.get(kind)
            for broker, pair in values.items() if isinstance(values, dict) else ():
                values = dict(zip(words, pair, strict=False)) if isinstance(pair, list) else {}
                for word in words:
                    if (value := number(values, word)) is not None and value >= 0:
                        found.setdefault((f"{word}, MB/s", f"broker {broker}"), []).append((at, value / _M))
        if (left := number(row, "left")) is not None and left >= 0:
            found.setdefault(("remaining, GB", "all"), []).append((at, left / _G))
    order = {plot: n for n, plot in enumerate(dict.fromkeys(plot for plot, _ in found))}
    ordered = sorted(found, key=lambda key: (order[key[0]], len(key[1]), key[1]))
    return tuple(Curve(plot, name, tuple(found[plot, name])) for plot, name in ordered)


REPORTING = Reporting(
    curves=curves,
    curved=(
        "The throttle",
        "The rate at which each broker may copy, the traffic of its host including clients, and the "
        "remaining bytes.",
    ),
)
