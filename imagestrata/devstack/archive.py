"""The archive for `spark-submit --py-files`: what executors on a cluster of yours import. Same files, same bytes."""

import argparse
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "formats", "etl", "jobs")


def write(path: Path, root: Path = ROOT) -> int:
    """Write the packages with their data files (.cql, .j2) to `path`; returns the number of files."""
    files = sorted(
        file
        for package in PACKAGES
        for file in (root / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".pyc"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    with zipfile.ZipFile(new, "w") as archive:
        for file in files:
            # A fixed time and mode: the bytes depend on nothing but the contents.
            entry = zipfile.ZipInfo(file.relative_to(root).as_posix(), date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes(), compress_type=zipfile.ZIP_DEFLATED)
    new.replace(path)
    return len(files)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the archive and say so."""
    parser = argparse.ArgumentParser(prog="python -m imagestrata.devstack.archive", description=__doc__)
    parser.add_argument("path", type=Path, help="of the archive, such as build/deps.zip")
    args = parser.parse_args(argv)
    print(f"{args.path}  {write(args.path)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
