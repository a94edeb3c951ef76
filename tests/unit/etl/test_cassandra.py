"""Connections to Cassandra that cannot be made."""

import pytest

from etl.cassandra import Control
from etl.cluster import Cluster
from etl.errors import UnreachableError


def test_a_cassandra_that_is_not_there_is_one_line() -> None:
    cluster = Cluster(("127.0.0.1",), 9)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1 port 9\.") as caught, Control(cluster):
        pass
    assert "\n" not in str(caught.value)
