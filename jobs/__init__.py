"""What spark-submit runs. A job has options that make a plan, ``run(spark, *, plan)`` and a report."""
