"""Vectors of images: an index of them in Cassandra, and the nearest neighbors of an image."""
