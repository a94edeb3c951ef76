"""Commands that ask a service: list, push and pull.

python -m service list                                          name, version, kind, files, bytes, images, time
python -m service push my_folder --name my_dataset
python -m service pull my_dataset /datasets                     once more: nothing to do, or the newest version
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loader import Datasets

_URL = "http://127.0.0.1:8080"


def list_datasets(argv: Sequence[str]) -> int:
    """List the datasets of a service."""
    parser = _parser("list", "List the datasets of a service: name, version, kind, files, bytes, images, time.")
    return _run(parser, parser.parse_args(argv), _list)


def push(argv: Sequence[str]) -> int:
    """Push a folder or a file."""
    parser = _parser(
        "push", "Publish a folder or a file as the newest version of a dataset. Once interrupted, it goes on."
    )
    parser.add_argument("path", type=Path, metavar="PATH", help="the folder or file")
    parser.add_argument("--name", help="the dataset's name (that of the path)")
    return _run(parser, parser.parse_args(argv), _push)


def pull(argv: Sequence[str]) -> int:
    """Pull a dataset."""
    parser = _parser("pull", "Have a dataset in a folder of this machine, at TO/NAME. Once interrupted, it goes on.")
    parser.add_argument("name", metavar="NAME", help="the dataset's name")
    parser.add_argument("to", type=Path, metavar="TO", nargs="?", default=Path("/datasets"), help="where (/datasets)")
    parser.add_argument("--version", type=int, metavar="N", help="this version of it (the newest)")
    return _run(parser, parser.parse_args(argv), _pull)


def _list(service: "Datasets", args: argparse.Namespace) -> None:
    for one in service.list():
        told = (one.name, one.version, one.kind, one.files, one.bytes, one.images, one.created)
        _say("\t".join("-" if value is None else str(value) for value in told))


def _push(service: "Datasets", args: argparse.Namespace) -> None:
    found = service.push(args.path, args.name)
    same = "" if found.is_new else ", as it was before"
    place = f"{args.url}/datasets/{found.name}"
    _say(f"{found.name} version {found.version}: {found.files:,} files, {found.bytes:,} bytes at {place}{same}")


def _pull(service: "Datasets", args: argparse.Namespace) -> None:
    place = service.pull(args.name, args.to, args.version)
    found = service.pulled(args.name, args.to)
    if found is not None:  # else somebody has removed it meanwhile
        _say(f"{found.name} version {found.version}: {found.files:,} files, {found.bytes:,} bytes at {place}")


def _run(
    parser: argparse.ArgumentParser, args: argparse.Namespace, command: Callable[["Datasets", argparse.Namespace], None]
) -> int:
    import loader  # not before a command needs it

    token = None
    if args.token_file is not None:
        token = args.token_file.read_text(encoding="utf-8").strip()
        if not token:
            parser.error(f"wanted a token in {args.token_file}. Found: nothing")
    args.url = args.url.rstrip("/")
    try:
        command(loader.datasets(args.url, token), args)
    except loader.OptionError as error:
        parser.error(str(error))
    except loader.LoaderError as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        return 1
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser(command: str, text: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(f"python -m service {command}", description=text, allow_abbrev=False)
    parser.add_argument(
        "--url",
        default=os.environ.get("IMAGESTRATA_URL") or _URL,
        help=f"where the service is ($IMAGESTRATA_URL, or {_URL})",
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="a file with the token that opens it ($IMAGESTRATA_TOKEN)"
    )
    return parser
