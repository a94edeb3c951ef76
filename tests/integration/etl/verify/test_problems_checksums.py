"""The checksum of an image is what Spark computes of the columns of its data row."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from etl.verify.plan import Check
from etl.verify.problems import blob_digests
from formats.checksums import checksum
from schemas import Columns
from schemas.tables import LabelType

IMAGES = [bytes(number % 251 for number in range(size)) for size in (*range(70), 1000, 110_001)]


def test_spark_computes_the_same_checksum_as_the_writer_and_the_loader(spark: SparkSession) -> None:
    rows = [(bytearray(16), bytearray(image), bytearray(image[::2])) for image in IMAGES]
    table = spark.createDataFrame(rows, "id BINARY, data BINARY, label BINARY")
    alone, both = (
        [row.found for row in table.select(F.xxhash64(*columns).alias("found")).collect()]
        for columns in (["data"], ["data", "label"])
    )
    assert alone == [checksum(image) for image in IMAGES]
    assert both == [checksum(image, image[::2]) for image in IMAGES]
    assert min(alone) < 0 < max(alone)


def test_a_verification_computes_checksums_with_masks_and_of_no_missing_image(spark: SparkSession) -> None:
    table = spark.sql("SELECT uuid() AS id, X'00ff' AS data, X'01' AS label UNION ALL SELECT uuid(), null, X'01'")

    def found(check: Check, label_type: LabelType | None) -> set[int | None]:
        rows = table.transform(blob_digests, columns=Columns(), check=check, label_type=label_type)
        return {row.checksum for row in rows.collect()}

    assert found("hashes", "blob") == {checksum(b"\x00\xff", b"\x01"), None}
    assert found("hashes", None) == {checksum(b"\x00\xff"), None}
    assert found("sizes", "blob") == {None}
