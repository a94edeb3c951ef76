"""Datasets as WebDataset shards: the images to pack, the shard of each image, and the tasks that write shards."""
