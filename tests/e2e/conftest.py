"""Real services, shared by all processes of a run."""

from collections.abc import Iterator

import pytest

from tests.support import spark_start
from tests.support.services import cassandra, control, keyspace, plan_of, s3, spark
from tests.support.torch_threads import one_thread

__all__ = ["cassandra", "control", "keyspace", "plan_of", "s3", "spark"]

spark_start.use()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder for the loader's cache, and one thread for torch."""
    with one_thread(), pytest.MonkeyPatch.context() as environment:
        environment.setenv("IMAGESTRATA_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
