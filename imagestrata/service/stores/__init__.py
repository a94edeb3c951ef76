"""Where the service keeps versions: a folder or a bucket, and the space, blocks and staged bodies that they share."""
