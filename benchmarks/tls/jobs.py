"""How fast an ingest writes over TLS, compared with one that does not use it."""

import subprocess
import sysconfig
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.harness.pairs import in_turn
from benchmarks.harness.picture_rows import session
from benchmarks.harness.pictures import plant_pictures
from etl.ingest.plan import IngestPlan
from etl.sources.plan import SourcePlan
from imagestrata.devstack import java
from imagestrata.devstack.servers.cassandra import Cassandra
from jobs import ingest
from schemas import TableName

_SSL = "spark.cassandra.connection.ssl"
_PASSWORD = "benchmark"
OVER_TLS, PLAIN = "over TLS", "plain"


def rates_of_ingests(
    folder: Path, server: Cassandra, authority: Path, *, pictures: int, pairs: int
) -> Mapping[str, list[float]]:
    """Images a second of ingests that alternate, each into new tables, after one of each to warm up."""
    tree, store = plant_pictures(folder / "pictures", pictures), folder / "trust.p12"
    keytool = java.find(Path(sysconfig.get_path("purelib"))).home / "bin" / "keytool"
    command = [str(keytool), "-importcert", "-noprompt", "-alias", "authority", "-file", str(authority)]
    command += ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", _PASSWORD]
    subprocess.run(command, check=True, capture_output=True)
    place: dict[str, str | int] = {"host": ",".join(server.hosts), "port": server.port}
    options = {f"spark.cassandra.connection.{name}": value for name, value in place.items()}
    spark = session(
        "benchmark of TLS", master="local[2]", options={**options, f"{_SSL}.trustStore.password": _PASSWORD}
    )
    count = 0

    def rate(kind: str) -> float:
        nonlocal count
        count += 1
        for name, value in ((f"{_SSL}.enabled", "true"), (f"{_SSL}.trustStore.path", str(store))):
            if kind == OVER_TLS:
                spark.conf.set(name, value)
            else:
                spark.conf.unset(name)
        data, metadata = TableName(f"ingest{count}", "data"), TableName(f"ingest{count}", "metadata")
        source = SourcePlan(address=str(tree.root))
        report = ingest.run(spark, plan=IngestPlan(source=source, data_table=data, metadata_table=metadata))
        if report.images != tree.files:
            raise RuntimeError(f"Wanted {tree.files:,} pictures. Found: {report}")
        with server.session() as control:  # the next run finds as much room
            control.execute(f"DROP KEYSPACE ingest{count}", timeout=120)
        return report.images_per_s

    try:
        for kind in (PLAIN, OVER_TLS):
            rate(kind)
        return in_turn(pairs, {kind: partial(rate, kind) for kind in (OVER_TLS, PLAIN)}, told=_told)
    finally:
        spark.stop()


def _told(kind: str, rate: float) -> str:
    return f"ingest {kind}: {rate:,.0f} images/s"
