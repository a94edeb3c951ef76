"""WebDataset shards: their layout, and the folders that contain them."""
