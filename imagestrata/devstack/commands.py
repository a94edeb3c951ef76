"""The commands for the embedded Cassandra, Spark cluster and S3 server, and a browser for tests.

Data stay in build/cassandra and build/s3 between runs, until `clean-data` and `s3-clean-data`; for an installed
package, in ~/.local/share/imagestrata.
"""

import argparse
import importlib
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path

from formats import sizes
from formats.command_line import Parser, command, own_port, size
from formats.local_node import JOBS, PLACE
from imagestrata.devstack import chromium
from imagestrata.devstack.servers import s3
from imagestrata.devstack.servers.cassandra import DEFAULT_PASSWORD, DEFAULT_USER, MAX_NODES, Cassandra
from imagestrata.devstack.servers.spark import MAX_WORKERS, Spark
from imagestrata.devstack.steps import Step

DATA = PLACE.parent
PORT = 9042
S3_DATA = DATA.with_name("s3")
S3_PORT = 7070
SPARK = "spark"  # the folder of the Spark cluster, in that of Cassandra

_MIB = 1 << 20
_LEAST_HEAP_MIB = 256

_UP = f"""Start the embedded Cassandra and wait until it answers.

  imagestrata up
  imagestrata up --port 9151
  imagestrata up --nodes 3        three nodes, on 127.0.0.1, 127.0.0.2 and 127.0.0.3
  imagestrata up --secure         with TLS, client certificates, and roles with passwords
  imagestrata up --nodes 3 --spark 2    and a Spark cluster of a master and two workers, on 127.0.0.1

Jobs and trainings use it if you do not configure another Cassandra; their first lines name the address. With --data,
they do not find it: give them its address. Each checkout has its own Cassandra. An installed package has one for each
user, in imagestrata/cassandra below $XDG_DATA_HOME or ~/.local/share.

With --secure, the folder `access` in the folder of data has certificates, and passwords of the roles writer (of jobs),
reader (of trainings) and admin, the superuser. Only you can read it. Jobs, trainings and commands on this machine use
it. Connections between nodes are not encrypted.

With --spark, jobs run on the cluster if you submit them with --properties-file. The last line shows the command.
`imagestrata down` stops the cluster, too.

{sizes.HELP}.

exit codes: 0 started, or already running; 1 failed; 2 bad arguments; 130 interrupted
"""
_DONE = "exit codes: 0 done, also if there was nothing to do; 1 failed; 2 bad arguments"
_STATUS = "exit codes: 0 running; 1 not running; 2 bad arguments"
_S3_UP = f"""Start the embedded S3 server, wait until it answers, and print how to use it.

  imagestrata s3-up --bucket my-bucket

Its program is built before the first start on a machine, which takes two minutes.

{_DONE}
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: what it does, returning None for exit code 0, its manual page, and what adds its options."""

    run: Callable[[argparse.Namespace], int | None]
    manual: str
    add_options: Callable[[Parser], object] = lambda parser: None


def parser(name: str) -> Parser:
    """The options of a command."""
    made = Parser(f"imagestrata {name}", manual=COMMANDS[name].manual)
    COMMANDS[name].add_options(made)
    return made


def _add_folder(parser: Parser, *, data: Path = DATA, holds: str = "data and logs") -> None:
    place = f"build/{data.name} in a checkout, otherwise ~/.local/share/imagestrata/{data.name}"
    parser.add_argument(
        "--data", type=Path, default=data, metavar="DIR", help=f"the folder of {holds} (default: {place})"
    )


_add_s3_folder = partial(_add_folder, data=S3_DATA, holds="buckets")


def _add_up(parser: Parser) -> None:
    _add_folder(parser)
    add = parser.add_argument
    add("--port", type=own_port, metavar="N", help=f"the CQL port (default: the port of its last run, or {PORT})")
    add("--nodes", type=int, default=1, choices=range(1, MAX_NODES + 1), help="the number of nodes (default: 1)")
    add("--auth", action="store_true", help="require a user and a password: cassandra, cassandra")
    add("--secure", action="store_true", help="require TLS, client certificates, and roles with passwords")
    add("--spark", type=int, choices=range(1, MAX_WORKERS + 1), metavar="N", help="start a Spark cluster of N workers")
    add("--heap", type=_heap, default=512 * _MIB, metavar="SIZE", help="the heap of each node (default: 512MiB)")


