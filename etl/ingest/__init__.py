"""The ingest of a source into tables or a folder."""
