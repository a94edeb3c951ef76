"""What the notebooks share: an embedded Cassandra with handwritten digits. All files are in `build/` beside them."""

import csv
import shutil
from pathlib import Path

from pyspark.sql import SparkSession
from sklearn.datasets import load_digits

from imagestrata.demo.digits import picture
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import ingest, split

BUILD = Path("build").resolve()
DIGITS = BUILD / "digits"
SPLITS = BUILD / "splits"
TABLES = ["--data-table", "tour.data", "--metadata-table", "tour.metadata"]
A_WRITER = 20
"""The number of consecutive images that we ascribe to one writer."""


def cassandra() -> Cassandra:
    """Start the embedded Cassandra and return it; `stop()` stops it and keeps its data."""
    server = Cassandra(BUILD / "cassandra")
    server.start()
    return server


def spark(server: Cassandra) -> SparkSession:
    """A local Spark session that uses the server."""
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tour")
        .config("spark.cassandra.connection.host", server.hosts[0])
        .config("spark.cassandra.connection.port", server.port)
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def write_digits() -> Path:
    """Write 1,797 digits as `NUMBER.png` of 64 x 64 pixels, two files that are not images, and `labels.csv`.

    The folder is written under another name and renamed, so it is complete if it exists.
    """
    if DIGITS.is_dir():
        return DIGITS
    aside = DIGITS.with_name("digits.part")
    shutil.rmtree(aside, ignore_errors=True)
    (aside / "images").mkdir(parents=True)
    digits = load_digits()
    rows = []
    for number, (pixels, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        picture(pixels).save(aside / "images" / f"{number:04}.png")
        rows.append((f"{number:04}.png", digit, f"writer {number // A_WRITER:02}"))
    (aside / "images" / "cut.png").write_bytes((aside / "images" / "0000.png").read_bytes()[:100])
    (aside / "images" / "text.png").write_text("no picture at all")
    rows += [("cut.png", 0, "writer 00"), ("text.png", 0, "writer 00")]
    with (aside / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("file", "digit", "writer"), *rows])
    aside.rename(DIGITS)
    return DIGITS


def ingest_digits(session: SparkSession) -> None:
    """Ingest the digits as `01_ingest_and_explore` does, or what is missing of them."""
    folder = write_digits()
    columns = ["--path-column", "file", "--label-column", "digit", "--group-column", "writer"]
    options = [str(folder / "images"), "--labels", str(folder / "labels.csv"), *columns, *TABLES]
    plan, _ = ingest.parse_args([*options, "--class-names", "number", "--check", "full", "--resume"])
    ingest.run(session, plan=plan)


def digits_split(server: Cassandra) -> Path:
    """Return a split with four fifths of each digit for training and the rest for validation; make it if needed."""
    out = SPLITS / "digits"
    if not (out / "_manifest.json").is_file():
        session = spark(server)
        try:
            ingest_digits(session)
            plan, _ = split.parse_args([*TABLES, "-r", "8,2", "--seed", "7", "-o", str(out), "--overwrite"])
            split.run(session, plan=plan)
        finally:
            session.stop()
    return out
