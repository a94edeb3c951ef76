"""Assign every ingested image to a split, and save the splits as Parquet.

Reads the metadata table once, never a picture. Every class is shared out exactly: each count is its ideal rounded down
or up, and so is each split's total. Rows are chosen and ordered by hashes of their ids and the seed, so that the same
table gives the same splits on any machine, with any number of executors, in any retry.

examples:
  spark-submit jobs/split.py -d imagenette.data -m imagenette.metadata -r 8,2 -o splits/imagenette
  spark-submit jobs/split.py -d ks.data -m ks.metadata -r 0.7,0.2,0.1 --balance uniform --seed 7 -o splits/balanced
  spark-submit jobs/split.py -d ks.data -m ks.metadata -r 9,1 --balance 1,1,0.5 -o splits/weighted

The folder that it writes holds split=0/, split=1/, ... as Parquet files of (id, label, position), and manifest.json,
written last: tables, class names, options, counts and fingerprints. Read it with loader.open_split(FOLDER, index=0).

Options that are not given come from spark-defaults.conf: spark.imagestrata.data-table, spark.imagestrata.metadata-table
and spark.imagestrata.split-ofn. Cassandra's address and user come from spark.cassandra.*.

exit codes:
  0  the split is there; the last line tells its rows, its place and its fingerprints
  1  failed, and nothing was published; one line says why
  2  bad arguments, found before Spark started
"""

import argparse
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, log2
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from etl.cassandra import Control, check_columns, class_names, read_table, uuid_bytes
from etl.cuts import bucket_bits, cut_classes, place_offsets
from etl.errors import TableError, WeightsError
from etl.quotas import class_totals, quota_matrix, random_weights
from etl.split_output import SplitOutput, check_quotas
from etl.split_plan import BALANCES, SplitPlan, parse_numbers
from etl.splits import (
    CUTS_SCHEMA,
    OFFSETS_SCHEMA,
    add_positions,
    assign_splits,
    count_buckets,
    count_labels,
    count_places,
    cut_rows,
    name_labels,
)
from formats import NotASplitError, SplitFolder
from jobs.command import execute, parse
from schemas import Columns, FormatVersionError, SchemaError, TableName

log = logging.getLogger("imagestrata.split")

ROWS_A_FILE = 1_000_000


@dataclass(frozen=True, slots=True)
class SplitReport:
    """What was written: rows and fingerprints by split, images by class and split, and where."""

    out: str
    rows: list[int]
    unused: int
    counts: list[dict[str, int]]
    fingerprints: list[str]
    seconds: float = field(compare=False)

    def __str__(self) -> str:
        rows = " + ".join(f"{count:,}" for count in self.rows)
        classes = len({label for counts in self.counts for label in counts})
        unused = f", {self.unused:,} left out by the balance" if self.unused else ""
        prints = ", ".join(text[:12] for text in self.fingerprints)
        return (
            f"split {sum(self.rows):,} images of {classes:,} classes into {rows}{unused} at {self.out} "
            f"in {self.seconds:.1f} s; fingerprints {prints}"
        )


