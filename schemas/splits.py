"""The schema of split files, for Arrow and for Spark.

``id``: the 16 big-endian bytes of the UUID (Spark writes no fixed-length type, so readers check the length).
``label``: the class number. ``position``: the row's position, 0..n-1, in the random order of its split.
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

SPARK_SCHEMA = "id BINARY NOT NULL, label INT NOT NULL, position BIGINT NOT NULL, split INT NOT NULL"

# The schema of splits without positions: readers compute the order.
UNPLACED_SCHEMA = "id BINARY NOT NULL, label INT NOT NULL, split INT NOT NULL"
