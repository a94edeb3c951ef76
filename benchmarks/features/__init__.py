"""The benchmark of the feature store."""
