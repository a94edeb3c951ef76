"""Jars of Cassandra and of the Spark Cassandra connector: locked, downloaded once per machine, shared by all clones.

`jars.lock` lists every file with its sha256. They are stored in `$XDG_CACHE_HOME/imagestrata/jars/<hash of the
list>/<set>/`. To use a mirror, set the environment variable IMAGESTRATA_MAVEN_REPOSITORY; the default is Maven Central.
"""

import argparse
import hashlib
import http.client
import http.server
import os
import re
import shutil
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import threading
import urllib.request
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from formats.command_line import command
from formats.user_cache import our_cache
from imagestrata.devstack import SetupError, java
from imagestrata.devstack.steps import Step, locked, step

LOCK_FILE = Path(__file__).with_name("jars.lock")
# The sets and what each is resolved from. Spark 4 runs on Scala 2.13, Spark 3.5 on Scala 2.12.
ROOTS = {
    "cassandra": "org.apache.cassandra:cassandra-all:5.0.9",
    "connector_2.12": "com.datastax.spark:spark-cassandra-connector_2.12:3.5.1",
    "connector_2.13": "com.datastax.spark:spark-cassandra-connector_2.13:3.5.1",
}
# Left out of the connector's sets, because Spark has them itself.
BROUGHT_BY_SPARK = (
    "scala-library",
    "scala-reflect",
    "scala-collection-compat_2.12",
    "scala-parallel-collections_2.13",
    "commons-lang3",
    "slf4j-api",
    "paranamer",
    "metrics-core",
)
# The certificates of a system, for a Python that looks for them in another place.
PEM_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
TOGETHER = 6  # downloads: most of their time is waiting for answers
ATTEMPTS = 3
TIMEOUT_S = 900.0
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class Jar:
    """A locked file: its set, Maven coordinates and sha256."""

    group: str
    organisation: str
    name: str
    version: str
    classifier: str
    sha256: str

    @property
    def coordinates(self) -> str:
        tail = f":{self.classifier}" if self.classifier else ""
        return f"{self.organisation}:{self.name}:{self.version}{tail}"

    @property
    def file_name(self) -> str:
        tail = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.version}{tail}.jar"

    @property
    def path(self) -> str:
        """Its place in a repository of Maven."""
        return f"{self.organisation.replace('.', '/')}/{self.name}/{self.version}/{self.file_name}"


def read_lock() -> list[Jar]:
    """The locked files, in the order of the list."""
    jars = []
    for line in LOCK_FILE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            sha256, group, coordinates = line.split()
            organisation, name, version, *classifier = coordinates.split(":")
            jars.append(Jar(group, organisation, name, version, "".join(classifier), sha256))
    return jars


def folder() -> Path:
    """The folder of the locked files, after `fetch`."""
    return our_cache("jars", hashlib.sha256(LOCK_FILE.read_bytes()).hexdigest()[:16])


def paths(group: str) -> list[Path]:
    """The files of one set. Raises SetupError if some are missing."""
    files = [folder() / jar.group / jar.file_name for jar in read_lock() if jar.group == group]
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise SetupError(
            f"wanted {len(files)} jars of {group} in {folder() / group}. Found: {len(missing)} missing. "
            "Run 'make setup'."
        )
    return files


def connector(site_packages: Path) -> list[Path]:
    """The connector's files for the installed pyspark. Raises SetupError as `paths` does."""
    libraries = sorted((site_packages / "pyspark" / "jars").glob("scala-library-*.jar"))
    version = libraries[-1].stem.removeprefix("scala-library-") if libraries else "none"
    group = f"connector_{'.'.join(version.split('.')[:2])}"
    if group not in ROOTS:
        raise SetupError(
            f"wanted pyspark for Scala 2.12 or 2.13 in {site_packages}. Found: Scala {version}. Run 'make setup'."
        )
    return paths(group)


def fetch(site_packages: Path, current: Step) -> Path:
    """Download and verify every locked file, unless the cache has them; returns their folder. ``site_packages`` has
    pyspark, whose Ivy knows Maven Central. Raises `SetupError`.
    """
    target = folder()
    jars = read_lock()
    current.ready = target.is_dir()
    if not current.ready:
        with locked(our_cache("jars.pid"), timeout_s=TIMEOUT_S, what="jars"):
            if not target.is_dir():
                _download(jars, repository(ivy_jar(site_packages)), target, current)
    current.detail = f"{target}  {len(jars)} files"
    return target


def repository(ivy: Path) -> str:
    """The address of the repository: that of the mirror, else Ivy's default, which is Maven Central."""
    if mirror := os.environ.get("IMAGESTRATA_MAVEN_REPOSITORY"):
        return f"{mirror.rstrip('/')}/"
    with zipfile.ZipFile(ivy) as archive:
        resolver = archive.read("org/apache/ivy/plugins/resolver/IBiblioResolver.class")
    if (found := re.search(rb"https://[\w./-]+", resolver)) is None:
        raise SetupError(f"wanted a repository in {ivy}. Found: none. Set IMAGESTRATA_MAVEN_REPOSITORY to one.")
    return found[0].decode()


