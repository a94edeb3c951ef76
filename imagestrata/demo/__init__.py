"""The demo: real pictures from a folder into Cassandra, into splits, through DALI, onto a page. Not installed."""
