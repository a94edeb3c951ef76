"""Record the results of a checkout as text, to compare two checkouts.

    python -m tests.support.same_results before.json        # before a refactoring that must not change results
    python -m tests.support.same_results after.json         # after it, or in another checkout
    python -m tests.support.same_results --compare before.json after.json

It starts Cassandra and a Spark session, runs the commands of `same_results.txt`, and reads with the loader. A fact has
a name and lines: what a command printed, the rows that it added to tables (``+``) or removed (``-``), a file that it
wrote, or the batches of a source. Times, random names, ports and the working folder are replaced, so that two runs of
one checkout give the same facts. Rows have the number of the clock that they were written with.
"""

import argparse
import contextlib
import difflib
import hashlib
import importlib
import io
import itertools
import json
import os
import pickle
import re
import shlex
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import numpy as np
import pyarrow.parquet as pq
from cassandra.cluster import Cluster
from cassandra.query import dict_factory
from pyspark.sql import SparkSession

import loader
import tests.conftest  # noqa: F401  # its settings of Java
from etl.features import historical_features
from imagestrata.devstack.servers.cassandra import Cassandra
from schemas import TableName, image_id
from tests.support.same_sources import change_pictures, make_sources

STARTED = time.monotonic()
ROOT = Path(__file__).resolve().parents[2]
COMMANDS = Path(__file__).with_suffix(".txt")
OUTPUTS = {"-o", "--out", "--offline", "--target-dir", "--metadata-ofn", "--rows-fn", "--picture"}
RANDOM = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"), "TIME"),
    (re.compile(r"\b\d[\d,]*(\.\d+)? ?(s|ms|min|[a-z]+/s|[kMG]B/s)\b"), "N s"),
)
RANDOM_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-([1-8])[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b")
MEASURED = re.compile(r"seconds$|_per_s$|^executors$")
METADATA = re.compile(r"(\w+)\.\w*metadata\w*")
HIDDEN = {"id", "column_name_bytes"}
PROGRESS = re.compile(r"about [\d:]+ left$")


class Record:
    """The facts so far, and how texts and rows are made comparable."""

    def __init__(self, work: Path, server: Cassandra) -> None:
        self.work, self.hosts, self.port = work, server.hosts, server.port
        self.cassandra: Any = Cluster(self.hosts, port=self.port).connect()
        self.cassandra.row_factory = dict_factory
        self.facts: dict[str, list[str]] = {}
        self._rows: dict[str, set[str]] = defaultdict(set)  # of each keyspace, as last seen
        self._names: dict[str, str] = {}  # of time UUIDs and clocks, in their order

    def text(self, text: str) -> str:
        """A text without what is different in each run."""
        text = re.sub(rf"\b{self.port}\b", "PORT", text.replace(str(self.work), "WORK").replace(self.work.name, "WORK"))
        for pattern, name in RANDOM:
            text = pattern.sub(name, text)
        return RANDOM_ID.sub(lambda found: self._id(found[0], found[1]), text)

    def plain(self, value: Any, name: str = "") -> Any:
        """A value as JSON has it; bytes as their SHA-256 if there are many."""
        if MEASURED.search(name) and value is not None:
            return "MEASURED"
        if isinstance(value, bytes):
            return value.hex() if len(value) <= 32 else f"{len(value)} bytes {hashlib.sha256(value).hexdigest()}"
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.plain(one, str(key)) for key, one in value.items()}
        if name == "files" and isinstance(value, list):  # random tokens of the node decide how rows are cut into files
            return {"rows": sum(one["rows"] for one in value)}
        if isinstance(value, list | tuple):
            return [self.plain(one) for one in value]
        if isinstance(value, np.ndarray | np.generic):
            return self.plain(value.tolist())
        if name == "clock" and value is not None:
            return self._name("clock", str(value))
        if isinstance(value, int | float | None):
            return value
        return "TIME" if isinstance(value, datetime) else self.text(str(value))

    def line(self, value: Any) -> str:
        """A value on one line."""
        return json.dumps(self.plain(value), ensure_ascii=False)

    def command(self, name: str, argv: list[str]) -> None:
        """Run a job or a command of `imagestrata`; record what it prints and writes."""
        print(f"{time.monotonic() - STARTED:6.1f} s  {name}", file=sys.stderr, flush=True)
        job, *options = argv
        main, printed = importlib.import_module("imagestrata.cli").main, io.StringIO()
        if job in ("registry", "lineage"):
            options = [job, *options, *([] if "--help" in options else self._where())]
        else:
            main = importlib.import_module(f"jobs.{job}").main
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                code = main(options)
            except SystemExit as ended:
                code = ended.code
            except Exception as error:  # a crash is a result, too, and the other commands still run
                code = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        lines = (line for line in printed.getvalue().splitlines() if not PROGRESS.search(line))
        self.facts[f"{name}: exit {self.text(str(code))}"] = [
            self.line(json.loads(line)) if line.startswith("{") else self.text(line) for line in lines
        ]
        for option, place in itertools.pairwise(options):
            if option in OUTPUTS and Path(place).exists():
                self.files(f"{name}: {Path(place).name}", Path(place))
        for keyspace in {found[1] for one in options if (found := METADATA.fullmatch(one))} or {"base"}:
            self.tables(f"{name}: changes of {keyspace}", keyspace)

    def tables(self, name: str, keyspace: str) -> None:
        """Record which tables, columns and rows of a keyspace are new or gone since the last time."""
        found, rows = set(), []
        schema: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for kind in ("tables", "columns"):
            query = f"SELECT * FROM system_schema.{kind} WHERE keyspace_name = %s"
            for row in self.cassandra.execute(query, (keyspace,)):
                schema[row["table_name"]] += [row] if kind == "columns" else []
                found.add(f"{kind} {self.line({key: row[key] for key in sorted(row) if key not in HIDDEN})}")
        for table, columns in schema.items():
            regular = [one["column_name"] for one in columns if one["kind"] == "regular" and one["type"][:4] != "map<"]
            more = "".join(f', {kind}("{regular[0]}") AS its_{kind}' for kind in ("writetime", "ttl") if regular)
            names = ", ".join(f'"{one["column_name"]}"' for one in columns)
            rows += [(table, row) for row in self.cassandra.execute(f'SELECT {names}{more} FROM {keyspace}."{table}"')]
        values = [value for _, row in rows for value in row.values()]
        ids = {one for one in values if isinstance(one, UUID) and one.version == 1}
        for timed in sorted(ids, key=lambda one: one.time):
            self._id(str(timed), "1")
        for clock in sorted({row["clock"] for _, row in rows if row.get("clock")}):
            self._name("clock", str(clock))
        for table, row in rows:
            for one in schema[table]:
                if one["kind"] == "static":
                    found.add(f"{table} static {one['column_name']} {row.pop(one['column_name'])}")
            clock, ttl = self._names.get(f"clock {row.pop('its_writetime', None)}"), row.pop("its_ttl", None)
            found.add(f"{table} {self.line(row)} {clock or ''}{' with ttl' if ttl else ''}")
        before, self._rows[keyspace] = self._rows[keyspace], found
        self.facts[name] = sorted([f"- {one}" for one in before - found] + [f"+ {one}" for one in found - before])

    def files(self, name: str, place: Path) -> None:
        """Record a file, or all files of a folder; the Parquet files of a folder are one table."""
        tables, others = defaultdict(list), []
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            shown = file.relative_to(place.parent)
            if file.suffix == ".parquet":
                tables[str(shown.parent)].append(pq.ParquetFile(file))
            elif file.suffix == ".json":
                found = json.dumps(self.plain(json.loads(file.read_bytes())), indent=1, ensure_ascii=False)
                self.facts[f"{name}: {shown}"] = found.splitlines()
            elif file.suffix in (".csv", ".html", ".svg", ".idx"):
                self.facts[f"{name}: {shown}"] = self.text(file.read_text(encoding="utf-8")).splitlines()
            elif file.suffix == ".pckl":
                self.facts[f"{name}: {shown}"] = [self.line(one) for one in pickle.loads(file.read_bytes()).items()]
            elif file.is_file() and file.suffix != ".crc":
                others.append(f"{self.text(str(shown))} {self.line(file.read_bytes())}")
        for folder, files in tables.items():
            rows = [self.line(row) for file in files for row in file.read().to_pylist()]
            schema = str(files[0].schema_arrow.remove_metadata()).splitlines()
            self.facts[f"{name}: {folder}"] = [*schema, *sorted(rows)]
        self.facts[f"{name}: other files"] = others

    def _where(self) -> list[str]:
        return ["--host", ",".join(self.hosts), "--port", str(self.port)]

    def _id(self, text: str, version: str) -> str:
        return self._name("time UUID", text) if version == "1" else text if version == "5" else "RANDOM"

    def _name(self, kind: str, text: str) -> str:
        number = sum(name.startswith(kind) for name in self._names) + 1
        return self._names.setdefault(f"{kind} {text}", f"{kind} {number}")


