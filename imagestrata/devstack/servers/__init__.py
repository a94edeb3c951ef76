"""The embedded servers: Cassandra, S3, the dataset service and a proxy that delays connections."""
