"""The command line of the demo. It needs only the standard library: make checks it before it installs anything."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from etl.pictures.headers import MAGIC
from formats.command_line import Parser, command, own_port
from imagestrata.demo import SPLITS

if TYPE_CHECKING:
    import argparse

_MOST_FILES = 20_000  # that are looked at
_ARCHIVES = (".tar", ".tar.gz", ".tgz")

MANUAL = """Ingest, split and read real images with an embedded Cassandra, and write a report.

  make demo                    # 1,797 handwritten digits
  make demo DATA=/my/tree      # your own tree: CLASS/**/image, or SPLIT/CLASS/**/image with the folders train and val

The demo replaces its own keyspace "demo" and its own files in build/demo, so you can run it again at any time.
Afterwards Cassandra keeps running, and `spark-submit jobs/ingest.py` and the other jobs use it; `make down` stops it.
The last line is one JSON object.

exit codes: 0 done, 1 failed, 2 bad arguments, 130 interrupted
"""


def _absolute(text: str) -> Path:
    """A path. Messages show which folder it is relative to."""
    return Path(text).absolute()


def parser() -> Parser:
    """The options."""
    made = Parser("imagestrata demo", manual=MANUAL)
    made.add_argument("--data", type=_absolute, metavar="DIR", help="your own tree of images (default: the digits)")
    made.add_argument("--port", type=own_port, metavar="N",
        help="the port of Cassandra (default: the port of its last run, or 9042)")  # fmt: skip
    return made


def parse_args(argv: Sequence[str] | None = None) -> "argparse.Namespace":
    """The options. Exits with 2 for bad ones."""
    made = parser()
    args = made.parse_args(argv)
    if args.data is not None and not args.data.is_dir():
        found = "a file" if args.data.exists() else "no folder"
        made.error(f"Wanted a folder of images in --data (DATA= of make). Found: {found} at {args.data}")
    if args.data is not None and not _may_have_images(args.data):
        made.error(
            "Wanted images in folders for their classes in --data (DATA= of make): CLASS/**/image or "
            f"SPLIT/CLASS/**/image. Found: none in {args.data}"
        )
    return cast("argparse.Namespace", args)


def _may_have_images(tree: Path) -> bool:
    """Whether a file in a folder for a class begins as an image or is an archive, or there are too many to look at."""
    roots = [tree / name for name in SPLITS if (tree / name).is_dir()] or [tree]
    looked = 0
    for path in islice(_in_folders(roots), _MOST_FILES):
        looked += 1
        if path.endswith(_ARCHIVES):
            return True
        try:
            with open(path, "rb") as file:
                if MAGIC.match(file.read(16)):
                    return True
        except OSError:  # the ingest reports it
            continue
    return looked == _MOST_FILES


def _in_folders(roots: Sequence[Path]) -> Iterator[str]:
    """The regular files below these folders, but for those directly in them."""
    for root in roots:
        for folder, _, names in os.walk(root, followlinks=True):
            if Path(folder) != root:
                yield from filter(os.path.isfile, (os.path.join(folder, name) for name in names))


@command("demo", interrupted="run it again at any time; `make down` stops Cassandra")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = parse_args(argv)
    from imagestrata.demo import journey

    print(json.dumps(journey.run(args.data, port=args.port), ensure_ascii=False), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