def ids_of(record: Record) -> list[UUID]:
    """The ids of all images, in order."""
    return sorted(row["id"] for row in record.cassandra.execute("SELECT id FROM base.metadata"))


def damage(record: Record) -> None:
    """Change tables and a split as no job does."""
    execute, ids = record.cassandra.execute, ids_of(record)
    execute("DELETE FROM base.data WHERE id = %s", (ids[0],))
    execute("DELETE FROM base.metadata WHERE id = %s", (ids[1],))
    execute("UPDATE base.metadata SET width = 3 WHERE id = %s", (ids[2],))
    execute("UPDATE base.data SET data = %s WHERE id = %s", (b"wrong bytes", ids[3]))
    bee = image_id("base", b"val", "bee é/8.png".encode())
    execute("UPDATE base.metadata SET label = 77 WHERE id = %s", (bee,))
    execute("DELETE FROM base.classes WHERE dataset = 'base' AND name = 'ant'")
    record.tables("damaged: damage: changes of base", "base")
    next((record.work / "out" / "table" / "split=0").glob("part-*.parquet")).unlink()


def batches(source: Any, epochs: Iterable[int]) -> Iterator[str]:
    """A line for each batch of some epochs."""
    for batch in (one for epoch in epochs for one in source.epoch(epoch)):
        data = hashlib.sha256(b"|".join([*batch.images, *batch.label_blobs])).hexdigest()[:16]
        ids = " ".join(bytes(one)[-3:].hex() for one in batch.ids)
        values = {name: list(some) for name, some in {**batch.metadata, **batch.features}.items()}
        parts = (batch.epoch, batch.step, batch.repeats, ids, batch.labels, batch.positions, data, values)
        yield " ".join(" ".join(str(part).split()) for part in parts)


