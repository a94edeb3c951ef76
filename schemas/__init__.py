"""The contracts as data: table definitions, split files, identities and manifests. Imports nothing of ours.

Errors::

    SchemaError(ValueError)      a name, a table or a file that does not keep its contract
    ├── IdentifierError          a keyspace, table or column name that Cassandra would not take unquoted
    └── FormatVersionError       a manifest written by a newer version of this software, or by something else
"""

from schemas.errors import FormatVersionError, IdentifierError, SchemaError
from schemas.identity import image_id
from schemas.manifest import SplitFile, SplitManifest, SplitPart
from schemas.tables import Columns, TableName

__all__ = [
    "Columns",
    "FormatVersionError",
    "IdentifierError",
    "SchemaError",
    "SplitFile",
    "SplitManifest",
    "SplitPart",
    "TableName",
    "image_id",
]
