"""Table definitions, file schemas, image ids and manifests. This package imports no other package of the project.

Errors::

    ImagestrataError(Exception)      every error that imagestrata raises on purpose, in all packages
    └── SchemaError(ValueError)      a name, table or file is not valid
        ├── IdentifierError          Cassandra does not accept a keyspace, table or column name without quotes
        └── FormatVersionError       this version cannot read the manifest's format
"""

from schemas.errors import FormatVersionError, IdentifierError, ImagestrataError, SchemaError
from schemas.identity import image_id
from schemas.manifest import SplitFile, SplitManifest, SplitPart
from schemas.tables import Columns, TableName

__all__ = [
    "Columns",
    "FormatVersionError",
    "IdentifierError",
    "ImagestrataError",
    "SchemaError",
    "SplitFile",
    "SplitManifest",
    "SplitPart",
    "TableName",
    "image_id",
]
