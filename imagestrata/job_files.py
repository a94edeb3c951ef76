"""Print the path of a job's script, for spark-submit.

    spark-submit --properties-file "$(imagestrata job defaults)" "$(imagestrata job split)" --help

`defaults` is the path of the recommended spark-defaults.conf. In an environment that `make setup` made, Spark already
uses it. Elsewhere, Spark also needs the Cassandra connector: add
`--packages com.datastax.spark:spark-cassandra-connector_2.13:3.5.1`, or with Spark 3.5 the same of `_2.12`.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from formats.command_line import Parser, command

JOBS = ("ingest", "split", "verify", "shard", "cache_rows", "featurize", "relabel", "delete")
DEFAULTS = "defaults"


def path_of(name: str) -> Path:
    """The file of a job, or of Spark's defaults. Imports nothing: Spark need not be installed."""
    spec = find_spec("jobs")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).resolve().parent
    if name != DEFAULTS:
        return folder / f"{name}.py"
    # The wheel has a copy among the jobs; in a checkout the file is in the root folder.
    installed = folder / "spark-defaults.conf"
    return installed if installed.is_file() else folder.with_name(installed.name)


@command("error")
def main(argv: Sequence[str] | None = None) -> int:
    """Print one path; returns the exit code."""
    parser = Parser("imagestrata job", manual=__doc__)
    parser.add_argument("name", choices=(*JOBS, DEFAULTS), help=f"the name of a job, or {DEFAULTS}")
    print(path_of(parser.parse_args(argv).name))
    return 0
