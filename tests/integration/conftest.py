"""Real services, shared by all processes of the run, for those who ask."""

from typing import TYPE_CHECKING

import pytest

from tests.support.services import cassandra, control, keyspace, s3, spark

if TYPE_CHECKING:
    from tests.support.trees import PlanOf

__all__ = ["cassandra", "control", "keyspace", "plan_of", "s3", "spark"]


@pytest.fixture
def plan_of() -> "PlanOf":
    """A maker of plans that write to tables of this test's own."""
    from tests.support.trees import plan_maker  # brings Spark

    return plan_maker()
