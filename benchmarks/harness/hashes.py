"""Pseudo-random bytes for generated tables, as Spark expressions."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def hash_digits(*columns: Column | str) -> Column:
    """The hash of some columns as 16 hexadecimal digits. Spark 4 does not cast numbers to bytes."""
    return F.lpad(F.hex(F.xxhash64(*columns)), 16, "0")
