"""Cassandra: control queries, tables as DataFrames, and writes from executors."""
