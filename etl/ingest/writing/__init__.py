"""Tasks that write the images of an ingest to tables or to a folder."""
