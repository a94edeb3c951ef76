"""Check that this machine has what imagestrata needs and that the servers answer. Prints one line for each check.

  imagestrata doctor
  imagestrata doctor --hosts 10.0.0.1,10.0.0.2 --s3-endpoint http://10.0.0.3:9000

A server that you name, by option or environment variable, must answer. A dataset service that you name must accept
your token, or need no token. Without --hosts and --port, the Cassandra that `imagestrata up` started is checked,
otherwise 127.0.0.1 port 9042. An S3 server that you do not name is checked only if `imagestrata s3-up` started it. The
last line counts errors and warnings.

exit codes: 0 no errors, perhaps warnings; 1 errors; 2 bad arguments
"""

import argparse
import http.client
import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psutil
from packaging.requirements import Requirement

from formats.command_line import Parser, command, token_file
from formats.command_line import port as port_number
from formats.local_node import LocalNode
from formats.sizes import counted
from imagestrata.devstack import PYTHONS, DevstackError, java
from imagestrata.devstack.commands import DATA, PORT, S3_DATA, S3_PORT
from imagestrata.devstack.environment import Environment
from imagestrata.devstack.servers import access, ports
from imagestrata.devstack.servers.cassandra import Cassandra, connect
from imagestrata.devstack.servers.s3 import S3

_GB = 1e9
_SERVICE_PORT = 8080
_LATE_SECONDS, _REFUSED_SECONDS = 5, 900  # S3 servers refuse requests if clocks differ by 15 minutes


State = Literal["ok", "skipped", "warning", "error"]


@dataclass(frozen=True)
class Check:
    """The result of one check, and what to do about it."""

    name: str
    state: State
    found: str
    advice: str = ""


def parser() -> Parser:
    """The options."""
    made = Parser("imagestrata doctor", manual=__doc__)
    add = made.add_argument
    add("--hosts", metavar="HOST,...", help="contact points of Cassandra")
    add("--port", type=port_number, metavar="N", help=f"its CQL port (default: {PORT})")
    endpoint, url = os.environ.get("AWS_ENDPOINT_URL"), os.environ.get("IMAGESTRATA_URL")
    add("--s3-endpoint", default=endpoint, metavar="URL", help="the S3 endpoint (default: $AWS_ENDPOINT_URL)")
    add("--url", default=url, help="the dataset service (default: $IMAGESTRATA_URL)")
    add("--token-file", type=token_file, metavar="FILE", help="file with the token (default: $IMAGESTRATA_TOKEN)")
    add("--json", action="store_true", help="print a JSON list")
    return made


def checks(args: argparse.Namespace) -> Iterator[Check]:
    """Make the checks one by one."""
    yield python()
    yield packages(metadata.requires("imagestrata") or [])
    yield java_runtime()
    yield disk(shutil.disk_usage(Environment().root).free)
    yield memory(psutil.virtual_memory().available)
    yield clock("the year", time.time(), None)
    own_s3, own_cassandra = S3(S3_DATA), Cassandra.existing(DATA)
    nodes = own_cassandra.nodes if own_cassandra else []
    ours = {PORT: [node.pid for node in nodes], S3_PORT: [own_s3.pid], _SERVICE_PORT: []}
    for number, pids in ours.items():
        yield port(number, [pid for pid in pids if pid])
    yield from cassandra(args.hosts, args.port)
    own = own_s3.endpoint if own_s3.is_up() else None
    yield from web("S3", args.s3_endpoint or own, "/", "AWS_ENDPOINT_URL or --s3-endpoint", "imagestrata s3-up")
    yield from web("dataset service", args.url, "/health", "IMAGESTRATA_URL or --url", "imagestrata serve")
    if args.url:
        yield token(args.url, args.token_file or os.environ.get("IMAGESTRATA_TOKEN"))


def python() -> Check:
    """Check Python's version."""
    found = platform.python_version()
    if sys.version_info[:2] in PYTHONS:
        return Check("Python", "ok", found)
    return Check("Python", "error", found, "install Python 3.11, 3.12 or 3.13, then 'make setup'")


def packages(wanted: Sequence[str]) -> Check:
    """Check the versions of installed libraries, and that those that every installation needs are there."""
    bad, count = [], 0
    for line in sorted(set(wanted)):
        one = Requirement(line)
        extras = ["", *re.findall(r"""extra == ["']([^"']+)""", str(one.marker or ""))]
        wanted_by = [extra for extra in extras if one.marker is None or one.marker.evaluate({"extra": extra})]
        if not wanted_by or one.name == "imagestrata":
            continue
        try:
            found = metadata.version(one.name)
        except metadata.PackageNotFoundError:
            bad += [f"{one.name} is missing"] if "" in wanted_by else []
            continue
        count += 1
        if not one.specifier.contains(found, prereleases=True):
            bad.append(f"{one.name} {found} instead of {one.specifier}")
    if bad:
        return Check("packages", "error", "; ".join(bad), "run 'make setup', or pip install --upgrade imagestrata")
    return Check("packages", "ok", f"{count} libraries have supported versions")


def java_runtime() -> Check:
    """Check Java's version and age."""
    try:
        runtime = java.find(Environment().site_packages)
    except DevstackError as error:
        return Check("Java", "error", str(error))
    old = runtime.warning(date.today())
    return Check("Java", "warning" if old else "ok", runtime.describe(), old or "")


