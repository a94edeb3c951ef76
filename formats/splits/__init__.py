"""Splits on disk: folders, dictionaries, and the cache of opened splits."""
