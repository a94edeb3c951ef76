"""The executors, driver or database of a job are killed with -9: the tables end as without a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.errors import EtlError
from etl.ingest.plan import IngestPlan
from etl.sources.plan import SourcePlan
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import TableName
from tests.support.pictures import texture
from tests.support.trees import plant, tables_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
IMAGES = 400
STALE = 20
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """A separate Cassandra, because it is killed."""
    with Cassandra(tmp_path_factory.mktemp("killed")) as server:
        yield server


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of about 190 kB each, which take some time."""
    files = {f"train/{'abcd'[i % 4]}/{i}.png": texture(i, width=250, height=250) for i in range(IMAGES)}
    files["train/a/bad.png"] = b"bad"
    return plant(tmp_path_factory.mktemp("tree"), files)


def plan(images: Path, keyspace: str) -> IngestPlan:
    source = SourcePlan(address=str(images), splits=("train",))
    tables = {"data_table": TableName(keyspace, "data"), "metadata_table": TableName(keyspace, "metadata")}
    return IngestPlan(source=source, dataset="drill", **tables)  # type: ignore[arg-type]


def start(images: Path, keyspace: str, server: Cassandra, *options: str) -> "subprocess.Popen[str]":
    """An ingest, as users run it."""
    return submit("ingest", keyspace, server, str(images), "--split-subdir=train", "--dataset=drill", *options)


