"""Cassandra: control queries, reading tables, writing from executors, and what is recorded of tables and classes."""
