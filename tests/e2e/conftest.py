"""Real services, shared by all processes of the run, for those who ask."""

from tests.support.services import cassandra, control, keyspace, s3, spark

__all__ = ["cassandra", "control", "keyspace", "s3", "spark"]