def parse_args(argv: Sequence[str] | None = None) -> tuple[SplitPlan, bool]:
    """The plan of a command line, and whether its report is wanted as JSON; exits with 2 for bad arguments."""
    parser = argparse.ArgumentParser(
        prog="split.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("-d", "--data-table", metavar="KS.TABLE", help="the table of pictures")
    add("-m", "--metadata-table", metavar="KS.TABLE", help="the table that is read")
    add("-o", "--split-ofn", metavar="FOLDER", help="where to write the split")
    add("-r", "--split-ratio", metavar="N,N,...", default="8,2", help="the splits' shares, any count (default: 8,2)")
    add(
        "-b",
        "--balance",
        metavar="HOW",
        default="original",
        help="original: the classes' own proportions; uniform: equally many of each; random: seeded weights; "
        "or one weight a class, in the order of class numbers, 0 to leave a class out (default: original)",
    )
    add("--seed", type=int, default=0, help="the seed of the choice and of the order (default: 0)")
    add("--overwrite", action="store_true", help="replace a split that is there")
    add("--dataset", metavar="NAME", help="whose class names to use (default: the metadata table's keyspace)")
    add("--id-col", metavar="COL", default="id", help="the id column of both tables (default: id)")
    add("--label-col", metavar="COL", default="label", help="the label column of both tables (default: label)")
    add("--data-col", metavar="COL", default="data", help="the picture column of the data table (default: data)")
    add("--json", action="store_true", help="print the report as one JSON object on the last line")
    needed = {"data_table": (), "metadata_table": (), "split_ofn": ()}
    args = parse(parser, argv, needed=lambda _: needed, check=check)
    try:
        plan = SplitPlan(
            data_table=TableName.parse(args.data_table),
            metadata_table=TableName.parse(args.metadata_table),
            out=args.split_ofn,
            dataset=args.dataset,
            overwrite=args.overwrite,
            **check(args),
        )
        if plan.overwrite:
            check_replaceable(plan.out)
    except ValueError as error:
        parser.error(str(error))
    return plan, args.json


def check(args: argparse.Namespace) -> dict[str, Any]:
    """The plan's fields that need nothing of Spark's configuration. Raises ValueError."""
    for name in filter(None, (args.data_table, args.metadata_table)):
        TableName.parse(name)
    balance = args.balance
    ratios = parse_numbers(args.split_ratio, what="split ratios")
    if not all(ratios):
        raise ValueError(f"Wanted split ratios above 0. Found: {args.split_ratio!r}")
    if balance not in BALANCES:
        balance = parse_numbers(balance, what=f"a balance of {', '.join(BALANCES)}, or class weights")
        if not any(balance):
            raise ValueError(f"Wanted class weights of which one is above 0. Found: {args.balance!r}")
    columns = Columns(id=args.id_col, label=args.label_col, data=args.data_col)
    return {"ratios": ratios, "balance": balance, "seed": args.seed, "columns": columns}


def check_replaceable(out: str) -> None:
    """Raise `schemas.FormatVersionError` if a newer version's split stands there: this one cannot know its files."""
    try:
        SplitFolder.open(out)
    except FormatVersionError:
        raise
    except (SchemaError, NotASplitError):
        return


def run(spark: SparkSession, *, plan: SplitPlan) -> SplitReport:
    """Read, choose, order, write, publish. Raises `etl.EtlError`; then nothing was published."""
    started = time.monotonic()
    with SplitOutput(plan.out, overwrite=plan.overwrite) as output:
        names = snapshot(spark, plan=plan, place=output.aside("metadata"))
        images = spark.read.parquet(output.aside("metadata"))
        counts = checked_counts(images, plan=plan)
        log.info("%s images of %s classes in %s", f"{sum(counts.values()):,}", f"{len(counts):,}", plan.metadata_table)
        quotas = plan_quotas(counts, plan=plan)
        assigned = choose(spark, images, quotas=quotas, plan=plan)
        splits = output.write(spark, order(spark, assigned, quotas=quotas, plan=plan), plan=plan)
        check_quotas(splits, quotas)
        names = names or {row["label"]: row["name"] for row in images.transform(name_labels).collect()}
        num_classes = 1 + max([*counts, *names])
        manifest = output.publish(splits, plan=plan, num_classes=num_classes, class_names=dict(sorted(names.items())))
    return SplitReport(
        out=output.address,
        rows=[part.rows for part in manifest.splits],
        unused=sum(counts.values()) - sum(part.rows for part in manifest.splits),
        counts=[
            {names.get(label, str(label)): rows for label, rows in part.counts.items()} for part in manifest.splits
        ],
        fingerprints=[part.fingerprint for part in manifest.splits],
        seconds=time.monotonic() - started,
    )


def snapshot(spark: SparkSession, *, plan: SplitPlan, place: str) -> dict[int, str]:
    """Copy ids and labels out of Cassandra once, so that counting and choosing see the same rows.

    Returns the dataset's class names by number, as far as it has a list of them.
    """
    with Control.from_spark(spark) as control:
        check_columns(control, plan.data_table, columns=[plan.columns.id, plan.columns.data])
        found = control.columns(plan.metadata_table) or {}
        names = class_names(control, keyspace=plan.metadata_table.keyspace, dataset=plan.dataset_name)
    label = plan.columns.label
    if found.get(label, "int") != "int":
        raise TableError(f"Wanted whole numbers (int) in {plan.metadata_table}.{label}. Found: {found[label]}")
    rows = read_table(
        spark, plan.metadata_table, columns=[plan.columns.id, label, *(["or_label"] if "or_label" in found else [])]
    )
    or_label = F.col("or_label") if "or_label" in found else F.lit(None).cast("string")
    rows.select(
        uuid_bytes(plan.columns.id).alias("id"), F.col(label).alias("label"), or_label.alias("or_label")
    ).write.parquet(place)
    return {number: name for name, number in names.items()}


def checked_counts(images: DataFrame, *, plan: SplitPlan) -> dict[int, int]:
    """Images by class number, ascending; raises `TableError` for an empty table and for labels that are no numbers."""
    counts = {row["label"]: row["rows"] for row in images.transform(count_labels).collect()}
    table = f"{plan.metadata_table} ({plan.columns.label})"
    if not counts:
        raise TableError(f"Wanted images in {plan.metadata_table}. Found: an empty table. Fill it with jobs/ingest.py.")
    if None in counts:
        raise TableError(f"Wanted a label for every image in {table}. Found: {counts[None]:,} without one.")
    if negative := sum(rows for label, rows in counts.items() if label < 0):
        raise TableError(f"Wanted labels of 0 or more in {table}. Found: {negative:,} images with a negative one.")
    return dict(sorted(counts.items()))


def plan_quotas(counts: Mapping[int, int], *, plan: SplitPlan) -> dict[int, tuple[int, ...]]:
    """Images by class and split, as the balance and the ratios ask. Raises `WeightsError`."""
    labels = list(counts)
    totals = list(counts.values())
    if isinstance(plan.balance, tuple):
        if len(plan.balance) != len(labels):
            raise WeightsError(
                f"Wanted a weight for each of the {len(labels)} classes of {plan.metadata_table}, "
                f"numbered {_some(labels)}. Found: {len(plan.balance)} weights."
            )
        totals = class_totals(totals, plan.balance)
    elif plan.balance == "uniform":
        totals = class_totals(totals, [Fraction(1)] * len(labels))
    elif plan.balance == "random":
        totals = class_totals(totals, random_weights(labels, plan.seed))
    if not any(totals):
        raise WeightsError(
            f"Wanted weights that leave at least one image. Found: none left of {sum(counts.values()):,}."
        )
    matrix = quota_matrix(totals, plan.ratios, seed=plan.seed)
    return {label: tuple(row) for label, row in zip(labels, matrix.tolist(), strict=True)}


def choose(
    spark: SparkSession, images: DataFrame, *, quotas: Mapping[int, tuple[int, ...]], plan: SplitPlan
) -> DataFrame:
    """The images of each split, ``id, label, split``: a histogram of every class, then its cuts."""
    bits = bucket_bits(len(quotas))
    histogram = images.transform(count_buckets, seed=plan.seed, bits=bits).toPandas()
    labels, buckets, rows = (histogram[name].to_numpy("int64") for name in ("label", "bucket", "rows"))
    cuts = spark.createDataFrame(cut_rows(cut_classes(labels, buckets, rows, quotas)), CUTS_SCHEMA)
    return images.transform(assign_splits, cuts=cuts, splits=len(plan.ratios), seed=plan.seed, bits=bits)


def order(
    spark: SparkSession, assigned: DataFrame, *, quotas: Mapping[int, tuple[int, ...]], plan: SplitPlan
) -> DataFrame:
    """The images with their place in their split's order, ``split, id, label, position``."""
    largest = max(sum(of_split) for of_split in zip(*quotas.values(), strict=True))
    bits = max(1, ceil(log2(largest / ROWS_A_FILE)))
    places = assigned.transform(count_places, seed=plan.seed, bits=bits).toPandas()
    columns = (places[name].to_numpy("int64") for name in ("split", "place", "rows"))
    offsets = spark.createDataFrame(place_offsets(*columns), OFFSETS_SCHEMA)
    return assigned.transform(add_positions, offsets=offsets, seed=plan.seed, bits=bits)


def _some(labels: Sequence[int]) -> str:
    return ", ".join(map(str, labels)) if len(labels) <= 12 else f"{labels[0]}, {labels[1]}, ... {labels[-1]}"


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    plan, as_json = parse_args(argv)
    return execute("split.py", lambda spark: run(spark, plan=plan), as_json=as_json)


if __name__ == "__main__":
    sys.exit(main())
