"""The steps of the demo: an embedded Cassandra, pictures, an ingest, a split, two epochs through DALI, a report."""

import io
import json
import os
import shlex
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import loader
from formats.command_line import INTERRUPTED
from imagestrata.demo import SPLITS, digits, report
from imagestrata.devstack import java, sparkconf
from imagestrata.devstack.commands import DATA as CASSANDRA_FOLDER
from imagestrata.devstack.commands import usual_port
from imagestrata.devstack.servers.cassandra import Cassandra
from imagestrata.registry import control_at
from jobs import ingest, split
from schemas.errors import ImagestrataError

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "demo"
KEYSPACE = "demo"
SPLIT = BUILD / "splits"
BATCH_SIZE = 64
SIZE = 128
EPOCHS = 2


class DemoError(ImagestrataError):
    """A step of the demo failed; its own output says why."""


@dataclass(frozen=True)
class Epochs:
    """What the loader delivered: samples of each epoch, different images in all epochs, the rate, and one batch."""

    samples: int
    distinct_ids: int
    images_per_s: float
    sheet: list[report.Tile]


def run(data: Path | None = None, *, port: int | None = None) -> dict[str, Any]:
    """Run all steps with a line for each, on a tree of images or the digits, and return the results that the last line
    prints.
    """
    console = Console(stderr=True, highlight=False)
    port = start_cassandra(port, console)
    tree = digits.write(BUILD / "digits") if data is None else data.resolve()
    subdirs = [name for name in SPLITS if (tree / name).is_dir()]
    configure(tree, subdirs)
    with control_at(["127.0.0.1"], port, access=loader.Access()) as control:
        if control.schema("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?", [KEYSPACE]):
            control.define(f'DROP KEYSPACE "{KEYSPACE}"')  # roles have no right to drop what does not exist
    console.print(f"[bold]ingest[/]  spark-submit jobs/ingest.py {tree}", soft_wrap=True)
    use_own_spark(port)
    ingested = job(ingest.main, "--overwrite")
    console.print("[bold]split[/]   spark-submit jobs/split.py -r 8,2 --balance original --seed 7")
    dealt = job(split.main, "-r", "8,2", "--balance", "original", "--seed", "7", "--overwrite")
    console.print(f"[bold]loader[/]  {EPOCHS} epochs of split 0 through DALI")
    epochs = read_epochs(port)
    page = BUILD / "report.html"
    metrics = {
        "images": f"{ingested['images']:,}",
        "bytes": f"{ingested['bytes'] / 1e6:,.1f} MB",
        "classes": f"{ingested['classes']:,}",
        "rejected": f"{ingested['quarantined']:,}",
        "splits": " + ".join(f"{rows:,}" for rows in dealt["rows"]),
        "ingest, whole job": f"{ingested['images_per_s']:,.0f} images/s",
        "split, whole job": f"{sum(dealt['rows']) / dealt['seconds']:,.0f} images/s",
        "loader, decoded batches": f"{epochs.images_per_s:,.0f} images/s",
    }
    report.write(page, sheet=epochs.sheet, split_counts=dealt["counts"], metrics=metrics)
    table = Table(show_header=False)
    for name, value in metrics.items():
        table.add_row(name, value)
    console.print(table)
    console.print(f"Open {page}. Cassandra keeps running on port {port}; `make down` stops it.", soft_wrap=True)
    return {
        "images": ingested["images"],
        "classes": ingested["classes"],
        "quarantined": ingested["quarantined"],
        "split_counts": dealt["rows"],
        "epoch_samples": epochs.samples,
        "distinct_ids": epochs.distinct_ids,
        "ingest_images_per_s": round(ingested["images_per_s"], 1),
        "loader_images_per_s": round(epochs.images_per_s, 1),
        "report": str(page),
    }


def start_cassandra(port: int | None, console: Console) -> int:
    """Start the embedded Cassandra unless it is running; returns its port. Raises `DevstackError`."""
    usual = usual_port(CASSANDRA_FOLDER / "cluster.json", port)
    server = Cassandra.existing(CASSANDRA_FOLDER, port=usual) or Cassandra(CASSANDRA_FOLDER, port=usual)
    started = time.monotonic()
    with console.status("Cassandra is starting"):
        fresh = server.start()
    took = f"started in {time.monotonic() - started:.1f} s" if fresh else "already running"
    console.print(f"[bold]Cassandra[/]  {took}  {server.runtime.describe() if server.runtime else ''}", soft_wrap=True)
    return server.port


