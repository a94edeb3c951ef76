"""What spark-submit runs. A job has options that make a plan, ``run(spark, *, plan)`` and a report."""

import warnings

# Spark 4.3 warns of pandas 3, with which the tests run.
warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
