"""The demo: it ingests, splits and reads real images, and writes a report. `make demo` installs what it needs."""

SPLITS = ("train", "val")
"""The folders of a tree with splits."""