def disk(free: float) -> Check:
    """Check the free disk space, in bytes."""
    state: State = "ok" if free > 10 * _GB else "warning" if free > _GB else "error"
    return Check("disk", state, f"{free / _GB:.1f} GB free", "" if state == "ok" else "free 10 GB or more")


def memory(available: float) -> Check:
    """Check the available memory, in bytes: Cassandra needs twice its heap, and Spark needs memory too."""
    state: State = "ok" if available > 3 * _GB else "warning"
    advice = "" if state == "ok" else "stop other programs: Cassandra and Spark need 3 GB"
    return Check("memory", state, f"{available / _GB:.1f} GB available", advice)


def clock(whose: str, here: float, there: float | None) -> Check:
    """Check this machine's clock against a server's, both in seconds since 1970. Without one (None), the year must be
    plausible.
    """
    name = "clock" if there is None else f"clock of {whose}"
    shown = datetime.fromtimestamp(here, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if there is None:
        is_absurd = not 2025 <= datetime.fromtimestamp(here, UTC).year <= 2100
        return Check(name, "error" if is_absurd else "ok", shown, "set the clock and use NTP" * is_absurd)
    # Versions of rows and signatures of S3 requests depend on clocks that agree.
    off = abs(here - there)
    state: State = "ok" if off <= _LATE_SECONDS else "warning" if off < _REFUSED_SECONDS else "error"
    return Check(name, state, f"{off:.0f} s apart", "" if state == "ok" else "use NTP on both machines")


def port(number: int, ours: Sequence[int]) -> Check:
    """Check that a default port is free or used by one of our servers."""
    if not ports.is_held(number, "127.0.0.1"):
        return Check(f"port {number}", "ok", "free")
    if any(ports.holds(pid, number, "127.0.0.1") for pid in ours):
        return Check(f"port {number}", "ok", "used by our server")
    return Check(
        f"port {number}",
        "warning",
        f"used by {ports.holder(number, '127.0.0.1')}",
        "use --port to start a server on another port",
    )


def cassandra(hosts: str | None, port_asked: int | None) -> Iterator[Check]:
    """Check that Cassandra answers, and its clock."""
    names, number = (hosts or "127.0.0.1").split(","), port_asked or PORT
    if hosts is None and port_asked is None and (node := LocalNode.find()) is not None:
        names, number = list(node.hosts), node.port
    place = f"{','.join(names)}:{number}"
    try:
        node = LocalNode.at(names, number)
        folder = None if node is None or node.access is None else Path(node.access)
        logins, tls = ([], None) if folder is None else ([access.login(folder)], access.tls(folder))
        with connect(names, number, logins=logins, tls=tls, timeout_s=5) as session:  # a busy machine takes seconds
            row = session.execute("SELECT release_version, toUnixTimestamp(now()) FROM system.local").one()
            yield Check("Cassandra", "ok", f"{row[0]} at {place}")
            yield clock("Cassandra", time.time(), row[1] / 1000)
    except DevstackError as error:
        if "Authentication" in str(error):
            yield Check("Cassandra", "ok", f"requires a user and a password at {place}")
            return
        is_named = hosts is not None or port_asked is not None
        yield Check(
            "Cassandra", "error" if is_named else "warning", f"no answer at {place}", "start one: imagestrata up"
        )


def web(name: str, address: str | None, path: str, setting: str, start: str) -> Iterator[Check]:
    """Check that a server answers over HTTP, with any status, and its clock. ``setting`` and ``start`` are advice."""
    if not address:
        yield Check(name, "skipped", "not configured, not checked", f"set {setting}")
        return
    address = address.rstrip("/")
    try:
        answer = _answer(address, path)
    except (OSError, ValueError, http.client.HTTPException) as error:
        yield Check(name, "error", f"no answer at {address}: {error}", f"start one: {start}, or name another")
        return
    yield Check(name, "ok", f"answers at {address}")
    if told := answer.getheader("Date"):
        yield clock(name, time.time(), parsedate_to_datetime(told).timestamp())


def token(url: str, text: str | None) -> Check:
    """Check that a dataset service accepts a token, or needs none."""
    name, advice = "token of dataset service", "set IMAGESTRATA_TOKEN to a token of the service, or give --token-file"
    try:
        status = _answer(url.rstrip("/"), "/datasets?limit=1", text).status
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Check(name, "error", f"not checked: {error}", "start the service, or name another")
    if status == 401:
        return Check(name, "error", "refused" if text else "none, and the service needs one", advice)
    if status != 200:
        return Check(name, "error", f"not checked: status {status}", "name a dataset service")
    return Check(name, "ok", "accepted" if text else "none is needed")


def _answer(address: str, path: str, bearer: str | None = None) -> http.client.HTTPResponse:
    """Get the headers of a response. Raises OSError, ValueError, HTTPException."""
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    with closing(kind(parts.hostname or "", parts.port, timeout=5)) as connection:
        headers = {"Authorization": f"Bearer {bearer.strip()}"} if bearer else {}
        connection.request("GET", parts.path + path, headers=headers)
        return connection.getresponse()


@command("error")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    args = parser().parse_args(argv)
    made = []
    for check in checks(args):
        made.append(check)
        if not args.json:
            print(
                f"{check.state:<8}{check.name}: {check.found}{f'  ({check.advice})' if check.advice else ''}",
                flush=True,
            )
    if args.json:
        print(json.dumps([asdict(check) for check in made]))
    errors, warnings = (sum(check.state == state for check in made) for state in ("error", "warning"))
    if not args.json:
        print(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}")
    return 1 if errors else 0
