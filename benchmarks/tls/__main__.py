"""How fast images come from Cassandra over TLS, near and far away, with each client of the loader; and how fast an
ingest writes over TLS.

    make bench-tls

The fixture is the same as in `benchmarks.loader`: an embedded Cassandra on the same cores, images of 110 kB, and a
proxy at 0 and at 150 ms. The server's certificate is verified. Runs alternate, and both runs of a ratio are in one
process tree. The notes have the CPU that an image costs the client, the server and the proxy, and the number of busy
cores. If nearly all cores are busy, CPU limits the rate, not the distance. QUICK=1 reads less.
"""

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from benchmarks.harness.command import Parts, run
from benchmarks.harness.figures import Figure, Figures
from benchmarks.harness.loader_fixture import BLOBS, FULL, QUICK, LoaderFixture, loader_fixture
from benchmarks.harness.pairs import in_turn
from benchmarks.harness.pictures import require_room
from benchmarks.harness.results import Row, tell
from benchmarks.harness.runs import Far, Run, describe
from benchmarks.tls.jobs import OVER_TLS, PLAIN, rates_of_ingests
from imagestrata.devstack import SetupError

CLIENTS = ("cassandra-driver", "acsylla")
RTTS = (0.0, 0.15)
_RAMP = "an epoch that is long beside its ramp"
FIGURES = Figures(
    {
        1: Figure("cassandra-driver over TLS, in order, steady: 150 ms over 0 ms", ">=", 0.90, needs=_RAMP),
        2: Figure("acsylla over TLS, in order, steady: 150 ms over 0 ms", ">=", 0.90, needs=_RAMP),
        3: Figure("images/s over TLS, 0 ms: cassandra-driver over acsylla", ">=", 0.50),
        4: Figure("images/s over TLS, 150 ms: cassandra-driver over acsylla", ">=", 0.50),
        5: Figure("client CPU per image over TLS, 150 ms: cassandra-driver", "<=", 1.0, "ms"),
        6: Figure("client CPU per image over TLS, 150 ms: acsylla", "<=", 0.3, "ms"),
        7: Figure("ingest, images/s: over TLS over plain", ">=", 0.80),
    }
)
_ROWS = 10_000
_INGESTED, _INGESTED_QUICK = 3_000, 600  # pictures of each ingest
_DISK_BYTES = 4_000_000_000

Runs = Mapping[tuple[str, float], Sequence[Run]]


def make_certificate(folder: Path) -> tuple[Path, dict[str, object]]:
    """Make a certificate for 127.0.0.1, its authority, and the lines of cassandra.yaml for a node that uses it.

    The node also accepts plain CQL, for the fixture. Raises `SetupError` without the program openssl.
    """
    if (openssl := shutil.which("openssl")) is None:
        raise SetupError("wanted the program openssl for a certificate. Found: none on PATH. Install it.")
    certificate, key = folder / "server.pem", folder / "server.key"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=bench"]
    # Python accepts no other authorities from 3.13 on.
    command += ["-addext", "keyUsage=critical,keyCertSign,digitalSignature"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    text = certificate.read_text(encoding="ascii")
    pem = {"private_key": key.read_text(encoding="ascii") + text, "trusted_certificates": text}
    factory = {"class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory", "parameters": pem}
    options = {"enabled": True, "optional": True, "ssl_context_factory": factory}
    return certificate, {"client_encryption_options": options}


def fetch(fixture: LoaderFixture, certificate: Path, client: str, rtt: float, rows: int) -> Run:
    """Run one client."""
    found = fixture.run("harness.consumers:fetch", BLOBS, rows, far=Far(rtt), client=client, ca=str(certificate))
    connections = found.answer["stats"]["connections"]
    tell(f"{client}, {1e3 * rtt:.0f} ms, {connections} connections: {found.rate:,.0f} images/s")
    return found


def rows_of(runs: Runs, *, void: str) -> dict[int, Row]:
    """The rows for runs by client and round trip."""

    def ratio(number: int, ours: tuple[str, float], other: tuple[str, float]) -> Row:
        note = "; ".join(f"{client}, {1e3 * rtt:.0f} ms: {said(runs[client, rtt])}" for client, rtt in (ours, other))
        return FIGURES.ratio_row(number, runs[ours], runs[other], by=attrgetter("rate"), note=note, void=void)

    def cost(number: int, client: str) -> Row:
        found = runs[client, RTTS[1]]
        value = statistics.median(run.course.cpu_ms for run in found)
        return FIGURES.value_row(number, value, note=said(found), runs=len(found))

    driver, acsylla = CLIENTS
    near, far = RTTS
    return {
        1: ratio(1, (driver, far), (driver, near)),
        2: ratio(2, (acsylla, far), (acsylla, near)),
        3: ratio(3, (driver, near), (acsylla, near)),
        4: ratio(4, (driver, far), (acsylla, far)),
        5: cost(5, driver),
        6: cost(6, acsylla),
    }


def said(runs: Sequence[Run]) -> str:
    """Medians of some runs, for a note."""
    connections = {run.answer["stats"]["connections"] for run in runs}
    busy = statistics.median(run.rate * (run.course.cpu_ms + run.server_ms + run.proxy_ms) / 1e3 for run in runs)
    return f"{describe(runs)}, {busy:.1f} cores busy of {os.cpu_count()}, {max(connections)} connections"


def rows_of_fixture(fixture: LoaderFixture, certificate: Path) -> dict[int, Row]:
    """Alternating runs of each client at each round trip."""
    sizes = fixture.sizes
    fixture.proxy.look()
    fixture.write_all(BLOBS)
    for client in CLIENTS * 4:
        fetch(fixture, certificate, client, 0.0, sizes.warm)
    once = partial(fetch, fixture, certificate)
    contenders = {(one, rtt): partial(once, one, rtt, sizes.fetched) for one in CLIENTS for rtt in RTTS}
    runs = in_turn(sizes.many_pairs, contenders)
    fixture.proxy.look()
    return rows_of(runs, void=fixture.proxy.void(*runs.values()))


def rows_of_jobs(folder: Path, fixture: LoaderFixture, certificate: Path, *, is_quick: bool) -> dict[int, Row]:
    """Alternating ingests with TLS and without."""
    pictures = _INGESTED_QUICK if is_quick else _INGESTED
    pairs = fixture.sizes.many_pairs
    rates = rates_of_ingests(folder, fixture.server, certificate, pictures=pictures, pairs=pairs)
    medians = {kind: statistics.median(found) for kind, found in rates.items()}
    note = f"{pictures:,} pictures, " + ", ".join(f"{kind} {found:,.0f} images/s" for kind, found in medians.items())
    return {7: FIGURES.ratio_row(7, rates[OVER_TLS], rates[PLAIN], note=note)}


def measure(parts: Parts, folder: Path) -> None:
    """Measure all rows with one fixture."""
    require_room(folder, bytes=_DISK_BYTES, files=10_000)
    sizes = QUICK if parts.is_quick else replace(FULL, fetched=_ROWS, warm=_ROWS // 4)
    certificate, yaml = make_certificate(folder)
    with loader_fixture(folder, sizes, yaml=yaml) as fixture:
        parts.measure_whole(range(1, 7), partial(rows_of_fixture, fixture, certificate))
        parts.measure_whole([7], partial(rows_of_jobs, folder, fixture, certificate, is_quick=parts.is_quick))


if __name__ == "__main__":
    sys.exit(run("tls", __doc__, FIGURES, measure))
