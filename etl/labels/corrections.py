"""Corrections of labels, and the images that they were made for.

A correction belongs to the bytes that someone looked at. If the image has other bytes now, or an ingest has brought
another class since, its label is a newer one than the correction.
"""

from typing import Any, NamedTuple


class State(NamedTuple):
    """What an image is after a run: since which run, its SHA-256 (``b""`` if it has none), and its class number in the
    metadata (-1 if it has none). These are values of one image, or columns.
    """

    since: Any
    sha256: Any
    label: Any


class Seen(NamedTuple):
    """What was corrected: the run that added the correction, and the SHA-256 and the class number that the image had,
    as in `State`; both are None if that run did not record them.
    """

    run: int
    sha256: Any = None
    label: Any = None


def is_replaced(seen: Seen, now: State) -> Any:
    """Whether an image was replaced since a correction: a value, or a column. Runs of earlier versions did not record
    what they corrected: then any later run that changed the image counts.
    """
    if seen.sha256 is None:
        return now.since > seen.run
    return (now.sha256 != seen.sha256) | (now.label != seen.label)
