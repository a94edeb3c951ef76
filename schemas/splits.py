"""The schema of split files, for Arrow and for Spark.

``id``: the 16 big-endian bytes of the UUID (Spark writes no fixed-length type, so readers check the length).
``label``: the class number. ``position``: the row's position, 0..n-1, in the random order of its split. ``xxhash64``:
the checksum of the image, 0 if the metadata table has none of it; only if the table has the column.
"""

import pyarrow as pa

ID_BYTES = 16

ARROW_SCHEMA = pa.schema(
    [
        pa.field("id", pa.binary(), nullable=False),
        pa.field("label", pa.int32(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
    ]
)

# The columns of split files, in their order, with their types in Spark SQL. Splits without positions lack ``position``:
# readers compute the order.
SPARK_TYPES = {"id": "BINARY", "label": "INT", "position": "BIGINT", "xxhash64": "BIGINT", "split": "INT"}
