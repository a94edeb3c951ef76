"""Deleting images from the tables on request, with a record of each."""
