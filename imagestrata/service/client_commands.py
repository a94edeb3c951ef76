"""Client commands: list, push, pull and restore.

imagestrata list                              name, version, kind, files, bytes, images, time
imagestrata push my_folder --name my_dataset
imagestrata pull my_dataset /datasets         a second pull does nothing, or gets the newest version
imagestrata restore my_dataset 3              make version 3 the newest again
"""

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from formats import logs
from formats.command_line import Parser, token_file
from formats.sizes import counted

if TYPE_CHECKING:
    from imagestrata.hub import Dataset, Datasets, PushedDataset

_URL = "http://127.0.0.1:8080"


def list_datasets(argv: Sequence[str]) -> int:
    """List the datasets of a service."""
    parser = _parser("list", "List the datasets of a service: name, version, kind, files, bytes, images, time.")
    with _service(parser, argv) as (service, _):
        for one in service.list():
            told = (one.name, one.version, one.kind, one.files, one.bytes, one.images, one.created)
            _say("\t".join("-" if value is None else str(value) for value in told))
            if one.problem:
                logs.tell(f"warning: {one.problem}", level=logging.WARNING)
    return 0


def push(argv: Sequence[str]) -> int:
    """Push a folder or a file."""
    parser = _parser(
        "push", "Publish a folder or a file as the newest version of a dataset. An interrupted push resumes."
    )
    add = parser.add_argument
    add("path", type=Path, metavar="PATH", help="folder or file")
    add("--name", help="name of the dataset (default: the name of the folder or file)")
    add("--create", action=argparse.BooleanOptionalAction, help="create the dataset if it does not exist (default: "
        "create it, unless its name is similar to another one)")  # fmt: skip
    with _service(parser, argv) as (service, args):
        found = service.push(args.path, args.name, create=args.create)
        more = ", a new dataset" if found.is_created else "" if found.is_new else ", unchanged"
        address = f"{args.url}/datasets/{found.name}"
        _say(f"{found.name} version {found.version}: {_contents(found)} at {address}{more}")
    return 0


def pull(argv: Sequence[str]) -> int:
    """Pull a dataset."""
    parser = _parser("pull", "Download a dataset to TO/NAME. An interrupted pull resumes.")
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the dataset")
    add("to", type=Path, metavar="TO", nargs="?", default=Path("/datasets"),
        help="folder (default: /datasets, where jobs look)")  # fmt: skip
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, metavar="N", help="version to pull (default: the newest)")
    which.add_argument("--keep", action="store_true", help="do nothing if any version is there already")
    with _service(parser, argv) as (service, args):
        folder = service.pull(args.name, args.to, args.version, keep=args.keep)
        found = service.pulled(args.name, args.to)
        if found is not None:  # otherwise it was removed in the meantime
            _say(f"{found.name} version {found.version}: {_contents(found)} at {folder}")
    return 0


def restore(argv: Sequence[str]) -> int:
    """Restore a version."""
    parser = _parser("restore", "Make an older version of a dataset the newest again, without an upload.")
    parser.add_argument("name", metavar="NAME", help="name of the dataset")
    parser.add_argument("version", type=int, metavar="N", help="version to make the newest")
    with _service(parser, argv) as (service, args):
        found = service.restore(args.name, args.version)
        of = f"the bytes of version {args.version}, {counted(found.bytes, 'byte')}"
        _say(f"{found.name} version {found.version}: {of}")
    return 0


def _contents(found: "Dataset | PushedDataset") -> str:
    """The known counts of a version: files, bytes, images and classes."""
    counts = {
        ("file", "files"): found.files,
        ("byte", "bytes"): found.bytes,
        ("image", "images"): found.images,
        ("class", "classes"): found.num_classes,
    }
    return ", ".join(counted(number, *names) for names, number in counts.items() if number is not None)


@contextmanager
def _service(parser: Parser, argv: Sequence[str]) -> Iterator[tuple["Datasets", argparse.Namespace]]:
    """Yield the service of a command line, and the arguments. Options that the client refuses are wrong arguments."""
    args = parser.parse_args(argv)
    from imagestrata import hub  # imported when a command needs it

    args.url = args.url.rstrip("/")
    try:
        yield hub.connect(args.url, args.token_file), args
    except hub.OptionError as error:
        parser.error(str(error))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser(command: str, text: str) -> Parser:
    parser = Parser(f"imagestrata {command}", manual=text)
    add = parser.add_argument
    add("--url", default=os.environ.get("IMAGESTRATA_URL") or _URL,
        help=f"address of the service (default: $IMAGESTRATA_URL, else {_URL})")  # fmt: skip
    add("--token-file", type=token_file, metavar="FILE", help="file with the token (default: $IMAGESTRATA_TOKEN)")
    return parser
