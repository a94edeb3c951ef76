"""The demo: real pictures into Cassandra, into splits, through DALI, onto a page. `make demo` installs all of it."""