def read_sources(record: Record) -> None:
    """Record the order, the states and the contents of sources of every kind."""
    out = record.work / "out"
    where: dict[str, Any] = {"hosts": record.hosts, "port": record.port}
    split = partial(loader.open_split, index=0)
    by_id = partial(loader.CassandraSource, **where)
    kinds: dict[str, Callable[..., Any]] = {
        "folder": partial(loader.FolderSource, loader.open_folder(record.work / "flat", seed=3)),
        "rows": partial(by_id, loader.open_rows(out / "rows")),
        "dictionary": partial(by_id, split(out / "dictionary.pckl")),
        "no positions": partial(by_id, split(out / "per-class")),
        "shards": partial(loader.ShardSource, loader.open_shards(str(out / "shards"))),
        "shards of masks": partial(loader.ShardSource, loader.open_shards(str(out / "blob-shards"))),
        **{name: partial(by_id, split(out / name)) for name in ("blob-split", "multi-split", "none-split")},
        "tables": partial(
            by_id, split(out / "features"), metadata=["path", "bytes"], features=["sharpness", "moments"]
        ),
    }
    orders: list[tuple[int, int, dict[str, Any]]] = [
        *((0, 1, {}), (0, 2, {}), (1, 2, {}), (2, 3, {"last_batch_policy": "FILL"})),
        *((0, 2, {"last_batch_policy": "DROP", "seed": 9}), (1, 2, {"shuffle": False})),
    ]
    for kind, make in kinds.items():
        for rank, world, options in orders:
            with make(batch_size=4, rank=rank, world_size=world, **options) as source:
                lines = [record.text(repr(source.split)), str(len(source)), *batches(source, (0, 1))]
                record.facts[f"loader: {kind}: rank {rank} of {world}, {options}"] = lines
        with make(batch_size=3, rank=0, world_size=2) as source:
            with contextlib.closing(source.epoch(1)) as epoch:
                _ = next(epoch), next(epoch)
            state = source.state_dict()
        record.facts[f"loader: {kind}: state"] = [record.line(one) for one in state.items()]
        for rank in range(3):
            with make(batch_size=2, rank=rank, world_size=3) as source:
                source.load_state_dict(state)
                record.facts[f"loader: {kind}: continued on rank {rank} of 3"] = [*batches(source, (1, 2))]
    with kinds["folder"](batch_size=8, rank=0, world_size=1) as source:
        for train in (False, True):
            decoded = loader.ClassificationIterator(source, size=8, train=train)
            record.facts[f"loader: decoded, {train=}"] = [
                record.line([one.tobytes() for one in two]) for two in decoded
            ]
    places: dict[str, dict[str, Any]] = {"cache": {"metadata_cache": out / "cache"}, "tables": where}
    for name, place in places.items():
        rows = split(out / "table").to_arrow(metadata=True, **place)
        record.facts[f"loader: metadata from {name}"] = [str(rows.schema), *map(record.line, rows.to_pylist())]
    loader.record_model(record.work / "model.pt", training=split(out / "table"), arch="resnet18", epochs=3, epoch=2)
    record.files("loader: model", record.work / "model.pt.lineage.json")


