"""Write the archive for `spark-submit --py-files`: the packages that executors on your cluster import.

The same files give the same bytes.
"""

import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from formats.command_line import Parser, command
from formats.durability import whole_file

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("schemas", "formats", "etl", "jobs")


def write(path: Path, root: Path = ROOT) -> int:
    """Write the packages below ``root`` with their data files to an archive, and return the number of files."""
    files = sorted(
        file
        for package in PACKAGES
        for file in (root / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".pyc"
    )
    with whole_file(path) as target, zipfile.ZipFile(target, "w") as archive:
        for file in files:
            # A fixed time and mode, so that the bytes depend only on the contents.
            entry = zipfile.ZipInfo(file.relative_to(root).as_posix(), date_time=(1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes(), compress_type=zipfile.ZIP_DEFLATED)
    return len(files)


@command("error")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = Parser("python -m imagestrata.devstack.archive", manual=__doc__)
    parser.add_argument("path", type=Path, help="the archive, such as build/deps.zip")
    args = parser.parse_args(argv)
    print(f"{args.path}  {write(args.path)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
