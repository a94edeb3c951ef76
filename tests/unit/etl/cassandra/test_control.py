"""Failing connections to Cassandra."""

import pytest

from etl.cassandra.cluster import Cluster
from etl.cassandra.control import Control
from etl.errors import UnreachableError


def test_an_unreachable_cassandra_is_reported_in_one_line() -> None:
    cluster = Cluster(("127.0.0.1",), 9)
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1 port 9\.") as caught, Control(cluster):
        pass
    assert str(caught.value).startswith("Wanted Cassandra at 127.0.0.1 port 9. Found: connection refused. Start one")
