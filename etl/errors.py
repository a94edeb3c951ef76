"""The exception tree of this package, drawn in the package's docstring."""


class EtlError(Exception):
    """A job cannot go on; the message is the one line that its user reads."""


class UnreachableError(EtlError):
    """Cassandra does not answer, or refuses us."""


class SourceError(EtlError):
    """A folder holds nothing that can be ingested."""


class ConflictError(EtlError):
    """Rows are there already, from another source."""


class TableError(EtlError):
    """A table is missing, empty, or has other columns or values than the job can use."""


class WeightsError(EtlError):
    """Class weights do not fit the classes."""


class OutputExistsError(EtlError):
    """The place for the output is taken."""


def one_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__
