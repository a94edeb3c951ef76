"""Storage of versions in a folder or a bucket, and what both share: space, bodies and staging."""
