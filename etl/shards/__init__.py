"""Datasets as WebDataset shards: what is packed, where each image goes, and the task that writes a shard."""