def configure(tree: Path, subdirs: Sequence[str]) -> None:
    """Make the demo's tree, tables and split folder the defaults of the environment's Spark."""
    # Not the address of Cassandra: jobs find the node that runs, and this file outlives it.
    extra = {
        "spark.imagestrata.source": str(tree),
        "spark.imagestrata.data-table": f"{KEYSPACE}.data",
        "spark.imagestrata.metadata-table": f"{KEYSPACE}.metadata",
        "spark.imagestrata.split-ofn": str(SPLIT),
    }
    if subdirs:
        extra["spark.imagestrata.split-subdir"] = ",".join(subdirs)
    site_packages = Path(sysconfig.get_paths()["purelib"])
    java_home = java.find(site_packages).home
    sparkconf.write(extra, site_packages=site_packages, java_home=java_home, python=Path(sys.executable))
    # Spark's scripts do not read the environment's spark-env.sh from a path with a space.
    os.environ["JAVA_HOME"] = str(sparkconf.java_for_spark(java_home, site_packages=site_packages))


def use_own_spark(port: int) -> None:
    """Let jobs of this process run the environment's Spark with the demo's Cassandra, whatever the user configured."""
    # Both jobs use one Java process: another one would take seconds to start.
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
        del os.environ[name]
    bar = str(sys.stderr.isatty()).lower()
    settings = {"cassandra.connection.host": "127.0.0.1", "cassandra.connection.port": port}
    conf = [f"spark.ui.showConsoleProgress={bar}", *(f"spark.{key}={value}" for key, value in settings.items())]
    # Java lives too short for its second compiler to pay: 37 instead of 41 s from the ingest to the report.
    conf.append("spark.driver.defaultJavaOptions=-XX:TieredStopAtLevel=1")
    options = [word for setting in conf for word in ("--conf", setting)]
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": shlex.join([*options, "pyspark-shell"])}


def job(main: Callable[[Sequence[str]], int], *args: str) -> dict[str, Any]:
    """Run a job with what users write after its name, and show its output; returns its report. Raises `DemoError`."""
    with redirect_stdout(io.StringIO()) as said:
        code = main([*args, "--json"])
    if code == INTERRUPTED:  # the job has caught the Ctrl-C, which is the demo's too
        raise KeyboardInterrupt
    *lines, last = said.getvalue().splitlines() or [""]
    for line in lines:
        print(f"  {line}", file=sys.stderr)
    if code:
        raise DemoError(f"this job failed with exit code {code}. {last}".rstrip())
    found: dict[str, Any] = json.loads(last)
    return found


class CountedSource(loader.CassandraSource):
    """A source that records the ids that it delivers."""

    seen: set[bytes]

    def batches(self, epoch: int, /, **options: Any) -> Any:
        """The batches of the source; records their ids."""
        for batch in super().batches(epoch, **options):
            self.seen.update(map(bytes, batch.ids))
            yield batch


def read_epochs(port: int) -> Epochs:
    """Read split 0 twice with augmentation, and check that each epoch has every image once. Raises `DemoError`."""
    split = loader.open_split(SPLIT, index=0)
    sheet: list[report.Tile] = []
    with CountedSource(split, hosts=["127.0.0.1"], port=port, batch_size=BATCH_SIZE, seed=7) as source:
        source.seen = set()
        # A mirrored digit looks like another one.
        batches = loader.ClassificationIterator(
            source, size=SIZE, train=True, crop_area=(0.6, 1.0), mirror=False, num_threads=2
        )
        started = time.monotonic()
        for _ in range(EPOCHS):
            labels: list[int] = []
            for images, of_batch in batches:
                labels.extend(of_batch.tolist())
                sheet = sheet or report.tiles(images, of_batch, split.class_names)
            if np.bincount(labels, minlength=split.num_classes).tolist() != [
                split.counts.get(label, 0) for label in range(split.num_classes)
            ]:
                raise DemoError(
                    f"Wanted every image of split 0 once in an epoch. Found: {len(labels)} of {len(split)}."
                )
        seconds = time.monotonic() - started
    return Epochs(len(split), len(source.seen), EPOCHS * len(split) / seconds, sheet)