def _add_s3_up(parser: Parser) -> None:
    _add_s3_folder(parser)
    add = parser.add_argument
    add("--port", type=own_port, metavar="N", help=f"the port (default: the port of its last run, or {S3_PORT})")
    add("--bucket", action="append", default=[], metavar="NAME", help="create this bucket; repeatable")


def _heap(text: str) -> int:
    found = size(text)
    if found < _LEAST_HEAP_MIB * _MIB:
        hint = f" Add a unit: {text}M." if text.isdigit() else ""
        raise argparse.ArgumentTypeError(f"wanted {_LEAST_HEAP_MIB}MiB or more. Found: {found:,} bytes.{hint}")
    return found


def usual_port(settings: Path, asked: int | None, usual: int = PORT) -> int | None:
    """The port to start a server on: ``asked``, else None for that in its settings, else the usual one."""
    return asked or (None if settings.is_file() else usual)


def _places(server: Cassandra) -> str:
    return ", ".join(f"{node.host}:{node.port} (pid {node.pid or 'none'})" for node in server.nodes)


def _runtime(server: Cassandra) -> str:
    """The Java that it runs on, as the end of a line."""
    return f"  {server.runtime.describe()}" if server.runtime else ""


def up(args: argparse.Namespace) -> int:
    """Start the Cassandra and print where it is."""
    importlib.import_module("cassandra")  # it is needed when the server answers: a missing extra is said before
    port = usual_port(args.data / "cluster.json", args.port)
    server = Cassandra(
        args.data, port=port, nodes=args.nodes, auth=args.auth, secure=args.secure, heap_mb=args.heap // _MIB
    )
    started = time.monotonic()
    current = Step("Cassandra", sys.stderr)
    if sys.stderr.isatty():
        current.progress("starting")
    else:
        print("Cassandra starting", file=sys.stderr, flush=True)
    fresh = server.start(progress=current.progress)
    current.end()
    word = f"started in {time.monotonic() - started:.1f} s" if fresh else "is already running"
    user = f"  user {DEFAULT_USER}, password {DEFAULT_PASSWORD}" if args.auth and not args.secure else ""
    user += f"  certificates and passwords in {server.access}" if server.access else ""
    print(f"Cassandra {word}: {_places(server)}{user}  data and logs in {server.folder}{_runtime(server)}")
    if args.data.resolve() != DATA.resolve():
        print(
            f"Jobs find it with --conf spark.cassandra.connection.host={','.join(server.hosts)} "
            f"--conf spark.cassandra.connection.port={server.port}"
            + (f" and the lines of {server.access / JOBS} in a properties file" if server.access else "")
        )
    if args.spark is not None:
        _up_spark(args.data / SPARK, args.spark, server)
    return 0


def _up_spark(folder: Path, workers: int, server: Cassandra) -> None:
    """Start the Spark cluster and print how jobs use it."""
    cluster, started = Spark(folder, workers=workers), time.monotonic()
    fresh = cluster.start(settings=server.spark_properties)
    word = f"started in {time.monotonic() - started:.1f} s" if fresh else "is already running"
    print(f"Spark {word}: {_processes(cluster)}  {cluster.page}  logs in {cluster.folder}")
    place = os.path.relpath(cluster.submit_conf)
    print(f"Submit jobs to it with: spark-submit --properties-file {shlex.quote(place)} jobs/ingest.py ...")


def _processes(cluster: Spark) -> str:
    return f"{cluster.master}, " + ", ".join(f"{name} (pid {cluster.pid(name) or 'none'})" for name in cluster.names)


def down(args: argparse.Namespace) -> None:
    """Stop the Spark cluster, if there is one, and Cassandra."""
    if (cluster := Spark.existing(args.data / SPARK)) is not None and cluster.stop():
        print("Spark stopped")
    _down("Cassandra", "data", Cassandra.existing(args.data))


def clean_data(args: argparse.Namespace) -> None:
    """Stop both, and delete Cassandra's folder, which has Spark's."""
    if (cluster := Spark.existing(args.data / SPARK)) is not None:
        cluster.stop()
    _clean("Cassandra", "data", Cassandra.existing(args.data))


def _down(name: str, what: str, server: Cassandra | s3.S3 | None) -> None:
    ran = server is not None and server.stop()
    print(f"{name} stopped; its {what} stay" if ran else f"{name} was not running")


