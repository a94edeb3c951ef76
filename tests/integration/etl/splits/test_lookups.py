"""Ids that are looked up in a data table: the message names the likely cause."""

import re

import pytest
from pyspark.sql import SparkSession

from etl.cassandra.control import Control
from etl.errors import TableError
from etl.splits.lookups import check_pictures, draw_ids
from schemas import Columns, TableName, image_id
from tests.support.spark_rows import rows_of
from tests.support.split_caches import ids
from tests.support.tables import fill


def test_an_id_without_a_picture_is_named_with_the_likely_cause(
    spark: SparkSession, control: Control, keyspace: str
) -> None:
    data, metadata = TableName(keyspace, "data"), TableName(keyspace, "metadata")
    fill(spark, keyspace, columns=Columns(), labels=[0] * 20)
    known = [image_id(keyspace, b"", str(number).encode()).bytes for number in range(20)]

    def found(wanted: list[bytes]) -> str:
        with pytest.raises(TableError) as refused:
            check_pictures(control, wanted, data=data, metadata=metadata, columns=Columns())
        return str(refused.value)

    check_pictures(control, known, data=data, metadata=metadata, columns=Columns())
    lost = image_id(keyspace, b"", b"0")
    control.execute(f"DELETE FROM {data.quoted} WHERE id = ?", (lost,))
    assert re.match(
        rf"Wanted the images of {metadata} in {data}\. Found: 1 of 20 ids .*, such as {lost}, "
        rf"though {metadata} lists them\. .*verify\.py -d {data} -m {metadata}, .*--repair",
        found(known),
    )
    assert re.search(
        rf"Found: none of the 1 ids .*{lost}\. Do {data} and {metadata} belong together\? "
        r".*-d data_train -m metadata_val",
        found([lost.bytes]),
    )
    control.execute(f"DELETE FROM {metadata.quoted} WHERE id = ?", (lost,))
    assert re.search(rf"such as {lost}; {metadata} no longer lists them\. .*--metadata-ofn", found(known))


def test_a_sample_has_ids_of_every_split_and_follows_from_the_ids(spark: SparkSession) -> None:
    sizes = [3_000, 1_000, 5, 0]
    rows = [(one, number) for number, size in enumerate(sizes) for one in ids(size, name=str(number))]

    def drawn(partitions: int) -> set[bytes]:
        frame = rows_of(spark, rows, "id BINARY, split INT").repartition(partitions)
        return {bytes(row["id"]) for row in frame.transform(draw_ids, sizes=sizes).collect()}

    sample = drawn(1)
    assert sample == drawn(3)
    of_split = [len(sample & set(ids(size, name=str(number)))) for number, size in enumerate(sizes)]
    assert of_split[2:] == [5, 0]
    assert all(140 < count < 260 for count in of_split[:2])
