"""Writing the images of an ingest, in tasks: to tables, or to a folder."""