def _download(jars: list[Jar], address: str, target: Path, current: Step) -> None:
    # Named after the list, so that the next run uses what an interrupted one downloaded.
    staging = target.with_name(f".new-{target.name}")
    missing = [jar for jar in jars if _sha256(staging / jar.group / jar.file_name) != jar.sha256]
    pool, stopped = ThreadPoolExecutor(TOGETHER), threading.Event()
    try:
        arriving = [pool.submit(_save, jar, address, staging / jar.group, stopped) for jar in missing]
        for count, one in enumerate(as_completed(arriving), len(jars) - len(missing) + 1):
            one.result()
            current.progress(f"{count} of {len(jars)} files")
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)
    staging.rename(target)


def _save(jar: Jar, address: str, place: Path, stopped: threading.Event) -> None:
    """Download a file, unless stopped, and verify it. Raises `SetupError`."""
    place.mkdir(parents=True, exist_ok=True)
    path, wrong = place / jar.file_name, ""
    for _ in range(ATTEMPTS):
        try:
            with answer(address + jar.path) as body, path.open("wb") as file:
                while data := body.read(1 << 16):
                    if stopped.is_set():
                        return
                    file.write(data)
        except (OSError, http.client.HTTPException) as error:
            wrong = f"wanted {jar.file_name} from {address}. Found: {error}"
            continue
        if (found := _sha256(path)) == jar.sha256:
            return
        wrong = f"wanted {jar.file_name} with sha256 {jar.sha256}. Found: {found}. Run this again."
    raise SetupError(wrong)


def answer(address: str, *, method: str = "GET") -> Any:
    """The response of a repository, by the proxies and certificates that Python uses. Raises OSError."""
    request = urllib.request.Request(address, method=method)
    return urllib.request.urlopen(request, timeout=_ANSWER_SECONDS, context=_trusted())


@cache  # reading the certificates takes a tenth of a second
def _trusted() -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ssl.get_default_verify_paths().cafile is None and (known := list(filter(os.path.isfile, PEM_FILES))):
        context.load_verify_locations(known[0])
    return context


def _sha256(path: Path) -> str:
    if not path.is_file():
        return "no such file"
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@contextmanager
def _relayed(address: str) -> Iterator[str]:
    """The address of a relay to a repository, for Java, which does not know the proxies and certificates of Python."""

    class Relay(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                with answer(address + self.path.lstrip("/"), method=self.command) as found:
                    self.send_response(200)
                    self.send_header("Content-Length", found.headers["Content-Length"])
                    self.end_headers()
                    shutil.copyfileobj(found, self.wfile)
            except OSError as error:
                self.send_error(404, explain=str(error))

        do_HEAD = do_GET

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Relay) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def resolve(java_home: Path, ivy: Path) -> str:
    """Resolve the roots and their dependencies; returns the text of a new lock. Takes minutes; run it by hand."""
    lines = ["# sha256, set, Maven coordinates. Written by `python -m imagestrata.devstack.jars`."]
    with tempfile.TemporaryDirectory(prefix="imagestrata-jars-") as scratch, _relayed(repository(ivy)) as address:
        work = Path(scratch)
        # Checksums are off, since the lock has digests.
        (work / "settings.xml").write_text(
            '<ivysettings><settings defaultResolver="central"/><resolvers>'
            '<ibiblio name="central" m2compatible="true" useMavenMetadata="false" checksums="" '
            f"root={quoteattr(address)}/></resolvers></ivysettings>\n",
            encoding="utf-8",
        )
        for group, root in ROOTS.items():
            command = [f"{java_home}/bin/java", "-jar", str(ivy), "-cache", f"{work}/cache-{group}"]
            command += ["-settings", str(work / "settings.xml"), "-dependency", *root.split(":"), "-confs", "default"]
            # Type `jar` alone would leave out what Maven calls bundles.
            command += ["-types", "jar", "bundle", "-retrieve"]
            command += [f"{work}/{group}/[organisation]:[artifact]:[revision](:[classifier]).[ext]"]
            subprocess.run(command, check=True, timeout=TIMEOUT_S, stdout=sys.stderr)
            found = sorted((work / group).iterdir())
            left_out = () if group == "cassandra" else BROUGHT_BY_SPARK
            wanted = [file for file in found if file.name.split(":")[1] not in left_out]
            lines += [f"{_sha256(file)}  {group}  {file.name.removesuffix('.jar')}" for file in wanted]
    return "\n".join(lines) + "\n"


@command("error")
def main() -> int:
    """Write a new jars.lock from the roots."""
    argparse.ArgumentParser(description="Resolve the jars again and write imagestrata/devstack/jars.lock.").parse_args()
    site_packages = Path(sysconfig.get_path("purelib"))
    ivy = ivy_jar(site_packages)
    with step("jars.lock") as current:
        LOCK_FILE.write_text(resolve(java.find(site_packages).home, ivy), encoding="utf-8")
        current.detail = f"{len(read_lock())} files"
    return 0


def ivy_jar(site_packages: Path) -> Path:
    """The Ivy in pyspark. Raises SetupError if pyspark is not installed."""
    found = sorted((site_packages / "pyspark" / "jars").glob("ivy-*.jar"))
    if not found:
        raise SetupError(f"wanted pyspark with its Ivy in {site_packages}. Found: none. Run 'make setup'.")
    return found[-1]


if __name__ == "__main__":
    sys.exit(main())
