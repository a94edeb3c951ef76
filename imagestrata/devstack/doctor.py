"""Whether this machine has what imagestrata needs, and whether the servers answer: one line a check.

    imagestrata doctor [--hosts HOST,HOST] [--port 9042] [--s3-endpoint URL] [--url URL] [--json]

A server that you name (by option or environment) must answer; one that you do not name may be down. Exit codes: 0 = no
errors (there may be warnings), 1 = errors, 2 = bad arguments.
"""

import argparse
import http.client
import json
import logging
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from imagestrata.devstack import DevstackError, java
from imagestrata.devstack.commands import DATA, PORT, S3_DATA, S3_PORT, existing
from imagestrata.devstack.environment import Environment
from imagestrata.devstack.servers import ports
from imagestrata.devstack.servers.cassandra import connect
from imagestrata.devstack.servers.s3 import S3

_GB = 1e9
_SERVICE_PORT = 8080
_LATE_SECONDS, _REFUSED_SECONDS = 5, 900  # S3 servers refuse requests from clocks that are a quarter of an hour off


State = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Check:
    """What one check found, and what to do about it."""

    name: str
    state: State
    found: str
    advice: str = ""


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; exits with 2 for bad ones."""
    parser = argparse.ArgumentParser(
        prog="imagestrata doctor", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", help="of Cassandra, with commas between (127.0.0.1)")
    parser.add_argument("--port", type=int, help=f"of CQL ({PORT})")
    endpoint, url = os.environ.get("AWS_ENDPOINT_URL"), os.environ.get("IMAGESTRATA_URL")
    parser.add_argument("--s3-endpoint", default=endpoint, metavar="URL", help="of S3 ($AWS_ENDPOINT_URL)")
    parser.add_argument("--url", default=url, help="of the dataset service ($IMAGESTRATA_URL)")
    parser.add_argument("--json", action="store_true", help="one JSON list instead of lines")
    args = parser.parse_args(argv)
    if args.port is not None and not 1 <= args.port <= 65535:
        parser.error(f"--port: wanted 1 to 65535. Found: {args.port}")
    return args


def checks(args: argparse.Namespace) -> Iterator[Check]:
    """All checks, as they are made."""
    yield python()
    yield packages(metadata.requires("imagestrata") or [])
    yield java_runtime()
    yield disk(shutil.disk_usage(Environment().root).free)
    yield memory(_available_memory())
    yield clock("the year", time.time(), None)
    ours = {PORT: _pids_of_cassandra(), S3_PORT: [S3(S3_DATA).pid], _SERVICE_PORT: []}
    for number, pids in ours.items():
        yield port(number, [pid for pid in pids if pid])
    yield from cassandra(args.hosts, args.port)
    yield from web("S3", args.s3_endpoint, f"http://127.0.0.1:{S3_PORT}", "/", "imagestrata s3-up")
    yield from web("dataset service", args.url, f"http://127.0.0.1:{_SERVICE_PORT}", "/health", "imagestrata serve")


def python() -> Check:
    """Python's version."""
    found = platform.python_version()
    if found.startswith("3.11."):
        return Check("Python", "ok", found)
    return Check("Python", "error", found, "install Python 3.11, then 'make setup'")


def packages(wanted: Sequence[str]) -> Check:
    """The versions of the libraries that are installed, and of those that every installation has."""
    bad, count = [], 0
    for line in sorted(set(wanted)):
        parts = re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*(>=|==)?\s*([\w.]*)(.*)", line)
        if parts is None or parts[1] == "imagestrata":
            continue
        name, sign, version, extra = parts.groups()
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            bad += [] if "extra" in extra else [f"{name} is missing"]
            continue
        count += 1
        if (sign == "==" and found.partition("+")[0] != version) or (sign == ">=" and _key(found) < _key(version)):
            bad.append(f"{name} {found} instead of {sign}{version}")
    if bad:
        return Check("packages", "error", "; ".join(bad), "run 'make setup', or pip install --upgrade imagestrata")
    return Check("packages", "ok", f"{count} libraries have the versions that this package wants")


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def java_runtime() -> Check:
    """Java's version and age."""
    try:
        runtime = java.find(Environment().site_packages)
    except DevstackError as error:
        return Check("Java", "error", str(error), "run 'make setup', or set JAVA_HOME to a Java 17")
    old = runtime.warning(date.today())
    return Check("Java", "warning" if old else "ok", runtime.describe(), old or "")