def submit(name: str, keyspace: str, server: Cassandra, *options: str) -> "subprocess.Popen[str]":
    """The job as users run it, on two executors that are separate processes."""
    command = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local-cluster[2,1,1024]"]
    command += ["--conf", f"spark.cassandra.connection.port={server.port}", "--conf", "spark.ui.enabled=false"]
    command += [str(ROOT / "jobs" / f"{name}.py"), *options]
    command += [f"--data-table={keyspace}.data", f"--metadata-table={keyspace}.metadata"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        command, cwd="/", env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def await_rows(
    job: "subprocess.Popen[str]", server: Cassandra, keyspace: str, *, count: int, table: str = "metadata"
) -> None:
    """Poll until a table has this many rows."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and job.poll() is None:
        try:
            with Control(Cluster(tuple(server.hosts), server.port)) as control:
                while job.poll() is None and time.monotonic() < deadline:
                    (row,) = control.execute(f"SELECT count(*) AS rows FROM {keyspace}.{table}")
                    if row.rows >= count:
                        return
                    time.sleep(0.02)  # the polling interval
        except EtlError:  # the table does not exist yet
            time.sleep(0.1)
    raise AssertionError(f"{count} rows never came: {job.communicate(timeout=10)[0][-4000:]}")


def processes_of(job: "subprocess.Popen[str]", name: str) -> list[int]:
    """Processes of the job's session whose command line has this text."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
            if session == job.pid and name in (folder / "cmdline").read_text():
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return found


def end(job: "subprocess.Popen[str]") -> str:
    return job.communicate(timeout=PATIENCE_S)[0]


def tables(server: Cassandra, images: Path, keyspace: str) -> list[list[dict[str, Any]]]:
    with Control(Cluster(tuple(server.hosts), server.port)) as control:
        return tables_of(control, plan(images, keyspace))


@pytest.fixture(scope="module")
def undisturbed(server: Cassandra, images: Path) -> list[list[dict[str, Any]]]:
    """The tables of an ingest without a kill."""
    job = start(images, "whole", server)
    said = end(job)
    assert job.returncode == 0, said[-4000:]
    found = tables(server, images, "whole")
    assert len(found[1]) == IMAGES
    return found


@pytest.mark.parametrize("part", [0.05, 0.5])
def test_an_ingest_survives_a_killed_executor(
    server: Cassandra, images: Path, undisturbed: list[list[dict[str, Any]]], part: float
) -> None:
    keyspace = f"executor_{int(part * 100)}"
    job = start(images, keyspace, server)
    await_rows(job, server, keyspace, count=int(part * IMAGES))
    os.kill(processes_of(job, "CoarseGrainedExecutorBackend")[0], signal.SIGKILL)
    said = end(job)
    assert job.returncode == 0, said[-4000:]
    assert f"ingested {IMAGES} images" in said
    assert tables(server, images, keyspace) == undisturbed


@pytest.mark.parametrize(("part", "options"), [(0.01, []), (0.6, ["--resume"])])
def test_an_ingest_can_be_rerun_after_its_driver_is_killed(
    server: Cassandra, images: Path, undisturbed: list[list[dict[str, Any]]], part: float, options: list[str]
) -> None:
    keyspace = f"driver_{int(part * 100)}"
    job = start(images, keyspace, server)
    await_rows(job, server, keyspace, count=int(part * IMAGES))
    os.killpg(job.pid, signal.SIGKILL)
    end(job)
    again = start(images, keyspace, server, *options)
    said = end(again)
    assert again.returncode == 0, said[-4000:]
    assert tables(server, images, keyspace) == undisturbed


@pytest.mark.parametrize(("part", "options"), [(0.1, ["--resume"]), (0.7, [])])
def test_an_ingest_can_be_rerun_after_the_database_is_killed(
    server: Cassandra, images: Path, undisturbed: list[list[dict[str, Any]]], part: float, options: list[str]
) -> None:
    keyspace = f"database_{int(part * 100)}"
    job = start(images, keyspace, server)
    await_rows(job, server, keyspace, count=int(part * IMAGES))
    server.kill()
    said = end(job)
    server.start(tied=True)
    assert job.returncode == 1, said[-4000:]
    ours = [line for line in said.splitlines() if line.startswith("ingest.py: ")]
    assert len(ours) == 1, said[-4000:]
    assert "Cassandra" in ours[0] or "Wanted to write" in ours[0]
    again = start(images, keyspace, server, *options)
    said = end(again)
    assert again.returncode == 0, said[-4000:]
    assert tables(server, images, keyspace) == undisturbed


@pytest.mark.parametrize("part", [0.3, 1.0])
def test_the_same_deletion_again_ends_one_whose_driver_was_killed(
    server: Cassandra, images: Path, undisturbed: list[list[dict[str, Any]]], part: float
) -> None:
    keyspace, deleted = f"deletion_{int(part * 100)}", IMAGES // 4
    said = end(start(images, keyspace, server))
    assert f"ingested {IMAGES} images" in said
    delete = ("--where", "path LIKE 'a/%'", "--count", str(deleted), "--reason", "drill")
    job = submit("delete", keyspace, server, *delete)
    await_rows(job, server, keyspace, count=int(part * deleted), table="metadata_history")
    os.killpg(job.pid, signal.SIGKILL)
    end(job)
    again = submit("delete", keyspace, server, *delete)
    said = end(again)
    assert again.returncode == 0, said[-4000:]
    data, metadata = ({row["id"]: row for row in rows} for rows in tables(server, images, keyspace)[:2])
    gone = {row["id"] for row in undisturbed[1] if row["path"].startswith("a/")}
    assert len(gone) == deleted
    assert metadata == {row["id"]: row for row in undisturbed[1] if row["id"] not in gone}
    assert {one for one, row in data.items() if row["data"] is None} == gone
    assert {one: row for one, row in data.items() if one not in gone} == {
        row["id"]: row for row in undisturbed[0] if row["id"] not in gone
    }


@pytest.fixture(scope="module")
def changed(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two states of a tree: first the even images and some that are gone later, then all images."""
    place = tmp_path_factory.mktemp("changed")
    for name, numbers in (("first", range(0, IMAGES, 2)), ("then", range(IMAGES))):
        for number in numbers:
            path = f"train/{'abcd'[number % 4]}/{number}.png"
            (place / name / path).parent.mkdir(parents=True, exist_ok=True)
            (place / name / path).hardlink_to(images / path)
    plant(place / "first", {f"train/a/gone {number}.png": texture(number) for number in range(STALE)})
    return place


def resumed(changed: Path, keyspace: str, server: Cassandra) -> "subprocess.Popen[str]":
    """An ingest of all images, after one of some."""
    tree = changed / "tree"
    if tree.exists():
        tree.rename(changed / "then")
    (changed / "first").rename(tree)
    said = end(start(tree, keyspace, server))
    assert f"ingested {IMAGES // 2 + STALE} images" in said, said[-4000:]
    tree.rename(changed / "first")
    (changed / "then").rename(tree)
    return start(tree, keyspace, server, "--resume", "--prune", f"--prune-count={STALE}", "--json")


def counts(said: str) -> dict[str, Any]:
    """What a report counts."""
    report = json.loads(said.splitlines()[-1])
    return {name: report[name] for name in ("images", "already_there", "bytes", "fingerprint", "quarantined", "stale")}


def test_a_resumed_ingest_that_prunes_counts_and_removes_the_same_if_executors_are_killed(
    server: Cassandra, changed: Path
) -> None:
    job = resumed(changed, "calm", server)
    said = end(job)
    assert job.returncode == 0, said[-4000:]
    wanted = counts(said)
    assert (wanted["images"], wanted["already_there"], wanted["stale"]["removed"]) == (IMAGES // 2, IMAGES // 2, STALE)
    job = resumed(changed, "disturbed", server)
    for part in (0.6, 0.9):
        await_rows(job, server, "disturbed", count=int(part * IMAGES))
        os.kill(processes_of(job, "CoarseGrainedExecutorBackend")[0], signal.SIGKILL)
    said = end(job)
    assert job.returncode == 0, said[-4000:]
    assert counts(said) == wanted
    assert tables(server, changed / "tree", "disturbed") == tables(server, changed / "tree", "calm")
