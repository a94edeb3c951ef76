"""Histories of tables, run against a small fake of Cassandra: thousands in a minute, without a server or Spark."""
