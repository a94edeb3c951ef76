"""The exception tree of this package, drawn in the package's docstring."""


class SchemaError(ValueError):
    """A name, a table or a file does not keep its contract."""


class IdentifierError(SchemaError):
    """A name is not one that Cassandra takes for a keyspace, table or column."""


class FormatVersionError(SchemaError):
    """A manifest is of a format that this version does not read."""
