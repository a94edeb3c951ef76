"""Real services, shared by all processes of a run."""

from typing import TYPE_CHECKING

import pytest

from tests.support.services import cassandra, control, keyspace, s3, spark

if TYPE_CHECKING:
    from tests.support.trees import PlanOf

__all__ = ["cassandra", "control", "keyspace", "plan_of", "s3", "spark"]


@pytest.fixture
def plan_of() -> "PlanOf":
    """A maker of plans that write to separate tables for each test."""
    from tests.support.trees import plan_maker  # imports Spark

    return plan_maker()
