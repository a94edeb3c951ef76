"""Which versions of Spark, pyspark and Python fit together."""

import os
import sys

from etl.errors import EtlError


def check_versions(spark: str, pyspark: str) -> None:
    """Raise `EtlError` if Spark, which SPARK_HOME can replace, does not fit pyspark or this Python."""
    home = os.environ.get("SPARK_HOME")
    place = f"Spark {spark}" + (f" in SPARK_HOME={home}" if home else "")
    if spark.startswith("3.") and sys.version_info >= (3, 12):
        python = ".".join(map(str, sys.version_info[:2]))
        raise EtlError(
            f"Wanted Python 3.11 for Spark {spark}. Found: Python {python}, with {place}. Unset SPARK_HOME to use the "
            "installed Spark, or run the job with Python 3.11."
        )
    if spark.split(".")[:2] != pyspark.split(".")[:2]:
        raise EtlError(
            f"Wanted Spark {pyspark}, the version of the installed pyspark. Found: {place}. Unset SPARK_HOME, or "
            f"install 'pyspark=={spark}'."
        )
