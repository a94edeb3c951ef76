"""The exception of this package."""

from schemas.errors import ImagestrataError


class TrainingError(ImagestrataError):
    """The training is not possible; the message says what was wanted, what was found and what to do."""


def one_line(error: Exception) -> str:
    """Another library's error, for the end of a message."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
