"""Read images and write them to two Cassandra tables: one for the images, one for their metadata.

examples:
  spark-submit jobs/ingest.py /data/imagenette --split-subdir train --split-subdir val \\
      --data-table imagenette.data --metadata-table imagenette.metadata

  spark-submit jobs/ingest.py /data/ILSVRC2012_img_train.tar --split-name train \\
      --data-table imagenet.data --metadata-table imagenet.metadata --replication 3

  spark-submit jobs/ingest.py /data/ILSVRC2012_img_val.tar --split-name val --labels /data/val_wnids.csv \\
      --data-table imagenet.data --metadata-table imagenet.metadata

  spark-submit jobs/ingest.py /data/ADE20K/images --masks /data/ADE20K/masks --split-subdir training \\
      --data-table ade.data --metadata-table ade.metadata

  spark-submit jobs/ingest.py /data/corel --arrays /data/corel \\
      --data-table corel.data --metadata-table corel.metadata

An image's id is computed from the dataset's name, the split and the path. If you ingest the same source again, the same
rows are written again. If an id already belongs to an image from another source, or was ingested with other image
options, the job stops before it writes anything; --overwrite allows it. --resume continues an interrupted ingest and
reads only the images that are missing.

A pair of tables holds one dataset with one type of labels. An ingest that does not fit is refused before it writes
anything. Four more tables are in the metadata table's keyspace:
  classes      the class numbers; known classes keep theirs, new classes get the next ones in the order of their names
  quarantine   files that are not whole JPEG, PNG, TIFF, BMP, WEBP, JPEG 2000 or PNM images, each with the reason;
               they are not ingested
  tables       what each pair of tables holds
  ingests      each run
"""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from etl.ingest.plan import IngestPlan
from formats.command_line import Parser, command
from jobs import ingest_options
from jobs.command import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl.ingest.report import IngestEstimate, IngestReport


def parser() -> Parser:
    """The options; their help is the manual page."""
    return ingest_options.parser(__doc__)


def parse_args(argv: Sequence[str] | None = None) -> tuple[IngestPlan, argparse.Namespace]:
    """The plan, and the options ``plan`` and ``json``. Exits with 2 for bad arguments."""
    return ingest_options.parse_args(parser(), argv)


def run(spark: "SparkSession", *, plan: IngestPlan) -> "IngestReport":
    """Read the images of a source and write them to tables, or to a folder.

    Args:
        spark: The session.
        plan: What to read, and where to write it.

    Returns:
        Counts, rates and a fingerprint of the rows.

    Raises:
        EtlError: Cassandra or the source cannot be used, or too many files are rejected.
        FormatsError: A file cannot be read or written as its format says.
    """
    from etl.ingest import ingestion

    return ingestion.run(spark, plan=plan)


def estimate(spark: "SparkSession", *, plan: IngestPlan) -> "IngestEstimate":
    """Count the images of a source and estimate sizes and time; writes nothing.

    Args:
        spark: The session.
        plan: What to read, and where it would be written.

    Returns:
        The estimate.

    Raises:
        EtlError: Cassandra or the source cannot be used.
        FormatsError: A file cannot be read or written as its format says.
    """
    from etl.ingest import ingestion

    return ingestion.estimate(spark, plan=plan)


@command("ingest.py")
def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    plan, args = parse_args(argv)
    work = estimate if args.plan else run
    return execute(
        "ingest.py",
        lambda spark: work(spark, plan=plan),
        as_json=args.json,
        needs_cassandra=plan.target is None,
        plan=None if args.plan else plan,
    )


if __name__ == "__main__":
    sys.exit(main())
