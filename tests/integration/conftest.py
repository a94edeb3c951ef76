"""Real services, shared by all processes of a run."""

from tests.support.services import cassandra, control, keyspace, plan_of, s3, spark

__all__ = ["cassandra", "control", "keyspace", "plan_of", "s3", "spark"]
