"""Places of root's for the tests of zkm-host beside an account that wants more."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.zkm_net import need_root


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A directory of root's that every account can enter, where a sync costs nothing."""
    need_root()
    folder = Path(tempfile.mkdtemp(prefix="zkm-drill-", dir="/dev/shm"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def secret(open_folder: Path) -> Path:
    """What root alone may read, under all the names that could be hit."""
    place = open_folder / "secret"
    (place / "version-2").mkdir(parents=True)
    for name in ("shadow", "zoo.cfg", "new", "ready", "manifest", "version-2/snapshot.1", "version-2/shadow"):
        (place / name).write_text(f"secret of {name}\n")
        (place / name).chmod(0o600)
    place.chmod(0o751)
    return place
