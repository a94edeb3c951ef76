"""The exceptions of this package. The package's docstring shows the tree."""

from schemas.errors import ImagestrataError


class EtlError(ImagestrataError):
    """A job cannot continue. The message is one line for the user."""


class UnreachableError(EtlError):
    """Cassandra does not answer, or denies access."""


class SourceError(EtlError):
    """A source has nothing that can be ingested."""


class ConflictError(EtlError):
    """What exists already contradicts the job: rows of another source, another numbering, a run at the same time."""


class TableError(EtlError):
    """A table is missing or empty, or has columns or values that a job cannot use."""


class FunctionError(EtlError):
    """A feature function does not exist or cannot be used."""


class WeightsError(EtlError):
    """Class weights do not match the classes."""


class OutputExistsError(EtlError):
    """The output exists already."""


def one_line(error: BaseException) -> str:
    """The message of an error, in one line."""
    return " ".join(str(error).split()) or type(error).__name__
