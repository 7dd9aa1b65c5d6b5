"""Pack zkmigrate's code into one archive for a cluster, by ``python -m zkmigrate.spark.pack OUT.zip``.

``spark-submit --py-files`` sends the archive to the driver and to every executor. The same code makes the
same archive, byte for byte.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from zkmigrate.errors import UsageError

_PACKAGE = "zkmigrate"
_LEFT_OUT = f"{_PACKAGE}/lab/"
_PACKED = (".py", ".sh", ".toml", ".html", ".svg")
"""The suffixes of the files to pack: modules, and the data files and templates that modules read."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that an archive can hold."""
_MODE = 0o100644 << 16


def pack(out: Path) -> int:
    """Write the archive, or replace it, and return the number of its files.

    The archive contains every module except the lab's, because each job imports only the modules that it
    needs. Raises OSError, and UsageError if a file with this name exists that is not an archive.
    """
    if out.exists() and not zipfile.is_zipfile(out):
        raise UsageError(
            f"{out} exists and is not an archive. Needed: a new name, or the name of an earlier archive"
        )
    modules = dict(_modules(files(_PACKAGE), f"{_PACKAGE}/"))
    handle, name = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.absolute().parent)
    made = Path(name)
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w") as archive:
            for inside, content in sorted(modules.items()):
                entry = zipfile.ZipInfo(inside, _EPOCH)
                entry.external_attr = _MODE
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
        made.chmod(0o644)
        made.replace(out)
    finally:
        made.unlink(missing_ok=True)
    return len(modules)


def _modules(folder: Traversable, inside: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _modules(entry, f"{inside}{entry.name}/")
        elif entry.name.endswith(_PACKED) and not inside.startswith(_LEFT_OUT):
            yield inside + entry.name, entry.read_bytes()


@click.command()
@click.argument("out", metavar="OUT.zip", type=click.Path(path_type=Path))
def main(out: Path) -> None:
    """Write zkmigrate's code into the archive OUT.zip, and print how to pass the archive to a cluster."""
    try:
        count = pack(out)
    except (UsageError, OSError) as error:
        raise click.ClickException(str(error)) from error
    script = files(_PACKAGE) / "spark_submit.py"
    click.echo(f"{out}: {count} files. Next:")
    click.echo(f"spark-submit --master URL --py-files {out} {script} JOB DIR...")


if __name__ == "__main__":
    main()
