"""A dataset service in a separate process, for all tests of a module; and buckets for others."""

import re
from collections.abc import Iterator

import pytest

from formats.stores.s3 import S3Access
from formats.stores.storage import Storage
from imagestrata.devstack.servers.s3 import S3
from tests.support.dataset_servers import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("service") / "root") as server:
        yield server


@pytest.fixture
def name(server: Server, request: pytest.FixtureRequest) -> str:
    """A new dataset for one test."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:90].strip("-")
    server.create(name)
    return name


@pytest.fixture
def storage(s3: S3, keyspace: str) -> Storage:
    """A prefix in a bucket for one test."""
    s3.make_bucket(keyspace)
    return Storage(f"s3://{keyspace}/all", S3Access(s3.endpoint, s3.access_key, s3.secret_key))


@pytest.fixture(params=["folder", "bucket"])
def bucket(request: pytest.FixtureRequest) -> Storage | None:
    """The bucket of a service, or None for a service over a folder."""
    return request.getfixturevalue("storage") if request.param == "bucket" else None
