"""Images from Cassandra."""
