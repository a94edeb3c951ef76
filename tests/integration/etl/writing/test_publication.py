"""Two runs that publish under one address of an S3 store at once, where nothing can be locked."""

import pytest

from imagestrata.devstack.servers.s3 import S3
from tests.support import s3_access
from tests.support.publications import check_turns


@pytest.mark.parametrize("overwrite", [True, False])
def test_of_two_runs_at_once_the_later_one_wins_as_a_whole_or_fails(
    s3: S3, keyspace: str, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    s3_access.use(s3, monkeypatch)
    s3.make_bucket(keyspace)
    for seed in range(20):
        check_turns(f"s3://{keyspace}/{seed}", seed=seed, overwrite=overwrite)
