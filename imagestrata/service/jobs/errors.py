"""Errors before a job has started."""

from collections.abc import Sequence

from imagestrata.service.errors import ServiceError


class JobFileError(ServiceError):
    """A job file is invalid. Each of ``problems`` is a line ``FILE:LINE: Wanted ... Found: ...``."""

    title = "Invalid job file"

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class JobError(ServiceError):
    """A job cannot be started here."""

    title = "The job cannot be started"
