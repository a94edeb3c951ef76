"""Errors before a job has started."""

from collections.abc import Sequence

from schemas.errors import ImagestrataError


class JobFileError(ImagestrataError):
    """A job file is invalid. Each of ``problems`` is a line ``FILE:LINE: Wanted ... Found: ...``."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class JobError(ImagestrataError):
    """A job cannot be started here."""
