"""Splits on disk: folders and dictionaries, their cache, their fingerprint and their order."""