def read_features(record: Record, spark: SparkSession) -> None:
    """Record the values of features and labels as they were after each run."""
    requests = [(str(one), run) for one in ids_of(record)[:12] for run in range(20)]
    runs = spark.createDataFrame(requests, "id string, sequence bigint")
    views = ["sharpness", "redness", "broken", "label"]
    found = historical_features(spark, runs, metadata=TableName("base", "metadata"), views=views).collect()
    record.facts["features as of runs"] = sorted(record.line(row.asDict()) for row in found)


def record_all(record: Record, spark: SparkSession) -> None:
    """Run all commands, and between the sections what they need and what only Python can do."""
    names = {name: str(record.work / name) for name in ("out", "tree", "flat")} | {"work": str(record.work)}
    names |= {"base": "-d base.data -m base.metadata", "of_file": str(image_id("file", b"", b"7.png"))}
    names["cols"] = "-d cols.data -m cols.metadata --id-col patch_id --label-col target --data-col bytes"
    names["deleted"] = str(image_id("base", b"train", "bee é/3.bmp".encode()))
    before: dict[str, Callable[[], object]] = {
        "changed": lambda: change_pictures(record.work),
        "registry": lambda: read_sources(record),
        "damaged": lambda: damage(record),
        "wrong": lambda: read_features(record, spark),
    }
    for part in COMMANDS.read_text(encoding="utf-8").split("\n[")[1:]:
        section, _, lines = part.partition("]")
        before.get(section, str)()
        for line in lines.strip().splitlines():
            name, _, command = line.partition(": ")
            record.command(f"{section}: {name}", shlex.split(command.format(**names)))
    events = (record.work / "events.json").read_text(encoding="utf-8").splitlines()
    record.facts["OpenLineage events"] = [record.line(json.loads(line)) for line in events]


def make(out: Path) -> None:
    """Record all facts of this checkout in a file."""
    with tempfile.TemporaryDirectory(prefix="same_results_") as folder, Cassandra(Path(folder) / "cassandra") as server:
        make_sources(Path(folder))
        sys.path.append(folder)
        os.environ |= {"IMAGESTRATA_CACHE": f"{folder}/cache", "PYTHONPATH": f"{ROOT}:{folder}", "COLUMNS": "120"}
        settings: dict[str, Any] = {
            "spark.cassandra.connection.host": ",".join(server.hosts),
            "spark.cassandra.connection.port": server.port,
            "spark.imagestrata.openlineage": f"file:{folder}/events.json",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.codegen.wholeStage": "false",  # as in tests: faster over a few rows
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }
        spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        record = Record(Path(folder), server)
        with patch.object(SparkSession, "stop", lambda _: None):  # a job stops the session when it ends
            record_all(record, spark)
        record.cassandra.cluster.shutdown()
        spark.stop()
    out.write_text(json.dumps(record.facts, indent=1, ensure_ascii=False), encoding="utf-8")
    print(f"{len(record.facts):,} facts of {sum(map(len, record.facts.values())):,} lines in {out}")


def compare(first: Path, second: Path) -> int:
    """Print the facts that differ; returns 1 if there are any."""
    facts = [json.loads(file.read_text(encoding="utf-8")) for file in (first, second)]
    names = {**facts[0], **facts[1]}
    different = [name for name in names if facts[0].get(name) != facts[1].get(name)]
    for name in different:
        print(f"\n{name}")
        old, new = (one.get(name, ["no such fact"]) for one in facts)
        for line in list(difflib.unified_diff(old, new, n=0, lineterm=""))[3:23]:
            print(f"  {line[:600]}")
    print(f"{len(different)} of {len(names):,} facts differ")
    return int(bool(different))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="the file to write, or with --compare the two to compare")
    parser.add_argument("--compare", action="store_true", help="print the facts that differ; then the exit code is 1")
    args = parser.parse_args()
    if args.compare:
        sys.exit(compare(*args.files))
    make(*args.files)
