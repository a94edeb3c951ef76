"""What spark-submit runs. A job is a plan, a ``run(spark, *, plan)`` and a report; ``main`` alone makes a session."""