def disk(free: float) -> Check:
    """Room for data."""
    state: State = "ok" if free > 10 * _GB else "warning" if free > _GB else "error"
    return Check("disk", state, f"{free / _GB:.1f} GB free", "" if state == "ok" else "free 10 GB or more")


def memory(available: float) -> Check:
    """Memory for Cassandra (its heap and as much again) and Spark."""
    state: State = "ok" if available > 3 * _GB else "warning"
    advice = "" if state == "ok" else "end other programs: Cassandra and Spark need 3 GB"
    return Check("memory", state, f"{available / _GB:.1f} GB available", advice)


def _available_memory() -> float:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"), re.MULTILINE)
    return int(found[1]) * 1024.0 if found else 0.0


def clock(whose: str, here: float, there: float | None) -> Check:
    """This machine's clock, by itself or beside a server's: versions of rows and S3's signatures depend on it."""
    name = "clock" if there is None else f"clock beside {whose}"
    shown = datetime.fromtimestamp(here, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if there is None:
        is_absurd = not 2025 <= datetime.fromtimestamp(here, UTC).year <= 2100
        return Check(name, "error" if is_absurd else "ok", shown, "set the clock, and keep it with NTP" * is_absurd)
    off = abs(here - there)
    state: State = "ok" if off <= _LATE_SECONDS else "warning" if off < _REFUSED_SECONDS else "error"
    return Check(name, state, f"{off:.0f} s apart", "" if state == "ok" else "keep both clocks with NTP")


def _pids_of_cassandra() -> list[int | None]:
    server = existing(DATA)
    return [node.pid for node in server.nodes] if server else []


def port(number: int, ours: Sequence[int]) -> Check:
    """A usual port: free, or held by a server of ours."""
    if not ports.is_held(number, "127.0.0.1"):
        return Check(f"port {number}", "ok", "free")
    if any(ports.holds(pid, number, "127.0.0.1") for pid in ours):
        return Check(f"port {number}", "ok", "held by our server")
    return Check(
        f"port {number}", "warning", f"held by {ports.holder(number, '127.0.0.1')}", "say --port to start there"
    )


def cassandra(hosts: str | None, port_asked: int | None) -> Iterator[Check]:
    """Whether Cassandra answers, and its clock."""
    names, number = (hosts or "127.0.0.1").split(","), port_asked or PORT
    place = f"{','.join(names)}:{number}"
    try:
        with connect(names, number, timeout_s=1) as session:
            row = session.execute("SELECT release_version, toUnixTimestamp(now()) FROM system.local").one()
            yield Check("Cassandra", "ok", f"{row[0]} at {place}")
            yield clock("Cassandra", time.time(), row[1] / 1000)
    except DevstackError as error:
        if "Authentication" in str(error):
            yield Check("Cassandra", "ok", f"asks for user and password at {place}")
            return
        is_named = hosts is not None or port_asked is not None
        yield Check(
            "Cassandra", "error" if is_named else "warning", f"no answer at {place}", "start it: imagestrata up"
        )


def web(name: str, asked: str | None, usual: str, path: str, start: str) -> Iterator[Check]:
    """Whether a server answers over HTTP, whatever it answers, and its clock."""
    address = (asked or usual).rstrip("/")
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=5)
        connection.request("GET", parts.path + path)
        answer = connection.getresponse()
        told = answer.getheader("Date")
        connection.close()
    except (OSError, ValueError, http.client.HTTPException) as error:
        state: State = "error" if asked else "warning"
        yield Check(name, state, f"no answer at {address}: {error}", f"start it: {start}, or name another")
        return
    yield Check(name, "ok", f"answers at {address}")
    if told:
        yield clock(name, time.time(), parsedate_to_datetime(told).timestamp())


def main(argv: Sequence[str] | None = None) -> int:
    """Make all checks and print them; see the module's text."""
    args = parse_args(argv)
    logging.getLogger("cassandra").setLevel(logging.CRITICAL)  # what matters is in our own line
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
    return 1 if any(check.state == "error" for check in made) else 0
