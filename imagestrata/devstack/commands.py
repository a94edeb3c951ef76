"""The embedded Cassandra and the embedded S3 server by hand, and a browser for tests.

    imagestrata up [--nodes 1] [--port PORT] [--data DIR] [--auth]
    imagestrata status | down | clean-data [--data DIR]
    imagestrata s3-up [--port PORT] [--data DIR] [--bucket NAME ...]
    imagestrata s3-status | s3-down | s3-clean-data [--data DIR]
    imagestrata s3-build
    imagestrata chromium

Data stay in build/cassandra and build/s3 between runs until `clean-data` and `s3-clean-data`. The S3 server's program
is built before its first start, once a machine. `chromium` says where one is for the tests of the dataset service's
page; where there is none, it installs Debian's, as root. Exit codes: 0 = done (also when there was nothing to do; for
`status`: it is up), 1 = failed or, for `status`, not up, with one clear line, 2 = bad arguments.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from imagestrata.devstack import DevstackError, chromium
from imagestrata.devstack.servers import versitygw
from imagestrata.devstack.servers.cassandra import DEFAULT_PASSWORD, DEFAULT_USER, MAX_NODES, Cassandra
from imagestrata.devstack.servers.s3 import S3

DATA = Path(__file__).resolve().parents[2] / "build" / "cassandra"
PORT = 9042
S3_DATA = DATA.with_name("s3")
S3_PORT = 7070


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command and its options."""
    parser = argparse.ArgumentParser(
        prog="imagestrata", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run, text in (
        ("up", up, "start the server and wait until it answers"),
        ("down", down, "end it"),
        ("status", status, "say whether it is up"),
        ("clean-data", clean_data, "end it and remove its data"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        command.add_argument(
            "--data", type=Path, default=DATA, metavar="DIR", help="folder of data and logs (build/cassandra)"
        )
        if name == "up":
            command.add_argument(
                "--nodes", type=int, default=1, choices=range(1, MAX_NODES + 1), help="on 127.0.0.1 to .3"
            )
            command.add_argument("--port", type=int, help=f"of CQL (default: the one it ran on last, or {PORT})")
            command.add_argument("--auth", action="store_true", help="ask for user and password (cassandra, cassandra)")
            command.add_argument("--heap", type=int, default=512, metavar="MB", help="heap of each node in MB (512)")
    for name, run, text in (
        ("s3-up", s3_up, "start the S3 server and wait until it answers; says how to use it"),
        ("s3-down", s3_down, "end it"),
        ("s3-status", s3_status, "say whether it is up"),
        ("s3-clean-data", s3_clean_data, "end it and remove its buckets"),
        ("s3-build", s3_build, "build its program, if it is not there"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        command.add_argument("--data", type=Path, default=S3_DATA, metavar="DIR", help="folder of buckets (build/s3)")
        if name == "s3-up":
            command.add_argument("--port", type=int, help=f"(default: the one it ran on last, or {S3_PORT})")
            command.add_argument("--bucket", action="append", default=[], metavar="NAME", help="a bucket to be made")
    text = "find a Chromium, or install Debian's where this user may"
    commands.add_parser("chromium", help=text, description=text).set_defaults(run=browser)
    args = parser.parse_args(argv)
    if args.command in ("up", "s3-up") and args.port is not None and not 1024 <= args.port <= 65535:
        parser.error(f"--port: wanted 1024 to 65535. Found: {args.port}")
    if args.command == "up" and args.heap < 256:
        parser.error(f"--heap: wanted 256 MB or more. Found: {args.heap}")
    return args


def existing(folder: Path) -> Cassandra | None:
    """The server that once was started in `folder`, whatever its settings."""
    path = folder / "cluster.json"
    if not path.is_file():
        return None
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
        return Cassandra(folder, nodes=settings["nodes"], auth=settings["auth"])
    except (ValueError, KeyError, TypeError) as error:
        raise DevstackError(
            f"wanted a cluster's settings in {path}. Found: {error}. Remove {folder} by hand."
        ) from error


def usual_port(folder: Path, asked: int | None) -> int | None:
    """The port to start a server on: the one asked for, the one of its last run (None), or the usual one."""
    return asked or (None if (folder / "cluster.json").is_file() else PORT)


def _places(server: Cassandra) -> str:
    return ", ".join(f"{node.host}:{node.port} (pid {node.pid or 'none'})" for node in server.nodes)


def _runtime(server: Cassandra) -> str:
    """The Java that runs it, as the end of a line."""
    return f"  {server.runtime.describe()}" if server.runtime else ""


def up(args: argparse.Namespace) -> int:
    """Start, and say where."""
    server = Cassandra(
        args.data, port=usual_port(args.data, args.port), nodes=args.nodes, auth=args.auth, heap_mb=args.heap
    )
    started = time.monotonic()
    shown = sys.stderr.isatty()

    def progress(text: str) -> None:
        if shown:
            print(f"\r\033[KCassandra {text}", end="", file=sys.stderr, flush=True)

    if shown:
        progress("starting")
    else:
        print("Cassandra starting", file=sys.stderr, flush=True)
    fresh = server.start(progress=progress)
    if shown:
        print("\r\033[K", end="", file=sys.stderr)
    word = f"up after {time.monotonic() - started:.1f} s" if fresh else "was up"
    user = f"  user {DEFAULT_USER}, password {DEFAULT_PASSWORD}" if args.auth else ""
    print(f"Cassandra {word}: {_places(server)}{user}  data and logs in {server.folder}{_runtime(server)}")
    return 0


def down(args: argparse.Namespace) -> int:
    """End it; nothing to end is fine."""
    server = existing(args.data)
    ran = server is not None and server.stop()
    print("Cassandra ended, its data stay" if ran else "Cassandra was not up")
    return 0


def status(args: argparse.Namespace) -> int:
    """Say what runs."""
    server = existing(args.data)
    if server is not None and server.is_up():
        print(f"Cassandra is up: {_places(server)}  data and logs in {server.folder}{_runtime(server)}")
        if server.runtime and (warning := server.runtime.warning(date.today())):
            print(f"warning: {warning}", file=sys.stderr)
        return 0
    if server is not None and any(node.pid for node in server.nodes):
        print(f"Cassandra is partly up: {_places(server)}  logs in {server.folder}/node*/logs")
        return 1
    print("Cassandra is not up")
    return 1


def clean_data(args: argparse.Namespace) -> int:
    """Remove the folder; one that is not a server's is left alone."""
    server = existing(args.data)
    if server is None:
        print("Cassandra has no data")
        return 0
    server.clean()
    print(f"Cassandra's data removed from {server.folder}")
    return 0


def s3_up(args: argparse.Namespace) -> int:
    """Start the S3 server, and say where it is and how to use it; the secret stays in its file."""
    known = (args.data / "settings.json").is_file()
    server = S3(args.data, port=args.port or (None if known else S3_PORT))
    started = time.monotonic()
    fresh = server.start()
    for bucket in args.bucket:
        server.make_bucket(bucket)
    word = f"up after {time.monotonic() - started:.1f} s" if fresh else "was up"
    print(f"S3 {word}: {server.endpoint} (pid {server.pid})  buckets in {server.folder / 'buckets'}")
    settings = shlex.quote(str(server.folder / "settings.json"))
    reader = f"""sed -nE 's/.*"secret_key": "([^"]*)".*/\\1/p' {settings}"""
    print(
        f"  export AWS_ENDPOINT_URL={server.endpoint} AWS_ACCESS_KEY_ID={server.access_key}\n"
        f'  export AWS_SECRET_ACCESS_KEY="$({reader})"'
    )
    return 0


def s3_down(args: argparse.Namespace) -> int:
    """End the S3 server; nothing to end is fine."""
    print("S3 ended, its buckets stay" if S3(args.data).stop() else "S3 was not up")
    return 0


def s3_status(args: argparse.Namespace) -> int:
    """Say whether the S3 server runs."""
    server = S3(args.data)
    up = server.is_up()
    print(f"S3 is up: {server.endpoint} (pid {server.pid})  buckets in {server.folder}" if up else "S3 is not up")
    return 0 if up else 1


def s3_clean_data(args: argparse.Namespace) -> int:
    """Remove the folder; one that is not a server's is left alone."""
    if not (args.data / "settings.json").is_file():
        print("S3 has no data")
        return 0
    server = S3(args.data)
    server.clean()
    print(f"S3's buckets removed from {server.folder}")
    return 0


def s3_build(args: argparse.Namespace) -> int:
    """Build the S3 server's program."""
    print(versitygw.build())
    return 0


def browser(args: argparse.Namespace) -> int:
    """Find a Chromium, or install it."""
    print(chromium.bring())
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; see the module's text."""
    args = parse_args(argv)
    try:
        return int(args.run(args))
    except DevstackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: what was started is ended", file=sys.stderr)
        return 130
