"""An S3 server that stops during an ingest."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from jobs import ingest as job
from jobs.messages import executor_error
from tests.support.s3_access import use
from tests.support.trees import before_writing, picture, plan_maker


def test_a_server_that_stops_after_the_listing_fails_the_job(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with S3(tmp_path / "s3") as server:
        use(server, monkeypatch)
        server.make_bucket("ingest")
        store = Storage("s3://ingest/set", S3Access(server.endpoint, server.access_key, server.secret_key))
        for i in range(3):
            store.write_bytes(f"a/{i}.png", picture(i))
        before_writing(monkeypatch, server.stop)
        with pytest.raises(PySparkException) as caught:
            job.run(spark, plan=plan_maker()("s3://ingest/set", splits=()))
        assert server.endpoint in (executor_error(str(caught.value)) or "")
