"""What a keyspace knows: its contents, definitions from files, what jobs made, and the lineage of all of it."""
