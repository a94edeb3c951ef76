"""The exceptions of this package. The package's docstring shows the tree."""


class ImagestrataError(Exception):
    """The base of every error that imagestrata raises on purpose. Its message is for the user; commands print it."""


class SchemaError(ImagestrataError, ValueError):
    """A name, table or file is not valid."""


class IdentifierError(SchemaError):
    """Cassandra does not accept a keyspace, table or column name without quotes."""


class FormatVersionError(SchemaError):
    """This version cannot read the manifest's format."""
