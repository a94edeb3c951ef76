"""WebDataset shards on disk: how samples are laid out in them, and the folders that publish them."""
