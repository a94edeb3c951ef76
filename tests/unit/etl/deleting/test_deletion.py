"""The number of images that may be deleted."""

import pytest

from etl.deleting.deletion import check_count
from etl.deleting.plan import DeletePlan
from etl.errors import EtlError
from schemas import TableName

TABLES = (TableName("ks", "data"), TableName("ks", "metadata"))


def plan(count: int | None) -> DeletePlan:
    return DeletePlan(data_table=TABLES[0], metadata_table=TABLES[1], source="s", reason="r", count=count)


def test_more_than_one_percent_of_the_images_must_be_confirmed() -> None:
    for images, of, count in ((10, 1000, None), (11, 1000, 11), (0, 5, None), (10, 1000, 10)):
        check_count(images, of=of, plan=plan(count))
    for images, count, found in ((11, None, "no --count"), (11, 10, "--count 10"), (2, 3, "--count 3")):
        with pytest.raises(
            EtlError, match=rf"Wanted --count {images}, to delete {images} of 1,000 .* Found: {found}\."
        ):
            check_count(images, of=1000, plan=plan(count))
