"""Small files of a run that are written whole."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from zkmigrate.runbook.engine import run_file


def test_on_a_full_disk_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said "[Errno 28] No space left on device", and nobody knew of which disk."""
    full = os.open("/dev/full", os.O_WRONLY)

    def opened(fd: int, *_words: Any, **_options: Any) -> Any:
        os.dup2(full, fd)
        return io.TextIOWrapper(io.FileIO(fd, "w"))

    monkeypatch.setattr(os, "fdopen", opened)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/options.json'"):
        run_file.write(tmp_path / "options.json", {})
    assert list(tmp_path.iterdir()) == [], "whole or not at all"
    os.close(full)
