"""Words that were removed from the command line name what replaces them."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from zkmigrate.cli.main import cli
from zkmigrate.cli.removed import REMOVED


@pytest.mark.parametrize(("place", "word"), REMOVED)
def test_a_removed_word_is_a_usage_error_that_names_its_successor(place: str, word: str) -> None:
    typed = [*(["plan"] if place.startswith("--") else []), *place.split(), word]
    done = CliRunner().invoke(cli, typed)
    assert done.exit_code == 2
    assert f"{word} was removed. {REMOVED[place, word]}" in " ".join(done.output.split())
