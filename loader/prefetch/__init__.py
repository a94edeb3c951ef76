"""The engine: reads samples ahead of their use and puts batches together. It knows a fetcher, no store."""
