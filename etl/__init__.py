"""The Spark side: transforms of DataFrames, and access to Cassandra and storage.

Errors::

    EtlError(ImagestrataError)   a job cannot continue; its message is one line for the user
    ├── UnreachableError         Cassandra does not answer, or denies access
    ├── SourceError              a source has nothing that can be ingested
    ├── ConflictError            rows from another source exist already
    ├── TableError               a table is missing or empty, or has columns or values that a job cannot use
    ├── FunctionError            a feature function does not exist or cannot be used
    ├── WeightsError             class weights do not match the classes
    └── OutputExistsError        the output exists already
"""

from etl.errors import (
    ConflictError,
    EtlError,
    FunctionError,
    OutputExistsError,
    SourceError,
    TableError,
    UnreachableError,
    WeightsError,
)

__all__ = [
    "ConflictError",
    "EtlError",
    "FunctionError",
    "OutputExistsError",
    "SourceError",
    "TableError",
    "UnreachableError",
    "WeightsError",
]
