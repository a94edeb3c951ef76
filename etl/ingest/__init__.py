"""Ingesting a source into tables or a folder."""
