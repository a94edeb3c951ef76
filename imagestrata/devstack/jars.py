"""Jars of Cassandra and of the Spark Cassandra connector: locked, downloaded once per machine, shared by all clones.

`jars.lock` lists every file with its sha256. The Ivy in pyspark downloads them, several at a time, without resolving
anything. They are stored in `$XDG_CACHE_HOME/imagestrata/jars/<hash of the list>/<set>/`. To use a mirror, set the
environment variable IMAGESTRATA_MAVEN_REPOSITORY; the default is Maven Central.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
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
# Ivy spends its time waiting for answers, so several run at once. Each has its own cache.
PROCESSES = 6
TIMEOUT_S = 900.0
ATTEMPTS = 3


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


def fetch(java_home: Path, ivy: Path, current: Step) -> Path:
    """Download and verify every locked file, unless the cache has them; returns their folder."""
    target = folder()
    jars = read_lock()
    if target.is_dir():
        current.ready = True
        current.detail = f"{target}  {len(jars)} files"
        return target
    with locked(our_cache("jars.pid"), timeout_s=TIMEOUT_S, what="jars"):
        if not target.is_dir():
            _fetch_locked(java_home, ivy, jars, target, current)
    current.detail = f"{target}  {len(jars)} files"
    return target


def _fetch_locked(java_home: Path, ivy: Path, jars: list[Jar], target: Path, current: Step) -> None:
    # Named after the list, so that the next run uses what an interrupted one downloaded.
    work = our_cache("ivy", target.name)
    unique = sorted({jar.coordinates: jar for jar in jars}.values(), key=lambda jar: jar.coordinates)
    arrived = work / "arrived"
    for attempt in range(ATTEMPTS):
        missing = [jar for jar in unique if not _is_right(arrived / jar.file_name, jar.sha256)]
        if not missing:
            break
        errors = _run_ivy(java_home, ivy, missing, len(unique), work, current)
        if errors and attempt == ATTEMPTS - 1:
            raise SetupError(f"wanted {len(missing)} jars from the Maven repository. Found: {errors[0]}")
    wrong = [jar for jar in unique if not _is_right(arrived / jar.file_name, jar.sha256)]
    if wrong:
        raise SetupError(
            f"wanted {wrong[0].file_name} with sha256 {wrong[0].sha256}. "
            f"Found: {_sha256(arrived / wrong[0].file_name)}. Remove {work} and run this again."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        for jar in jars:
            (staging / jar.group).mkdir(exist_ok=True)
            shutil.copyfile(arrived / jar.file_name, staging / jar.group / jar.file_name)
        staging.chmod(0o755)
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    shutil.rmtree(work, ignore_errors=True)


def _run_ivy(java_home: Path, ivy: Path, missing: list[Jar], total: int, work: Path, current: Step) -> list[str]:
    """Run several Ivys over the missing files; returns their errors."""
    work.mkdir(parents=True, exist_ok=True)
    settings = work / "settings.xml"
    settings.write_text(_settings(poms=False), encoding="utf-8")
    options = java.network_options(work / "trusted.jks")
    errors: list[str] = []
    lock = threading.Lock()
    have = total - len(missing)

    def watch(process: "subprocess.Popen[str]") -> None:
        nonlocal have
        assert process.stdout is not None
        for line in process.stdout:
            with lock:
                if "[SUCCESSFUL" in line:
                    have += 1
                    current.progress(f"{have} of {total} files")
                elif any(word in line for word in ("not found", "FAILED", "Exception", "ERROR", "UnknownHost")):
                    errors.append(line.strip())

    processes = []
    watchers = []
    try:
        for number in range(min(PROCESSES, len(missing))):
            module = work / f"ivy-{number}.xml"
            module.write_text(_module(missing[number::PROCESSES]), encoding="utf-8")
            command = [f"{java_home}/bin/java", "-Xmx128m", "-XX:TieredStopAtLevel=1", *options, "-jar", str(ivy)]
            command += ["-settings", str(settings), "-ivy", str(module), "-cache", str(work / f"cache-{number}")]
            command += ["-confs", "default", "-retrieve", f"{work}/arrived/[artifact]-[revision](-[classifier]).[ext]"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            processes.append(process)
            watchers.append(threading.Thread(target=watch, args=(process,), daemon=True))
            watchers[-1].start()
        for process in processes:
            if process.wait(timeout=TIMEOUT_S) != 0:
                errors.append(f"Ivy ended with {process.returncode}")
    except subprocess.TimeoutExpired:
        errors.insert(0, f"timed out after {TIMEOUT_S:.0f} s")
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        for process, watcher in zip(processes, watchers, strict=True):
            watcher.join(timeout=5)
            if process.stdout is not None:
                process.stdout.close()
    return errors


def _settings(*, poms: bool) -> str:
    """Ivy's settings: one Maven repository, by default Ivy's own. Checksums are off, since the lock has digests."""
    mirror = os.environ.get("IMAGESTRATA_MAVEN_REPOSITORY")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    use = "true" if poms else "false"
    return (
        '<ivysettings><settings defaultResolver="central"/><resolvers>'
        f'<ibiblio name="central" m2compatible="true" usepoms="{use}" useMavenMetadata="false" checksums=""{root}/>'
        "</resolvers></ivysettings>\n"
    )


def _module(jars: list[Jar]) -> str:
    modules: dict[tuple[str, str, str], list[str]] = {}
    for jar in jars:
        modules.setdefault((jar.organisation, jar.name, jar.version), []).append(jar.classifier)
    lines = [
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
        '<info organisation="imagestrata" module="jars"/><dependencies>',
    ]
    for (organisation, name, version), classifiers in modules.items():
        lines.append(
            f"<dependency org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(version)} "
            'transitive="false" conf="default">'
        )
        for classifier in classifiers:
            extra = f" m:classifier={quoteattr(classifier)}" if classifier else ""
            lines.append(f'<artifact name={quoteattr(name)} type="jar" ext="jar"{extra}/>')
        lines.append("</dependency>")
    return "\n".join([*lines, "</dependencies></ivy-module>\n"])


def _sha256(path: Path) -> str:
    if not path.is_file():
        return "no such file"
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _is_right(path: Path, sha256: str) -> bool:
    return _sha256(path) == sha256


def resolve(java_home: Path, ivy: Path) -> str:
    """Resolve the roots and their dependencies; returns the text of a new lock. Takes minutes; run it by hand."""
    lines = ["# sha256, set, Maven coordinates. Written by `python -m imagestrata.devstack.jars`."]
    with tempfile.TemporaryDirectory(prefix="imagestrata-jars-") as scratch:
        work = Path(scratch)
        (work / "settings.xml").write_text(_settings(poms=True), encoding="utf-8")
        options = java.network_options(work / "trusted.jks")
        for group, root in ROOTS.items():
            command = [f"{java_home}/bin/java", *options, "-jar", str(ivy), "-cache", f"{work}/cache-{group}"]
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
