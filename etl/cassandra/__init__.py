"""Cassandra: control queries, tables as DataFrames, writes from executors, and records of tables and classes."""