def _clean(name: str, what: str, server: Cassandra | s3.S3 | None) -> None:
    if server is None:
        print(f"{name} has no data")
    else:
        server.clean()
        print(f"Deleted {name}'s {what} in {server.folder}")


def status(args: argparse.Namespace) -> int:
    """Show what runs."""
    server = Cassandra.existing(args.data)
    if (cluster := Spark.existing(args.data / SPARK)) is not None:
        state = "is running" if cluster.is_up() else "is not running as a whole"
        print(f"Spark {state}: {_processes(cluster)}  logs in {cluster.folder}")
    if server is not None and server.is_up():
        print(f"Cassandra is running: {_places(server)}  data and logs in {server.folder}{_runtime(server)}")
        if server.runtime and (warning := server.runtime.warning(date.today())):
            print(f"warning: {warning}", file=sys.stderr)
        return 0
    if server is not None and any(node.pid for node in server.nodes):
        print(f"Some nodes of Cassandra are running: {_places(server)}  logs in {server.folder}/node*/logs")
        return 1
    print("Cassandra is not running")
    return 1


def s3_up(args: argparse.Namespace) -> int:
    """Start the S3 server, and print where it is and how to use it; the secret key stays in its file."""
    importlib.import_module("botocore")  # as in `up`
    server = s3.S3(args.data, port=usual_port(args.data / "settings.json", args.port, S3_PORT))
    started = time.monotonic()
    fresh = server.start()
    for bucket in args.bucket:
        server.make_bucket(bucket)
    word = f"started in {time.monotonic() - started:.1f} s" if fresh else "is already running"
    print(f"S3 {word}: {server.endpoint} (pid {server.pid})  buckets in {server.folder / 'buckets'}")
    settings = shlex.quote(str(server.folder / "settings.json"))
    reader = f"""sed -nE 's/.*"secret_key": "([^"]*)".*/\\1/p' {settings}"""
    print(
        f"  export AWS_ENDPOINT_URL={server.endpoint} AWS_ACCESS_KEY_ID={server.access_key}\n"
        f'  export AWS_SECRET_ACCESS_KEY="$({reader})"'
    )
    return 0


def s3_status(args: argparse.Namespace) -> int:
    """Show whether the S3 server runs."""
    server = s3.S3(args.data)
    if not server.is_up():
        print("S3 is not running")
        return 1
    print(f"S3 is running: {server.endpoint} (pid {server.pid})  buckets in {server.folder / 'buckets'}")
    return 0


COMMANDS = {
    "up": Command(up, _UP, _add_up),
    "down": Command(
        down,
        f"Stop the embedded Cassandra and Spark, and keep the data.\n\n{_DONE}\n",
        _add_folder,
    ),
    "status": Command(status, f"Show whether the embedded Cassandra is running.\n\n{_STATUS}\n", _add_folder),
    "clean-data": Command(
        clean_data,
        f"Stop the embedded Cassandra and delete its data.\n\n{_DONE}\n",
        _add_folder,
    ),
    "s3-up": Command(s3_up, _S3_UP, _add_s3_up),
    "s3-down": Command(
        lambda args: _down("S3", "buckets", s3.S3.existing(args.data)),
        f"Stop the embedded S3 server and keep its buckets.\n\n{_DONE}\n",
        _add_s3_folder,
    ),
    "s3-status": Command(s3_status, f"Show whether the embedded S3 server is running.\n\n{_STATUS}\n", _add_s3_folder),
    "s3-clean-data": Command(
        lambda args: _clean("S3", "buckets", s3.S3.existing(args.data)),
        f"Stop the embedded S3 server and delete its buckets.\n\n{_DONE}\n",
        _add_s3_folder,
    ),
    "s3-build": Command(
        lambda args: print(s3.build()),
        f"Build the S3 server's program unless it exists; print its path.\n\n{_DONE}\n",
    ),
    "chromium": Command(
        lambda args: print(chromium.bring()),
        "Print the path of a Chromium for browser tests. If there is none, install Debian's, which needs root.\n\n"
        f"{_DONE}\n",
    ),
}


@command("error", interrupted="everything that was started is stopped")
def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, the first word of the command line; returns its exit code."""
    name, *rest = list(sys.argv[1:] if argv is None else argv)
    return COMMANDS[name].run(parser(name).parse_args(rest)) or 0
