"""What the notebooks share: a Cassandra of their own and handwritten digits in it. All lies in `build/` beside them."""

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
"""We pretend that so many pictures in turn are by one writer."""


def cassandra() -> Cassandra:
    """The embedded Cassandra, up; `stop()` ends it, and its data stay."""
    server = Cassandra(BUILD / "cassandra")
    server.start()
    return server


def spark(server: Cassandra) -> SparkSession:
    """A session on this machine's cores that finds the server."""
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
    """1,797 digits as `NUMBER.png` of 64 x 64 pixels, two files that are no pictures, and `labels.csv`.

    Written aside and renamed: what is there is whole.
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
    """What `01_ingest_and_explore` does, or what is left of it."""
    folder = write_digits()
    columns = ["--path-column", "file", "--label-column", "digit", "--group-column", "writer"]
    options = [str(folder / "images"), "--labels", str(folder / "labels.csv"), *columns, *TABLES]
    plan, _ = ingest.parse_args([*options, "--class-names", "number", "--check", "full", "--resume"])
    ingest.run(session, plan=plan)


def digits_split(server: Cassandra) -> Path:
    """Four fifths of each digit for training, the rest for validation; made where it is not there."""
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
