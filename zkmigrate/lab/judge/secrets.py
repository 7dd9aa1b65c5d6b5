"""Judge the search for secrets in everything that a move wrote or started."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zkmigrate.lab.judge.claims import Claim, explain, truth

CLAIM = "secrets_not_written"
KINDS = (
    "output", "the run's directory", "files on hosts", "logs of hosts", "arguments", "environments",
    "core dumps",
)  # fmt: skip
"""The kinds of places that are searched. All but the last exist in every move."""
_SHOWN = 20


def secrets_claim(
    secrets: int, fewest: int, own: int, searched: Mapping[str, int], found: Collection[tuple[str, str]]
) -> Claim:
    """Return the claim ``secrets_not_written``.

    secrets: the number of planted secrets, at least ``fewest``. own: the number of places where the same
    search saw a secret before the move; each lab has some, so 0 means that the search is blind. searched: the
    number of texts by kind of place. found: pairs of a place and the name of a secret in it.
    """
    problems = [f"only {secrets} secrets were planted"] if secrets < fewest else []
    problems += [] if own else ["the search did not see the lab's own secrets before the move"]
    problems += [f"nothing searched: {kind}" for kind in KINDS[:-1] if not searched.get(kind)]
    named = [f"{name} in {place}" for place, name in sorted(found)]
    value = {"secrets": secrets, "own_places": own, "searched": dict(searched), "found": named}
    held = truth(True, problems, bad_is_certain=bool(named))
    needed = f"at least {fewest} secrets, seen in the lab's own places, every kind of place searched, 0 found"
    source = "everything that the move wrote or started"
    return Claim(CLAIM, value, held, needed, source, explain(*named[:_SHOWN], *problems))
